"""One cell of a batch join: its held rows first, then the others streamed past them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from thetajoin.engine.block import empty_batch
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.parts import OTHER, SIDES, Side
from thetajoin.engine.tables import Singles
from thetajoin.ipc import batches_from_ipc
from thetajoin.limits import limits
from thetajoin.spark.exchange import chunks, read_blobs
from thetajoin.spark.unit_spec import UnitSpec, get_compiled

# Rows streamed past the held ones at once; more than are held, up to a limit, to sweep them rarely.
PROBE_ROWS = 1 << 19
MOST_PROBE_ROWS = 1 << 21
COUNTS = ("__thetajoin_held", "__thetajoin_streamed", "__thetajoin_found")


@dataclass(frozen=True)
class CellJob:
    """What every cell of a join does.

    pairs, singles: what to give out (see `HeldJoin`). shown: output columns by position, where some
    only serve the join. apart: output columns that differ in every pair of two rows, or None.
    counted: a last row of each cell counts its rows of both sides and its output, in added columns.
    """

    held: Side
    pairs: bool
    singles: Singles
    shown: tuple[int, ...] | None = None
    apart: tuple[int, int] | None = None
    counted: bool = False


def join_cell(
    spec: UnitSpec, job: CellJob
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` over one cell's blobs, the held ones first."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        compiled = get_compiled(spec)
        counts = {True: 0, False: 0}
        found = 0
        for output in _run(compiled, job, _count(_blobs(batches, job.held), counts)):
            shown = _show(output, job)
            found += shown.num_rows
            if shown.num_rows:
                yield _with_counts(shown) if job.counted else shown
        if job.counted:
            schema = _show(empty_batch(compiled.layout.schema), job).schema
            yield _count_row(schema, counts[True], counts[False], found)

    return run


def _count(
    blobs: Iterator[tuple[bool, pa.RecordBatch]], counts: dict[bool, int]
) -> Iterator[tuple[bool, pa.RecordBatch]]:
    for held, rows in blobs:
        counts[held] += rows.num_rows
        yield held, rows


def _with_counts(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Output rows with the added columns empty."""
    nulls = [pa.nulls(rows.num_rows, pa.int64())] * len(COUNTS)
    return pa.RecordBatch.from_arrays([*rows.columns, *nulls], [*rows.schema.names, *COUNTS])


def _count_row(schema: pa.Schema, *counts: int) -> pa.RecordBatch:
    columns = [pa.nulls(1, field.type) for field in schema]
    columns += [pa.array([count], pa.int64()) for count in counts]
    return pa.RecordBatch.from_arrays(columns, [*schema.names, *COUNTS])


def _blobs(batches: Iterable[pa.RecordBatch], held: Side) -> Iterator[tuple[bool, pa.RecordBatch]]:
    for side, blob in read_blobs(batches):
        for rows in batches_from_ipc(blob):
            yield SIDES[side] == held, rows


def _run(
    compiled: CompiledJoin, job: CellJob, blobs: Iterator[tuple[bool, pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    kept: list[pa.RecordBatch] = []
    first: pa.RecordBatch | None = None
    for held, rows in blobs:
        if not held:
            first = rows
            break
        kept.append(rows)
    schema, other = compiled.given[job.held], compiled.given[OTHER[job.held]]
    if not kept or (first is None and job.singles != "unmatched"):
        return
    total = sum(rows.num_rows for rows in kept)
    tables = list(chunks(kept, schema, total + 1, limits.held_bytes)) or [empty_batch(schema)]
    del kept
    joins = [compiled.hold(job.held, rows, pairs=job.pairs, singles=job.singles) for rows in tables]
    del tables

    def stream() -> Iterator[pa.RecordBatch]:
        if first is not None:
            yield first
            yield from (rows for _, rows in blobs)

    room = min(max(PROBE_ROWS, total), MOST_PROBE_ROWS)
    for chunk in chunks(stream(), other, room):
        for join in joins:
            yield from join.run(chunk)
    for join in joins:
        yield from join.finish()


def _show(output: pa.RecordBatch, job: CellJob) -> pa.RecordBatch:
    if job.apart is not None:
        left, right = (output.column(at) for at in job.apart)
        apart = pc.not_equal(left, right)
        if not pc.all(apart).as_py():
            output = output.filter(apart)
    return output if job.shown is None else output.select(list(job.shown))
