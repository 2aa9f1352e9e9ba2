"""The rows of a Delta table's data files, which are Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from thetajoin.spark.connectors.history import ROWS


@dataclass(frozen=True)
class DeltaFile:
    """A data file by its path below the table, and the values of the partition that it is in."""

    path: str
    version: int
    values: tuple[tuple[str, Any], ...]


def file_rows(files: Any, file: DeltaFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """A file's rows with the columns of a schema: NULL where the file has none of that name.

    files: the table's file system. The values of partitions are not in the file.
    """
    values = dict(file.values)
    with files.open_input_file(file.path) as handle:
        # Spark writes timestamps as INT96 by default; nanoseconds end in the year 2262.
        parquet = pq.ParquetFile(handle, coerce_int96_timestamp_unit="us")
        names = set(parquet.schema_arrow.names) - set(values)
        for batch in _batches(parquet, [name for name in schema.names if name in names]):
            arrays = [
                batch.column(field.name).cast(field.type)
                if field.name in names
                else pa.repeat(pa.scalar(values.get(field.name), field.type), batch.num_rows)
                for field in schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def partition_value(text: str | None, type_: pa.DataType) -> Any:
    """A partition's value, which the log has as text.

    >>> partition_value("2024-01-01 10:00:00.5", pa.timestamp("us")), partition_value("", pa.int8())
    (datetime.datetime(2024, 1, 1, 10, 0, 0, 500000), None)
    """
    if not text:
        return None
    if pa.types.is_timestamp(type_):
        plain = text.removesuffix("Z").replace("T", " ")
        return pa.scalar(plain).cast(pa.timestamp("us")).cast(type_).as_py()
    return pa.scalar(text).cast(type_).as_py()


def _batches(parquet: pq.ParquetFile, columns: list[str]) -> Iterator[pa.RecordBatch]:
    if columns:
        yield from parquet.iter_batches(batch_size=ROWS, columns=columns)
        return
    # A file without any of the columns still has rows.
    left = parquet.metadata.num_rows
    while left:
        rows = min(left, ROWS)
        yield pa.record_batch({"rows": pa.nulls(rows)})
        left -= rows
