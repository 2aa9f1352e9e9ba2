"""Rows as aggregates see them: their groups and values, alone or as listed pairs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.aggregate.columns import DENSE, Grouping, group_rows
from thetajoin.aggregate.spec import AggSpec
from thetajoin.aggregate.state import State, merge
from thetajoin.batch.keys import Int64
from thetajoin.engine.parts import Side
from thetajoin.engine.rows import evaluate_side
from thetajoin.predicate import Expr, evaluate


class SideRows:
    """Rows of one side with their groups and the values of their terms, made when needed."""

    def __init__(self, table: pa.RecordBatch, side: Side, spec: AggSpec) -> None:
        self.table, self.side, self.spec = table, side, spec
        self._grouping: Grouping | None = None
        self._arrays: dict[int, pa.Array] | None = None

    def has(self, expr: Expr) -> bool:
        """Whether an expression is about this side alone."""
        return bool(expr.sides() <= {self.side}) and (bool(expr.sides()) or self.side == "l")

    @property
    def grouping(self) -> Grouping:
        """The rows' groups by what this side has of them."""
        if self._grouping is None:
            columns = [
                evaluate_side(group.expr, self.side, self.table)
                for group in self.spec.groups
                if self.has(group.expr)
            ]
            self._grouping = group_rows(columns, self.table.num_rows)
        return self._grouping

    def arrays(self) -> dict[int, pa.Array]:
        """The values of this side's terms."""
        if self._arrays is None:
            self._arrays = {
                at: evaluate_side(term.expr, self.side, self.table)
                for at, term in enumerate(self.spec.terms)
                if self.has(term.expr)
            }
        return self._arrays

    def keys(self, codes: Int64 | None = None) -> dict[int, pa.Array]:
        """Values of this side's group columns, by their number, for all or some of its groups."""
        mine = [at for at, group in enumerate(self.spec.groups) if self.has(group.expr)]
        found = self.grouping.keys
        if codes is not None:
            found = [key.take(pa.array(codes)) for key in found]
        return dict(zip(mine, found, strict=True))

    def state(self, other: SideRows | None = None, group: int = 0) -> State:
        """An empty state of this side's groups, with one group of the other side if there is."""
        size = self.grouping.size
        keys = self.keys()
        if other is not None:
            keys |= other.keys(np.full(size, group, np.int64))
        return State.empty(self.spec, [keys[at] for at in sorted(keys)], size)


def row_totals(table: pa.RecordBatch, spec: AggSpec) -> State:
    """The totals of rows taken once each; aggregates are of the left side."""
    rows = SideRows(table, "l", spec)
    state, codes = rows.state(), rows.grouping.codes
    state.pairs += np.bincount(codes, minlength=state.size)
    state.add_rows(codes, np.ones(table.num_rows, np.int64), rows.arrays())
    state.settle()
    return state


Positions = NDArray[np.int32]


class PairTotals:
    """Adds up pairs of two sides' rows, a chunk at a time.

    dense: if there can be no more groups than this, each has its place from the start.
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
        """States that are complete."""
        full, self._full = self._full, []
        return full

    def finish(self) -> list[State]:
        """All states that have not been taken."""
        states = self.take_full()
        if self._dense is not None:
            states.append(self._dense.keep_seen())
        return states


# Pairs that are added up at once.
CHUNK = 1 << 18


def total_pairs(
    spec: AggSpec, left: tuple[pa.RecordBatch, Positions], right: tuple[pa.RecordBatch, Positions]
) -> State:
    """The totals of pairs of rows, each side's as a table and positions in it.

    Where the query keeps left groups, those of all left rows are there.
    """
    rows, others = SideRows(left[0], "l", spec), SideRows(right[0], "r", spec)
    count = len(left[1])
    totals = PairTotals(spec, rows, others, dense=min(DENSE, 4 * count))
    states = [State.nothing(spec)]
    for at in range(0, count, CHUNK):
        totals.add(left[1][at : at + CHUNK], right[1][at : at + CHUNK])
        states += totals.take_full()
    states += totals.finish()
    if spec.keeps_left:
        states.append(rows.state())
    return merge(states)
