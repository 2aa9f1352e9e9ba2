"""Hypothesis profiles, and how the tests are spread over workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

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


@pytest.fixture
def set_limits() -> Iterator[Callable[..., None]]:
    """Sets thresholds of `thetajoin.limits` for the rest of a test."""
    from thetajoin.limits import change_limits

    with ExitStack() as until_the_end:
        yield lambda **values: until_the_end.enter_context(change_limits(**values))


class _FewSessions(LoadScopeScheduling):
    """One worker begins with the files that need Spark, the others with all other tests.

    A session takes long to start, so the others start one only when nothing else is left.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if _needs_session(file) else nodeid

    def _assign_work_unit(self, node: WorkerController) -> None:
        of_spark = node is self.nodes[0]
        first = (scope for scope in self.workqueue if _needs_session(scope) is of_spark)
        self.workqueue.move_to_end(next(first, next(iter(self.workqueue))), last=False)
        super()._assign_work_unit(node)


@cache
def _needs_session(file: str) -> bool:
    """Whether a file's tests use the session; whoever spreads them knows only their names."""
    at = ROOT / file
    return file.startswith("tests/spark/") and at.is_file() and "mark.spark" in at.read_text()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _FewSessions:
    """xdist's own `loadgroup` ignores groups under the newest pytest."""
    return _FewSessions(config, log)
