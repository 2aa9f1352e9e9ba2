"""One side's rows under a window structure that takes insertions and expiries as they come.

The rows themselves lie in pieces, in arrival order; the structures number rows across all pieces. A
probe asks the structures once, and what they find is dealt out to the pieces that hold the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.batch.keys import BytesKey, Int64
from thetajoin.engine.block import (
    Block,
    Flags,
    concat_batches,
    merge_marks,
    merge_times,
)
from thetajoin.engine.parts import Part, Side
from thetajoin.engine.rows import KeyedBatch, make_batch
from thetajoin.engine.store import Store, StoreConfig, with_marks
from thetajoin.index.po_join import Head, PoJoin
from thetajoin.index.probe import Arrivals
from thetajoin.kernels.threads import ALONE, Mapper
from thetajoin.papers import catalog
from thetajoin.papers.kernels.linked import deal
from thetajoin.papers.structures.structure import Structure

Positions = NDArray[np.int32]
# A piece is joined with the one before it while that is at most `STEP` times as large, up to a
# share of the window: a row is copied a few times in its life, expiry by whole pieces keeps little,
# and pieces are few, since each that has matches makes a batch of the output.
STEP, SHARE, SMALLEST = 8, 8, 4096
# Up to this many pairs are taken from all pieces together, which spares output batches; more are
# not worth a copy.
GATHERED = 4096
# Row numbers are int32; past this the structures are filled anew.
LARGEST = 1 << 30


class AllPieces(Block):
    """All rows of a `LiveStore` as one block to probe."""

    def __init__(self, store: LiveStore) -> None:
        pieces = store.pieces
        arrivals = Arrivals.concat([piece.arrivals for piece in pieces])
        # Not a dataclass call: a window has no table of its own.
        self.arrivals, self.indexes = arrivals, store.structures
        self._pieces = pieces
        self._starts = np.array(list(accumulate((p.rows for p in pieces), initial=store.first)))
        self._first = store.first
        self._preserved = store.config.preserved

    def locate(
        self, probes: Positions, rows: Positions
    ) -> Iterator[tuple[Block, Positions, Positions]]:
        """Pairs by the piece that holds the stored row, with its number there."""
        if len(self._pieces) == 1:
            yield self._pieces[0], probes, rows - np.int32(self._first)
            return
        dealt = np.empty(probes.size, np.int32), np.empty(probes.size, np.int32)
        ends = np.empty(len(self._pieces), np.int64)
        deal(probes, rows, self._starts, *dealt, ends)
        found = [
            (piece, dealt[0][start:end], dealt[1][start:end])
            for piece, (start, end) in zip(self._pieces, pairwise([0, *ends.tolist()]), strict=True)
            if end > start
        ]
        if self._preserved or len(found) < 2 or probes.size > GATHERED:
            yield from found
            return
        tables = [piece.table.take(pa.array(at)) for piece, _, at in found]
        gathered = Block(self.arrivals, concat_batches(tables), [], None, None)
        yield gathered, dealt[0], np.arange(probes.size, dtype=np.int32)


@dataclass
class Filled:
    """Structures, and which state of a store's rows they hold: None while they are changed."""

    structures: list[Structure]
    of: object | None


