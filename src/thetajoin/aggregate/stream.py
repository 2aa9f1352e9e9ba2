"""StreamAggregate: running totals over the matches of two streams inside one process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.aggregate.groups import group_rows
from thetajoin.aggregate.run import TotalsJoin
from thetajoin.aggregate.state import State, merge, result
from thetajoin.batch.keys import Int64
from thetajoin.engine import snapshot as snapshots
from thetajoin.engine.intake import all_taken_in, conform
from thetajoin.engine.parts import Side
from thetajoin.engine.restore import check_pending, read, refusing
from thetajoin.engine.serial import atomic, serial
from thetajoin.engine.spec import JoinSpec
from thetajoin.engine.state import JoinState
from thetajoin.engine.stream import LESS
from thetajoin.errors import SnapshotError, enough_memory
from thetajoin.kernels.threads import new_lock
from thetajoin.window.windows import Window


@dataclass(frozen=True)
class _Now:
    """The join's rows and the totals so far; both are replaced, never changed."""

    join: JoinState
    totals: State


class StreamAggregate:
    """Aggregates over all matches so far, by group; exact whatever the batching.

    Several threads may use one of these: its methods wait for each other.

    >>> import thetajoin as tj
    >>> rows = pa.table({"k": ["a", "b"], "x": [1, 5]})
    >>> totals = StreamAggregate(
    ...     "l.x < r.x",
    ...     group_by="l.k",
    ...     aggs={"n": "count(*)"},
    ...     window=tj.FullHistory(),
    ...     left_schema=rows.schema,
    ...     right_schema=rows.schema,
    ... )
    >>> totals.push(left=rows, right=rows).to_pydict()
    {'k': ['a'], 'n': [1]}
    >>> totals.push(right=pa.table({"k": ["c"], "x": [9]})).to_pydict()
    {'k': ['a', 'b'], 'n': [2, 1]}
    """

    def __init__(
        self,
        on: Any,
        *,
        how: str = "inner",
        aggs: Mapping[str, str],
        left_schema: pa.Schema,
        right_schema: pa.Schema,
        group_by: Any = (),
        window: Window | None = None,
        order_by: str | tuple[str, str] | None = None,
        **options: Any,
    ) -> None:
        """Check everything that can be checked without rows."""
        spec = JoinSpec.of(on, how, window, order_by, group_by=group_by, aggs=aggs, options=options)
        self._begin(spec, left_schema, right_schema)

    def _begin(self, spec: JoinSpec, left: pa.Schema, right: pa.Schema) -> None:
        self._lock = new_lock(self)
        self._given: dict[Side, pa.Schema] = {"l": left, "r": right}
        self._query = TotalsJoin.of(spec.for_stream(), left, right)
        self._aggregator = self._query.aggregator()
        self._now = _Now(self._aggregator.state, State.nothing(self._aggregator.spec))

    @atomic
    @enough_memory(LESS)
    def push(self, left: Any = None, right: Any = None) -> pa.Table:
        """Take the next micro-batch; the totals, as they are now, of the groups it changed.

        A batch that fails, as by a sum that does not fit, leaves everything as it was.
        """
        given = {"left": left, "right": right}
        read = all_taken_in({name: table for name, table in given.items() if table is not None})
        batches = [
            self._needed(read[name], side) if name in read else None
            for name, side in (("left", "l"), ("right", "r"))
        ]
        join = self._now.join.copy()
        step = join.begin(*batches)
        change = self._aggregator.totals(step)
        change = change.take(_news(self._now.totals, change))
        totals = merge([self._now.totals, change])
        table = result(_changed(totals, change))
        join.commit(step)
        self._now = _Now(join, totals)
        return table

    def _needed(self, batch: pa.RecordBatch, side: Any) -> pa.RecordBatch:
        whole = conform(batch, self._given[side], side)
        schema = self._query.left_schema if side == "l" else self._query.right_schema
        return whole.select(schema.names)

    @atomic
    @enough_memory(LESS)
    def advance(self, watermark: Any) -> None:
        """Move event time to `watermark`: no row older than it will be taken in any more."""
        join = self._now.join.copy()
        for _ in join.advance(watermark):
            pass
        self._now = replace(self._now, join=join)

    @serial
    @enough_memory(LESS)
    def result(self) -> pa.Table:
        """The totals of all groups."""
        return result(self._now.totals)

    @serial
    @enough_memory(LESS)
    def snapshot(self) -> bytes:
        """The whole state as bytes that `restore` reads; no pickle."""
        saved = snapshots.Saved(
            spec=self._query.spec,
            schemas={"left": self._given["l"], "right": self._given["r"]},
            early=[],
            pending=[self._now.totals.to_batch()],
        )
        return snapshots.write(saved, self._now.join)

    @classmethod
    def restore(cls, data: bytes) -> StreamAggregate:
        """The operator that `snapshot` saved; it goes on exactly where that one stood."""
        with refusing():
            saved, fill = read(data)
            if saved.spec.aggs is None:
                raise SnapshotError(
                    "this is the snapshot of a StreamJoin, not of a StreamAggregate"
                )
            stream = cls.__new__(cls)
            stream._begin(saved.spec, saved.schemas["left"], saved.schemas["right"])
            fill(stream._now.join)
            (totals,) = saved.pending
            check_pending([totals], stream._now.totals.to_batch().schema)
            if not stream._aggregator.spec.groups and totals.num_rows != 1:
                raise SnapshotError(f"totals without groups are one row, not {totals.num_rows}")
            state = State.from_batch(stream._aggregator.spec, totals)
            stream._now = replace(stream._now, totals=state)
            return stream


def _news(state: State, change: State) -> Int64:
    """The groups of a change that have pairs, or are kept without any and were not there before."""
    news = change.pairs > 0
    if not change.keys:
        return np.arange(change.size)
    if change.spec.keeps_left:
        news |= ~_among(change, state)
    return np.flatnonzero(news)


def _among(some: State, state: State) -> NDArray[np.bool_]:
    """Which groups of one state are groups of another."""
    keys = [pa.concat_arrays(both) for both in zip(some.keys, state.keys, strict=True)]
    codes = group_rows(keys, some.size + state.size).codes
    return np.isin(codes[: some.size], codes[some.size :])


def _changed(state: State, change: State) -> State:
    """The whole state of the groups in a change."""
    if not change.keys:
        return state
    return state.take(np.flatnonzero(_among(state, change)))
