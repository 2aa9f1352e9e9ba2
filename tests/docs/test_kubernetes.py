"""The Kubernetes manifest: well-formed, whole in itself, and its job is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

FILE = Path(__file__).resolve().parents[2] / "docs" / "kubernetes.yaml"


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    return {found["kind"]: found for found in yaml.safe_load_all(FILE.read_text())}


def test_every_volume_is_declared_and_every_name_is_there(objects: dict[str, Any]) -> None:
    stateful = objects["StatefulSet"]["spec"]
    assert stateful["replicas"] == 1  # two would share a checkpoint
    assert stateful["selector"]["matchLabels"] == stateful["template"]["metadata"]["labels"]
    pod = stateful["template"]["spec"]
    [container] = pod["containers"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    assert volumes["job"]["configMap"]["name"] == objects["ConfigMap"]["metadata"]["name"]
    claim = volumes["data"]["persistentVolumeClaim"]["claimName"]
    assert claim == objects["PersistentVolumeClaim"]["metadata"]["name"]
    places = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert container["args"] == ["run", f"{places['job']}/job.toml"]
    assert {"name": "TMPDIR", "value": places["scratch"]} in container["env"]


def test_the_pod_has_no_more_rights_than_it_needs(objects: dict[str, Any]) -> None:
    pod = objects["StatefulSet"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    [container] = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    # What is written at home, or as scratch, has a volume to go to.
    scratch = next(m["mountPath"] for m in container["volumeMounts"] if m["name"] == "scratch")
    given = {one["name"]: one["value"] for one in container["env"]}
    assert given["HOME"] == given["TMPDIR"] == scratch


def test_its_job_is_one(objects: dict[str, Any], tmp_path: Path) -> None:
    from thetajoin.jobs.job_file import read_job

    text = objects["ConfigMap"]["data"]["job.toml"].replace("/data", str(tmp_path))
    for side in ("dc1", "dc2"):
        (tmp_path / "streams" / side).mkdir(parents=True)
        (tmp_path / "streams" / side / "0.parquet").touch()
    (tmp_path / "job.toml").write_text(text)
    job = read_job(tmp_path / "job.toml")
    assert job.streaming
    assert job.late == str(tmp_path / "late")
