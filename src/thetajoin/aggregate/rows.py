"""One side's rows as aggregates see them: their groups, and the values of their terms."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from thetajoin.aggregate.groups import Grouping, group_rows
from thetajoin.aggregate.spec import AggSpec
from thetajoin.aggregate.state import State
from thetajoin.batch.keys import Int64
from thetajoin.engine.parts import Side
from thetajoin.engine.rows import evaluate_side
from thetajoin.predicate import Expr


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
    """The totals of rows as they are, each once; what they are about is the left side."""
    rows = SideRows(table, "l", spec)
    state, codes = rows.state(), rows.grouping.codes
    state.pairs += np.bincount(codes, minlength=state.size)
    state.add_rows(codes, np.ones(table.num_rows, np.int64), rows.arrays())
    state.settle()
    return state
