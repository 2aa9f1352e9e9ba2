"""Totals of nearest matches: of pairs that are few, so they are listed and added up."""

from __future__ import annotations

import pyarrow as pa

from thetajoin.aggregate.groups import DENSE
from thetajoin.aggregate.pairs import PairTotals, Positions
from thetajoin.aggregate.rows import SideRows
from thetajoin.aggregate.spec import AggSpec
from thetajoin.aggregate.state import State, merge
from thetajoin.engine.nearest_join import NearestJoin, NearestTable

# Pairs that are added up at once.
CHUNK = 1 << 18


def nearest_totals(
    join: NearestJoin, spec: AggSpec, left: pa.RecordBatch, right: pa.RecordBatch
) -> State:
    """The totals of two tables' nearest matches."""
    table = NearestTable(join, right)
    batch = join.key_rows(left, "l")
    found = table.find(batch)
    return listed_totals(spec, (batch.table, found.left), (table.rows, found.row))


def listed_totals(
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
