"""Sending rows to cells: a task's rows become one Arrow blob for each cell that must see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, BooleanType, IntegerType

from thetajoin.engine.layout import take_columns
from thetajoin.engine.parts import Side
from thetajoin.planner.cells import CellPlan
from thetajoin.planner.targets import held_targets, streamed_targets
from thetajoin.spark.pack import binary
from thetajoin.spark.tables.worker import chunks, to_blobs
from thetajoin.spark.tasks import schema_of
from thetajoin.spark.unit_spec import UnitSpec, compiled_of

ROUTED = schema_of(cell=IntegerType(), held=BooleanType(), blob=BinaryType())
# Bits of a row's number that count rows within a task.
TASK_BITS = 40


def router(
    spec: UnitSpec,
    plan: CellPlan,
    sides: tuple[Side, ...],
    keep_all: bool,
    with_hash: bool,
    numbered: bool,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow`; with two sides each row is sent in both roles.

    With `keep_all`, held rows that can match nothing are sent too. The last column is a hash of the
    row if `with_hash`, and is not sent on. With `numbered`, each row gets a number of its own.
    """

    def route(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        compiled = compiled_of(spec)
        given = compiled.given[sides[0]]
        schema = pa.schema(list(given)[:-1]) if numbered else given
        schema = schema.append(pa.field("hash", pa.int64())) if with_hash else schema
        next_row = TaskContext.get().partitionId() << TASK_BITS if numbered else 0
        for chunk in chunks(batches, schema):
            hashes = None
            if with_hash:
                hashes = chunk.column(chunk.num_columns - 1).to_numpy().view(np.uint64)
                chunk = chunk.select(list(range(chunk.num_columns - 1)))
            if numbered:
                # Both parts of a row travel in one attempt of one task, so the numbers agree.
                numbers = pa.array(np.arange(next_row, next_row + chunk.num_rows))
                chunk = pa.RecordBatch.from_arrays([*chunk.columns, numbers], schema=given)
                next_row += chunk.num_rows
            for side in sides:
                chunk = pa.RecordBatch.from_arrays(chunk.columns, schema=compiled.given[side])
                targets = (
                    held_targets(compiled, plan, chunk, hashes, keep_all)
                    if side == plan.held
                    else streamed_targets(compiled, plan, chunk, hashes)
                )
                for cell, rows in targets:
                    part = chunk
                    if len(rows) < chunk.num_rows:
                        taken = take_columns(chunk, rows)
                        part = pa.RecordBatch.from_arrays(taken, schema=chunk.schema)
                    yield from sent(part, [cell], side == plan.held)

    return route


def sent(rows: pa.RecordBatch, cells: Iterable[int], held: bool) -> Iterator[pa.RecordBatch]:
    """Rows on their way to some cells, as `ROUTED` has them."""
    for blob in to_blobs(rows):
        for cell in cells:
            columns = [pa.array([cell], pa.int32()), pa.array([held]), binary([blob])]
            yield pa.RecordBatch.from_arrays(columns, ["cell", "held", "blob"])
