"""All units of a streaming join one after the other in one process, on a cluster's micro-batches.

What a unit does is Spark's own call of it, from the packed blobs to the output and the state that
it leaves; only the state store is a dictionary. So each unit's work is known for any number of
units, on a machine that could not run them side by side. Packing, which map tasks do, is timed
apart.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

import thetajoin as tj
from benchmarks.data import independent
from benchmarks.peers import Q1
from thetajoin.cli.generate import make_correlated
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.spec import JoinSpec
from thetajoin.planner.routing import Routing, choose_route
from thetajoin.routes.copies import Grid

# Rows of a side in a micro-batch, micro-batches that are stored first, and that are measured.
ROWS = 2_000_000
STORED, MEASURED = 1, 3
SAMPLED = 50_000
INPUTS = 4  # input partitions a side


@dataclass(frozen=True)
class Workload:
    """A condition, rows of both sides for a micro-batch, and how they are routed."""

    on: str
    rows: Callable[[int, int], tuple[pa.Table, pa.Table]]
    sampled: bool = False
    options: dict[str, Any] = field(default_factory=dict)


def _ids(rows: int, batch: int) -> np.ndarray:
    return np.arange(rows) + batch * rows


def _make_keyed(rows: int, batch: int) -> tuple[pa.Table, pa.Table]:
    """Ten rows of a key in each micro-batch, about two matches a row."""
    sides = []
    for side in (0, 1):
        random = np.random.default_rng([batch, side])
        k, v = random.integers(0, rows // 10, rows), random.integers(0, 1000, rows)
        sides.append(pa.table({"id": _ids(rows, batch), "k": k, "v": v}))
    return sides[0], sides[1]


def _make_banded(rows: int, batch: int) -> tuple[pa.Table, pa.Table]:
    sides = []
    for side in (0, 1):
        v = np.random.default_rng([batch, side]).integers(0, 10 * rows, rows)
        sides.append(pa.table({"id": _ids(rows, batch), "v": v}))
    return sides[0], sides[1]


def _make_points(rows: int, batch: int) -> tuple[pa.Table, pa.Table]:
    """Points, and intervals of which a point lies in one or two."""
    random = np.random.default_rng(batch)
    left = pa.table({"id": _ids(rows, batch), "v": random.integers(0, 10 * rows, rows)})
    low = random.integers(0, 10 * rows, rows)
    right = {"id": _ids(rows, batch), "lo": low, "hi": low + random.integers(1, 20, rows)}
    return left, pa.table(right)


def _make_related(rows: int, batch: int) -> tuple[pa.Table, pa.Table]:
    sides = [make_correlated(rows, rows * (STORED + 1), 1.0, 2 * batch + side) for side in (0, 1)]
    return sides[0], sides[1]


def _make_unrelated(rows: int, batch: int) -> tuple[pa.Table, pa.Table]:
    window = rows * (STORED + 1)
    sides = [
        independent(rows, window, 1.0, 2 * batch + side, left=side == 0).append_column(
            "id", pa.array(_ids(rows, batch))
        )
        for side in (0, 1)
    ]
    return sides[0], sides[1]


def _zipf(rows: int, batch: int) -> tuple[pa.Table, pa.Table]:
    """Keys by Zipf's law with exponent 1.2; a band so narrow that few rows of a key match."""
    sides = []
    for side in (0, 1):
        random = np.random.default_rng([batch, side])
        k = random.zipf(1.2, rows) % 10_000_000
        sides.append(pa.table({"id": _ids(rows, batch), "k": k, "v": random.random(rows)}))
    return sides[0], sides[1]


