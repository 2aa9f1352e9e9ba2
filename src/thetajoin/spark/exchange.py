"""The exchange: rows travel to the tasks that join them as Arrow blobs, not as a row each.

A routing says for each row which units are sent a copy, and which of these copies is at home
(`routes.copies`). It is a function of what the row holds alone: a task that Spark runs again, with
its rows in another order and in other batches, sends them to the same units. Streams, tables and
totals of tables travel alike; a unit of tables is a cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, ByteType, IntegerType

from thetajoin.batch.keys import BytesKey, Int64, encode, is_bytes_type, is_key_type
from thetajoin.batch.tables import contiguous
from thetajoin.engine.block import empty_batch
from thetajoin.engine.layout import take_columns
from thetajoin.engine.parts import SIDES, Side
from thetajoin.errors import DataError
from thetajoin.ipc import from_ipc, to_ipc
from thetajoin.kernels.order import is_sorted, order_of
from thetajoin.limits import limits
from thetajoin.planner.cells import CellPlan, cell_copies
from thetajoin.routes.copies import Copies
from thetajoin.routes.fingerprint import Fingerprints, fingerprints
from thetajoin.spark.tasks import Task, make_schema
from thetajoin.spark.unit_keys import UNIT_KEYS
from thetajoin.spark.unit_spec import UnitSpec, get_compiled

# A blob of one side's rows for a unit. Rows that are not at home there travel in blobs of their own
# (`VISITING` more than the side), so that the unit knows what it must not count; so do rows for
# units of an older routing, which only probe there (`PROBING` more).
BLOBS = make_schema(unit=IntegerType(), side=ByteType(), blob=BinaryType())
VISITING, PROBING = 2, 4
# The columns behind a blob's own: its rows' fingerprints.
PRINTS = ("__thetajoin_print_0", "__thetajoin_print_1")
# Messages go to Spark in batches of about this many bytes: each costs it a millisecond or two.
SENT_BYTES = 4 << 20
# Rows of a table that a task keys and sends at once, and bytes after which it does not wait.
CHUNK_ROWS = 1 << 18
CHUNK_BYTES = 64 << 20
# Bits of a row's number that count rows within a task.
TASK_BITS = 40
# With no more copies a row than this, all are made at once, and then cut into the units' parts.
FEW_COPIES = 2

Message = tuple[int, int, pa.RecordBatch]
TOO_LARGE = (
    "a column has more than 2 GiB in one micro-batch: have the source give less at once, with its "
    "maxFilesPerTrigger or maxOffsetsPerTrigger"
)


def route_to_units(side: int, spec: UnitSpec) -> Task:
    """A task that sends each unit of a streaming join the rows it needs.

    Every task that has rows sends every unit something, if only a blob without rows: so all units
    are called in the same micro-batches and know the same watermarks.
    """
    keys = UNIT_KEYS[: spec.units]

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not spec.routing.meets:
            for group in _groups(_with_prints(batch) for batch in batches):
                blob = binary([to_ipc(group[0], group[1:])])
                for key in keys:
                    yield _batch_of([(key, side)], blob)
            return
        for group in _groups(batches):
            yield from send(_to_units(group, side, spec), small=True)

    return run


def _to_units(group: list[pa.RecordBatch], side: int, spec: UnitSpec) -> Iterator[Message]:
    """What each unit is sent of some rows: those at home there, if only none, and visiting ones."""
    join, of = get_compiled(spec), SIDES[side]
    rows = as_batch(pa.Table.from_batches(group), join.given[of])
    first = 0
    for older in spec.routing.older:
        copies = older.route(join, spec.units).copies(rows, of)._replace(home=None)
        units = UNIT_KEYS[first : first + older.places(spec.units)]
        yield from _to_all(rows, copies, side + PROBING, units)
        first += len(units)
    copies = spec.routing.route(join, spec.units).copies(rows, of)
    units = UNIT_KEYS[first : first + spec.routing.places(spec.units)]
    yield from _to_all(rows, copies, side, units)


def _to_all(
    rows: pa.RecordBatch, copies: Copies, side: int, units: Sequence[int]
) -> Iterator[Message]:
    """The rows for each unit, by their keys; those without rows at home get an empty message."""
    called = set()
    for unit, visiting, part in deal(rows, copies):
        yield units[unit], side + VISITING * visiting, part
        if not visiting:
            called.add(unit)
    for unit, key in enumerate(units):
        if unit not in called:
            yield key, side, rows.slice(0, 0)


def route_to_cells(
    spec: UnitSpec, plan: CellPlan, sides: tuple[Side, ...], keep_all: bool, numbered: bool
) -> Task:
    """A task that sends a table's rows to the cells of a join; with two sides, in both roles.

    With `keep_all`, held rows that can match nothing are sent too. With `numbered`, each row gets a
    number of its own.
    """
    deals = any(group.cells > 1 for group in plan.groups)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        compiled = get_compiled(spec)
        given = compiled.given[sides[0]]
        next_row = TaskContext.get().partitionId() << TASK_BITS if numbered else 0
        for chunk in chunks(batches, pa.schema(list(given)[:-1]) if numbered else given):
            hashes = fingerprints(chunk).first if deals else None
            if numbered:
                # Both roles of a row travel in one attempt of one task, so the numbers agree.
                numbers = pa.array(np.arange(next_row, next_row + chunk.num_rows))
                chunk = pa.RecordBatch.from_arrays([*chunk.columns, numbers], schema=given)
                next_row += chunk.num_rows
            for side in sides:
                rows = pa.RecordBatch.from_arrays(chunk.columns, schema=compiled.given[side])
                copies = cell_copies(compiled, plan, rows, side, hashes, keep_all)
                yield from send_copies(rows, copies, side)

    return run


def send_copies(rows: pa.RecordBatch, copies: Copies, side: Side) -> Iterator[pa.RecordBatch]:
    """Rows on their way to where a routing has them."""
    at = SIDES.index(side)
    parts = deal(rows, copies)
    return send((unit, at + VISITING * visiting, part) for unit, visiting, part in parts)


def deal(rows: pa.RecordBatch, copies: Copies) -> Iterator[tuple[int, bool, pa.RecordBatch]]:
    """Each unit's rows: those at home there and, marked, those that visit it."""
    parts = list(copies.by_unit())
    some = [chosen for _, _, chosen in parts if len(chosen) < rows.num_rows]
    at_once = bool(some) and sum(map(len, some)) <= FEW_COPIES * rows.num_rows
    dealt = _take(rows, np.concatenate(some)) if at_once else rows
    start = 0
    for unit, visiting, chosen in parts:
        if len(chosen) == rows.num_rows:
            yield unit, visiting, rows
        elif at_once:
            yield unit, visiting, dealt.slice(start, len(chosen))
            start += len(chosen)
        else:
            yield unit, visiting, _take(rows, chosen)


