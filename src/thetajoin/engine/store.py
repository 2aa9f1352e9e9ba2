"""One side's stored rows: a head that grows and a chain of segments, dropped whole.

SPO-Join merges at each slide and PanJoin keeps a fixed number of sub-windows. Here neighbours of
one size class are merged once there are `FANOUT` of them. A row moves a few times in its life, and
a window has about ``SEGMENTS + 2 * FANOUT`` segments, however large it and the batches are.
"""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from thetajoin.batch.keys import Int64
from thetajoin.engine.block import (
    KEYED,
    Block,
    Flags,
    Index,
    concat_batches,
    make_sorted_block,
    make_unsorted_block,
    merge_blocks,
    merge_marks,
    merge_times,
)
from thetajoin.engine.parts import Part, Side
from thetajoin.engine.rows import KeyedBatch
from thetajoin.index.po_join import Head
from thetajoin.index.probe import Arrivals
from thetajoin.kernels.threads import ALONE, Mapper
from thetajoin.limits import limits
from thetajoin.paper_options import PO_JOIN

# Neighbours of one size class that make a merge worth while.
FANOUT = 3
# A window's rows go into at least this many segments, so that expiry by whole segments keeps at
# most one part in this many that has passed already.
SEGMENTS = 4
# Row numbers inside a segment are int32.
LARGEST = 1 << 30


