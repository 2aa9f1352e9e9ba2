"""A Spark cluster of a master and two workers, whose Python has nothing but what is sent along.

The workers' Python is an environment without packages. thetajoin and all that it needs travel with
`spark-submit --archives`, as docs/clusters.md says.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

TESTS = Path(__file__).resolve().parent.parent
SOURCE = TESTS.parent / "src" / "thetajoin"


def needed(extra: str = "spark") -> set[str]:
    """The distributions that thetajoin needs with an extra, but for PySpark, which is Spark's."""
    found: set[str] = set()
    waiting = [(name, extra) for name in ("thetajoin",)]
    while waiting:
        name, extra = waiting.pop()
        for text in metadata.requires(name) or []:
            wanted = re.match(r"[\w.-]+", text)
            assert wanted
            marker = re.search(r"extra == ['\"]([\w.-]+)['\"]", text)
            if marker and marker[1] != extra:
                continue
            try:
                metadata.distribution(wanted[0])
            except metadata.PackageNotFoundError:  # for another system or version
                continue
            if wanted[0].lower() not in found | {"pyspark"}:
                found.add(wanted[0].lower())
                waiting.append((wanted[0], ""))
    return found


def packed(target: Path) -> None:
    """An archive with the library, what it needs, and the tests' oracle."""
    with tarfile.open(target, "w") as archive:
        archive.add(SOURCE, "thetajoin", filter=_no_caches)
        for distribution in sorted(needed()):
            for file in metadata.distribution(distribution).files or []:
                place = Path(str(file.locate()))
                if ".." not in file.parts and place.is_file() and place.suffix != ".pyc":
                    archive.add(place, str(file))


def _no_caches(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in member.name else member


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A master and two workers with one core each; ended with the test."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    import pyspark

    from thetajoin.spark.session import SparkError, use_java

    try:
        use_java(tmp_path)
    except SparkError as error:
        pytest.skip(str(error))
    home = Path(pyspark.__file__).parent
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env |= {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    env |= {"SPARK_WORKER_DIR": str(tmp_path / "work"), "SPARK_DAEMON_MEMORY": "512m"}
    port, address = free_port(), "127.0.0.1"
    log = (tmp_path / "cluster.log").open("wb")
    started = []

    def start(*words: str) -> None:
        command = [str(home / "bin" / "spark-class"), *words]
        started.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))

    name = "org.apache.spark.deploy"
    try:
        ports = ["--host", address, "--webui-port", "0"]
        start(f"{name}.master.Master", "--port", str(port), *ports)
        master = f"spark://{address}:{port}"
        for _ in range(2):
            start(f"{name}.worker.Worker", "--cores", "1", "--memory", "1g", *ports, master)
        until = time.monotonic() + 180
        text = ""
        while text.count("Registering worker") < 2 and time.monotonic() < until:
            time.sleep(0.5)
            text = (tmp_path / "cluster.log").read_text(errors="replace")
        assert text.count("Registering worker") == 2, text[-3000:]
        yield {"master": master, "home": home, "env": env}
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(30)
        log.close()


def test_workers_that_have_only_what_is_sent(tmp_path: Path, cluster: dict[str, Any]) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    python = str(bare / "bin" / "python")
    ask = [python, "-c", "import thetajoin"]
    lacks = subprocess.run(ask, env=cluster["env"], capture_output=True, check=False)
    assert lacks.returncode != 0
    archive, here, data = tmp_path / "deps.tar", tmp_path / "deps", tmp_path / "data"
    packed(archive)
    with tarfile.open(archive) as file:
        file.extractall(here, filter="tar")
    data.mkdir()
    settings = {
        "spark.executorEnv.PYTHONPATH": f"deps{os.pathsep}{TESTS}",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        "spark.executor.memory": "700m",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    words = [str(cluster["home"] / "bin" / "spark-submit"), "--master", cluster["master"]]
    words += ["--archives", f"{archive}#deps"]
    for name, value in settings.items():
        words += ["--conf", f"{name}={value}"]
    # The driver's own Python process, which asks for the state's columns, is of the same Python.
    env = cluster["env"] | {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": sys.executable}
    done = subprocess.run(
        [*words, str(TESTS / "spark" / "standalone_job.py"), str(data)],
        env=env | {"PYTHONPATH": os.pathsep.join([str(here), str(TESTS)])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads((data / "told.json").read_text())
    assert told["executors"] == 2
    assert told["pythons"] == [python]
    assert all("/deps/thetajoin/" in file for file in told["libraries"])
    assert str(SOURCE) not in "".join(told["libraries"])
    assert told["rows"]
