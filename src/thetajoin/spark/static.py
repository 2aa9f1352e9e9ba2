"""A streaming DataFrame and a table: stateless, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from thetajoin.aggregate.totals import TotalsBeside, TotalsJoin
from thetajoin.batch.tables import contiguous
from thetajoin.engine.block import empty_batch
from thetajoin.engine.compiled import Beside
from thetajoin.engine.parts import Side
from thetajoin.errors import DataError
from thetajoin.limits import limits
from thetajoin.spark.partials import partial_batch
from thetajoin.spark.remembered import Remembered
from thetajoin.spark.sent import Sent, collected, send, sendable_bytes
from thetajoin.spark.tasks import mapped
from thetajoin.spark.unit_spec import UnitSpec

Mapped = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
# What this process has indexed, by the label of its join.
_BUILT: Remembered[Any] = Remembered(4)


def _built(label: str, make: Callable[[], Any]) -> Any:
    # A function of this module's, which a task finds by its name: its memory is the worker's own.
    return _BUILT.made(label, make)


def _sent(table: Any, schema: pa.Schema, check: Callable[[pa.RecordBatch], Any]) -> Sent:
    """A table's rows, read once, now; `check` refuses what cannot be done with any."""
    check(empty_batch(schema))
    most = sendable_bytes(table.sparkSession, limits.static_bytes)
    rows = collected(table, most)
    if rows is None:
        raise DataError(
            f"the table beside the stream takes more than {most >> 20} MiB (or than "
            "spark.driver.maxResultSize), and every worker holds all of it: leave out rows or "
            "columns that the join does not need, or read it as a stream too"
        )
    return send(table.sparkSession, contiguous(rows.cast(schema), "static"))


def _conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    named = pa.Table.from_batches([batch]).rename_columns(schema.names)
    return contiguous(named.cast(schema), "streaming")


def static_join(df: Any, table: Any, spec: UnitSpec, streaming: Side, output: Any) -> Any:
    """Join the stream `df` with the DataFrame `table`, which is read once, now."""
    mine, other = ("left", "right") if streaming == "l" else ("right", "left")

    def made(rows: pa.RecordBatch) -> Beside:
        return spec.compile().put_beside(streaming, rows)

    schema = spec.schema(other)
    sent = _sent(table, schema, made)

    def probe(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        join = _built(spec.label, lambda: made(sent.batch(schema)))
        for batch in batches:
            yield from join.run(_conformed(batch, spec.schema(mine)))

    return mapped(df, probe, output)


def static_totals(
    df: Any, table: Any, query: TotalsJoin, streaming: Side, output: Any, label: str
) -> Any:
    """Partial aggregates of each batch of the stream `df` with `table`, which is read once, now."""
    schemas = query.left_schema, query.right_schema
    mine, other = schemas if streaming == "l" else schemas[::-1]

    def made(rows: pa.RecordBatch) -> TotalsBeside:
        return query.put_beside(streaming, rows)

    sent = _sent(table, other, made)

    def probe(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        beside = _built(label, lambda: made(sent.batch(other)))
        for batch in batches:
            totals = partial_batch(beside.add_up(_conformed(batch, mine)))
            if totals.num_rows:
                yield totals

    return mapped(df, probe, output)
