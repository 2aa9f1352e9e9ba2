"""Processes that take turns."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.harness import in_turns, run_workload


def _steps(threads: int, scale: float) -> Iterator[dict[str, float]]:
    number = 0
    while True:
        number += 1
        yield {"process": os.getpid(), "step": number, "value": threads * scale}


def _breaks(threads: int, scale: float) -> Iterator[int]:
    yield 1
    raise ValueError(f"no second step with {threads}")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    return Path(__file__).stem


def test_each_process_goes_on_from_its_last_turn(here: str) -> None:
    found = in_turns(here, ["steps", "--scale", "0.5"], (1, 2), 3)
    assert {n: [turn["step"] for turn in turns] for n, turns in found.items()} == {
        1: [1, 2, 3],
        2: [1, 2, 3],
    }
    assert [found[n][0]["value"] for n in (1, 2)] == [0.5, 1.0]
    assert len({turn["process"] for turns in found.values() for turn in turns}) == 2


def test_a_process_that_fails_is_told_and_the_other_ended(here: str) -> None:
    with pytest.raises(RuntimeError, match=re.escape("ValueError: no second step with 1")):
        in_turns(here, ["breaks"], (1, 2), 2)


if __name__ == "__main__":
    assert sys.argv[1] in ("steps", "breaks")
    run_workload({"steps": _steps, "breaks": _breaks})
