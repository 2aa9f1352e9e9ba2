"""The order in which many inputs are joined.

Inputs are nodes, the condition's parts connect them. The first two inputs are those whose join is
estimated smallest, and each further one is that which is estimated to add least; a part is applied
as soon as all inputs it names are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import pyarrow as pa

from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.spec import JoinSpec
from thetajoin.errors import ConditionError
from thetajoin.planner.plan import make_plan
from thetajoin.predicate import Expr
from thetajoin.predicate.condition import with_columns
from thetajoin.predicate.nodes import Column


@dataclass(frozen=True)
class JoinStep:
    """One join: the input that is added, and the parts of the condition that apply from then on.

    joined: inputs that are there already. cross: no part connects the input with them.
    """

    joined: tuple[str, ...]
    name: str
    parts: tuple[Expr, ...]
    cross: bool

    def on(self) -> str:
        """The step's condition over `l`, the rows so far, and `r`, the input's."""

        def rename(column: Column) -> Column:
            side = "r" if column.side == self.name else "l"
            return replace(column, side=side, name=f"{column.side}.{column.name}")

        return " AND ".join(f"({with_columns(part, rename).sql()})" for part in self.parts)


@dataclass(frozen=True)
class Estimate:
    """What is known of the inputs: their rows and samples of them."""

    rows: Mapping[str, int]
    samples: Mapping[str, pa.RecordBatch]

    def selectivity(self, first: str, second: str, parts: Sequence[Expr]) -> float:
        """The share of two inputs' pairs that satisfies the parts which name these two only."""
        own = tuple(part for part in parts if part.sides() <= {first, second})
        if not any(len(part.sides()) == 2 for part in own):
            return 1.0
        step = JoinStep((first,), second, own, cross=False)
        left, right = (qualify(self.samples[name], name) for name in (first, second))
        if not left.num_rows or not right.num_rows:
            return 0.0
        compiled = CompiledJoin(JoinSpec(step.on()), left.schema, right.schema)
        # A sample without a match says that there are few, not that there are none.
        least = 0.5 / (left.num_rows * right.num_rows)
        found = sum(part.selectivity or 0.0 for part in make_plan(compiled, left, right).parts)
        return float(max(found, least))


def qualify(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """A batch's columns named ``input.column``."""
    return batch.rename_columns([f"{name}.{column}" for column in batch.schema.names])


def order_joins(
    names: Sequence[str],
    parts: Sequence[Expr],
    estimate: Estimate | None = None,
    *,
    cross: bool = False,
) -> tuple[JoinStep, ...]:
    """The steps of a join of many inputs, in the given order where nothing is estimated."""
    edges = {
        frozenset(pair): 1.0 if estimate is None else estimate.selectivity(*pair, parts)
        for pair in combinations(names, 2)
        if any(set(pair) <= part.sides() for part in parts)
    }
    _check_connected(names, parts, cross)

    def size(joined: tuple[str, ...], name: str, rows: float) -> float:
        if estimate is None:
            return float(names.index(name))
        for other in joined:
            rows *= edges.get(frozenset((other, name)), 1.0)
        return rows * max(1, estimate.rows[name])

    joined: tuple[str, ...] = (_first(names, edges, estimate),)
    rows = 1.0 if estimate is None else float(max(1, estimate.rows[joined[0]]))
    steps = []
    while len(joined) < len(names):
        others = [name for name in names if name not in joined]
        near = [n for n in others if any(frozenset((n, j)) in edges for j in joined)]
        name = min(near or others, key=lambda n, j=joined, r=rows: size(j, n, r))  # type: ignore[misc]
        there = {*joined, name}
        usable = tuple(
            part
            for part in parts
            if part.sides() <= there and (name in part.sides() or len(joined) == 1)
        )
        crossed = not any(len(part.sides()) > 1 for part in usable)
        steps.append(JoinStep(joined, name, usable, crossed))
        rows = size(joined, name, rows) if estimate is not None else 1.0
        joined = (*joined, name)
    return tuple(steps)


def _first(
    names: Sequence[str], edges: Mapping[frozenset[str], float], estimate: Estimate | None
) -> str:
    if estimate is None or not edges:
        return names[0]

    def rows(pair: frozenset[str]) -> float:
        first, second = pair
        return edges[pair] * max(1, estimate.rows[first]) * max(1, estimate.rows[second])

    best = min(edges, key=lambda pair: (rows(pair), sorted(pair)))
    return min(best, key=names.index)


def _check_connected(names: Sequence[str], parts: Sequence[Expr], cross: bool) -> None:
    """Refuse an input that no part connects with the others: it would be multiplied with them."""
    reached = {names[0]}
    grown = True
    while grown:
        grown = False
        for part in parts:
            sides = part.sides()
            if sides & reached and not sides <= reached:
                reached |= sides
                grown = True
    apart = [name for name in names if name not in reached]
    if apart and not cross:
        others = ", ".join(name for name in names if name in reached)
        raise ConditionError(
            f"nothing connects {', '.join(apart)} with {others}",
            hint="add a comparison between them, or cross=True for every combination",
        )