def next_merge(
    sizes: Sequence[int], *, bounded: bool, segments: int = SEGMENTS, largest: int = LARGEST
) -> tuple[int, int] | None:
    """Which neighbours ``[start, end)`` to merge next, oldest first; None if all is well.

    `bounded` says that the window expires, which limits a segment to one part in `segments`. None
    is made that has more than `largest` rows.

    >>> next_merge([160_000, 10_000, 10_000, 10_000], bounded=False)
    (1, 4)
    >>> next_merge([160_000, 10_000, 10_000, 10_000], bounded=False, largest=20_000)
    (1, 3)
    """
    limit = largest
    if bounded:
        limit = min(limit, max(limits.smallest_class * FANOUT, sum(sizes) // segments))
    classes = [_size_class(size) for size in sizes]
    end = len(sizes)
    while end > 0:
        start = end - 1
        while start > 0 and classes[start - 1] <= classes[end - 1]:
            start -= 1
        # Where the first is too large already to take another in, those after it may still merge.
        for begin in range(start, end - FANOUT + 1):
            fitting = begin
            total = 0
            while fitting < end and total + sizes[fitting] <= limit:
                total += sizes[fitting]
                fitting += 1
            if fitting - begin >= 2:
                return begin, fitting
        end = start
    return None


def count_fitting(room: int, rows: int, size: int) -> int:
    """How many rows fit into `room` bytes if `rows` of them take `size`; at least one.

    >>> count_fitting(1000, 50, 2000)
    25
    """
    return max(1, min(LARGEST, room * rows // max(1, size)))


def _size_class(size: int) -> int:
    result = 0
    size //= limits.smallest_class
    while size >= FANOUT:
        size //= FANOUT
        result += 1
    return result


@dataclass(frozen=True)
class StoreConfig:
    """How a side keeps its rows: `head_rows` mutable at most, merges in the background or not.

    Where the window expires (`bounded`), a segment holds at most one part in `segments` of it.
    `preserved` rows carry marks, because they may come out alone; rows that are not `indexed` are
    never probed. `index` names the structure,
    `index_options` its parameters; `window_rows` is how many rows the window shows, where it
    counts them.
    """

    head_rows: int = 2048
    background: bool = True
    bounded: bool = True
    preserved: bool = False
    indexed: bool = True
    segments: int = SEGMENTS
    index: str = PO_JOIN
    index_options: tuple[tuple[str, Any], ...] = ()
    window_rows: int | None = None


class Merge:
    """Neighbouring segments that a thread is making into one.

    A merge only reads its parts, so one that fails, or whose thread stayed behind in the parent
    process of a fork, is no loss: it is forgotten, and due again.
    """

    def __init__(self, parts: list[Block]) -> None:
        """Begin. O(rows log rows), on another thread."""
        self.parts = parts
        self.merged: Block | None = None
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="thetajoin-merge")
        self._thread.start()

    def _run(self) -> None:
        try:
            self.merged = merge_blocks(self.parts)
        except BaseException:  # most likely memory: the parts serve as well
            self.merged = None

    def runs(self, *, wait: bool) -> bool:
        """Whether it is still under way; with `wait`, it has ended on return."""
        if self._process != os.getpid():
            return False
        if wait:
            self._thread.join()
        return self._thread.is_alive()


class Store:
    """The rows of one side that later rows may still be paired with.

    New rows are made into a block first (`block_of`), which can be probed, and become part of the
    store only on `add`. What a store is made of never changes, only which parts it has; so a `copy`
    goes its own way, and an error leaves the original as it was.
    """

    # Whether rows lie in immutable segments, which can be kept in files.
    has_segments = True

    def __init__(self, side: Side, parts: tuple[Part, ...], config: StoreConfig) -> None:
        self.side = side
        self.config = config
        self.count = 0
        self.merges = self.failed_merges = 0
        self.segments: list[Block] = []
        self.head: Block | None = None
        views = [part.views[side] for part in parts] if config.indexed else []
        self.shapes = [view.shape for view in views]
        self._stored = [view.stored for view in views]
        self._can_head = not any(dim.is_bytes for shape in self.shapes for dim in shape.dims)
        self._merging: Merge | None = None

    def copy(self) -> Store:
        """An independent copy of the same rows. O(segments)."""
        other = copy.copy(self)
        other.segments = list(self.segments)
        return other

    def blocks(self) -> list[Block]:
        """All blocks, oldest first; rows of a running merge are in the old ones."""
        return [*self.segments, *([self.head] if self.head is not None else [])]

    def list_probed(self) -> list[Block]:
        """The blocks that a probe must ask."""
        return self.blocks()

    @property
    def rows(self) -> int:
        """Rows held."""
        return sum(block.rows for block in self.blocks())

    @property
    def index_bytes(self) -> int:
        """Bytes of all indexes."""
        return sum(block.index_bytes for block in self.blocks())

    def block_of(
        self,
        batch: KeyedBatch,
        times: Int64 | None,
        *,
        arrivals: Arrivals | None = None,
        mapper: Mapper = ALONE,
        sort: bool = False,
    ) -> Block:
        """New rows as a block, not yet stored: sorted if there are many, as they came if few.

        With `sort` few are sorted as well if they have equality keys, as many will look for them.
        """
        settled: Flags | None = np.zeros(len(batch), np.bool_) if self.config.preserved else None
        arrivals = Arrivals.dense(self.count, len(batch)) if arrivals is None else arrivals
        if not self.config.indexed:
            keys = {KEYED: batch.parts}
            return Block(arrivals, batch.table, [], settled, times, derived=keys)
        args = (arrivals, batch, self.shapes, self._stored)
        keyed = sort and all(shape.run for shape in self.shapes)
        if self._can_head and len(batch) <= self.config.head_rows // 2 and not keyed:
            return make_unsorted_block(*args, settled=settled, times=times, capacity=0)
        return make_sorted_block(*args, settled=settled, times=times, mapper=mapper)

    def add(self, block: Block, arrived: int | None = None) -> None:
        """Store a block made by `block_of`; then merge what is due.

        `arrived` is how many rows came with it, where it holds only a unit's share of them.
        """
        self.settle_merge(wait=False)
        self.count += block.rows if arrived is None else arrived
        if not block.rows:
            return
        if not block.indexes:  # rows that are never probed
            self.segments.append(block)
            return
        if all(isinstance(index, Head) for index in block.indexes):
            self._append(block)
        else:
            self._close_head()
            self.segments.append(block)
        self._merge()

    def _append(self, block: Block) -> None:
        """Put a small block behind the head's rows; a full head becomes a segment."""
        if self.head is not None and self.head.rows + block.rows > self.config.head_rows:
            self._close_head()
        before = [] if self.head is None else [self.head]
        if self.head is None:
            heads: Sequence[Index] = [Head(shape, self.config.head_rows) for shape in self.shapes]
        else:
            heads = self.head.indexes
        shift = np.int32(sum(part.rows for part in before))
        longer = []
        for head, new in zip(heads, block.indexes, strict=True):
            assert isinstance(head, Head)
            assert isinstance(new, Head)
            keys, rid = new.rows()
            longer.append(head.with_rows(keys, rid + shift))
        both = [*before, block]
        self.head = Block(
            Arrivals.concat([part.arrivals for part in both]),
            concat_batches([part.table for part in both]),
            longer,
            merge_marks(both),
            merge_times(both),
        )

    def _close_head(self) -> None:
        if self.head is not None:
            self.segments.append(merge_blocks([self.head]))
            self.head = None

    def _merge(self) -> None:
        """Start the next merge in the background, or do it here."""
        if self._merging is not None:
            return
        while (due := self._due()) is not None:
            parts = self.segments[due[0] : due[1]]
            try:
                if self.config.background:
                    self._merging = Merge(parts)
                    return
                merged = merge_blocks(parts)
            except Exception:  # memory, or threads: the parts serve as well, and are due again
                self.failed_merges += 1
                return
            self._replace(parts, merged)

    def _due(self) -> tuple[int, int] | None:
        """The segments to merge next."""
        rows = [segment.rows for segment in self.segments]
        config = self.config
        due = partial(next_merge, rows, bounded=config.bounded, segments=config.segments)
        if due() is None:  # as for most micro-batches: weighing all segments would cost more
            return None
        size = sum(segment.nbytes for segment in self.segments)
        return due(largest=count_fitting(limits.segment_bytes, sum(rows), size))

    def settle_merge(self, *, wait: bool) -> None:
        """Put a finished merge in place; with `wait`, finish it first."""
        merge = self._merging
        if merge is None or merge.runs(wait=wait):
            return
        self._merging = None
        if merge.merged is None:
            self.failed_merges += 1
        else:
            self._replace(merge.parts, merge.merged)

    def _replace(self, parts: list[Block], merged: Block) -> None:
        """Swap merged blocks in, with the marks made since; not if some have expired meanwhile."""
        wanted = [part.identity for part in parts]
        held = [segment.identity for segment in self.segments]
        start = held.index(wanted[0]) if wanted[0] in held else 0
        end = start + len(parts)
        if held[start:end] != wanted:
            return
        now = merged.with_marks(merge_marks(self.segments[start:end]))
        self.segments = [*self.segments[:start], now, *self.segments[end:]]
        self.merges += 1

    def set_marks(self, marks: Mapping[object, Flags]) -> None:
        """Give blocks other marks, by their identity."""
        self.segments = with_marks(self.segments, marks)
        if self.head is not None:
            (self.head,) = with_marks([self.head], marks)

    def read_marks(self, first: int, last: int) -> Flags:
        """The marks of the rows from one arrival number to another."""
        return np.concatenate([flags for flags, _ in self._marks(first, last)])

    def settle(self, first: int, last: int, flags: Flags) -> None:
        """Set the marks of the rows from one arrival number to another."""
        for mine, at in self._marks(first, last):
            mine[:] = flags[at : at + len(mine)]

    def _marks(self, first: int, last: int) -> Iterator[tuple[Flags, int]]:
        """Marks of the rows of each block, and how many came before them."""
        at = 0
        for block in self.blocks():
            if block.arrivals.last >= first and block.arrivals.first <= last:
                assert block.settled is not None
                start, end = block.arrivals.rows_before(np.array([first, last + 1])).tolist()
                yield block.settled[start:end], at
                at += end - start

    def drop_before(self, first: int) -> None:
        """Drop whole blocks of which every row has an arrival number below `first`."""
        self.segments = [s for s in self.segments if s.arrivals.last >= first]
        if self.head is not None and self.head.arrivals.last < first:
            self.head = None

    def drop_older(self, oldest: int) -> None:
        """Drop whole blocks of which every row has an event time below `oldest`."""
        self.segments = [s for s in self.segments if s.newest is None or s.newest >= oldest]
        if self.head is not None and self.head.newest is not None and self.head.newest < oldest:
            self.head = None

    def _check(self) -> None:
        """Verify that blocks follow each other without overlap and are sound."""
        at = None
        for block in self.blocks():
            block._check()
            assert at is None or block.arrivals.first > at
            at = block.arrivals.last
        assert at is None or at < self.count


def with_marks(blocks: list[Block], marks: Mapping[object, Flags]) -> list[Block]:
    """Blocks, some of them with other marks, by their identity."""
    if not marks:
        return blocks
    return [b.with_marks(marks[b.identity]) if b.identity in marks else b for b in blocks]
