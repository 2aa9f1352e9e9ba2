"""Packing: a partition's rows travel to the units as Arrow blobs, not as a row each.

A blob is of one side. Where a row has copies in several units, those that are not at home travel
in blobs of their own (`VISITING` more than the side), so that a unit knows what it must not count.
Units of an older routing are sent rows that they only probe with (`PROBING` more than the side).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, ByteType, IntegerType

from thetajoin.batch.keys import BytesKey, Int64, encode, is_bytes_type, is_key_type
from thetajoin.engine.parts import SIDES
from thetajoin.errors import DataError
from thetajoin.ipc import from_ipc, to_ipc
from thetajoin.kernels.order import gather, is_sorted, order_of
from thetajoin.limits import limits
from thetajoin.routes.copies import Copies
from thetajoin.routes.fingerprint import Fingerprints, fingerprints
from thetajoin.spark.tables.worker import gathered
from thetajoin.spark.tasks import schema_of
from thetajoin.spark.unit_keys import UNIT_KEYS
from thetajoin.spark.unit_spec import UnitSpec, compiled_of

# The columns behind a blob's own: its rows' fingerprints.
PRINTS = ("__thetajoin_print_0", "__thetajoin_print_1")
PACKED = schema_of(unit=IntegerType(), side=ByteType(), blob=BinaryType())
VISITING, PROBING = 2, 4
# Messages are given to Spark in batches of about so many bytes: each costs it a millisecond or two.
SENT_BYTES = 4 << 20


def packer(
    side: int, spec: UnitSpec
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that sends each unit the rows it needs, in blobs.

    Every task that has rows sends every unit something, if only a blob without rows: so all units
    are called in the same micro-batches and know the same watermarks.
    """
    keys = UNIT_KEYS[: spec.units]

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not spec.routing.meets:
            for group in _bounded(_printed(batch) for batch in batches):
                blob = binary([to_ipc(group[0], group[1:])])
                for key in keys:
                    yield _messages([(key, side)], blob)
            return
        for group in _bounded(batches):
            yield from _sent(_dealt(group, side, spec))

    return pack


def _messages(heads: list[tuple[int, int]], blobs: pa.Array) -> pa.RecordBatch:
    units, sides = zip(*heads, strict=True)
    columns = [pa.array(units, pa.int32()), pa.array(sides, pa.int8()), blobs]
    return pa.RecordBatch.from_arrays(columns, names=["unit", "side", "blob"])


