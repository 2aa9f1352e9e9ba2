"""Totals from pairs, for what has no shorter way."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.aggregate.groups import DENSE, group_rows
from thetajoin.aggregate.rows import SideRows
from thetajoin.aggregate.spec import AggSpec
from thetajoin.aggregate.state import State
from thetajoin.batch.keys import Int64
from thetajoin.predicate import Expr, evaluate

Positions = NDArray[np.int32]


class PairTotals:
    """Adds up pairs of two sides' rows, a chunk at a time.

    dense: up to so many groups that there may be, each has its place from the start.
    """

    def __init__(
        self, spec: AggSpec, probing: SideRows, stored: SideRows, dense: int = DENSE
    ) -> None:
        self.spec = spec
        self._sides = (probing, stored)
        self._own_groups = any(len(group.expr.sides()) == 2 for group in spec.groups)
        self._full: list[State] = []
        self._dense: State | None = None
        size = 1
        for rows in self._sides:
            size *= 1 if self._own_groups else rows.grouping.size
        if not self._own_groups and size <= dense:
            self._dense = self._state(np.arange(size))

    def _state(self, codes: Int64) -> State:
        """An empty state for combined group numbers."""
        probing, stored = self._sides
        keys = probing.keys(codes // stored.grouping.size)
        keys |= stored.keys(codes % stored.grouping.size)
        return State.empty(self.spec, [keys[at] for at in sorted(keys)], codes.size)

    def add(self, probe_rows: Positions, stored_rows: Positions) -> None:
        """Add a chunk of pairs."""
        taken: dict[str, tuple[SideRows, Positions]] = {
            rows.side: (rows, at)
            for rows, at in zip(self._sides, (probe_rows, stored_rows), strict=True)
        }
        arrays = {at: self._values(term.expr, taken, at) for at, term in enumerate(self.spec.terms)}
        if self._own_groups:
            columns = [self._values(group.expr, taken) for group in self.spec.groups]
            grouping = group_rows(columns, len(probe_rows))
            state, codes = State.empty(self.spec, grouping.keys, grouping.size), grouping.codes
        else:
            probing, stored = self._sides
            codes = probing.grouping.codes[probe_rows] * stored.grouping.size
            codes += stored.grouping.codes[stored_rows]
            if self._dense is not None:
                state = self._dense
            else:
                known, codes = np.unique(codes, return_inverse=True)
                state = self._state(known)
        ones = np.ones(len(probe_rows), np.int64)
        state.pairs += np.bincount(codes, minlength=state.size)
        state.add_rows(codes, ones, arrays)
        state.settle()
        if state is not self._dense:
            self._full.append(state)

    def _values(
        self, expr: Expr, taken: dict[str, tuple[SideRows, Positions]], at: int | None = None
    ) -> pa.Array:
        """An expression's value for each pair."""
        for rows, positions in taken.values():
            if at is not None and rows.has(expr):
                return rows.arrays()[at].take(pa.array(positions))
        tables = {}
        for side, (rows, positions) in taken.items():
            needed = rows.table.select(sorted(expr.columns(side)))
            columns = [column.take(pa.array(positions)) for column in needed.columns]
            if not columns:
                columns, names = [pa.nulls(len(positions))], ["_"]
            else:
                names = needed.schema.names
            tables[side] = pa.RecordBatch.from_arrays(columns, names=names)
        return evaluate(expr, left=tables["l"], right=tables["r"])

    def take_full(self) -> list[State]:
        """States that are complete in themselves."""
        full, self._full = self._full, []
        return full

    def finish(self) -> list[State]:
        """What is left."""
        states = self.take_full()
        if self._dense is not None:
            states.append(self._dense.seen())
        return states
