"""A block of stored rows: their columns, an index for each part of the condition, their marks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.batch.keys import BytesKey, Int64
from thetajoin.engine.rows import KeyedBatch, PartRows
from thetajoin.index.po_join import Head, PoJoin
from thetajoin.index.probe import Arrivals, Pairs, Probe, Shape
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
        """The same rows with other marks."""
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


def sorted_block(
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
    """Orders of the stored keys, which the rows keep for when they probe."""
    return lambda dim, mapper: part.order(keys[dim], mapper)


def unsorted_block(
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
    return Block(arrivals, table, indexes, merged_settled(blocks), merged_times(blocks))


def _as_sorted(index: Index) -> PoJoin:
    if isinstance(index, PoJoin):
        return index
    assert isinstance(index, Head)
    keys, rid = index.rows()
    return PoJoin(index.shape, list(keys), rid)


def merged_settled(blocks: list[Block]) -> Flags | None:
    """The blocks' marks one after another, as they are now."""
    marks = [block.settled for block in blocks]
    return None if marks[0] is None else np.concatenate([m for m in marks if m is not None])


def merged_times(blocks: list[Block]) -> Int64 | None:
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
    """A batch that has a number of rows and nothing in them."""
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=["_"]).select([])


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """A batch of no rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)
