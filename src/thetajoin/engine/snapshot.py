"""Snapshots: a header in JSON, rows as Arrow IPC, and a digest over all of it.

Layout: magic, version (2 bytes), header length (8 bytes), header, the Arrow streams that the header
counts, digest (16 bytes of BLAKE2b). Indexes are not written: they are built again from the rows.

A digest detects damage, not intent: whoever changes a snapshot can compute it anew. So a reader
trusts and executes nothing. Every field's type, every size and every Arrow buffer is checked before
it is used, and whatever does not fit together is one error.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from thetajoin import __version__
from thetajoin.engine.block import rows_without_columns
from thetajoin.engine.parts import SIDES, Side
from thetajoin.engine.rows import NAMES, conform, make_batch
from thetajoin.engine.spec import JoinSpec
from thetajoin.engine.state import Counters, JoinState
from thetajoin.errors import SnapshotError
from thetajoin.index.probe import Arrivals
from thetajoin.ipc import batch_from_ipc, schema_from_bytes, schema_to_bytes, to_ipc

MAGIC = b"thetajoin\x00"
VERSION = 1
DIGEST = 16
HEADER = struct.Struct(">HQ")


@dataclass
class Saved:
    """What a snapshot holds beside the stored rows."""

    spec: JoinSpec
    schemas: dict[str, pa.Schema | None]
    early: list[tuple[str, Any]]
    pending: list[pa.RecordBatch]


class _Writer:
    """Record batches one after another; `put` says where each is."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def put(self, batch: pa.RecordBatch) -> dict[str, int]:
        self.parts.append(to_ipc(batch).to_pybytes())
        return {"part": len(self.parts) - 1, "rows": batch.num_rows}


def write(saved: Saved, state: JoinState | None) -> bytes:
    """Everything as bytes; O(rows held)."""
    writer = _Writer()
    header: dict[str, Any] = {
        "written_by": {"thetajoin": __version__},
        "config": saved.spec.to_dict(),
        "schemas": {
            name: None if s is None else base64.b64encode(schema_to_bytes(s)).decode()
            for name, s in saved.schemas.items()
        },
        "early": [
            [what, _write_scalar(value, writer) if what == "watermark" else writer.put(value)]
            for what, value in saved.early
        ],
        "owed": [writer.put(batch) for batch in saved.pending],
    }
    if state is not None:
        header["core"] = {
            "watermark": state.watermark,
            "counters": asdict(state.counters),
            "stores": {side: _write_store(state, side, writer) for side in SIDES},
            "late": {side: [writer.put(b) for b in state.dropped[side]] for side in SIDES},
        }
    header["lengths"] = [len(part) for part in writer.parts]
    text = json.dumps(header).encode()
    body = b"".join([MAGIC, HEADER.pack(VERSION, len(text)), text, *writer.parts])
    return body + hashlib.blake2b(body, digest_size=DIGEST).digest()


def _write_scalar(value: Any, writer: _Writer) -> dict[str, int]:
    array = (
        pa.array([value.as_py()], value.type) if isinstance(value, pa.Scalar) else pa.array([value])
    )
    return writer.put(pa.RecordBatch.from_arrays([array], names=["watermark"]))


def _write_store(state: JoinState, side: Any, writer: _Writer) -> dict[str, Any]:
    store = state.stores[side]
    blocks = []
    for block in store.blocks():
        settled = None
        if block.settled is not None:
            flags = pa.RecordBatch.from_arrays([pa.array(block.settled)], names=["settled"])
            settled = writer.put(flags)
        numbers = block.arrivals
        arrivals = {"firsts": numbers.firsts.tolist(), "starts": numbers.starts.tolist()}
        rows = writer.put(block.table)
        blocks.append({"arrivals": arrivals, "rows": rows, "settled": settled})
    return {"count": store.count, "merges": store.merges, "blocks": blocks}


T = TypeVar("T")
# Row numbers inside a block are 32 bits wide.
MOST_ROWS = 2**31 - 1
# Arrival numbers stay far from where adding to them could overflow.
MOST_ARRIVALS = 2**60
# Rows that a batch may have beyond what its bytes hold: columns of NULL take none.
FREE_ROWS = 1 << 20


@contextlib.contextmanager
def report_damage() -> Iterator[None]:
    """Report whatever goes wrong inside as a snapshot that cannot be used."""
    try:
        yield
    except SnapshotError:
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise SnapshotError(f"the snapshot's content is not as expected: {reason}") from error


