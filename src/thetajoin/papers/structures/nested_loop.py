"""Nested loop: rows in arrival order, each compared with every probe.

The local join of SplitJoin and of the broadcast hash join (BCHJ) as the SPO-Join paper has them
(Section 6.3): what every index is measured against, and what is left for a condition without a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from thetajoin.batch.keys import Int64
from thetajoin.index.po_join import scan_head
from thetajoin.index.probe import Arrivals, Pairs, Probe, Shape
from thetajoin.papers.structures.structure import (
    Component,
    Cursors,
    Int32,
    Storage,
    Structure,
    one_block,
    repeat,
)


class Buffer(Component):
    """Rows by one key, appended and never sorted."""

    in_order = False

    def __init__(self) -> None:
        """An empty buffer."""
        self._key = np.empty(64, np.int64)
        self._rid = np.empty(64, np.int32)
        self.size = 0

    def append(self, keys: Int64, rid: Int32) -> None:
        """Put rows at the end."""
        end = self.size + rid.size
        if end > self._rid.size:
            self._key = np.resize(self._key, 2 * end)
            self._rid = np.resize(self._rid, 2 * end)
        self._key[self.size : end] = keys
        self._rid[self.size : end] = rid
        self.size = end

    def clear(self) -> None:
        """Forget all rows."""
        self.size = 0

    def storage(self) -> Storage:
        """One block."""
        return one_block(self._key, self._rid, self.size)

    def cursors(self, order: Int32, low: Int64, high: Int64) -> Cursors:
        """Everything, for every probe."""
        n = low.size
        return repeat(n, 0), repeat(n, 0), repeat(n, 0), repeat(n, -1)


class NestedLoop(Structure):
    """All keys of all rows in arrays; serves any condition on numbers, and those without a key."""

    name = "nested_loop"

    def __init__(self, shape: Shape, window: int | None = None) -> None:
        """No rows."""
        super().__init__(shape, window, multi_key=True)
        self._keys = np.empty((len(shape.dims), 64), np.int64)
        self._rid = np.empty(64, np.int32)
        self._begin = self._end = 0
        self._negates = np.array([dim.negate for dim in shape.dims], np.bool_)

    def components(self) -> Sequence[Component]:
        """None: the arrays are read as they are."""
        return ()

    @property
    def size(self) -> int:
        """Rows held."""
        return self._end - self._begin

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self._keys.nbytes + self._rid.nbytes)

    def insert(self, keys: Sequence[Int64], rid: Int32) -> None:
        """Append rows, with ascending row numbers; O(rows)."""
        if not rid.size:
            return
        order = np.argsort(rid, kind="stable")
        self.last = int(rid[order[-1]])
        self._make_room(rid.size)
        end = self._end + rid.size
        for at, key in enumerate(keys):
            self._keys[at, self._end : end] = key[order]
        self._rid[self._end : end] = rid[order]
        self._end = end

    def _insert(self, order: Int32, keys: list[Int64], rid: Int32) -> None:
        raise AssertionError("insert does it all")

    def _make_room(self, rows: int) -> None:
        if self._end + rows <= self._rid.size:
            return
        capacity = max(2 * (self.size + rows), 64)
        keys, rid = np.empty((len(self._keys), capacity), np.int64), np.empty(capacity, np.int32)
        held = slice(self._begin, self._end)
        keys[:, : self.size], rid[: self.size] = self._keys[:, held], self._rid[held]
        self._begin, self._end = 0, self.size
        self._keys, self._rid = keys, rid

    def _expire(self) -> None:
        held = self._rid[self._begin : self._end]
        self._begin += int(np.searchsorted(held, self.first))

    def _holds_expired(self) -> bool:
        return False

    def pairs(
        self, probe: Probe, arrivals: Arrivals, *, room: int, once: bool = False
    ) -> list[Iterator[Pairs]]:
        """Matches of a probe batch; O(probes x rows / SIMD width)."""
        visible = self.find_visible(probe, arrivals) if probe.size and self.size else None
        if visible is None:
            return []
        keys, rid = self._keys[:, self._begin : self._end], self._rid[self._begin : self._end]
        return [scan_head(keys, rid, rid.size, self._negates, probe, visible, room=room, once=once)]

    def _check(self) -> None:
        """Verify that rows are in order."""
        held = self._rid[self._begin : self._end]
        assert (held[1:] > held[:-1]).all()
        assert not held.size or (self.first <= held[0] and held[-1] == self.last)
