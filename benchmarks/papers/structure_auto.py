"""The planner's choice against every fixed choice, over workloads of many kinds."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

import thetajoin as tj

# Structures that are ever the fastest at something; the others are there for comparison.
FIXED = ("po_join", "b_plus_tree", "im_tree", "pim_tree", "bi_sort", "wib_tree", "nested_loop")
# Pushes before the measurement, and seconds of a slice; the fastest few take this many more turns.
WARM, SLICE, FINALISTS, TURNS = 40, 0.04, 3, 7


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
        """The condition with about that many matches a row."""
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
    *(Workload(b, w, 1.0) for b in (1, 32, 512, 8192) for w in (10_000, 200_000)),
    *(Workload(b, 100_000, 1.0, skew=s) for b in (16, 2048) for s in ("zipf", "growing")),
    *(Workload(b, 100_000, 200.0) for b in (1, 64, 4096)),
    *(Workload(b, w, 5.0, 2) for b in (1, 64, 2048, 16_384) for w in (10_000, 200_000)),
]


class Running:
    """A join in its steady state, measured in slices of processor time."""

    def __init__(self, work: Workload, index: str) -> None:
        """Fill the window in large batches, then feed it enough for a choice to be made."""
        self._work, self._random, self._first = work, np.random.default_rng(9), 0
        schema = pa.schema([("a", pa.float64()), ("b", pa.float64())])
        options: dict[str, Any] = {"threads": 1, "merge": "inline", "index": index}
        self.join = tj.StreamJoin(
            work.condition,
            window=tj.CountWindow(work.window),
            left_schema=schema,
            right_schema=schema,
            **options,
        )
        filling = replace(work, batch=max(work.batch, work.window // 64))
        while self._first < work.window:
            self._push(filling)
        for _ in range(WARM):
            self._push(work)

    def _push(self, work: Workload) -> float:
        tables = [work.table(self._random, self._first, left=side) for side in (True, False)]
        self._first += work.batch
        start = time.process_time()
        self.join.push(*tables)
        return time.process_time() - start

    def slice(self, seconds: float) -> float:
        """Seconds a row, the merges that fall into the slice among them."""
        spent, rows = 0.0, 0
        while spent < seconds or rows < 4 * self._work.batch:
            spent += self._push(self._work)
            rows += 2 * self._work.batch
        return spent / rows

    @property
    def indexes(self) -> list[str]:
        """What the two sides are kept in."""
        assert self.join._state is not None
        return [store.config.index for store in self.join._state.stores.values()]


def compare(work: Workload, seconds: float) -> dict[str, Any]:
    """The planner's choice and the fixed ones on one workload, all running side by side.

    Every one gets some slices first; then those that may be the fastest take turns with the
    planner's, so that whatever disturbs the machine disturbs all of them.
    """
    names = [n for n in FIXED if n != "nested_loop" or work.window <= 10_000]
    running = {name: Running(work, name) for name in (*names, "auto")}
    spent = {name: [join.slice(seconds) for _ in range(3)] for name, join in running.items()}
    near = sorted(names, key=lambda name: min(spent[name]))[:FINALISTS]
    for _ in range(TURNS):
        for name in (*near, "auto"):
            spent[name].append(running[name].slice(seconds))
    middle = {name: sorted(spent[name][3:])[TURNS // 2] for name in (*near, "auto")}
    best = min(near, key=lambda name: middle[name])
    return {
        "best": best,
        "auto": running["auto"].indexes,
        "ratio": middle["auto"] / middle[best],
        "seconds_per_row": {name: min(values) for name, values in spent.items()},
    }


def auto_vs_best(scale: float) -> tuple[dict[str, float], dict[str, Any]]:
    """The worst of all workloads: time of the planner's choice over the best fixed choice."""
    chosen = WORKLOADS[:: max(1, round(1 / scale))] if scale < 1 else WORKLOADS
    details = {str(work): compare(work, SLICE) for work in chosen}
    return {"auto_vs_best": max(d["ratio"] for d in details.values())}, details