def read(data: Any) -> tuple[Saved, Callable[[JoinState], None]]:
    """What was saved, and a function that puts the stored rows into a new state; O(rows held)."""
    header, reader = _open_snapshot(data)
    schemas = _read_field(header, "schemas", dict)
    saved = Saved(
        spec=_read_spec(_read_field(header, "config", dict)),
        schemas={name: _read_schema(schemas, name) for name in ("left", "right")},
        early=[],
        pending=[reader.get(at) for at in _read_field(header, "owed", list)],
    )
    known = None not in saved.schemas.values()
    if known != ("core" in header):
        raise _wrong("rows are stored without their columns' types, or the other way round")
    for item in _read_field(header, "early", list):
        if known or not isinstance(item, list) or len(item) != 2:
            raise _wrong("rows that wait for the other side's columns")
        what, at = item
        saved.early.append(_read_early(what, at, saved, reader))
    return saved, lambda state: _fill(state, _read_field(header, "core", dict), reader)


def _wrong(what: str) -> SnapshotError:
    return SnapshotError(f"the snapshot's content is not as expected: {what}")


def _read_field(of: dict[str, Any], name: str, kind: type[T]) -> T:
    """A field of the header, which must be there and of a type."""
    value = of.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _wrong(f"{name!r} is not a {kind.__name__}")
    return value


def _read_count(of: dict[str, Any], name: str, most: int = MOST_ARRIVALS) -> int:
    value = _read_field(of, name, int)
    if not 0 <= value <= most:
        raise _wrong(f"{name!r} is {value}")
    return value


def _open_snapshot(data: Any) -> tuple[dict[str, Any], _Reader]:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise SnapshotError(f"a snapshot is bytes, not {type(data).__name__}")
    view = memoryview(data).cast("B")
    start = len(MAGIC) + HEADER.size
    if len(view) < len(MAGIC) or bytes(view[: len(MAGIC)]) != MAGIC:
        raise SnapshotError("this is not a thetajoin snapshot: it does not begin as one")
    if len(view) < start + DIGEST:
        raise SnapshotError("the snapshot is cut short")
    version, length = HEADER.unpack(view[len(MAGIC) : start])
    if version > VERSION:
        raise SnapshotError(
            f"the snapshot has format {version}, this thetajoin reads up to {VERSION}: update it"
        )
    body, digest = view[:-DIGEST], bytes(view[-DIGEST:])
    if hashlib.blake2b(body, digest_size=DIGEST).digest() != digest:
        raise SnapshotError("the snapshot is damaged: its digest does not match its content")
    header = json.loads(bytes(body[start : start + length]))
    if not isinstance(header, dict):
        raise _wrong("the header is no object")
    return header, _Reader(body[start + length :], _read_field(header, "lengths", list))


class _Reader:
    """The Arrow streams behind the header."""

    def __init__(self, data: memoryview, lengths: list[Any]) -> None:
        if not all(type(length) is int and length >= 0 for length in lengths):
            raise _wrong("'lengths' are not all whole numbers")
        if sum(lengths) != len(data):
            raise _wrong(f"{sum(lengths)} bytes of rows are announced and {len(data)} are there")
        ends = accumulate(lengths, initial=0)
        self.parts = [data[a:b] for a, b in pairwise(ends)]

    def get(self, at: Any) -> pa.RecordBatch:
        """A record batch of which every buffer was checked."""
        if not isinstance(at, dict):
            raise _wrong("rows without a place")
        part = self.parts[_read_count(at, "part", len(self.parts) - 1)]
        rows = _read_count(at, "rows", MOST_ROWS)
        # A copy, because kernels want their numbers where a multiple of eight is.
        batch = batch_from_ipc(bytes(part))
        if batch.num_columns and batch.num_rows != rows:
            raise _wrong(f"{rows} rows are announced and {batch.num_rows} are there")
        if rows > FREE_ROWS + 8 * len(part):
            raise _wrong(f"{rows} rows in {len(part)} bytes")
        _check_buffers(batch)
        return batch if batch.num_columns else rows_without_columns(rows)


def _check_buffers(batch: pa.RecordBatch) -> None:
    """Check every value that could lead out of the buffers."""
    for column in batch.columns:
        if pa.types.is_date64(column.type):
            column = column.view(pa.int64())  # Arrow wants whole days, which no one must have
        column.validate(full=True)


def _read_spec(config: dict[str, Any]) -> JoinSpec:
    """What the join is made of; what depends on columns is checked where it is used."""
    _read_field(config, "on", str)
    _read_field(config, "window", dict)
    options = _read_field(config, "options", dict)
    if not all(isinstance(name, str) for name in options):
        raise _wrong("'options' are not named")
    order_by = config.get("order_by")
    if order_by is not None:
        config["order_by"] = tuple(_read_field(config, "order_by", list))
    return JoinSpec.from_dict(config)


