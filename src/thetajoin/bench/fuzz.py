"""The fuzzer: random calls of the whole embedded surface against the naive join, row by row.

Cases, oracle and shrinker live beside the tests (`tests/fuzz`), so this needs a source checkout.
Case number i depends on the seed and i alone; blocks of cases are dealt out to processes.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from thetajoin.bench.harness import Report
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
    tests = tests_folder()
    begun = time.monotonic()
    count = max(1, round(cases * scale))
    blocks = [(n, min(n + BLOCK, first + count)) for n in range(first, first + count, BLOCK)]
    total = _Total(count, progress)
    for tally in _tallies(str(tests), seed, blocks, jobs or available_cores()):
        total.add(tally)
    if spark:
        progress(f"{spark} cases on Spark")
        total.add_spark(_module(str(tests), "fuzz.on_spark").trials(seed, spark))
    return total.report(time.monotonic() - begun)


def tests_folder() -> Path:
    """The folder of the tests, or an error that says what is missing."""
    folder = Path(__file__).resolve().parents[3] / "tests"
    if not (folder / "fuzz" / "trials.py").is_file():
        raise OptionError(
            "bench fuzz compares with tests/naive.py, which an installed package lacks: run it in "
            "a source checkout, with the package installed from there (pip install -e .)"
        )
    return folder


def _module(tests: str, name: str) -> Any:
    if tests not in sys.path:
        sys.path.insert(0, tests)
    return importlib.import_module(name)


def _block(tests: str, seed: int, start: int, stop: int) -> Any:
    """What a process does: a block of cases."""
    return _module(tests, "fuzz.trials").trials(seed, start, stop)


def _tallies(tests: str, seed: int, blocks: list[tuple[int, int]], jobs: int) -> Iterator[Any]:
    """The blocks' tallies as they come; a block that kills its process is cut down to the case."""
    _module(tests, "fuzz.trials")  # what processes send back is of its classes
    waiting = list(blocks)
    while waiting:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            running: dict[Future[Any], tuple[int, int]] = {
                pool.submit(_block, tests, seed, *block): block for block in waiting
            }
            lost = []
            for done in as_completed(running):
                try:
                    yield done.result()
                except BrokenProcessPool:
                    lost.append(running[done])
        waiting = []
        for start, stop in sorted(lost):
            if len(lost) <= jobs or stop - start < BLOCK:
                yield from _cut(tests, seed, start, stop)
            else:
                waiting.append((start, stop))


def _cut(tests: str, seed: int, start: int, stop: int) -> Iterator[Any]:
    """A block that may kill its process, in a process of its own, and in halves where it does."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            yield pool.submit(_block, tests, seed, start, stop).result()
            return
        except BrokenProcessPool:
            pass
    if stop - start == 1:
        yield _module(tests, "fuzz.trials").killed(seed, start)
        return
    middle = (start + stop) // 2
    yield from _cut(tests, seed, start, middle)
    yield from _cut(tests, seed, middle, stop)


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
