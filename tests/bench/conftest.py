"""Benchmarks inside a process that has loaded all of the tests."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each measurement garbage is collected, which takes half a second in such a process."""
    monkeypatch.setattr("benchmarks.harness.gc.collect", lambda: 0)