def _take(rows: pa.RecordBatch, chosen: NDArray[np.int32]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(take_columns(rows, chosen), schema=rows.schema)


def send(messages: Iterable[Message], *, small: bool = False) -> Iterator[pa.RecordBatch]:
    """Messages as `BLOBS` has them, in batches that are worth Spark's while.

    small: each message is known to fit into a blob, and is not measured again.
    """
    heads: list[tuple[int, int]] = []
    blobs: list[pa.Buffer] = []
    size = 0
    for unit, side, rows in messages:
        for blob in [to_ipc(rows)] if small else to_blobs(rows):
            heads.append((unit, side))
            blobs.append(blob)
            size += blob.size
            if size >= SENT_BYTES:
                yield _batch_of(heads, binary(blobs))
                heads, blobs, size = [], [], 0
    if heads:
        yield _batch_of(heads, binary(blobs))


def _batch_of(heads: list[tuple[int, int]], blobs: pa.Array) -> pa.RecordBatch:
    units, sides = zip(*heads, strict=True)
    columns = [pa.array(units, pa.int32()), pa.array(sides, pa.int8()), blobs]
    return pa.RecordBatch.from_arrays(columns, names=BLOBS.names)


def read_blobs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Buffer]]:
    """The blobs that one unit was sent, each with its side."""
    for batch in batches:
        for side, blob in zip(batch.column(1).to_pylist(), batch.column(2), strict=True):
            yield side, blob.as_buffer()


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
            yield as_batch(pa.Table.from_batches(waiting), schema)
            waiting, held, held_bytes = [], 0, 0
    if waiting:
        yield as_batch(pa.Table.from_batches(waiting), schema)


