"""What tasks of a batch join share: chunks of rows, blobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from thetajoin.batch.tables import contiguous
from thetajoin.ipc import to_ipc
from thetajoin.limits import limits

# Rows of a side that a task keys and sends at once, and bytes after which it does not wait.
CHUNK_ROWS = 1 << 18
CHUNK_BYTES = 64 << 20


def chunks(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    rows: int = CHUNK_ROWS,
    size: int = CHUNK_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Spark's small batches gathered into larger ones, in the schema the join was compiled for."""
    waiting: list[pa.RecordBatch] = []
    held = held_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        held += batch.num_rows
        held_bytes += batch.nbytes
        if held >= rows or held_bytes >= size:
            yield gathered(waiting, schema)
            waiting, held, held_bytes = [], 0, 0
    if waiting:
        yield gathered(waiting, schema)


def gathered(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Batches as one, its columns named and typed by position as in the schema."""
    columns = contiguous(pa.Table.from_batches(batches), "gathered").columns
    cast = [c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, schema, strict=True)]
    if not cast:
        return pa.RecordBatch.from_pylist([{} for b in batches for _ in range(b.num_rows)], schema)
    return pa.RecordBatch.from_arrays(cast, schema=schema)


def row_bytes(schema: pa.Schema) -> tuple[int, bool]:
    """What a row takes, and whether that is only the least: texts and lists count 16 bytes."""
    widths = [_width(type_) for type_ in schema.types]
    return max(1, sum(16 if width is None else width for width in widths)), None in widths


def _width(type_: pa.DataType) -> int | None:
    try:
        bits: int = type_.bit_width
    except ValueError:  # has none
        return None
    return -(-bits // 8)


def to_blobs(batch: pa.RecordBatch, most: int | None = None) -> Iterator[pa.Buffer]:
    """Rows as Arrow streams of a bounded size, but for a row that takes more by itself."""
    most = limits.blob_bytes if most is None else most
    if batch.num_rows < 2 or batch.nbytes <= most:
        yield to_ipc(batch)
        return
    half = batch.num_rows // 2
    yield from to_blobs(batch.slice(0, half), most)
    yield from to_blobs(batch.slice(half), most)


def sampled(batch: pa.RecordBatch, rows: int) -> pa.RecordBatch:
    """Some rows from all over a batch: at most so many, fewer where they are long."""
    while True:
        rows = min(rows, batch.num_rows)
        kept = np.linspace(0, batch.num_rows - 1, rows).astype(np.int64)
        sample = batch.take(pa.array(kept))
        if rows < 2 or sample.nbytes <= limits.sample_bytes:
            return sample
        rows //= 2
