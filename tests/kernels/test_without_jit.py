"""The kernels as plain Python: the same tests must pass without the compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="already without")
def test_kernels_pass_their_tests_without_the_compiler() -> None:
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "HYPOTHESIS_PROFILE": "quick"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    arguments = ["-q", "-p", "no:cacheprovider", "tests/index"]
    arguments += ["tests/kernels/test_order.py", "tests/kernels/test_runs.py"]
    # Few rows are joined like this in every process that has not loaded numba yet.
    arguments += ["tests/api/test_join_how.py", "tests/api/test_overlaps.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
