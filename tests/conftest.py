"""Hypothesis profiles, and one worker for all tests that need Spark."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

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
        return "spark" if nodeid.startswith("tests/spark/") else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _OneSession:
    """xdist's own `loadgroup` ignores groups under the newest pytest."""
    return _OneSession(config, log)
