"""One side's stored rows: a mutable head and a chain of segments."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from thetajoin.batch.keys import Int64
from thetajoin.engine.block import (
    KEYED,
    Block,
    Flags,
    concat_batches,
    merge_blocks,
    merged_settled,
    merged_times,
    sorted_block,
    unsorted_block,
)
from thetajoin.engine.parts import Part, Side
from thetajoin.engine.rows import KeyedBatch
from thetajoin.index.arrivals import Arrivals
from thetajoin.index.head import Head
from thetajoin.kernels.threads import ALONE, Mapper
from thetajoin.limits import limits
from thetajoin.registry import PO_JOIN
from thetajoin.window.chain import SEGMENTS, fitting_rows, next_merge


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


class Store:
    """The rows of one side that later rows may still be paired with.

    New rows are made into a block first (`block_of`), which can be probed, and become part of the
    store only on `add`: so an error in between changes nothing.
    """

    # Whether rows lie in immutable segments, which can be kept in files.
    has_segments = True

    def __init__(self, side: Side, parts: tuple[Part, ...], config: StoreConfig) -> None:
        self.side = side
        self.config = config
        self.count = 0
        self.merges = 0
        self.segments: list[Block] = []
        self.head: Block | None = None
        views = [part.views[side] for part in parts] if config.indexed else []
        self.shapes = [view.shape for view in views]
        self._stored = [view.stored for view in views]
        self._can_head = not any(dim.is_bytes for shape in self.shapes for dim in shape.dims)
        self._merging: tuple[list[Block], Future[Block]] | None = None
        self._executor: ThreadPoolExecutor | None = None

    def blocks(self) -> list[Block]:
        """All blocks, oldest first; rows of a running merge are in the old ones."""
        return [*self.segments, *([self.head] if self.head is not None else [])]

    def probed(self) -> list[Block]:
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
            return unsorted_block(*args, settled=settled, times=times, capacity=0)
        return sorted_block(*args, settled=settled, times=times, mapper=mapper)

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
        if self.head is None:
            heads = [Head(shape, self.config.head_rows) for shape in self.shapes]
            self.head = Block(block.arrivals, block.table, heads, block.settled, block.times)
            shift = 0
        else:
            shift = self.head.rows
            both = [self.head, block]
            self.head.arrivals = Arrivals.concat([self.head.arrivals, block.arrivals])
            self.head.settled = merged_settled(both)
            self.head.times = merged_times(both)
            self.head.newest = max((b.newest for b in both if b.newest is not None), default=None)
            self.head.table = concat_batches([self.head.table, block.table])
        for head, new in zip(self.head.indexes, block.indexes, strict=True):
            assert isinstance(head, Head)
            assert isinstance(new, Head)
            keys, rid = new.rows()
            head.append(keys, rid + np.int32(shift))

    def _close_head(self) -> None:
        if self.head is not None:
            self.segments.append(merge_blocks([self.head]))
            self.head = None

    def _merge(self) -> None:
        """Start the next merge, in the background or here and now."""
        if self._merging is not None:
            return
        while (due := self._due()) is not None:
            parts = self.segments[due[0] : due[1]]
            if self.config.background:
                if self._executor is None:
                    self._executor = ThreadPoolExecutor(1, "thetajoin-merge")
                self._merging = parts, self._executor.submit(merge_blocks, parts)
                return
            self._replace(parts, merge_blocks(parts))

    def _due(self) -> tuple[int, int] | None:
        """The segments to merge next."""
        rows = [segment.rows for segment in self.segments]
        config = self.config
        due = partial(next_merge, rows, bounded=config.bounded, segments=config.segments)
        if due() is None:  # as for most micro-batches: weighing all segments would cost more
            return None
        size = sum(segment.nbytes for segment in self.segments)
        return due(largest=fitting_rows(limits.segment_bytes, sum(rows), size))

    def settle_merge(self, *, wait: bool) -> None:
        """Put a finished merge in place; with `wait`, finish it first."""
        if self._merging is None:
            return
        parts, future = self._merging
        if not wait and not future.done():
            return
        self._merging = None
        self._replace(parts, future.result())

    def _replace(self, parts: list[Block], merged: Block) -> None:
        """Swap merged blocks in, with the marks made since; not if some have expired meanwhile."""
        start = next((i for i, s in enumerate(self.segments) if s is parts[0]), None)
        if start is None or any(
            a is not b for a, b in zip(parts, self.segments[start:], strict=False)
        ):
            return
        merged.settled = merged_settled(parts)
        self.segments[start : start + len(parts)] = [merged]
        self.merges += 1

    def settled_of(self, first: int, last: int) -> Flags:
        """The marks of rows with these arrival numbers and those between."""
        return np.concatenate([flags for flags, _ in self._marks(first, last)])

    def settle(self, first: int, last: int, flags: Flags) -> None:
        """Set the marks of rows with these arrival numbers and those between."""
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
