"""The fuzzer: random calls of the whole embedded surface against the naive join, row by row.

Cases, oracle and shrinker are in `tests/fuzz`. Case number i depends on the seed and i alone;
blocks of cases are dealt out to processes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.harness import Report
from campaigns.blocks import Work, tallies
from thetajoin.engine.machine import available_cores
from thetajoin.errors import OptionError

BLOCK = 250  # cases a process runs at a time
SHOWN = 12  # scripts of failing cases in the report
TARGETS = {"cases": ">= 100,000", "wrong": "0", "refused_share": "< 0.05", "seconds": "< 3,600"}


def run(
    progress: Callable[[str], None],
    scale: float = 1.0,
    *,
    cases: int = 100_000,
    seed: int = 1,
    jobs: int = 0,
    spark: int = 0,
    first: int = 0,
) -> Report:
    """Run the cases from number `first` on, and `spark` of them once more in a Spark session."""
    for name, value in (("cases", cases), ("jobs", jobs), ("spark", spark), ("first", first)):
        if value < 0:
            raise OptionError(f"--{name} {value}: must not be negative")
    work = Work("fuzz.trials", "trials", "killed", (seed,))
    begun = time.monotonic()
    count = max(1, round(cases * scale))
    total = _Total(count, progress)
    for tally in tallies(work, first, count, BLOCK, jobs or available_cores()):
        total.add(tally)
    if spark:
        progress(f"{spark} cases on Spark")
        total.add_spark(replace(work, module="fuzz.on_spark").load().trials(seed, spark))
    return total.report(time.monotonic() - begun)


class _Total:
    """All tallies together."""

    def __init__(self, cases: int, progress: Callable[[str], None]) -> None:
        self.cases, self.progress = cases, progress
        self.outcomes: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.failures: list[Any] = []
        self.disagreements: list[Any] = []
        self.done = 0
        self.spark: Any = None

    def add(self, tally: Any) -> None:
        """Add a block."""
        self.outcomes += tally.outcomes
        self.reasons += tally.reasons
        self.failures += tally.failures
        self.disagreements += tally.disagreements
        self.done += tally.cases
        self.progress(f"{self.done:,} of {self.cases:,} cases, {len(self.failures)} wrong")

    def add_spark(self, tally: Any) -> None:
        """Add what ran on Spark."""
        self.spark = tally
        self.failures += tally.failures
        self.disagreements += tally.disagreements

    def report(self, seconds: float) -> Report:
        """The figures, and scripts of what failed."""
        refused = sum(n for name, n in self.outcomes.items() if name == "refused")
        made = self.done - sum(n for name, n in self.outcomes.items() if name.startswith("garbage"))
        figures: dict[str, float | None] = {
            "cases": float(self.done),
            "wrong": float(len(self.failures)),
            "refused_share": refused / max(1, made),
            "duckdb_cases": float(self.outcomes["asked DuckDB"]),
            "peers_differ": float(len(self.disagreements)),
            "spark_cases": float(self.spark.cases) if self.spark else 0.0,
            "cases_per_second": self.done / seconds,
            "seconds": seconds,
        }
        details = {
            "outcomes": dict(self.outcomes.most_common()),
            "reasons": dict(self.reasons.most_common(40)),
            "scripts": [_shown(failure) for failure in self._some(self.failures)],
            "disagreements": [_shown(failure) for failure in self.disagreements[:SHOWN]],
        }
        return Report("fuzz", figures, TARGETS, details)

    def _some(self, failures: list[Any]) -> list[Any]:
        """One of each kind first, the shortest script of it."""
        by_kind: dict[str, list[Any]] = {}
        for failure in sorted(failures, key=lambda failure: len(failure.script)):
            by_kind.setdefault(failure.why, []).append(failure)
        return [found[0] for found in by_kind.values()][: 3 * SHOWN]


def _shown(failure: Any) -> str:
    return f"# case {failure.number}: {failure.why}\n{failure.script}"
