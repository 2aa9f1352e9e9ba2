"""Aggregates over joins of Spark tables: rows are dealt to parts, and parts meet in cells.

A cell's part of the result is partial aggregates, which Spark adds up. Where a row goes depends on
what it holds alone, for Spark may run a task again with its rows in other batches while the cells
that are done keep what they had.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, IntegerType

from thetajoin.aggregate.state import State, merge
from thetajoin.aggregate.totals import TotalsJoin
from thetajoin.batch.tables import contiguous
from thetajoin.errors import DataError, OptionError
from thetajoin.ipc import from_ipc
from thetajoin.spark.columns import by_position, tie_breakers
from thetajoin.spark.pack import binary
from thetajoin.spark.partials import partial_batch, spark_schema
from thetajoin.spark.tables.table import Table
from thetajoin.spark.tables.worker import to_blobs
from thetajoin.spark.tasks import Task, parallelism, schema_of, set_aside
from thetajoin.window.windows import CountWindow

# A blob of rows for a cell; `part` tells there whose rows they are.
CELLS = schema_of(cell=IntegerType(), part=IntegerType(), blob=BinaryType())
Pairs = list[tuple[int, int]]


def table_totals(whole: tuple[Any, Any], query: TotalsJoin, units: Any) -> Any:
    """Partial aggregates of two tables: every part of one meets every part of the other."""
    rows, columns = _grid(whole[0], query, units)
    cells = None
    for side, df in enumerate(whole):
        names = (query.left_schema, query.right_schema)[side].names
        table = _needed(df, names, query)
        sent = table.mapped(cutter(side, rows, columns), CELLS, with_hash=True)
        cells = sent if cells is None else cells.union(sent)
    assert cells is not None

    inner = replace(query, spec=replace(query.spec, how="inner"))

    def found(cell: pa.Table) -> State:
        left, right = _rows(cell, 0, query), _rows(cell, 1, query)
        # A left row is in all cells of a row: the first of them gives its group without a match.
        first = cell["cell"][0].as_py() % columns == 0
        return (query if first else inner).aggregator().run(left, right)

    return cells.groupBy("cell").applyInArrow(
        _partials(found), spark_schema(query.aggregates, *whole)
    )


def self_totals(df: Any, query: TotalsJoin, units: Any) -> Any:
    """Partial aggregates of a table's self-join.

    Every two parts meet in a cell, in both roles, and each part meets itself in one more, where a
    row is told apart from its equals by its place.
    """
    pairs = pairs_of(math.prod(_grid(df, query, units)))
    table = _needed(df, query.left_schema.names, query)
    cells = table.mapped(dealer(pairs), CELLS, with_hash=True)

    def found(cell: pa.Table) -> State:
        one, other = pairs[cell["cell"][0].as_py()]
        rows = _rows(cell, one, query)
        if one == other:
            return query.aggregator().run(rows, rows)
        others = _rows(cell, other, query)
        apart = replace(query, spec=replace(query.spec, self_join=False))
        roles = (rows, others), (others, rows)
        return merge([apart.aggregator().run(*sides) for sides in roles])

    return cells.groupBy("cell").applyInArrow(
        _partials(found), spark_schema(query.aggregates, df, df)
    )


def _grid(df: Any, query: TotalsJoin, units: Any) -> tuple[int, int]:
    """Into how many parts each side is cut; a count window has one order of all rows."""
    if units is not None and (isinstance(units, bool) or not isinstance(units, int) or units < 1):
        raise OptionError(f"units={units!r}: must be a whole number of at least 1")
    if isinstance(query.join.window, CountWindow):
        return 1, 1
    units = units or parallelism(df.sparkSession)
    rows = math.isqrt(units - 1) + 1
    return rows, -(-units // rows)


def pairs_of(units: int) -> Pairs:
    """The parts that meet in each of at least so many cells.

    >>> pairs_of(3)
    [(0, 0), (0, 1), (1, 1)]
    """
    parts = 1
    while parts * (parts + 1) // 2 < units:
        parts += 1
    return list(combinations_with_replacement(range(parts), 2))


def _needed(df: Any, names: Sequence[str], query: TotalsJoin) -> Table:
    """The columns that matter, and under a count window two that order what nothing else does."""
    plain = by_position(df)
    needed = [F.col(f"c{df.columns.index(name)}") for name in names]
    ties = tie_breakers(plain) if isinstance(query.join.window, CountWindow) else []
    return Table(plain.select(*needed, *ties))


def cutter(side: int, rows: int, columns: int) -> Task:
    """A task that sends each row of one of two tables to all cells of its part.

    The part is decided by the hash that is a row's last column. The bits that deal out one table's
    rows are not those that deal out the other's.
    """
    mine = rows if side == 0 else columns
    cells = [
        [part * columns + other for other in range(columns)]
        if side == 0
        else [other * columns + part for other in range(rows)]
        for part in range(mine)
    ]

    def cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part, chosen in _dealt(batch, mine, 32 * side):
                yield from _sent(chosen, cells[part], side)

    return cut


def dealer(pairs: Pairs) -> Task:
    """A task that sends each row of a table to all cells of its part, in whatever role."""
    parts = pairs[-1][1] + 1

    def deal(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part, chosen in _dealt(batch, parts, 0):
                cells = [cell for cell, pair in enumerate(pairs) if part in pair]
                yield from _sent(chosen, cells, part)

    return deal


def _dealt(batch: pa.RecordBatch, parts: int, shift: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """A batch's rows by their parts, without the hash that tells these."""
    hashes = batch.column(batch.num_columns - 1).to_numpy().view(np.uint64)
    plain = batch.select(list(range(batch.num_columns - 1)))
    part = (hashes >> np.uint64(shift)) % np.uint64(parts)
    for number in range(parts):
        chosen = plain.filter(pa.array(part == number)) if parts > 1 else plain
        if chosen.num_rows:
            yield number, chosen