def _make_drifting(rows: int, batch: int) -> tuple[pa.Table, pa.Table]:
    """Times that grow: a micro-batch is a hundredth of the band."""
    sides = []
    for side in (0, 1):
        random = np.random.default_rng([batch, side])
        t = batch * 36_000_000 + random.integers(0, 36_000_000, rows)
        a = random.random(rows)
        columns = {"id": _ids(rows, batch), "t": pa.array(t, pa.timestamp("us"))}
        b = a + random.random(rows) * (6.0 / (100 * rows))
        sides.append(pa.table({**columns, "a": a, "b": b}))
    return sides[0], sides[1]


WORKLOADS = {
    "hash": Workload("l.k = r.k AND ABS(l.v - r.v) <= 50", _make_keyed),
    "band": Workload("ABS(l.v - r.v) <= 5", _make_banded),
    "interval": Workload("l.v >= r.lo AND l.v < r.hi", _make_points, sampled=True),
    "ranges_related": Workload(Q1, _make_related, sampled=True),
    "ranges_unrelated": Workload(Q1, _make_unrelated, sampled=True),
    "zipf": Workload("l.k = r.k AND ABS(l.v - r.v) <= 0.000004", _zipf, sampled=True),
    "drift": Workload(
        "l.t - r.t >= INTERVAL '-1800' SECOND AND l.t - r.t <= INTERVAL '1800' SECOND AND " + Q1,
        _make_drifting,
    ),
}


class _States:
    """Spark's state store, as a unit sees it: in a dictionary."""

    def __init__(self) -> None:
        self.key: Any = None
        self.kept: dict[Any, Any] = {}

    def getValueState(self, name: str, schema: str) -> Any:
        """A value of the key at hand."""
        return SimpleNamespace(
            get=lambda: self.kept.get((self.key, name)),
            update=lambda value: self.kept.__setitem__((self.key, name), value),
        )

    def getMapState(self, name: str, key: str, value: str) -> Any:
        """A map of the key at hand."""
        return SimpleNamespace(
            getValue=lambda at: self.kept[self.key, name, at],
            updateValue=lambda at, v: self.kept.__setitem__((self.key, name, at), v),
            removeKey=lambda at: self.kept.pop((self.key, name, at)),
        )


@dataclass
class Cluster:
    """The units of one join, and what their micro-batches took."""

    on: str
    units: int
    routing: Any
    schemas: tuple[pa.Schema, pa.Schema]

    def __post_init__(self) -> None:
        from thetajoin.spark.unit import JoinUnit
        from thetajoin.spark.unit_spec import UnitSpec

        spec = JoinSpec(self.on)
        self.plan = choose_route(CompiledJoin(spec, *self.schemas), self.units, self.routing)
        self.spec = UnitSpec.of(spec, *self.schemas, units=self.units, routing=self.plan)
        self._states, self._unit = _States(), JoinUnit(self.spec)
        self._unit.init(self._states)
        self.places = self.plan.all_places(self.units)

    def run(self, left: pa.Table, right: pa.Table) -> dict[str, Any]:
        """One micro-batch: seconds of packing, and of each unit with the rows it was sent."""
        from thetajoin.spark.exchange import route_to_units
        from thetajoin.spark.unit import METRICS
        from thetajoin.spark.unit_keys import UNIT_KEYS

        blobs: dict[int, list[tuple[int, bytes]]] = {key: [] for key in UNIT_KEYS[: self.places]}
        packing = time.process_time()
        for side, table in enumerate((left, right)):
            pack = route_to_units(side, self.spec)
            for part in _parts(table, INPUTS):
                for sent in pack(part):
                    for key, of, blob in zip(*(c.to_pylist() for c in sent.columns), strict=True):
                        blobs[key].append((of, blob))
        packing = time.process_time() - packing
        timers = SimpleNamespace(getCurrentWatermarkInMs=lambda: -1)
        seconds, matches = np.zeros(self.units), 0
        for at, key in enumerate(UNIT_KEYS[: self.places]):
            self._states.key = key
            given = [{"side": [s for s, _ in blobs[key]], "blob": [b for _, b in blobs[key]]}]
            begun = time.process_time()
            for frame in self._unit.handleInputRows((key,), iter(given), timers):
                matches += int(frame[METRICS].isna().sum())
            # What keeps rows outside of all boxes shares a place with the unit of that number.
            seconds[at % self.units] += time.process_time() - begun
        return {
            "packing": packing,
            "units": seconds,
            "matches": matches,
            "sent": self._count_sent(left, right),
        }

    def _count_sent(self, left: pa.Table, right: pa.Table) -> np.ndarray:
        """Rows that each unit was sent."""
        sent = np.zeros(self.units, np.int64)
        if not self.plan.meets:
            sent[:] = left.num_rows + right.num_rows
            return sent
        join = self.spec.compile()
        route = self.plan.route(join, self.units)
        for side, table in (("l", left), ("r", right)):
            for batch in table.combine_chunks().to_batches():
                copies = route.copies(batch, side)  # type: ignore[arg-type]
                sent += np.bincount(copies.units % self.units, minlength=self.units)
        return sent


