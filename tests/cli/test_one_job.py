"""A checkpoint has one job at a time."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from thetajoin.errors import OptionError
from thetajoin.jobs.stream import only_job_on

fcntl = pytest.importorskip("fcntl", reason="this system has no such locks")

HOLDER = """
import sys, time
from pathlib import Path
from thetajoin.jobs.stream import only_job_on
with only_job_on(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_job_is_refused_until_the_first_is_gone_however_it_ends(tmp_path: Path) -> None:
    checkpoint = tmp_path / "jobs" / "ck"
    first = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(checkpoint)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        with (
            pytest.raises(OptionError, match=rf"process {first.pid}\) runs on .*ck: stop it"),
            only_job_on(checkpoint),
        ):
            raise AssertionError("two jobs at once")
        with only_job_on(tmp_path / "jobs" / "other"):
            pass
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
        first.stdout.close()
    with only_job_on(checkpoint):
        pass
    with only_job_on(checkpoint):
        pass
    assert not checkpoint.exists(), "the lock lies beside it: Spark's own files are Spark's"


def test_a_job_without_a_checkpoint_shares_nothing() -> None:
    with only_job_on(None), only_job_on(None):
        pass
