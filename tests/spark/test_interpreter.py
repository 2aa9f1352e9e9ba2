"""Workers whose Python lacks this package are named before a join starts, if that can be known."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.serializers import CloudPickleSerializer

import thetajoin
from thetajoin.spark import session
from thetajoin.spark.session import SparkError, check_workers
from thetajoin.spark.tasks import wrap_task

HIDDEN = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "thetajoin":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""


class Session:
    """What is asked of a session."""

    def __init__(
        self, python: str, master: str = "local[2]", files: Any = (), **settings: str
    ) -> None:
        self.sparkContext = SimpleNamespace(
            pythonExec=python,
            master=master,
            listFiles=list(files),
            getConf=lambda: {key.replace("_", "."): value for key, value in settings.items()},
        )


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """A Python without thetajoin."""
    (tmp_path / "sitecustomize.py").write_text(HIDDEN)
    program = tmp_path / "bare-python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    program.chmod(0o755)
    return str(program)


@pytest.fixture
def old(tmp_path: Path) -> str:
    """A Python with another version of it."""
    (tmp_path / "thetajoin.py").write_text('__version__ = "0.0.1"\n')
    program = tmp_path / "old-python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    program.chmod(0o755)
    return str(program)


def test_a_python_without_it_is_named_with_what_to_set(bare: str) -> None:
    for master in ("local", "local[*]", "local-cluster[2,1,1024]"):
        with pytest.raises(SparkError) as error:
            check_workers(Session(bare, master))
        said = str(error.value)
        assert f"run {bare}, which has no thetajoin" in said
        assert "environment variable PYSPARK_PYTHON (or spark-submit's" in said
        assert f"to {sys.executable} before" in said


def test_another_version_is_named(old: str) -> None:
    with pytest.raises(SparkError, match=rf"has thetajoin 0\.0\.1, not {thetajoin.__version__}"):
        check_workers(Session(old))


def test_a_python_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SparkError, match="cannot be started"):
        check_workers(Session(str(tmp_path / "nowhere")))


def test_the_right_one_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(sys.executable)
    check_workers(session)
    monkeypatch.setattr("thetajoin.spark.session._problem", lambda _: pytest.fail("asked again"))
    check_workers(session)


@pytest.mark.parametrize(
    "more",
    [
        {"master": "yarn"},
        {"master": "spark://host:7077"},
        {"master": "k8s://https://host"},
        {"files": ["thetajoin.zip"]},
        {"spark_submit_pyFiles": "thetajoin.zip"},
        {"spark_archives": "environment.tar.gz"},
    ],
)
def test_what_cannot_be_known_is_no_error(bare: str, more: dict[str, Any]) -> None:
    check_workers(Session(bare, **more))


def test_a_busy_machine_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: Any, **__: Any) -> None:
        raise subprocess.TimeoutExpired("python", 30)

    monkeypatch.setattr(subprocess, "run", slow)
    check_workers(Session(sys.executable))


@pytest.mark.parametrize("local", [True, False])
def test_connect_is_asked_where_its_server_is_here(
    bare: str, monkeypatch: pytest.MonkeyPatch, local: bool
) -> None:
    Remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    monkeypatch.setenv("PYSPARK_PYTHON", bare)
    if not local:
        monkeypatch.delenv("SPARK_LOCAL_REMOTE", raising=False)
        check_workers(Remote())
        return
    monkeypatch.setenv("SPARK_LOCAL_REMOTE", "1")
    with pytest.raises(SparkError, match="has no thetajoin"):
        check_workers(Remote())


@pytest.mark.parametrize(("blocked", "says"), [(True, "has no thetajoin"), (False, "[2, 4]")])
def test_a_task_says_what_its_worker_lacks(tmp_path: Path, blocked: bool, says: str) -> None:
    """On a cluster the task is the first to know; it is opened as a worker opens it."""

    def task(batches: Any) -> Any:
        for batch in batches:
            yield pa.RecordBatch.from_arrays([pa.array([2 * v.as_py() for v in batch["x"]])], ["x"])

    (tmp_path / "task").write_bytes(CloudPickleSerializer().dumps(wrap_task(task)))
    script = f"""
        from pathlib import Path
        import pyarrow as pa
        from pyspark.serializers import CloudPickleSerializer
        run = CloudPickleSerializer().loads(Path({str(tmp_path / "task")!r}).read_bytes())
        batch = pa.RecordBatch.from_pydict({{"x": [1, 2]}})
        print([made["x"].to_pylist() for made in run([batch])][0])
    """
    done = subprocess.run(
        [sys.executable, "-c", (HIDDEN if blocked else "") + textwrap.dedent(script)],
        env=os.environ | {"PYTHONPATH": str(Path(thetajoin.__file__).parent.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == int(blocked)
    last = (done.stderr if blocked else done.stdout).strip().splitlines()[-1]
    assert says in last
    if blocked:
        assert last.startswith(f"RuntimeError: this worker runs {sys.executable}")
        assert "PYSPARK_PYTHON" in last


@pytest.mark.spark
def test_a_real_session(spark: Any, bare: str, monkeypatch: pytest.MonkeyPatch) -> None:
    session._fine.pop(spark, None)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", bare)
    rows = spark.range(3)
    for call in (
        lambda: thetajoin.join(rows, rows, "l.id < r.id"),
        lambda: thetajoin.self_join(rows, "l.id < r.id"),
        lambda: thetajoin.join_agg(rows, rows, "l.id < r.id", aggs={"n": "count(*)"}),
        lambda: thetajoin.join_many({"a": rows, "b": rows}, "a.id < b.id"),
    ):
        with pytest.raises(SparkError, match="PYSPARK_PYTHON"):
            call()
    monkeypatch.undo()
    assert thetajoin.join(rows, rows, "l.id < r.id").count() == 3
