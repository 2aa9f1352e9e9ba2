"""How many rows a join will give, before it gives them."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from thetajoin.aggregate.state import result
from thetajoin.aggregate.totals import TotalsJoin
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.machine import Size
from thetajoin.engine.spec import JoinSpec
from thetajoin.paper_options import AUTO, PO_JOIN
from thetajoin.planner.aggregates import plan_aggregates
from thetajoin.planner.plan import SAMPLE_ROWS, make_plan
from thetajoin.window.windows import FullHistory

# An estimate from samples is believed where it is so many times the room, or less than the room by
# as much, and comes of so many pairs: in samples of one table on both sides rows meet themselves.
SURE, ENOUGH_PAIRS = 2.0, 16 * SAMPLE_ROWS


def too_large(
    spec: JoinSpec,
    compiled: CompiledJoin,
    left: pa.RecordBatch,
    right: pa.RecordBatch,
    most: float,
) -> Size | None:
    """The number of a join's pairs, if it is larger than `most`.

    Estimated from samples where these are clear; counted, without listing pairs, where they are not
    and aggregates can do that. None where neither tells: the samples know nothing of a window, or
    of a residual that each pair must be asked for.
    """
    if spec.aggs is not None or spec.nearest is not None or spec.how in ("semi", "anti"):
        return None
    plan = make_plan(compiled, left, right)
    if isinstance(compiled.window, FullHistory) and not any(part.residual for part in plan.parts):
        pairs = plan.estimated_pairs
        seen = pairs * _share(left.num_rows) * _share(right.num_rows)
        if SURE * pairs < most:
            return None
        if pairs > SURE * most and seen >= ENOUGH_PAIRS:
            return Size(pairs, exact=False)
    if compiled.options.index not in (AUTO, PO_JOIN):
        return None
    counts = replace(spec, how="inner", aggs={"n": "count(*)"})
    counting = TotalsJoin.of(counts, left.schema, right.schema)
    ways = plan_aggregates(counting.aggregator(), plan).ways
    if any(way.way != "totals" for way in ways):
        return None
    schemas = counting.left_schema, counting.right_schema
    needed = [batch.select(s.names) for batch, s in zip((left, right), schemas, strict=True)]
    counted = result(counting.totals(*needed))["n"][0].as_py()
    return Size(counted, exact=True) if counted > most else None


def _share(rows: int) -> float:
    """Which share of a table's rows its sample has."""
    return min(1.0, SAMPLE_ROWS / max(1, rows))
