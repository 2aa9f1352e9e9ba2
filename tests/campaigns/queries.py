"""Random queries through `tj.sql`: no raw error, and the rows that DuckDB gives for all of it.

The grammar is in `tests/fuzz/queries.py`. One query in four has its words mixed up.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from benchmarks.harness import Report
from campaigns.blocks import Work, tallies
from thetajoin.engine.machine import available_cores
from thetajoin.errors import OptionError

BLOCK = 500  # queries a process runs at a time
SHOWN = 12  # failing queries in the report
TARGETS = {"queries": ">= 20,000", "raw_errors": "0", "wrong": "0", "refused_share": "< 0.02"}


def run(
    progress: Callable[[str], None],
    scale: float = 1.0,
    *,
    cases: int = 20_000,
    seed: int = 1,
    jobs: int = 0,
    first: int = 0,
) -> Report:
    """Run the queries from number `first` on."""
    for name, value in (("cases", cases), ("jobs", jobs), ("first", first)):
        if value < 0:
            raise OptionError(f"--{name} {value}: must not be negative")
    work = Work("fuzz.queries", "trials", "killed", (seed,))
    begun = time.monotonic()
    count = max(1, round(cases * scale))
    outcomes: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    failures: list[Any] = []
    for tally in tallies(work, first, count, BLOCK, jobs or available_cores()):
        outcomes += tally.outcomes
        reasons += tally.reasons
        failures += tally.failures
        progress(f"{outcomes.total():,} of {count:,} queries, {len(failures)} wrong")
    compared = outcomes["right"] + outcomes["wrong"]
    figures: dict[str, float | None] = {
        "queries": float(outcomes.total()),
        "wrong": float(outcomes["wrong"]),
        "raw_errors": float(outcomes["raw error"]),
        "compared": float(compared),
        "refused_share": outcomes["refused"] / max(1, compared + outcomes["refused"]),
        "seconds": time.monotonic() - begun,
    }
    failures.sort(key=lambda failure: len(failure.script))
    details = {
        "outcomes": dict(outcomes.most_common()),
        "reasons": dict(reasons.most_common(40)),
        "failures": [f"# query {f.number}: {f.why}\n{f.script}" for f in failures[:SHOWN]],
    }
    return Report("queries", figures, TARGETS, details)
