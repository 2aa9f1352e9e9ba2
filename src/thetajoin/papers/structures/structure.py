"""The protocol of a window structure that rows are put into and expire from.

A structure holds the keys of one side's window for one conjunction. Rows are numbered as they come;
`insert` takes them in that order, `expire` says below which number they have left the window, and
`pairs` gives every held row that lies in a probe's intervals, in chunks of bounded size. One key
drives, the first compared for equality or else the first ordered one; the others are tested row by
row against a ring of the window's keys, unless a structure says otherwise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from thetajoin.batch.keys import INT64_MAX, INT64_MIN, Int64
from thetajoin.index.interval import Interval, stack
from thetajoin.index.probe import Arrivals, Pairs, Probe, Shape
from thetajoin.kernels.emit import Out, Shown
from thetajoin.kernels.order import gather, is_sorted, order_of
from thetajoin.papers.kernels.linked import emit_linked, put_ring

Int32 = NDArray[np.int32]
Storage = tuple[NDArray[Any], ...]
Cursors = tuple[Int32, Int32, Int32, Int32]
# Rows of a sub-window where the window itself does not say how many it has.
SUB_ROWS = 1 << 17
_SMALLEST_RING = 64


class Component(ABC):
    """A part of a structure: rows by one key in linked blocks (see `papers.kernels.linked`)."""

    in_order: ClassVar[bool] = True
    size: int

    @abstractmethod
    def storage(self) -> Storage:
        """Where blocks begin, their counts and followers, and the keys and row numbers in them."""

    @abstractmethod
    def cursors(self, order: Int32, low: Int64, high: Int64) -> Cursors:
        """Where each probe starts and ends."""

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(array.nbytes for array in self.storage())

    def rows(self) -> tuple[Int64, Int32]:
        """The keys and row numbers held, block by block."""
        begin, count, _, skey, srid = self.storage()
        at = [np.arange(b, b + c) for b, c in zip(begin, count, strict=False) if c]
        places = np.concatenate(at) if at else np.zeros(0, np.int64)
        return skey[places], srid[places]


class Structure(ABC):
    """Keys of a window's rows; see the module's text for the protocol."""

    name: ClassVar[str]

    def __init__(self, shape: Shape, window: int | None = None, *, multi_key: bool = False) -> None:
        """An empty structure; `window` is the number of rows expected, if it is known.

        With `multi_key` it looks up every key itself and none is tested in the ring.
        """
        self.shape = shape
        self.window = window
        # Rows of a batch go in by key, which spares searches; the papers' trees take them as they
        # come, which is what a comparison with the papers sets this to False for.
        self.presort = True
        self.multi_key = multi_key
        # The number of the first row that `arrivals` will count; rows below `first` have expired.
        self.base = self.first = 0
        self.last = -1
        self.drive = find_driver(shape)
        self._ring_dims: tuple[int, ...] = tuple(
            i for i in range(len(shape.dims)) if i != self.drive and not multi_key
        )
        self._negate = np.array([shape.dims[i].negate for i in self._ring_dims], np.bool_)
        capacity = _SMALLEST_RING if self._ring_dims else 1
        self._ring = np.zeros((len(self._ring_dims), capacity), np.int64)

    @abstractmethod
    def components(self) -> Sequence[Component]:
        """The parts that together hold every row once."""

    @abstractmethod
    def _insert(self, order: Int32, keys: list[Int64], rid: Int32) -> None:
        """Put rows in; `order` is that of the driving key."""

    def _expire(self) -> None:  # noqa: B027
        """Forget rows below `first`, at once or later, which may be never."""

    @property
    def size(self) -> int:
        """Rows held, those that have expired but are not removed yet among them."""
        return sum(component.size for component in self.components())

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self._ring.nbytes) + sum(part.nbytes for part in self.components())

    def insert(self, keys: Sequence[Int64], rid: Int32) -> None:
        """Put new rows in, with ascending row numbers above all before; a batch is sorted once."""
        if not rid.size:
            return
        if not is_sorted(rid.astype(np.int64)):
            order = np.argsort(rid, kind="stable").astype(np.int32)
            keys, rid = [gather(key, order) for key in keys], gather(rid, order)
        self._widen_ring(int(rid[-1]))
        self.last = int(rid[-1])
        for at, dim in enumerate(self._ring_dims):
            put_ring(self._ring, self._ring.shape[1] - 1, keys[dim], rid, at)
        values = keys[self.drive]
        order = order_of(values) if self.presort else np.arange(rid.size, dtype=np.int32)
        self._insert(order, list(keys), rid)

    def _widen_ring(self, last: int) -> None:
        """Make room for all rows that have not expired, up to row `last`."""
        capacity = self._ring.shape[1]
        if not self._ring_dims or last - self.first < capacity:
            return
        wide = 1 << (last - self.first).bit_length()
        held = np.arange(max(self.first, self.last - capacity + 1), self.last + 1)
        ring = np.zeros((len(self._ring_dims), wide), np.int64)
        ring[:, held & (wide - 1)] = self._ring[:, held & (capacity - 1)]
        self._ring = ring

    def expire(self, first: int) -> None:
        """Rows with a number below `first` have left the window."""
        if first > self.first:
            self.first = first
            self._expire()

    def find_visible(self, probe: Probe, arrivals: Arrivals) -> tuple[bool, Int64, Int64] | None:
        """Row numbers, ends included, that each probe may see; None if none can.

        `arrivals` numbers the rows from `base` on; rows before `first` are never seen.
        """
        seen = probe.find_visible(arrivals)
        if seen is None:
            return None
        see, low, high = seen
        if see:
            return True, np.maximum(low + self.base, self.first), high + self.base
        if not self._holds_expired():
            return False, low, high
        bound = np.full(probe.size, self.first, np.int64)
        return True, bound, np.full(probe.size, self.last, np.int64)

    def _holds_expired(self) -> bool:
        return self.first > 0

    def pairs(
        self, probe: Probe, arrivals: Arrivals, *, room: int, once: bool = False
    ) -> list[Iterator[Pairs]]:
        """Matches of a probe batch, as streams of ``(probe, row)`` chunks of at most `room` pairs.

        A chunk is overwritten by the next of its stream; streams may run on different threads. With
        `once` a probe's first match in each component is enough.
        """
        if not probe.size:
            return []
        visible = self.find_visible(probe, arrivals)
        if visible is None:
            return []
        intervals = [_plain(interval) for interval in probe.intervals]
        asked = intervals[self.drive]
        low, high = ends(asked, probe.size)
        ring_low, ring_high = stack(intervals, self._ring_dims, probe.size)
        order = probe.order(self.drive, asked)
        shown = Shown(*visible, once)
        ringed = (self._ring, self._ring.shape[1] - 1, ring_low, ring_high, self._negate)

        def stream() -> Iterator[Pairs]:
            out = Out.of(room)
            for part in held:
                cursors, storage = part.cursors(order, low, high), part.storage()
                out.state[:] = 0
                while out.state[0] < order.size:
                    n = emit_linked(
                        order, cursors, (low, high), part.in_order, storage, ringed, shown, out
                    )
                    if n:
                        yield out.probe[:n], out.row[:n]

        held = [part for part in self.components() if part.size]
        return [stream()] if held else []

    def _check(self) -> None:
        """Verify what all structures have in common: each row once, keys in order in each block."""
        seen = []
        for part in self.components():
            keys, rid = part.rows()
            assert len(keys) == part.size, (self.name, len(keys), part.size)
            seen.append(rid)
            begin, count, _, skey, _ = part.storage()
            if part.in_order:
                for b, c in zip(begin, count, strict=False):
                    assert (np.diff(skey[b : b + c].astype(object)) >= 0).all(), self.name
        numbers = np.concatenate(seen) if seen else np.zeros(0, np.int32)
        assert np.unique(numbers).size == numbers.size
        assert not numbers.size or numbers.max() <= self.last


def find_driver(shape: Shape) -> int:
    """The key whose interval is looked up: the first equality, else the first ordered key."""
    if shape.run:
        return shape.run[0]
    return -1 if shape.primary is None else shape.primary


def ends(asked: Interval, size: int) -> tuple[Int64, Int64]:
    """Both ends of an interval for each probe, open ones as the extremes.

    Kernels are given several of these in one tuple, so all are of one type: arrays to write to.
    """
    low = np.full(size, INT64_MIN, np.int64) if asked.low is None else asked.low
    high = np.full(size, INT64_MAX, np.int64) if asked.high is None else asked.high
    return np.require(low, requirements="W"), np.require(high, requirements="W")


def _plain(interval: object) -> Interval:
    assert isinstance(interval, Interval)
    return interval


def blank(size: int) -> Int32:
    """Room for a number of every probe."""
    return np.empty(size, np.int32)


def one_block(keys: Int64, rid: Int32, rows: int) -> Storage:
    """All rows as one block that nothing follows."""
    return np.zeros(1, np.int64), repeat(1, rows), repeat(1, -1), keys, rid


def repeat(size: int, value: int) -> Int32:
    """The same number for every probe."""
    return np.full(size, value, np.int32)