class LiveStore(Store):
    """The rows of one side, indexed by structures that change with every batch.

    A store and its copies share the structures, which only the newest of them fits. Should another
    be used after all, because a step failed, it fills structures of its own from its pieces.
    """

    has_segments = False

    def __init__(self, side: Side, parts: tuple[Part, ...], config: StoreConfig) -> None:
        super().__init__(side, parts, config)
        self.pieces: list[Block] = []
        self._parts = parts
        self.first = self._next = 0
        self._version = object()
        self._filled = Filled(self._empty(), self._version)

    def copy(self) -> LiveStore:
        """A store of the same rows; what happens to it leaves this one's rows as they are."""
        other = super().copy()
        assert isinstance(other, LiveStore)
        other.pieces = list(self.pieces)
        return other

    @property
    def structures(self) -> list[Structure]:
        """The structures with this store's rows in them."""
        if self._filled.of is not self._version:
            self._renumber()
        return self._filled.structures

    def _begin_change(self) -> list[Structure]:
        """The structures to change; `_end_change` must follow."""
        structures = self.structures
        self._filled.of = None
        return structures

    def _end_change(self) -> None:
        self._version = self._filled.of = object()

    def _empty(self) -> list[Structure]:
        name, window = self.config.index, self.config.window_rows
        options: dict[str, Any] = dict(self.config.index_options)
        return [catalog.make(name, shape, window, options) for shape in self.shapes]

    def blocks(self) -> list[Block]:
        """The rows, oldest first."""
        return self.pieces

    def list_probed(self) -> list[Block]:
        """The window as one block."""
        return [AllPieces(self)] if self.pieces else []

    @property
    def index_bytes(self) -> int:
        """Bytes of all structures."""
        times = sum(p.times.nbytes for p in self.pieces if p.times is not None)
        return times + sum(structure.nbytes for structure in self.structures)

    def block_of(
        self,
        batch: KeyedBatch,
        times: Int64 | None,
        *,
        arrivals: Arrivals | None = None,
        mapper: Mapper = ALONE,
        sort: bool = False,
    ) -> Block:
        """New rows as a block, not yet stored.

        The first large batch is put into structures of its own, which `add` takes over; later ones
        are sorted for the moment in which the other side's new rows probe them.
        """
        if self.pieces or len(batch) <= self.config.head_rows // 2:
            return super().block_of(batch, times, arrivals=arrivals, mapper=mapper, sort=sort)
        structures = self._empty()
        for structure, keys, part in zip(structures, self._stored, batch.parts, strict=True):
            structure.insert([_integers(part.keys[key]) for key in keys], part.rows)
        settled = np.zeros(len(batch), np.bool_) if self.config.preserved else None
        arrivals = Arrivals.dense(self.count, len(batch)) if arrivals is None else arrivals
        return Block(arrivals, batch.table, structures, settled, times)

    def add(self, block: Block, arrived: int | None = None) -> None:
        """Put a block's rows into the structures and keep it as a piece."""
        self.count += block.rows if arrived is None else arrived
        if not block.rows:
            return
        indexes, block.indexes = block.indexes, []
        if indexes and all(isinstance(index, Structure) for index in indexes) and not self.pieces:
            self._filled = Filled(indexes, None)  # type: ignore[arg-type]
            self.first = self._next = 0
        else:
            if self._next + block.rows > LARGEST:
                self._renumber()
            for structure, index in zip(self._begin_change(), indexes, strict=False):
                keys, rid = _rows_of(index)
                structure.insert(keys, rid + np.int32(self._next))
        self._next += block.rows
        self._end_change()
        self.pieces.append(block)
        self._join_pieces()

    def _join_pieces(self) -> None:
        """Join the newest pieces into one, so that there are never many."""
        most = max(SMALLEST, sum(piece.rows for piece in self.pieces) // SHARE)
        start = len(self.pieces) - 1
        rows = self.pieces[start].rows
        while start > 0:
            before = self.pieces[start - 1].rows
            if before > STEP * rows or before + rows > most:
                break
            start -= 1
            rows += before
        parts = self.pieces[start:]
        if len(parts) > 1:
            self.pieces[start:] = [
                Block(
                    Arrivals.concat([part.arrivals for part in parts]),
                    concat_batches([part.table for part in parts]),
                    [],
                    merge_marks(parts),
                    merge_times(parts),
                )
            ]
            self.merges += 1

    def _renumber(self) -> None:
        """Fill new structures from the rows held, numbered from 0."""
        structures = self._empty()
        self.first = self._next = 0
        for piece in self.pieces:
            names = list(piece.table.schema.names)
            batch = make_batch(piece.table, self.side, self._parts, names)
            for structure, stored, part in zip(structures, self._stored, batch.parts, strict=True):
                keys = [_integers(part.keys[key]) for key in stored]
                structure.insert(keys, part.rows + np.int32(self._next))
            self._next += piece.rows
        self._filled = Filled(structures, self._version)

    def set_marks(self, marks: Mapping[object, Flags]) -> None:
        """Give pieces other marks, by their identity."""
        self.pieces = with_marks(self.pieces, marks)

    def drop_before(self, first: int) -> None:
        """Expire rows with an arrival number below `first`; drop pieces that have none left."""
        gone = 0
        for piece in self.pieces:
            if piece.arrivals.first >= first:
                break
            gone += int(piece.arrivals.rows_before(np.array([first]))[0])
        self._expire(gone)

    def drop_older(self, oldest: int) -> None:
        """Expire the oldest pieces of which every row has an event time below `oldest`."""
        gone = 0
        for piece in self.pieces:
            if piece.newest is None or piece.newest >= oldest:
                break
            gone += piece.rows
        self._expire(gone)

    def _expire(self, gone: int) -> None:
        """The oldest `gone` rows have left the window."""
        structures = self._begin_change()
        for structure in structures:
            structure.expire(self.first + gone)
        while self.pieces and self.pieces[0].rows <= gone:
            gone -= self.pieces[0].rows
            self.first += self.pieces[0].rows
            del self.pieces[0]
        for structure in structures:
            structure.base = self.first
        self._end_change()

    def _check(self) -> None:
        """Verify the structures, and that pieces follow each other without overlap."""
        for structure in self.structures:
            structure._check()
        assert self.first + sum(piece.rows for piece in self.pieces) == self._next
        super()._check()


def _integers(key: Int64 | BytesKey) -> Int64:
    assert not isinstance(key, BytesKey)
    return key


def _rows_of(index: object) -> tuple[list[Int64], Positions]:
    """The keys and row numbers of a batch's own index."""
    if isinstance(index, Head):
        return index.rows()
    assert isinstance(index, PoJoin)
    keys = index.keys()
    return [_integers(key) for key in keys], index.rid
