"""The simulated cluster: the streaming join's own units under faults, against the naive join.

The simulator and the oracle are in `tests/simulation`. Each history depends on its seed alone, and
seeds follow each other: a history that goes wrong is repeated by its own.
"""

from __future__ import annotations

import importlib.util
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from benchmarks.harness import Report
from campaigns.blocks import Work, tallies
from thetajoin.engine.machine import available_cores
from thetajoin.errors import OptionError

HISTORIES = 100_000
BLOCK = 100  # histories a process runs at a time
SHOWN = 20  # wrong histories in the report
TARGETS = {"histories": f">= {HISTORIES:,}", "wrong": "0", "seconds": "<= 3,600"}
Progress = Callable[[str], None]


def run(
    progress: Progress,
    scale: float = 1.0,
    *,
    histories: int = HISTORIES,
    seed: int = 0,
    jobs: int = 0,
) -> Report:
    """Run the histories of `seed` and those after it, in as many processes as there are cores."""
    if importlib.util.find_spec("pyspark") is None:
        raise OptionError(
            "campaign simulate needs PySpark's classes: pip install 'thetajoin[spark]'"
        )
    if histories < 1 or seed < 0 or jobs < 0:
        raise OptionError("--histories must be at least 1, and --seed and --jobs not negative")
    number = max(1, round(histories * scale))
    total = Total(number, progress)
    begun = time.monotonic()
    work = Work("simulation.run", "simulate", "died")
    for tally in tallies(work, seed, number, BLOCK, jobs or available_cores()):
        total.add(tally)
    return total.report(time.monotonic() - begun)


class Total:
    """What came of all histories."""

    def __init__(self, histories: int, progress: Progress) -> None:
        self._histories, self._progress = histories, progress
        self.done, self.rows = 0, 0
        self.wrong: list[tuple[int, str, str]] = []
        self.faults: Counter[str] = Counter()
        self.origins: Counter[str] = Counter()

    def add(self, tally: Any) -> None:
        """Add a block of histories."""
        self.done += tally.histories
        self.rows += tally.rows
        self.wrong += tally.wrong
        self.faults += tally.faults
        self.origins += tally.origins
        self._progress(
            f"{self.done:,} of {self._histories:,} histories, {len(self.wrong)} of them wrong"
        )

    def report(self, seconds: float) -> Report:
        """The figures, the faults by kind, and what repeats the histories that went wrong."""
        self.wrong.sort()
        figures: dict[str, float | None] = {
            "histories": self.done,
            "wrong": len(self.wrong),
            "faults": self.faults.total(),
            "rows_compared": self.rows,
            "histories_per_minute": 60 * self.done / seconds,
            "seconds": seconds,
        }
        details = {
            "faults": dict(self.faults.most_common()),
            "units_from": dict(self.origins.most_common()),
            "failures": [{"case": case, "why": why} for case, why, _ in self.wrong],
            "scripts": [script for _, _, script in self.wrong[:SHOWN]],
        }
        return Report("simulate", figures, TARGETS, details)