def as_batch(
    rows: pa.Table | pa.RecordBatch, schema: pa.Schema, too_large: str | None = None
) -> pa.RecordBatch:
    """Rows as one batch, its columns named and typed by position as in a schema.

    too_large: what to say if a column takes more than Arrow can have in one array.
    """
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if not len(schema):
        return pa.RecordBatch.from_pylist([{}] * rows.num_rows, schema)
    try:
        columns = contiguous(rows.rename_columns(schema.names), "joined").columns
    except DataError:
        if too_large is None:
            raise
        raise DataError(too_large) from None
    cast = [c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=schema)


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """The rows in groups of at most `limits.blob_bytes`."""
    group: list[pa.RecordBatch] = []
    size = 0
    for whole in batches:
        for batch in halves(whole):
            if group and size + batch.nbytes > limits.blob_bytes:
                yield group
                group, size = [], 0
            if batch.num_rows:
                group.append(batch)
                size += batch.nbytes
    if group:
        yield group


def halves(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in halves, and these in halves, until each fits a blob or is one row."""
    if batch.num_rows < 2 or batch.nbytes <= limits.blob_bytes:
        yield batch
        return
    half = batch.num_rows // 2
    yield from halves(batch.slice(0, half))
    yield from halves(batch.slice(half))


def to_blobs(batch: pa.RecordBatch) -> Iterator[pa.Buffer]:
    """Rows as Arrow streams of a bounded size, but for a row that takes more by itself."""
    return map(to_ipc, halves(batch))


def binary(buffers: list[pa.Buffer]) -> pa.Array:
    """Binary values; one alone is not copied."""
    ends = np.cumsum([0, *(buffer.size for buffer in buffers)], dtype=np.int32)
    data = buffers[0] if len(buffers) == 1 else pa.py_buffer(b"".join(map(memoryview, buffers)))
    return pa.Array.from_buffers(pa.binary(), len(buffers), [None, pa.py_buffer(ends), data])


def _with_prints(batch: pa.RecordBatch) -> pa.RecordBatch:
    prints = [pa.array(lane.view(np.int64)) for lane in fingerprints(batch)]
    names = [*batch.schema.names, *PRINTS]
    return pa.RecordBatch.from_arrays([*batch.columns, *prints], names=names)


def unpack(blobs: list[bytes], schema: pa.Schema) -> pa.RecordBatch:
    """The rows of several blobs, as they come: for a unit that is a join of its own."""
    if not blobs:
        return empty_batch(schema)
    return as_batch(pa.concat_tables(map(from_ipc, blobs)), schema, TOO_LARGE)


def unpack_ordered(blobs: list[bytes], schema: pa.Schema, order_by: str | None) -> pa.RecordBatch:
    """The rows of several blobs in an order that depends on the rows alone.

    Units must agree on it, and Spark may run a task again with its input in another order while
    other units' results stay: so neither shares nor ties may depend on where a row stood. The order
    is that of the column `order_by` if no two rows are equal in it, or else of the rows'
    fingerprints, in which only rows tie that are the same in every value.
    """
    if not blobs:
        return empty_batch(schema)
    table = pa.concat_tables(map(from_ipc, blobs))
    lanes = [column.to_numpy().view(np.uint64) for column in table.columns[-len(PRINTS) :]]
    batch = as_batch(table.select(range(len(schema))), schema, TOO_LARGE)
    del blobs, table  # rows are copied once more below
    distinct = None if order_by is None else distinct_keys(batch.column(order_by))
    if distinct is None:
        return batch.take(pa.array(Fingerprints(*lanes).order()))
    return batch if is_sorted(distinct) else batch.take(pa.array(order_of(distinct)))


def distinct_keys(column: pa.Array) -> Int64 | None:
    """A column's keys if no two of them are equal and none is NULL."""
    if column.null_count or not is_key_type(column.type) or is_bytes_type(column.type):
        return None
    keys = encode(column)
    if isinstance(keys, BytesKey):
        return None
    ordered = keys if is_sorted(keys) else np.sort(keys)
    return None if (ordered[1:] == ordered[:-1]).any() else keys


def sample_rows(batch: pa.RecordBatch, rows: int) -> pa.RecordBatch:
    """Some rows from all over a batch: at most this many, fewer where they are long."""
    while True:
        rows = min(rows, batch.num_rows)
        kept = np.linspace(0, batch.num_rows - 1, rows).astype(np.int64)
        sample = batch.take(pa.array(kept))
        if rows < 2 or sample.nbytes <= limits.sample_bytes:
            return sample
        rows //= 2


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
