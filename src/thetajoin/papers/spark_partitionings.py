"""The Prefap paper's partitionings for a join of tables on Spark, to compare them with the default.

Boundaries come from samples of both tables; every pair of partitions that the partitioning joins is
a cell. Which rows match is decided in the cell, so a boundary that is off costs time only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.parts import OTHER, SIDES, Side
from thetajoin.engine.rows import evaluate_side, make_batch
from thetajoin.errors import OptionError
from thetajoin.papers.partitionings import OPERATORS, Partitioning, cuts_of, may_match, partition
from thetajoin.planner.cells import change_error
from thetajoin.planner.zones import Boxes, ProbingRows, sights_of
from thetajoin.predicate import Comparison
from thetajoin.spark.exchange import chunks, send
from thetajoin.spark.tables.table import Summary
from thetajoin.spark.unit_spec import UnitSpec, get_compiled

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NamedPlan:
    """Cuts of both sides, the cells' numbers (-1: not joined), and what to pre-filter by."""

    cuts: dict[Side, Floats]
    cells: NDArray[np.intp]
    outside: dict[Side, Boxes] | None

    @property
    def number(self) -> int:
        """How many cells there are."""
        return max(1, int(self.cells.max(initial=-1)) + 1)


def require_comparison(compiled: CompiledJoin, name: str) -> Comparison:
    """The one comparison that the paper's partitionings work on."""
    source = compiled.parts[0].source
    numbers = [c for c in source.comparisons if _is_number(c.type)]
    if (
        len(compiled.parts) > 1
        or len(source.comparisons) != 1
        or source.differences
        or len(numbers) != 1
        or numbers[0].op not in OPERATORS
        or compiled.spec.how != "inner"
        or compiled.clock is not None
    ):
        raise OptionError(
            f"partitioning={name!r} takes an inner join on one comparison of numbers with < <= > "
            "or >=: leave partitioning out for anything else"
        )
    return numbers[0]


def _is_number(type_: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_integer(type_) or t.is_floating(type_) or t.is_decimal(type_))


def plan_cuts(
    compiled: CompiledJoin, name: str, how: Partitioning, seen: dict[Side, Summary]
) -> NamedPlan:
    """Partition the samples, and keep the cuts."""
    op = require_comparison(compiled, name).op
    values = {side: _values(compiled, side, summary.sample) for side, summary in seen.items()}
    sample = {side: v[np.isfinite(v)] for side, v in values.items()}
    cuts = cuts_of(partition(sample["l"], sample["r"], op, how))
    low = [np.concatenate([[-np.inf], c]) for c in cuts]
    high = [np.concatenate([c, [np.inf]]) for c in cuts]
    joined = np.ones((len(low[0]), len(low[1])), np.bool_)
    if how.partition_filter or how.stream_filter:
        # Between two cuts anything may lie, so an equal end counts as a possible match.
        loose = "<=" if op in ("<", "<=") else ">="
        ends = low[0][:, None], high[0][:, None], low[1][None, :], high[1][None, :]
        joined = may_match(*ends, loose)
    cells = np.where(joined, np.cumsum(joined).reshape(joined.shape) - 1, -1)
    outside: dict[Side, Boxes] | None = None
    if how.pre_filter:
        outside = {"l": seen["r"].zones.boxes.all(), "r": seen["l"].zones.boxes.all()}
    return NamedPlan({"l": cuts[0], "r": cuts[1]}, cells, outside)


def _values(compiled: CompiledJoin, side: Side, batch: pa.RecordBatch) -> Floats:
    """The compared values as doubles, whose order never contradicts theirs; NULL is NaN."""
    comparison = compiled.parts[0].source.comparisons[0]
    expr = comparison.left if side == "l" else comparison.right
    array = evaluate_side(expr, side, batch).cast(pa.float64(), safe=False)
    values: Floats = array.fill_null(float("nan")).to_numpy(zero_copy_only=False)
    return values


def make_router(
    spec: UnitSpec, plan: NamedPlan, side: Side
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that sends each row to all cells of its partition."""

    def route(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        compiled = get_compiled(spec)
        cells = plan.cells if side == "l" else plan.cells.T
        for chunk in chunks(batches, compiled.given[side]):
            batch = make_batch(chunk, side, compiled.parts, [])
            kept: NDArray[Any] = batch.parts[0].rows
            if plan.outside is not None:
                keyed = ProbingRows(sights_of(compiled), side, batch)
                # The other side's rows were filtered by where this one's were.
                if not plan.outside[OTHER[side]].holds(0, keyed.columns[0], 0):
                    raise change_error(side)
                kept = keyed.find_matching(plan.outside[side], 0)
            part = np.searchsorted(plan.cuts[side], _values(compiled, side, chunk)[kept], "right")
            for number in np.unique(part):
                rows = chunk.take(pa.array(kept[part == number]))
                mine = cells[number][cells[number] >= 0].tolist()
                yield from send((cell, SIDES.index(side), rows) for cell in mine)

    return route
