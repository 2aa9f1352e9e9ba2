"""One cell of a batch join: its held rows first, then the others streamed past them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from thetajoin.engine.block import empty_batch
from thetajoin.engine.core import JoinCore
from thetajoin.engine.held import HeldJoin, Singles
from thetajoin.engine.spec import OTHER, Side
from thetajoin.spark.batch.worker import chunks, core_of, from_blob
from thetajoin.spark.spec import UnitSpec

# Rows streamed past the held ones at once; more than are held, up to a limit, to sweep them rarely.
PROBE_ROWS = 1 << 19
MOST_PROBE_ROWS = 1 << 21


@dataclass(frozen=True)
class CellJob:
    """What every cell of a join does.

    pairs, singles: what to give out (see `HeldJoin`). shown: output columns by position, where some
    only serve the join. apart: output columns that differ in every pair of two rows, or None.
    """

    held: Side
    pairs: bool
    singles: Singles
    shown: tuple[int, ...] | None = None
    apart: tuple[int, int] | None = None


def joiner(
    spec: UnitSpec, job: CellJob
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` over one cell's blobs, the held ones first."""

    def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        core = core_of(spec)
        for output in _run(core, job, _blobs(batches)):
            shown = _shown(output, job)
            if shown.num_rows:
                yield shown

    return joined


def _blobs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[bool, pa.RecordBatch]]:
    for batch in batches:
        for held, blob in zip(batch.column(1), batch.column(2), strict=True):
            for rows in from_blob(blob.as_buffer()):
                yield held.as_py(), rows


def _run(
    core: JoinCore, job: CellJob, blobs: Iterator[tuple[bool, pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    kept: list[pa.RecordBatch] = []
    first: pa.RecordBatch | None = None
    for held, rows in blobs:
        if not held:
            first = rows
            break
        kept.append(rows)
    schema, other = core.given[job.held], core.given[OTHER[job.held]]
    if not kept or (first is None and job.singles != "unmatched"):
        return
    total = sum(rows.num_rows for rows in kept)
    held_rows = next(chunks(kept, schema, total + 1, 1 << 62), empty_batch(schema))
    del kept
    join = HeldJoin(core, job.held, held_rows, pairs=job.pairs, singles=job.singles)

    def streamed() -> Iterator[pa.RecordBatch]:
        if first is not None:
            yield first
            yield from (rows for _, rows in blobs)

    room = min(max(PROBE_ROWS, total), MOST_PROBE_ROWS)
    for chunk in chunks(streamed(), other, room):
        yield from join.run(chunk)
    yield from join.finish()


def _shown(output: pa.RecordBatch, job: CellJob) -> pa.RecordBatch:
    if job.apart is not None:
        left, right = (output.column(at) for at in job.apart)
        apart = pc.not_equal(left, right)
        if not pc.all(apart).as_py():
            output = output.filter(apart)
    return output if job.shown is None else output.select(list(job.shown))
