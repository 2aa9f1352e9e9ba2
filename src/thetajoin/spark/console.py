"""The first rows of a micro-batch, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

from thetajoin.spark.tasks import map_batches, name_by_position


def first_rows(df: Any, most: int) -> tuple[pa.Table, int]:
    """Up to `most` rows of a micro-batch, and how many it has.

    Every partition is computed, and once: a limit would leave some out, and the state that they
    should have written with them.
    """
    frame, width, count = name_by_position(df), len(df.columns), "rows"

    def counted(part: pa.RecordBatch, counts: list[int | None]) -> pa.RecordBatch:
        return part.append_column(count, pa.array(counts, pa.int64()))

    def first(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows, schema = 0, None
        for batch in batches:
            part, schema = batch.slice(0, max(0, most - rows)), batch.schema
            rows += batch.num_rows
            yield counted(part, [None] * part.num_rows)
        if schema is not None:
            nothing = [pa.nulls(1, field.type) for field in schema]
            yield counted(pa.RecordBatch.from_arrays(nothing, names=schema.names), [rows])

    fields = [StructField(field.name, field.dataType, True) for field in frame.schema.fields]
    output = StructType([*fields, StructField(count, LongType())])
    found = map_batches(frame, first, output).toArrow()
    counts = found.column(width)
    rows = found.filter(counts.is_null()).select(range(width)).slice(0, most)
    total = sum(n for n in counts.to_pylist() if n is not None)
    return rows.rename_columns(df.columns), total
