"""Whose join of tables with an equality costs less on Spark: the constants that `auto` uses.

Joins and nearest matches of several sizes, widths, and numbers of rows a key, each by both engines
and by the choice that thetajoin makes. The constants are fitted to the seconds of both.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import thetajoin as tj
from benchmarks.harness import Report, alternate
from benchmarks.spark_batch import tables, through
from benchmarks.spark_stream import spark_on

CORES = 2
ROUNDS = 3
ENGINES = ("thetajoin", "spark", "auto")
TARGETS = {"worst_choice": ">= 0.9", "median_choice": ""}
# A row's columns but for its texts.
NUMBERS = 3


@dataclass(frozen=True)
class Workload:
    """A join of two tables of `rows` each, with that many text columns and that many keys.

    within: how far apart matches are, of 1; None for a nearest match.
    """

    rows: int
    texts: int
    keys: int
    within: float | None

    @property
    def name(self) -> str:
        """What tells it from others."""
        kind = "nearest" if self.within is None else f"within {self.within:g}"
        return f"{self.rows:,} rows, {self.texts} texts, {self.keys:,} keys, {kind}"

    @property
    def pairs(self) -> float:
        """With equal keys."""
        return float(self.rows) ** 2 / self.keys

    @property
    def matches(self) -> float:
        """How many pairs match."""
        within = self.within or 0.0
        return self.pairs * (2 * within - within**2)

    @property
    def bytes(self) -> int:
        """Of a row."""
        return 8 * NUMBERS + 16 * self.texts

    def table(self, seed: int) -> pa.Table:
        """One side."""
        rng = np.random.default_rng(seed)
        columns: dict[str, Any] = {
            "k": rng.integers(0, self.keys, self.rows),
            "x": rng.random(self.rows),
            "n": rng.permutation(self.rows),
        }
        words = pa.array([f"word number {at}" for at in range(5000)])
        for at in range(self.texts):
            columns[f"s{at}"] = words.take(pa.array(rng.integers(0, 5000, self.rows)))
        return pa.table(columns)

    def query(self, sides: Sequence[Any], engine: Any) -> Any:
        """The join by one engine."""
        left, right = sides
        if self.within is None:
            by, order = "k", "n"
            return tj.nearest(left, right, key="x", by=by, order_by=order, engine=engine)
        on = f"l.k = r.k AND ABS(l.x - r.x) <= {self.within}"
        return tj.join(left, right, on, engine=engine)


def workloads(scale: float) -> list[Workload]:
    """Small and large, narrow and wide, few and many rows a key, few and many matches."""
    found = []
    for rows, texts in ((10_000, 0), (100_000, 0), (1_000_000, 0), (100_000, 8), (400_000, 8)):
        count = max(1000, round(rows * scale))
        joins = ((1, 1.0), (30, 0.001), (30, 0.1), (300, 0.0001), (3000, 0.00001))
        for a_key, within in joins:
            found.append(Workload(count, texts, max(1, count // a_key), within))
        for a_key in (1, 1000):
            found.append(Workload(count, texts, max(1, count // a_key), None))
    return found


def run(progress: Callable[[str], None], scale: float = 1.0) -> Report:
    """Seconds of all; and the constants that they make, as `thetajoin.planner.engines` has them."""
    report = Report("fit-engines", targets=TARGETS)
    session = spark_on(CORES)
    measured: dict[Workload, dict[str, float]] = {}
    for workload in workloads(scale):
        progress(workload.name)
        with tables(session, l=workload.table(1), r=workload.table(2)) as sides:
            runs = {engine: partial(_once, workload, sides, engine) for engine in ENGINES}
            seconds = alternate(runs, ROUNDS)
        measured[workload] = {who: statistics.median(taken) for who, taken in seconds.items()}
        report.details[workload.name] = {"seconds": seconds, "median": measured[workload]}
    choices = [
        min(taken["thetajoin"], taken["spark"]) / taken["auto"] for taken in measured.values()
    ]
    report.figures["worst_choice"] = min(choices)
    report.figures["median_choice"] = statistics.median(choices)
    report.details["scripts"] = ["\n".join(_constants(measured))]
    return report


def _once(workload: Workload, sides: Sequence[Any], engine: str) -> None:
    through(workload.query(sides, engine))


def _constants(measured: Mapping[Workload, Mapping[str, float]]) -> list[str]:
    """The constants as Python."""
    terms: dict[str, Callable[[Workload], float]] = {
        "start_s": lambda _: CORES * 1e6,
        "row": lambda w: 2 * w.rows,
        "byte": lambda w: 2 * w.rows * w.bytes,
        "pair": lambda w: w.pairs,
        "match": lambda w: w.matches,
        "match_byte": lambda w: w.matches * 2 * w.bytes,
    }
    joins = [workload for workload in measured if workload.within is not None]
    nearest = [workload for workload in measured if workload.within is None]
    kinds = {
        "SPARK": ("spark", joins, list(terms)),
        "OURS": ("thetajoin", joins, [name for name in terms if name != "pair"]),
        "SPARK_NEAREST": ("spark", nearest, list(terms)[:3]),
        "OUR_NEAREST": ("thetajoin", nearest, list(terms)[:3]),
    }
    lines = []
    for name, (engine, chosen, used) in kinds.items():
        seconds = np.array([measured[workload][engine] for workload in chosen])
        made = np.array([[terms[term](w) for term in used] for w in chosen]) / CORES / 1e6
        found = _fit(made, seconds)
        given = ", ".join(f"{t}={v:.2g}" for t, v in zip(used, found, strict=True) if v)
        off = np.abs(made @ found / seconds - 1).max()
        lines.append(f"{name} = Costs({given})  # off by at most {off:.0%}")
    return lines


def _fit(terms: np.ndarray[Any, Any], seconds: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """No constant below 0, and small times count as much as large ones."""
    from scipy.optimize import nnls

    found: np.ndarray[Any, Any] = nnls(terms / seconds[:, None], np.ones(len(seconds)))[0]
    return found
