"""Rows and schemas as bytes: Arrow's IPC stream format, written and read here alone."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa


def to_ipc(batch: pa.RecordBatch, more: Iterable[pa.RecordBatch] = ()) -> pa.Buffer:
    """One batch, or several of its schema, as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        for part in (batch, *more):
            writer.write_batch(part)
    return sink.getvalue()


def from_ipc(data: pa.Buffer | bytes) -> pa.Table:
    """All rows of an Arrow stream, without a copy."""
    return pa.ipc.open_stream(data).read_all()


def batches_from_ipc(data: pa.Buffer | bytes) -> list[pa.RecordBatch]:
    """The batches of an Arrow stream as they were written, those without rows too."""
    return list(pa.ipc.open_stream(data))


def batch_from_ipc(data: pa.Buffer | bytes) -> pa.RecordBatch:
    """The first batch of an Arrow stream, without a copy."""
    return pa.ipc.open_stream(data).read_next_batch()


def schema_to_bytes(schema: pa.Schema) -> bytes:
    """A schema alone."""
    written: bytes = schema.serialize().to_pybytes()
    return written


def schema_from_bytes(data: bytes) -> pa.Schema:
    """What `schema_to_bytes` was given."""
    return pa.ipc.read_schema(pa.py_buffer(data))
