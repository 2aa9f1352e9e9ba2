"""Packing: a partition's rows travel to the units as one Arrow blob, not as a row each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, ByteType, IntegerType

from thetajoin.batch.keys import BytesKey, Int64, encode, is_bytes_type, is_key_type
from thetajoin.kernels.order import is_sorted, order_of
from thetajoin.spark.tasks import schema_of
from thetajoin.spark.unit_keys import UNIT_KEYS

# The column that orders a micro-batch's rows the same way in every unit and every retry.
HASH = "__thetajoin_hash"
PACKED = schema_of(unit=IntegerType(), side=ByteType(), blob=BinaryType())


def packer(side: int, units: int) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that gives one row to each unit for a whole partition."""
    keys = UNIT_KEYS[:units]

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filled = [batch for batch in batches if batch.num_rows]
        if not filled:
            return
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, filled[0].schema) as writer:
            for batch in filled:
                writer.write_batch(batch)
        blob = binary(sink.getvalue())
        for key in keys:
            columns = [pa.array([key], pa.int32()), pa.array([side], pa.int8()), blob]
            yield pa.RecordBatch.from_arrays(columns, names=["unit", "side", "blob"])

    return pack


def binary(buffer: pa.Buffer) -> pa.Array:
    """One binary value around a buffer, without a copy."""
    offsets = pa.py_buffer(np.array([0, buffer.size], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, buffer])


def unpack(blobs: list[bytes], schema: pa.Schema, order_by: str | None) -> pa.RecordBatch:
    """The rows of several blobs in an order that depends on the rows alone.

    Spark may run a task again with its input in another order while other units' results stay: so
    neither shares nor ties may depend on where a row stood. The order is that of the column
    `order_by` if no two rows are equal in it, or else of a hash of all columns.
    """
    if not blobs:
        return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
    tables = [pa.ipc.open_stream(blob).read_all() for blob in blobs]
    table = pa.concat_tables(tables).combine_chunks()
    hashes = table.column(HASH).chunk(0).to_numpy()
    batch = table.drop_columns([HASH]).to_batches()[0]
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    distinct = None if order_by is None else distinct_keys(batch.column(order_by))
    keys = hashes if distinct is None else distinct
    return batch if is_sorted(keys) else batch.take(pa.array(order_of(keys)))


def distinct_keys(column: pa.Array) -> Int64 | None:
    """A column's keys if no two of them are equal and none is NULL."""
    if column.null_count or not is_key_type(column.type) or is_bytes_type(column.type):
        return None
    keys = encode(column)
    if isinstance(keys, BytesKey):
        return None
    ordered = keys if is_sorted(keys) else np.sort(keys)
    return None if (ordered[1:] == ordered[:-1]).any() else keys
