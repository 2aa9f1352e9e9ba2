"""The same joins through Spark Connect."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def test_joins_through_connect_are_exact(spark: object, tmp_path: Path) -> None:
    """`spark` is asked for only to skip where Spark cannot run."""
    script = Path(__file__).with_name("connect_script.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "exact" in done.stdout