def _sent(rows: pa.RecordBatch, cells: list[int], part: int) -> Iterator[pa.RecordBatch]:
    for blob in to_blobs(rows):
        for cell in cells:
            ids = [pa.array([number], pa.int32()) for number in (cell, part)]
            yield pa.RecordBatch.from_arrays([*ids, binary([blob])], names=CELLS.names)


def _partials(found: Callable[[pa.Table], State]) -> Callable[[pa.Table], pa.Table]:
    """A function for `applyInArrow` from what a cell adds to the totals."""

    def totals(cell: pa.Table) -> pa.Table:
        batch = partial_batch(found(cell))
        set_aside()
        return pa.Table.from_batches([batch])

    return totals


def _rows(cell: pa.Table, part: int, query: TotalsJoin) -> pa.RecordBatch:
    """A part's rows in a cell; under a count window in the order of the two columns they end in."""
    # Of two tables the second is the right one; both sides of a self-join have the same columns.
    schema = query.right_schema if part and not query.spec.self_join else query.left_schema
    mine = cell.filter(pc.equal(cell["part"], part))["blob"]
    tables = [from_ipc(blob.as_buffer()) for blob in mine]
    if not tables:
        return contiguous(schema.empty_table(), "joined")
    whole = pa.concat_tables(tables)
    if isinstance(query.join.window, CountWindow):
        ties = [(name, "ascending") for name in whole.column_names[-2:]]
        whole = whole.sort_by(ties).select(whole.column_names[:-2])
    try:
        named = whole.rename_columns(schema.names).cast(schema)
        return contiguous(named.combine_chunks(), "joined")
    except DataError:
        raise DataError(
            "a task of join_agg gets more than 2 GiB of one column's text: ask for more tasks "
            "(units=), or leave long texts out of groups, aggregates and condition"
        ) from None