def _parts(table: pa.Table, number: int) -> Iterator[list[pa.RecordBatch]]:
    """A table as input partitions, in Spark's batches of 10,000 rows, columns by position."""
    step = -(-table.num_rows // number)
    names = [f"c{at}" for at in range(table.num_columns)]
    for start in range(0, table.num_rows, step):
        yield table.slice(start, step).rename_columns(names).to_batches(max_chunksize=10_000)


def find_routing(workload: Workload, rows: int, units: int) -> Routing | None:
    """The routing that a sample of the rows gives, where one is asked for."""
    if units == 1:
        # One unit that does all is a plain join: nothing is to be ordered or sent anywhere else.
        return Routing("matrix", grid=Grid(1, 1))
    if not workload.sampled:
        return None
    left, right = workload.rows(rows, 0)
    random = np.random.default_rng(0)
    picked = pa.array(np.sort(random.choice(rows, min(rows, SAMPLED), replace=False)))
    return tj.routing(left.take(picked), right.take(picked), workload.on, units=units)


def measure(name: str, units: int, rows: int) -> dict[str, Any]:
    """A workload over that many units: medians of the micro-batches that are measured."""
    workload = WORKLOADS[name]
    batches = [workload.rows(rows, at) for at in range(STORED + MEASURED)]
    schemas = batches[0][0].schema, batches[0][1].schema
    with tempfile.TemporaryDirectory(prefix="thetajoin-scale-") as folder, _local_dirs(folder):
        cluster = Cluster(workload.on, units, find_routing(workload, rows, units), schemas)
        found = [cluster.run(*batch) for batch in batches][STORED:]
    busiest = [step["units"].max() for step in found]
    sent = [step["sent"] for step in found]
    return {
        "units": units,
        "routing": str(cluster.plan),
        "seconds_all": statistics.median(float(step["units"].sum()) for step in found),
        "seconds_busiest": float(np.median([step["units"] for step in found], axis=0).max()),
        "seconds_busiest_each": [float(seconds) for seconds in busiest],
        "packing": statistics.median(step["packing"] for step in found),
        "copies": statistics.median(float(s.sum()) / (2 * rows) for s in sent),
        "intake": statistics.median(float(s.max()) / (2 * rows) for s in sent),
        "imbalance": statistics.median(float(s.max() / s.mean()) for s in sent),
        "imbalance_seconds": statistics.median(
            float(step["units"].max() / step["units"].mean()) for step in found
        ),
        "matches": [step["matches"] for step in found],
    }


@contextlib.contextmanager
def _local_dirs(folder: str) -> Iterator[None]:
    """Segment files go to a folder of their own, written as part of the unit's work."""
    names = ("SPARK_LOCAL_DIRS", "SPARK_REUSE_WORKER")
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    os.environ["SPARK_LOCAL_DIRS"] = folder
    try:
        yield
    finally:
        del os.environ["SPARK_LOCAL_DIRS"]
        os.environ.update(before)
