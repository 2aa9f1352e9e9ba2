"""Hypothesis profiles, and one worker for all tests that need Spark."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).resolve().parent.parent
collect_ignore = ["api/typed"]  # read by mypy, never run

_common = {
    "deadline": None,  # the first example of a test may compile a kernel
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
    "print_blob": True,
}
settings.register_profile("default", derandomize=True, max_examples=40, **_common)
settings.register_profile("quick", derandomize=True, max_examples=8, **_common)
settings.register_profile("thorough", max_examples=1000, **_common)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


class _OneSession(LoadScopeScheduling):
    """Tests that need Spark go to one worker and share its session; all others to any."""

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if _needs_session(nodeid.partition("::")[0]) else nodeid


@cache
def _needs_session(file: str) -> bool:
    """Whether a file's tests use the session; whoever spreads them knows only their names."""
    return file.startswith("tests/spark/") and "mark.spark" in (ROOT / file).read_text()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _OneSession:
    """xdist's own `loadgroup` ignores groups under the newest pytest."""
    return _OneSession(config, log)
