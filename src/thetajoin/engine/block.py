"""A block of stored rows: their columns, an index for each part of the condition, their marks.

A segment can be kept in a file that any process of the host maps instead of building it again: a
JSON header, the arrays of the index, and the rows as Arrow IPC, aligned so that they can be used in
place, behind the size and the checksum of all of it. Such a file is a cache, and one that is not as
it was written is not used.
"""

from __future__ import annotations

import copy
import json
import mmap
import os
import struct
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.batch.keys import BytesKey, Int64
from thetajoin.engine.rows import KeyedBatch, PartRows
from thetajoin.index.po_join import Head, PoJoin
from thetajoin.index.probe import Arrivals, Pairs, Probe, Shape
from thetajoin.ipc import batch_from_ipc, to_ipc
from thetajoin.kernels.threads import ALONE, Mapper

Flags = NDArray[np.bool_]
# Where a block that has no index keeps its rows' keys, to probe with when they come out.
KEYED = "keyed"


class Index(Protocol):
    """The keys of a block's rows for one part of the condition."""

    @property
    def nbytes(self) -> int:
        """Bytes held."""

    def pairs(
        self, probe: Probe, arrivals: Arrivals, *, room: int, once: bool = False
    ) -> list[Iterator[Pairs]]:
        """Matches of a probe batch, as streams of ``(probe, row)`` chunks."""

    def _check(self) -> None:
        """Verify the invariants."""


@dataclass
class Block:
    """Stored rows, in the order of their arrival; once stored, a block never changes.

    `settled` marks rows that need no unmatched row any more (matched, or already given out); it is
    None where unmatched rows do not come out. `times` are the rows' event times under a time
    window, and `newest` is the largest of them. `identity` is shared by blocks that hold the same
    rows and differ in their marks at most.
    """

    arrivals: Arrivals
    table: pa.RecordBatch
    indexes: Sequence[Index]
    settled: Flags | None
    times: Int64 | None
    newest: int | None = None
    # What others have computed from a block's rows and want to find again.
    derived: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    identity: object = field(default_factory=object, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.times is not None and self.times.size:
            self.newest = int(self.times.max())

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.table.num_rows)

    @property
    def index_bytes(self) -> int:
        """Bytes of the indexes, the rows' own columns not counted."""
        times = 0 if self.times is None else self.times.nbytes
        return times + sum(index.nbytes for index in self.indexes)

    @property
    def nbytes(self) -> int:
        """Bytes of the indexes and of the rows' own columns."""
        return self.index_bytes + int(self.table.nbytes)

    def with_marks(self, settled: Flags | None) -> Block:
        """A block of the same rows with other marks."""
        other = copy.copy(self)
        other.settled = settled
        return other

    def locate(
        self, probes: NDArray[np.int32], rows: NDArray[np.int32]
    ) -> Iterator[tuple[Block, NDArray[np.int32], NDArray[np.int32]]]:
        """Pairs found in this block, by the block that has the stored rows."""
        yield self, probes, rows

    def _check(self) -> None:
        """Verify every index and that the row numbers fit."""
        for index in self.indexes:
            index._check()
            if not isinstance(index, PoJoin | Head):
                continue
            assert index.size <= self.rows
            assert not index.size or index.rid[: index.size].min() >= 0
            assert not index.size or index.rid[: index.size].max() < self.rows
        assert self.arrivals.rows == self.rows
        for column in (self.settled, self.times):
            assert column is None or column.size == self.rows


def make_sorted_block(
    arrivals: Arrivals,
    batch: KeyedBatch,
    shapes: list[Shape],
    stored: list[tuple[int, ...]],
    *,
    settled: Flags | None,
    times: Int64 | None,
    mapper: Mapper = ALONE,
) -> Block:
    """An immutable block: a segment. O(rows log rows)."""
    indexes = []
    for shape, keys, part in zip(shapes, stored, batch.parts, strict=True):
        values = [part.keys[key] for key in keys]
        indexes.append(PoJoin(shape, values, part.rows, mapper, orders_of(part, keys)))
    return Block(arrivals, batch.table, indexes, settled, times)


