"""The plan of an aggregate over a join: which way each part of the condition is answered."""

from __future__ import annotations

from dataclasses import dataclass

from thetajoin.aggregate.run import Aggregator
from thetajoin.aggregate.solve import MOST_ORDERS
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.parts import Part
from thetajoin.planner.plan import Plan
from thetajoin.window.windows import CountWindow

_WAYS = {
    1: "running sums over the sorted key",
    2: "sweep over one key, or a summed-area table of a stored segment",
    3: "nodes of a binary tree over one key, a sweep in each",
}


@dataclass(frozen=True)
class WayPlan:
    """How one conjunction is answered.

    way: "totals", or "pairs" where the matches are listed chunk by chunk and added up, because of
    `reason`. orders: sorted orders that decide, of which a window may be one.
    """

    way: str
    orders: int
    reason: str

    def __str__(self) -> str:
        if self.way == "pairs":
            return f"    {'aggregates:':<15}join and add up chunk by chunk: {self.reason}"
        lines = [f"    {'aggregates:':<15}without pairs: {_WAYS[self.orders]}"]
        if self.reason:
            lines.append(f"    {'':<15}{self.reason}")
        return "\n".join(lines)


@dataclass(frozen=True)
class AggPlan:
    """How an aggregate over a join will be done; prints well."""

    join: Plan
    groups: tuple[str, ...]
    outputs: tuple[str, ...]
    ways: tuple[WayPlan, ...]
    # Whether a group of the left side is there without a match.
    keeps_left: bool = False

    def __str__(self) -> str:
        lines = [str(self.join)]
        kept = ", also without a match" if self.keeps_left else ""
        lines.append(f"  group by: {', '.join(self.groups) or 'nothing: one row'}{kept}")
        lines.append(f"  compute:  {', '.join(self.outputs)}")
        for number, way in enumerate(self.ways, 1):
            if len(self.ways) > 1:
                lines.append(f"  alternative {number} of {len(self.ways)}:")
            lines.append(str(way))
        return "\n".join(lines)


def plan_aggregates(aggregator: Aggregator, join: Plan) -> AggPlan:
    """Plan the aggregates of a compiled query."""
    spec = aggregator.spec
    return AggPlan(
        join=join,
        groups=tuple(group.expr.sql() for group in spec.groups),
        outputs=tuple(f"{output.text} AS {output.name}" for output in spec.outputs),
        ways=tuple(_way(aggregator, part) for part in aggregator.join.parts),
        keeps_left=spec.keeps_left,
    )


def _way(aggregator: Aggregator, part: Part) -> WayPlan:
    orders = max(1, _orders(aggregator.join, part))
    if aggregator.needs_pairs:
        return WayPlan("pairs", orders, aggregator.needs_pairs)
    if part.residual is not None:
        return WayPlan("pairs", orders, f"{part.residual} is decided by the pair")
    if orders > MOST_ORDERS:
        reason = f"{orders} keys decide, and only up to {MOST_ORDERS} are answered from totals"
        return WayPlan("pairs", orders, reason)
    if len(aggregator.group_sides) == 2:
        reason = "asked once for each group of one side; joined instead where matches are fewer"
        return WayPlan("totals", orders, reason)
    return WayPlan("totals", orders, "")


def _orders(join: CompiledJoin, part: Part) -> int:
    """Sorted orders in which a probe asks for a range."""
    ordered = sum(not dim.equal for dim in part.views["r"].shape.dims)
    return ordered + isinstance(join.window, CountWindow)
