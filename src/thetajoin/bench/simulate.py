"""The simulated cluster: the streaming join's own units under faults, against the naive join.

The simulator and the oracle live beside the tests (`tests/simulation`), so this needs a source
checkout. Each history depends on its seed alone, and seeds follow each other: a history that goes
wrong is repeated by its own.
"""

from __future__ import annotations

import importlib
import importlib.util
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
        raise OptionError("bench simulate needs PySpark's classes: pip install 'thetajoin[spark]'")
    if histories < 1 or seed < 0 or jobs < 0:
        raise OptionError("--histories must be at least 1, and --seed and --jobs not negative")
    number = max(1, round(histories * scale))
    total = Total(number, progress)
    begun = time.monotonic()
    for tally in tallies(str(tests_folder()), seed, number, jobs or available_cores()):
        total.add(tally)
    return total.report(time.monotonic() - begun)


def tests_folder() -> Path:
    """The folder of the tests, or an error that says what is missing."""
    folder = Path(__file__).resolve().parents[3] / "tests"
    if not (folder / "simulation" / "run.py").is_file():
        raise OptionError(
            "bench simulate compares with tests/naive.py, which an installed package lacks: run it "
            "in a source checkout, with the package installed from there (pip install -e .)"
        )
    return folder


class Total:
    """What came of all histories."""

    def __init__(self, histories: int, progress: Progress) -> None:
        self._histories, self._progress = histories, progress
        self.done, self.rows = 0, 0
        self.wrong: list[dict[str, Any]] = []
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
            "failures": sorted(self.wrong, key=lambda found: found["case"])[:SHOWN],
        }
        return Report("simulate", figures, TARGETS, details)


def tallies(tests: str, first: int, number: int, jobs: int) -> Iterator[Any]:
    """The histories in blocks; a block that ends its process is cut until it is one history."""
    stop = first + number
    waiting = [(start, min(start + BLOCK, stop)) for start in range(first, stop, BLOCK)]
    jobs = min(jobs, len(waiting))
    if jobs == 1:  # here and now: a debugger can follow
        for block in waiting:
            yield _block(tests, *block)
        return
    while waiting:
        lost = []
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            running: dict[Future[Any], tuple[int, int]] = {
                pool.submit(_block, tests, *block): block for block in waiting
            }
            for done in as_completed(running):
                try:
                    yield done.result()
                except BrokenProcessPool:
                    lost.append(running[done])
        # Blocks that had not begun are lost with the others: only the first can have done it.
        waiting = sorted(lost)
        for block in waiting[:jobs]:
            yield from _alone(tests, *block)
        waiting = waiting[jobs:]


def _alone(tests: str, start: int, stop: int) -> Iterator[Any]:
    """A block in a process of its own, and in halves where that dies."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            yield pool.submit(_block, tests, start, stop).result()
            return
        except BrokenProcessPool:
            pass
    if stop - start == 1:
        yield _module(tests).died(start)
        return
    middle = (start + stop) // 2
    yield from _alone(tests, start, middle)
    yield from _alone(tests, middle, stop)


def _block(tests: str, start: int, stop: int) -> Any:
    """What a process does: a block of histories."""
    return _module(tests).simulate(start, stop)


def _module(tests: str) -> Any:
    if tests not in sys.path:
        sys.path.insert(0, tests)
    return importlib.import_module("simulation.run")