def orders_of(part: PartRows, keys: tuple[int, ...]) -> Callable[[int, Mapper], NDArray[np.int32]]:
    """Orders of the stored keys; the rows keep them, for when they probe."""
    return lambda dim, mapper: part.order(keys[dim], mapper)


def make_unsorted_block(
    arrivals: Arrivals,
    batch: KeyedBatch,
    shapes: list[Shape],
    stored: list[tuple[int, ...]],
    *,
    settled: Flags | None,
    times: Int64 | None,
    capacity: int,
) -> Block:
    """A block whose rows stand as they came: a head, or a batch too small to be worth sorting."""
    heads = []
    for shape, keys, part in zip(shapes, stored, batch.parts, strict=True):
        head = Head(shape, max(capacity, len(part)))
        head.append([_integers(part.keys[key]) for key in keys], part.rows)
        heads.append(head)
    return Block(arrivals, batch.table, heads, settled, times)


def _integers(key: Int64 | BytesKey) -> Int64:
    assert not isinstance(key, BytesKey)
    return key


def merge_blocks(blocks: list[Block]) -> Block:
    """One segment of several neighbours; theirs stay as they are. O(rows log rows)."""
    offsets = np.cumsum([0, *(block.rows for block in blocks[:-1])]).tolist()
    indexes = []
    for at in range(len(blocks[0].indexes)):
        parts = [block.indexes[at] for block in blocks]
        indexes.append(PoJoin.merge([_as_sorted(part) for part in parts], offsets))
    table = concat_batches([block.table for block in blocks])
    arrivals = Arrivals.concat([block.arrivals for block in blocks])
    return Block(arrivals, table, indexes, merge_marks(blocks), merge_times(blocks))


def _as_sorted(index: Index) -> PoJoin:
    if isinstance(index, PoJoin):
        return index
    assert isinstance(index, Head)
    keys, rid = index.rows()
    return PoJoin(index.shape, list(keys), rid)


def merge_marks(blocks: list[Block]) -> Flags | None:
    """The blocks' marks one after another, as they are now."""
    marks = [block.settled for block in blocks]
    return None if marks[0] is None else np.concatenate([m for m in marks if m is not None])


def merge_times(blocks: list[Block]) -> Int64 | None:
    """The blocks' event times one after another."""
    times = [block.times for block in blocks]
    return None if times[0] is None else np.concatenate([t for t in times if t is not None])


def concat_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Rows of several batches as one contiguous batch."""
    if len(batches) == 1:
        return batches[0]
    if batches[0].num_columns == 0:
        return rows_without_columns(sum(batch.num_rows for batch in batches))
    return pa.concat_batches(batches)


def rows_without_columns(rows: int) -> pa.RecordBatch:
    """A batch of some number of rows without columns."""
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=["_"]).select([])


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """A batch of no rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)


SUFFIX = ".segment"
_MAGIC = b"tjseg002"
_ALIGN = 64
# Magic, checksum of all that follows it, bytes of the file, bytes of the header.
_PRELUDE = struct.Struct("<8sQQQ")
_CHECKED_FROM = 16


class DamagedError(Exception):
    """A segment's file is not as it was written."""


def write_block(folder: Path, block: Block) -> str:
    """Write a segment, and give its file's name, which has the checksum in it.

    The file appears under its name only when it is whole.
    """
    pieces = _pieces(block)
    size = _PRELUDE.size + sum(len(piece) for piece in pieces)
    checksum = zlib.crc32(_PRELUDE.pack(_MAGIC, 0, size, len(pieces[0]))[_CHECKED_FROM:])
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
    name = f"{uuid.uuid4().hex}-{checksum:08x}{SUFFIX}"
    partial = folder / f"{name}.{os.getpid()}"
    try:
        with open(partial, "wb") as file:
            file.write(_PRELUDE.pack(_MAGIC, checksum, size, len(pieces[0])))
            for piece in pieces:
                file.write(piece)
        os.replace(partial, folder / name)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    return name


