"""The mutable head: new rows in arrival order until there are enough for a segment.

SPO-Join (Section 4.1) keeps a B+-tree for each key and gets each predicate's bitset from a range of
leaves. For the few thousand rows a head has, computing the bitsets by comparing whole blocks is
faster than any tree (benchmark `structures`), and an insertion is an append.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from thetajoin.batch.keys import Int64
from thetajoin.index.arrivals import Arrivals
from thetajoin.index.interval import Interval, stack
from thetajoin.index.shape import Pairs, Probe, Shape
from thetajoin.kernels import emit


class Head:
    """Keys of the newest rows, appended; at most `capacity` of them.

    A head and what `appended` makes of it share their arrays: each looks at its first `size` rows.
    """

    def __init__(self, shape: Shape, capacity: int) -> None:
        """An empty head. Keys that need a dictionary cannot be held here."""
        assert not any(dim.is_bytes for dim in shape.dims)
        self.shape = shape
        self.size = 0
        self.keys = np.empty((len(shape.dims), capacity), np.int64)
        self.rid = np.empty(capacity, np.int32)
        self._negate = np.array([dim.negate for dim in shape.dims], np.bool_)

    @property
    def nbytes(self) -> int:
        """Bytes held, used or not."""
        return int(self.keys.nbytes + self.rid.nbytes)

    def append(self, keys: list[Int64], rid: NDArray[np.int32]) -> None:
        """Add rows at the end; O(rows)."""
        end = self.size + rid.size
        for at, key in enumerate(keys):
            self.keys[at, self.size : end] = key
        self.rid[self.size : end] = rid
        self.size = end

    def appended(self, keys: list[Int64], rid: NDArray[np.int32]) -> Head:
        """A head with these rows as well; this one stays as it is. O(rows).

        Only one of the heads made from this one may be used: they lie in the same place.
        """
        longer = copy.copy(self)
        longer.append(keys, rid)
        return longer

    def clear(self) -> None:
        """Forget all rows."""
        self.size = 0

    def rows(self) -> tuple[list[Int64], NDArray[np.int32]]:
        """The keys and row numbers held, as copies."""
        return [key[: self.size].copy() for key in self.keys], self.rid[: self.size].copy()

    def pairs(
        self, probe: Probe, arrivals: Arrivals, *, room: int, once: bool = False
    ) -> list[Iterator[Pairs]]:
        """Matches of a probe batch; O(probes x rows / SIMD width)."""
        if self.size == 0 or probe.size == 0:
            return []
        visible = probe.visible(arrivals)
        if visible is None:
            return []
        args = self.keys, self.rid, self.size, self._negate, probe, visible
        return [scanned(*args, room=room, once=once)]

    def _check(self) -> None:
        """Verify the invariants."""
        assert 0 <= self.size <= self.rid.size == self.keys.shape[1]
        assert np.unique(self.rid[: self.size]).size == self.size


def scanned(
    keys: Int64,
    rid: NDArray[np.int32],
    rows: int,
    negate: NDArray[np.bool_],
    probe: Probe,
    visible: tuple[bool, Int64, Int64],
    *,
    room: int,
    once: bool,
) -> Iterator[Pairs]:
    """Every probe against the first `rows` rows, in chunks; O(probes x rows / SIMD width)."""
    intervals = [i for i in probe.intervals if isinstance(i, Interval)]
    low, high = stack(intervals, tuple(range(len(intervals))), probe.size)
    order = np.arange(probe.size, dtype=np.int32)
    tests = emit.Tests(keys, low, high, negate)
    shown = emit.Shown(*visible, once)
    out = emit.Out.of(room)
    while out.state[0] < order.size:
        n = emit.emit_head(order, rows, rid, tests, shown, out)
        if n:
            yield out.probe[:n], out.row[:n]