def _read_schema(schemas: dict[str, Any], name: str) -> pa.Schema | None:
    if schemas.get(name) is None:
        return None
    written = base64.b64decode(_read_field(schemas, name, str), validate=True)
    return schema_from_bytes(written)


def _read_early(what: Any, at: Any, saved: Saved, reader: _Reader) -> tuple[str, Any]:
    """What came before both sides' columns were known."""
    batch = reader.get(at)
    if what == "watermark":
        if batch.num_columns != 1 or batch.num_rows != 1:
            raise _wrong("a watermark is one value")
        return what, batch.column(0)[0]
    schema = saved.schemas.get(what) if what in ("left", "right") else None
    if schema is None:
        raise _wrong("rows that wait for the other side's columns")
    return what, conform(batch, schema, "l" if what == "left" else "r")


def _fill(state: JoinState, header: dict[str, Any], reader: _Reader) -> None:
    watermark = header.get("watermark")
    if watermark is not None:
        watermark = _read_field(header, "watermark", int)
        if state.join.clock is None:
            raise _wrong("a watermark without a time window")
    state.watermark = watermark
    counters = _read_field(header, "counters", dict)
    known = {field.name for field in fields(Counters)} & counters.keys()
    state.counters = Counters(**{name: _read_count(counters, name) for name in known})
    stores = _read_field(header, "stores", dict)
    late = header.get("late")
    for side in SIDES:
        _fill_store(state, side, _read_field(stores, side, dict), reader)
        if late is not None:
            state.dropped[side] = _read_late(state, side, late, reader)


def _read_late(state: JoinState, side: Side, late: Any, reader: _Reader) -> list[pa.RecordBatch]:
    """Late rows that nobody has taken yet."""
    if not isinstance(late, dict):
        raise _wrong("'late' is not a dict")
    kept = [reader.get(at) for at in _read_field(late, side, list)]
    if kept and not state.keeps_late:
        raise _wrong("late rows, which this join does not keep")
    if any(not rows.schema.equals(state.join.schemas[side]) for rows in kept):
        raise _wrong(f"late rows of the {NAMES[side]} side have other columns than its own")
    return kept


def _fill_store(state: JoinState, side: Side, saved: dict[str, Any], reader: _Reader) -> None:
    store, count = state.stores[side], _read_count(saved, "count")
    names = state.join.list_kept(side)
    schema = pa.schema([state.join.schemas[side].field(name) for name in names])
    last = -1
    for at in _read_field(saved, "blocks", list):
        if not isinstance(at, dict):
            raise _wrong("a block of rows is no object")
        table = reader.get(at.get("rows"))
        if not table.schema.equals(schema):
            raise _wrong(f"stored rows of the {NAMES[side]} side have other columns than its own")
        arrivals = _read_arrivals(_read_field(at, "arrivals", dict), table.num_rows)
        if arrivals.first <= last or arrivals.last >= count:
            raise _wrong("arrival numbers are not in order")
        last = arrivals.last
        batch = make_batch(table, side, state.join.parts, names)
        times = None if state.join.clock is None else state.join.clock.times(table, side)[0]
        block = store.block_of(batch, times, arrivals=arrivals)
        if (at.get("settled") is not None) != store.config.preserved:
            raise _wrong(f"marks of the {NAMES[side]} side's rows")
        if store.config.preserved:
            block.settled = _read_marks(reader.get(at["settled"]), table.num_rows)
        store.add(block)
    store.count, store.merges = count, _read_count(saved, "merges")


def _read_arrivals(saved: dict[str, Any], rows: int) -> Arrivals:
    firsts, starts = (_read_field(saved, name, list) for name in ("firsts", "starts"))
    numbers = [*firsts, *starts]
    if not all(type(n) is int and 0 <= n <= MOST_ARRIVALS for n in numbers):
        raise _wrong("arrival numbers are not whole numbers")
    runs = list(zip(firsts, starts, strict=True))
    if not runs or starts[0] != 0 or starts[-1] >= rows:
        raise _wrong("arrival numbers do not fit the rows")
    for (first, start), (following, end) in pairwise(runs):
        if end <= start or following < first + end - start:
            raise _wrong("arrival numbers are not in order")
    return Arrivals(rows, np.array(firsts, np.int64), np.array(starts, np.int64))


def _read_marks(batch: pa.RecordBatch, rows: int) -> Any:
    marks = batch.column(0) if batch.num_columns == 1 else None
    if marks is None or marks.type != pa.bool_() or marks.null_count or len(marks) != rows:
        raise _wrong("marks of rows are one boolean for each")
    return marks.to_numpy(zero_copy_only=False).copy()