def _pieces(block: Block) -> list[memoryview]:
    """The header and the arrays, each filled up so that the next one is aligned in the file."""
    arrays: list[Any] = []

    def put(array: np.ndarray | None) -> dict[str, Any] | None:
        if array is None:
            return None
        arrays.append(np.ascontiguousarray(array))
        return {"at": len(arrays) - 1, "dtype": array.dtype.str, "shape": list(array.shape)}

    header: dict[str, Any] = {
        "arrivals": [put(block.arrivals.firsts), put(block.arrivals.starts)],
        "times": put(block.times),
        "indexes": [],
    }
    for index in block.indexes:
        assert isinstance(index, PoJoin)
        header["indexes"].append({name: put(array) for name, array in index.arrays().items()})
    contents = [_bytes(array) for array in [*arrays, to_ipc(block.table)]]
    offsets, at = [], 0
    for content in contents:
        offsets.append(at)
        at += len(content) + _gap(len(content))
    header["offsets"], header["rows"] = offsets, block.table.num_rows
    text = json.dumps(header).encode()
    text += b" " * _gap(_PRELUDE.size + len(text))
    pieces = [memoryview(text)]
    for content in contents:
        pieces += [content, memoryview(bytes(_gap(len(content))))]
    return pieces


def _bytes(array: Any) -> memoryview:
    view = memoryview(array)
    return view.cast("B") if view.nbytes else memoryview(b"")


def _gap(size: int) -> int:
    return -size % _ALIGN


def read_block(path: Path, shapes: list[Shape], *, preserved: bool) -> Block:
    """Map a segment's file once it is seen to be whole; some 0.4 ms a MiB the first time."""
    try:
        mapped, header = _map_checked(path)
        return _block(mapped, header, shapes, preserved)
    except (ValueError, LookupError, TypeError, struct.error) as error:
        raise DamagedError(f"{path.name}: {error}") from error


def _map_checked(path: Path) -> tuple[mmap.mmap, int]:
    """The mapped file and the size of its header."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    magic, checksum, written, header = _PRELUDE.unpack(mapped[: _PRELUDE.size])
    if magic != _MAGIC or written != size:
        raise ValueError("it has another size or format than it was written with")
    named = path.name.removesuffix(SUFFIX).rpartition("-")[2]
    if named != f"{checksum:08x}" or zlib.crc32(memoryview(mapped)[_CHECKED_FROM:]) != checksum:
        raise ValueError("it has another checksum than it was written with")
    return mapped, header


def _block(mapped: mmap.mmap, length: int, shapes: list[Shape], preserved: bool) -> Block:
    start = _PRELUDE.size + length
    header = json.loads(mapped[_PRELUDE.size : start])

    def get(saved: dict[str, Any] | None) -> Any:
        if saved is None:
            return None
        count = int(np.prod(saved["shape"]))
        offset = start + header["offsets"][saved["at"]]
        if count == 0:
            return np.zeros(saved["shape"], saved["dtype"])
        return np.frombuffer(mapped, saved["dtype"], count, offset).reshape(saved["shape"])

    indexes = [
        PoJoin.from_arrays(shape, {name: get(array) for name, array in saved.items()})
        for shape, saved in zip(shapes, header["indexes"], strict=True)
    ]
    rows = pa.py_buffer(mapped).slice(start + header["offsets"][-1])
    table = batch_from_ipc(rows)
    if not table.num_columns:
        table = rows_without_columns(header["rows"])
    settled = np.zeros(header["rows"], np.bool_) if preserved else None
    arrivals = Arrivals(header["rows"], *(get(array) for array in header["arrivals"]))
    return Block(arrivals, table, indexes, settled, get(header["times"]))
