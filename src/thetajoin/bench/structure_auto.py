"""The planner's choice against every fixed choice, over workloads of many kinds."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import thetajoin as tj

# Structures that are ever the fastest at something; the others are there for comparison.
FIXED = ("po_join", "b_plus_tree", "im_tree", "pim_tree", "bi_sort", "wib_tree", "nested_loop")


@dataclass(frozen=True)
class Workload:
    """A stream: rows of each side in a batch, in the window, matches a row, and its condition."""

    batch: int
    window: int
    matches: float
    predicates: int = 1
    skew: str = "uniform"

    def __str__(self) -> str:
        return (
            f"batch {self.batch}, window {self.window}, {self.matches:g} matches, "
            f"{self.predicates} predicates, {self.skew}"
        )

    @property
    def condition(self) -> str:
        """The condition with about so many matches a row."""
        if self.predicates == 2:
            return "l.a < r.a AND l.b > r.b"
        return f"ABS(l.a - r.a) <= {self.matches / (2 * self.window)!r}"

    def table(self, random: np.random.Generator, first: int, *, left: bool) -> pa.Table:
        """The next batch of one side."""
        n = self.batch
        if self.predicates == 2:
            overlap = (2.0 * (self.matches / self.window) ** 0.5) ** 0.5
            shift = 0.0 if left else 1.0 - overlap
            return pa.table({"a": random.random(n) - shift, "b": random.random(n) + shift})
        a = random.random(n)
        if self.skew == "zipf":
            a = a**4
        elif self.skew == "growing":
            a = (first + np.arange(n) + a) / self.window
        return pa.table({"a": a, "b": random.random(n)})


WORKLOADS = [
    *(Workload(b, w, 1.0) for b in (1, 32, 512, 8192) for w in (10_000, 300_000)),
    *(Workload(b, 100_000, 1.0, skew=s) for b in (16, 2048) for s in ("zipf", "growing")),
    *(Workload(b, 100_000, 200.0) for b in (1, 64, 4096)),
    *(Workload(b, w, 5.0, 2) for b in (1, 64, 2048, 16_384) for w in (10_000, 200_000)),
]


def per_row(work: Workload, index: str, seconds: float = 0.25) -> float:
    """Seconds a row in the steady state, the merges that fall into the time among them."""
    random = np.random.default_rng(9)
    schema = pa.schema([("a", pa.float64()), ("b", pa.float64())])
    options: dict[str, Any] = {"threads": 1, "merge": "inline", "index": index}
    join = tj.StreamJoin(
        work.condition,
        window=tj.CountWindow(work.window),
        left_schema=schema,
        right_schema=schema,
        **options,
    )
    first = 0
    # The window fills as it will be fed, but faster: by at most sixty-four batches.
    while first < work.window:
        filling = Workload(max(work.batch, work.window // 64), *_rest(work))
        join.push(*(filling.table(random, first, left=side) for side in (True, False)))
        first += filling.batch
    warm = [_pair(work, random, first + i * work.batch) for i in range(20)]
    for pair in warm:
        join.push(*pair)
    first += 20 * work.batch
    spent, rows = 0.0, 0
    while spent < seconds or rows < 20 * work.batch:
        pair = _pair(work, random, first)
        first += work.batch
        start = time.process_time()
        join.push(*pair)
        spent += time.process_time() - start
        rows += work.batch
    return spent / (2 * rows)


def _rest(work: Workload) -> tuple[int, float, int, str]:
    return work.window, work.matches, work.predicates, work.skew


def _pair(work: Workload, random: np.random.Generator, first: int) -> list[pa.Table]:
    return [work.table(random, first, left=side) for side in (True, False)]


def auto_vs_best(scale: float) -> tuple[dict[str, float], dict[str, Any]]:
    """The worst of all workloads: time of the planner's choice over the best fixed choice."""
    details: dict[str, Any] = {}
    worst = 0.0
    for work in WORKLOADS[:: max(1, round(1 / scale))] if scale < 1 else WORKLOADS:
        names = [n for n in FIXED if n != "nested_loop" or work.window <= 10_000]
        spent = {name: per_row(work, name) for name in names}
        spent["auto"] = per_row(work, "auto")
        best = min(names, key=lambda name: spent[name])
        # The two that count are measured again, in turns: the first round may have been disturbed.
        again = {n: [spent[n]] + [per_row(work, n) for _ in range(2)] for n in (best, "auto")}
        ratio = sorted(again["auto"])[1] / sorted(again[best])[1]
        details[str(work)] = {"best": best, "ratio": ratio, "seconds_per_row": spent}
        worst = max(worst, ratio)
    return {"auto_vs_best": worst}, details
