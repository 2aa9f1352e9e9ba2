"""Aggregates over a Spark table joined with itself.

Rows are dealt to parts by their content. Every two parts meet in a cell, in both roles, and each
part meets itself in one more, where a row is told apart from its equals by its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, IntegerType

from thetajoin.aggregate.run import AggConfig
from thetajoin.aggregate.spec import AggSpec
from thetajoin.aggregate.state import merge
from thetajoin.engine.block import empty_batch
from thetajoin.spark.batch.table import Table
from thetajoin.spark.batch.worker import from_blob, gathered, to_blob
from thetajoin.spark.pack import binary
from thetajoin.spark.partials import partial_batch, spark_schema
from thetajoin.spark.tasks import Task, schema_of, set_aside

Pairs = list[tuple[int, int]]
CELLS = schema_of(cell=IntegerType(), part=IntegerType(), blob=BinaryType())
HASH = pa.field("hash", pa.int64())


def self_totals(df: Any, config: AggConfig, spec: AggSpec, units: int) -> Any:
    """Partial aggregates of a table's self-join, from at least so many cells."""
    pairs = pairs_of(units)
    cells = Table(df).mapped(dealer(pairs), CELLS, with_hash=True)
    totals = cell_totals(config, pairs)
    return cells.groupBy("cell").applyInArrow(totals, spark_schema(spec, df, df))


def pairs_of(units: int) -> Pairs:
    """The parts that meet in each cell.

    >>> pairs_of(3)
    [(0, 0), (0, 1), (1, 1)]
    """
    parts = 1
    while parts * (parts + 1) // 2 < units:
        parts += 1
    return list(combinations_with_replacement(range(parts), 2))


def dealer(pairs: Pairs) -> Task:
    """A task that sends each row to all cells of its part, by the hash that is its last column."""
    parts = pairs[-1][1] + 1

    def deal(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            hashes = batch.column(batch.num_columns - 1).to_numpy()
            mine = hashes.view(np.uint64) % np.uint64(parts)
            for part in range(parts):
                rows = batch.filter(pa.array(mine == part))
                if not rows.num_rows:
                    continue
                blob = binary(to_blob(rows))
                for cell, pair in enumerate(pairs):
                    if part in pair:
                        ids = [pa.array([number], pa.int32()) for number in (cell, part)]
                        yield pa.RecordBatch.from_arrays([*ids, blob], names=CELLS.names)

    return deal


def cell_totals(config: AggConfig, pairs: Pairs) -> Callable[[pa.Table], pa.Table]:
    """A function that joins a cell's parts."""

    def totals(cell: pa.Table) -> pa.Table:
        one, other = pairs[cell["cell"][0].as_py()]
        rows = {part: _rows(cell, part, config.left_schema) for part in (one, other)}
        if one == other:
            states = [config.aggregator().run(rows[one], rows[one], last=True)]
        else:
            apart = replace(config, self_join=False)
            states = [
                apart.aggregator().run(rows[left], rows[right], last=True)
                for left, right in ((one, other), (other, one))
            ]
        set_aside()
        return pa.Table.from_batches([partial_batch(merge(states))])

    return totals


def _rows(cell: pa.Table, part: int, schema: pa.Schema) -> pa.RecordBatch:
    """A part's rows, in the order of their hashes: the same however the blobs came."""
    blobs = cell.filter(pc.equal(cell["part"], part))["blob"].to_pylist()
    batches = [batch for blob in blobs for batch in from_blob(blob)]
    if not batches:
        return empty_batch(schema)
    rows = gathered(batches, schema.append(HASH))
    order = np.argsort(rows.column(rows.num_columns - 1).to_numpy(), kind="stable")
    return rows.select(schema.names).take(pa.array(order))