def _sent(messages: Iterable[tuple[int, int, pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Messages in batches that are worth Spark's while."""
    heads: list[tuple[int, int]] = []
    blobs: list[pa.Buffer] = []
    for key, side, rows in messages:
        heads.append((key, side))
        blobs.append(to_ipc(rows))
        if sum(blob.size for blob in blobs) >= SENT_BYTES:
            yield _messages(heads, binary(blobs))
            heads, blobs = [], []
    if heads:
        yield _messages(heads, binary(blobs))


def _dealt(
    group: list[pa.RecordBatch], side: int, spec: UnitSpec
) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """For each unit, the rows that are at home there, if only none, and those that visit it."""
    join, of = compiled_of(spec), SIDES[side]
    rows = gathered(group, join.given[of])
    first = 0
    for older in spec.routing.older:
        copies = older.route(join, spec.units).copies(rows, of)._replace(home=None)
        for unit, visiting, mine in _parted(rows, copies, older.places(spec.units)):
            if not visiting:
                yield UNIT_KEYS[first + unit], side + PROBING, mine
        first += older.places(spec.units)
    copies = spec.routing.route(join, spec.units).copies(rows, of)
    for unit, visiting, mine in _parted(rows, copies, spec.routing.places(spec.units)):
        if mine.num_rows or not visiting:
            yield UNIT_KEYS[first + unit], side + VISITING * visiting, mine


def _parted(
    rows: pa.RecordBatch, copies: Copies, units: int
) -> Iterator[tuple[int, bool, pa.RecordBatch]]:
    """Each unit twice: with the rows that are at home there, and with those that visit it."""
    places = 2 * copies.units.astype(np.int64)
    if copies.home is not None:
        places += ~copies.home
    order = order_of(places)
    ends = np.searchsorted(gather(places, order), np.arange(2 * units + 1)).tolist()
    dealt = rows.take(pa.array(gather(copies.rows, order)))
    for place, (start, end) in enumerate(pairwise(ends)):
        yield place // 2, bool(place % 2), dealt.slice(start, end - start)


def _bounded(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """The rows in groups of at most `limits.blob_bytes`."""
    group: list[pa.RecordBatch] = []
    size = 0
    for whole in batches:
        for batch in _pieces(whole):
            if group and size + batch.nbytes > limits.blob_bytes:
                yield group
                group, size = [], 0
            group.append(batch)
            size += batch.nbytes
    if group:
        yield group


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in halves, and these in halves, until each fits a blob or is one row."""
    if batch.num_rows <= 1 or batch.nbytes <= limits.blob_bytes:
        if batch.num_rows:
            yield batch
        return
    half = batch.num_rows // 2
    yield from _pieces(batch.slice(0, half))
    yield from _pieces(batch.slice(half))


def _printed(batch: pa.RecordBatch) -> pa.RecordBatch:
    prints = [pa.array(lane.view(np.int64)) for lane in fingerprints(batch)]
    names = [*batch.schema.names, *PRINTS]
    return pa.RecordBatch.from_arrays([*batch.columns, *prints], names=names)


def binary(buffers: list[pa.Buffer]) -> pa.Array:
    """Binary values; one alone is not copied."""
    ends = np.cumsum([0, *(buffer.size for buffer in buffers)], dtype=np.int32)
    data = buffers[0] if len(buffers) == 1 else pa.py_buffer(b"".join(map(memoryview, buffers)))
    return pa.Array.from_buffers(pa.binary(), len(buffers), [None, pa.py_buffer(ends), data])


def unpack(blobs: list[bytes], schema: pa.Schema) -> pa.RecordBatch:
    """The rows of several blobs, as they come: for a unit that is a join of its own."""
    return _conformed(_columns(blobs), schema)


def unpack_ordered(blobs: list[bytes], schema: pa.Schema, order_by: str | None) -> pa.RecordBatch:
    """The rows of several blobs in an order that depends on the rows alone.

    Units must agree on it, and Spark may run a task again with its input in another order while
    other units' results stay: so neither shares nor ties may depend on where a row stood. The order
    is that of the column `order_by` if no two rows are equal in it, or else of the rows'
    fingerprints, in which only rows tie that are the same in every value.
    """
    columns = _columns(blobs)
    lanes = [column.to_numpy().view(np.uint64) for column in columns[-len(PRINTS) :]]
    batch = _conformed(columns[: -len(PRINTS)], schema)
    if not columns:
        return batch
    del blobs, columns  # rows are copied once more below
    distinct = None if order_by is None else distinct_keys(batch.column(order_by))
    if distinct is None:
        return batch.take(pa.array(Fingerprints(*lanes).order()))
    return batch if is_sorted(distinct) else batch.take(pa.array(order_of(distinct)))


def _columns(blobs: list[bytes]) -> list[pa.Array]:
    if not blobs:
        return []
    return [_whole(column) for column in pa.concat_tables(map(from_ipc, blobs)).columns]


def _conformed(columns: list[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Columns under a schema's names and types; none at all are an empty batch."""
    if not columns:
        columns = [pa.array([], field.type) for field in schema]
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """A column's chunks as one array; Arrow's offsets end at 2 GiB."""
    try:
        return column.combine_chunks()
    except pa.ArrowInvalid as error:
        raise DataError(
            f"a column of type {column.type} has more than 2 GiB in one micro-batch: have the "
            "source give less at once, with its maxFilesPerTrigger or maxOffsetsPerTrigger"
        ) from error


def distinct_keys(column: pa.Array) -> Int64 | None:
    """A column's keys if no two of them are equal and none is NULL."""
    if column.null_count or not is_key_type(column.type) or is_bytes_type(column.type):
        return None
    keys = encode(column)
    if isinstance(keys, BytesKey):
        return None
    ordered = keys if is_sorted(keys) else np.sort(keys)
    return None if (ordered[1:] == ordered[:-1]).any() else keys
