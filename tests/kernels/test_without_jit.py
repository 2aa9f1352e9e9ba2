"""The kernels as plain Python: the same tests must pass without the compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


KERNELS = ["tests/index", "tests/kernels/test_order.py", "tests/kernels/test_runs.py"]
# Few rows are joined like this in every process that has not loaded numba yet.
JOINS = ["tests/api/test_join_how.py", "tests/api/test_overlaps.py"]


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="already without")
@pytest.mark.parametrize(
    "tests",
    [JOINS[:1], pytest.param([*KERNELS, *JOINS[1:]], marks=pytest.mark.slow)],
    ids=["few", "all"],
)
def test_kernels_pass_their_tests_without_the_compiler(tests: list[str]) -> None:
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "HYPOTHESIS_PROFILE": "quick"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    arguments = ["-q", "-p", "no:cacheprovider", *tests]
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
