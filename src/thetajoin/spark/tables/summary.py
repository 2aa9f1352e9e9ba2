"""Looking at both tables once: their zones, a sample, and how large they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, ByteType, LongType

from thetajoin.batch.keys import Int64
from thetajoin.engine.block import concat_batches, empty_batch
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.parts import OTHER, SIDES, Side
from thetajoin.engine.rows import make_batch
from thetajoin.ipc import from_ipc, to_ipc
from thetajoin.planner.facets import Rows, sights_of
from thetajoin.planner.zones import Zones, summarise
from thetajoin.spark.tables.drawn import Drawn
from thetajoin.spark.tables.table import Table
from thetajoin.spark.tables.worker import chunks, sampled
from thetajoin.spark.tasks import schema_of
from thetajoin.spark.unit_spec import UnitSpec, compiled_of

SUMMARY = schema_of(side=ByteType(), total=LongType(), zones=BinaryType(), sample=BinaryType())
SUMMARY_ROWS = 1 << 20
# Sampled rows that each task sends, and rows of a side that estimates are made from.
TASK_SAMPLE = 1024
SAMPLE = 4096
# Where fewer of the rows than this share can match by where they lie, leaving them out pays.
WORTH_ALL = 0.8


@dataclass(frozen=True)
class Summary:
    """What was seen of a side."""

    zones: Zones
    sample: pa.RecordBatch

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return self.zones.total


def look(tables: dict[Side, Table], compiled: CompiledJoin, spec: UnitSpec) -> dict[Side, Summary]:
    """Summarise the sides in one Spark job."""
    jobs = None
    for side, table in tables.items():
        positions = [compiled.schemas[side].names.index(name) for name in compiled.needed(side)]
        job = table.mapped(_summariser(spec, side), SUMMARY, positions)
        jobs = job if jobs is None else jobs.union(job)
    assert jobs is not None
    found = jobs.collect()
    return {
        side: _merged([row for row in found if row.side == SIDES.index(side)], compiled, side)
        for side in tables
    }


def summaries_of(drawn: Drawn, compiled: CompiledJoin) -> dict[Side, Summary] | None:
    """What rows drawn of both sides tell; None where so few can match that all are worth a look.

    With all rows seen, those that lie where the other side has none are not sent anywhere.
    """
    sights = sights_of(compiled)
    batches = {
        side: make_batch(rows, side, compiled.parts, []) for side, rows in drawn.samples.items()
    }
    found = {}
    for side, batch in batches.items():
        zones = summarise(sights, side, batch)
        scale = drawn.rows[side] / max(1, len(batch))
        zones = replace(zones, rows=np.rint(zones.rows * scale).astype(np.int64))
        found[side] = Summary(zones, drawn.samples[side])
    for side, batch in batches.items():
        if len(batch) and len(batches[OTHER[side]]):
            around = found[OTHER[side]].zones.boxes.all()
            able = len(Rows(sights, side, batch).matching(around, 0))
            if able < WORTH_ALL * len(batch.parts[0]):
                return None
    return found


def _summariser(
    spec: UnitSpec, side: Side
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def summarised(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        compiled = compiled_of(spec)
        names = compiled.needed(side)
        schema = pa.schema([compiled.schemas[side].field(name) for name in names])
        for chunk in chunks(batches, schema, SUMMARY_ROWS):
            zones = summarise(
                sights_of(compiled), side, make_batch(chunk, side, compiled.parts, names)
            )
            sample = sampled(chunk, TASK_SAMPLE)
            columns = [
                pa.array([SIDES.index(side)], pa.int8()),
                pa.array([chunk.num_rows], pa.int64()),
                pa.array([zones.to_matrix().tobytes()], pa.binary()),
                pa.array([to_ipc(sample).to_pybytes()], pa.binary()),
            ]
            yield pa.RecordBatch.from_arrays(columns, ["side", "total", "zones", "sample"])

    return summarised


def _merged(rows: list[Any], compiled: CompiledJoin, side: Side) -> Summary:
    widths = [sight.width(side) for sight in sights_of(compiled)]
    height = 5 + 2 * sum(widths)
    matrices: list[Int64] = [np.zeros((height, 0), np.int64)]
    samples = []
    total = sum(row.total for row in rows)
    for row in rows:
        matrices.append(np.frombuffer(row.zones, np.int64).reshape(height, -1))
        sample = from_ipc(row.sample).combine_chunks().to_batches()[0]
        share = max(1, round(SAMPLE * row.total / total))
        kept = np.linspace(0, sample.num_rows - 1, min(share, sample.num_rows)).astype(np.int64)
        samples.append(sample.take(pa.array(kept)))
    names = compiled.needed(side)
    schema = pa.schema([compiled.schemas[side].field(name) for name in names])
    sample = concat_batches(samples) if samples else empty_batch(schema)
    return Summary(Zones.from_matrix(np.concatenate(matrices, axis=1), widths), sample)
