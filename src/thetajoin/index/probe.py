"""What an index is asked: its shape, a batch of probes, and which arrivals they may see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thetajoin.arrays import fill, number_rows
from thetajoin.batch.keys import Int64
from thetajoin.index.interval import AnyInterval, Interval
from thetajoin.kernels.order import gather, is_sorted, order_of
from thetajoin.kernels.search import count_below

# If numbers lie in a range at most this many times as long as they are many, one pass counts it
# all.
TABLE_SHARE = 64


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Row numbers from ``starts[i]`` on have the arrival numbers from ``firsts[i]`` on.

    >>> numbers = Arrivals.concat([Arrivals.dense(10, 3), Arrivals.dense(20, 2)])
    >>> numbers.rows_before(np.array([9, 11, 15, 21, 99])).tolist()
    [0, 1, 3, 4, 5]
    """

    rows: int
    firsts: Int64
    starts: Int64

    @staticmethod
    def dense(first: int, rows: int) -> Arrivals:
        """Rows that arrived one after another."""
        return Arrivals(rows, np.array([first]), np.zeros(1, np.int64))

    @staticmethod
    def of(numbers: Int64) -> Arrivals:
        """Rows with these arrival numbers, in rising order.

        >>> Arrivals.of(np.array([3, 4, 9])).firsts.tolist()
        [3, 9]
        """
        starts = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 2) != 1)
        return Arrivals(len(numbers), numbers[starts], starts)

    @property
    def first(self) -> int:
        """The oldest row's arrival number."""
        return int(self.firsts[0])

    @property
    def last(self) -> int:
        """The newest row's arrival number."""
        return int(self.firsts[-1] + self.rows - 1 - self.starts[-1])

    @property
    def is_dense(self) -> bool:
        """Whether there is no gap."""
        return len(self.firsts) == 1

    def numbers(self) -> Int64:
        """The arrival number of each row."""
        lengths = np.diff(self.starts, append=self.rows)
        return np.arange(self.rows) + np.repeat(self.firsts - self.starts, lengths)

    def rows_before(self, numbers: Int64) -> Any:
        """How many rows have an arrival number below each of `numbers`."""
        if self.is_dense:
            return np.clip(numbers - self.first, 0, self.rows)
        if len(numbers):
            low, high = int(numbers.min()), int(numbers.max())
            if high - low < TABLE_SHARE * len(numbers):
                table = np.empty(high - low + 1, np.int64)
                count_below(self.firsts, self.starts, self.rows, low, table)
                return gather(table, numbers - low)
        piece = np.searchsorted(self.firsts, numbers, side="right") - 1
        ends = np.append(self.starts[1:], self.rows)
        inside = self.starts[piece] + (numbers - self.firsts[piece])
        return np.where(piece < 0, 0, np.minimum(inside, ends[piece]))

    def slice(self, start: int, rows: int) -> Arrivals:
        """The numbers of `rows` rows from row `start` on.

        >>> Arrivals.of(np.array([3, 4, 9, 10])).slice(1, 2).numbers().tolist()
        [4, 9]
        """
        low = int(np.searchsorted(self.starts, start, side="right")) - 1
        high = int(np.searchsorted(self.starts, start + rows, side="left"))
        starts = np.maximum(self.starts[low:high] - start, 0)
        firsts = self.firsts[low:high].copy()
        firsts[0] += max(0, start - int(self.starts[low]))
        return Arrivals(rows, firsts, starts)

    @staticmethod
    def concat(parts: Sequence[Arrivals]) -> Arrivals:
        """The rows of several blocks one after another."""
        if all(part.is_dense for part in parts) and all(
            a.first + a.rows == b.first for a, b in pairwise(parts)
        ):
            return Arrivals.dense(parts[0].first, sum(part.rows for part in parts))
        rows = np.cumsum([0, *(part.rows for part in parts)])
        firsts = np.concatenate([part.firsts for part in parts])
        starts = np.concatenate([p.starts + at for p, at in zip(parts, rows[:-1], strict=True)])
        goes_on = firsts[1:] - starts[1:] == firsts[:-1] - starts[:-1]
        kept = np.flatnonzero(np.append(True, ~goes_on))
        return Arrivals(int(rows[-1]), firsts[kept], starts[kept])

    def bits(self) -> bytes:
        """A bit for each arrival number from the first row's to the last one's."""
        here = np.zeros(self.last - self.first + 1, np.bool_)
        here[self.numbers() - self.first] = True
        return np.packbits(here).tobytes()

    @staticmethod
    def from_bits(first: int, bits: bytes) -> Arrivals:
        """What `bits` was made from, with the first row's number."""
        return Arrivals.of(first + np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8))))


Int32 = NDArray[np.int32]
# Matches as probe rows and stored rows.
Pairs = tuple[Int32, Int32]


@dataclass(frozen=True)
class Dim:
    """One stored key: compared for equality, for exclusion (``!=``), or for order."""

    equal: bool = False
    negate: bool = False
    is_bytes: bool = False


@dataclass(frozen=True)
class Shape:
    """The stored keys of one conjunction, seen from one side.

    Equality keys come first in the sort order, so rows of one equal key form a run; the first
    ordered key sorts the rows inside a run (the primary order); the other ordered keys can drive a
    bitmap; whatever does not drive is tested row by row. With `stable`, rows that are equal in what
    sorts them stay in the order of their row numbers.
    """

    dims: tuple[Dim, ...]
    stable: bool = False

    @cached_property
    def run(self) -> tuple[int, ...]:
        """Keys compared for equality."""
        return tuple(i for i, dim in enumerate(self.dims) if dim.equal)

    @cached_property
    def primary(self) -> int | None:
        """The key that sorts the rows."""
        return next(
            (i for i, dim in enumerate(self.dims) if not dim.equal and not dim.negate), None
        )

    @cached_property
    def setters(self) -> tuple[int, ...]:
        """Keys that can set bits."""
        return tuple(
            i
            for i, dim in enumerate(self.dims)
            if not dim.equal and not dim.negate and i != self.primary
        )

    @cached_property
    def tested(self) -> tuple[int, ...]:
        """Keys kept in primary order: all that the range itself does not decide."""
        hashed = self.run if len(self.run) > 1 else ()
        others = (i for i, d in enumerate(self.dims) if not d.equal and i != self.primary)
        return (*hashed, *others)


@dataclass
class Probe:
    """A batch of probe rows: an interval for every stored key, and what they may see.

    ``see_low`` and ``see_high`` bound the arrival numbers a probe row may be paired with; None
    means no bound. Sort orders are made once and shared by all segments; `hints` may hold a likely
    one for a stored key.
    """

    intervals: tuple[AnyInterval, ...]
    size: int
    see_low: Int64 | None = None
    see_high: Int64 | None = None
    hints: dict[int, NDArray[np.int32]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._orders: dict[int, np.ndarray] = {}
        self._rising: dict[tuple[int, bool], Int64 | None] = {}

    def restrict(self, low: Int64 | None, high: Int64 | None) -> Probe:
        """The same probes, limited to some rows; both share what either of them sorts."""
        other = Probe(self.intervals, self.size, low, high, self.hints)
        other._orders, other._rising = self._orders, self._rising
        return other

    def order(self, dim: int, interval: Interval) -> np.ndarray:
        """Probe rows ordered by this key's interval; cached, but for byte strings."""
        if dim in self._orders:
            return self._orders[dim]
        keys = interval.low if interval.low is not None else interval.high
        hint = self.hints.get(dim)
        if keys is None:
            order = number_rows(self.size)
        elif hint is not None and is_sorted(gather(keys, hint)):
            order = hint
        else:
            order = order_of(keys)
        if isinstance(self.intervals[dim], Interval):
            self._orders[dim] = order
        return order

    def sort_bounds(self, dim: int, interval: Interval, *, low: bool) -> Int64 | None:
        """One end of this key's intervals in their `order`; None if that does not rise."""
        if (dim, low) in self._rising:
            return self._rising[dim, low]
        values = interval.low if low else interval.high
        assert values is not None
        found: Int64 | None = gather(values, self.order(dim, interval))
        if not is_sorted(found):
            found = None
        if isinstance(self.intervals[dim], Interval):
            self._rising[dim, low] = found
        return found

    def find_visible(self, arrivals: Arrivals) -> tuple[bool, Int64, Int64] | None:
        """Row numbers, ends included, each probe may see among `arrivals`; None if none can.

        The first item says whether rows have to be checked at all.
        """
        low = high = _NOTHING
        low_cut = self.see_low is not None and bool((self.see_low > arrivals.first).any())
        high_cut = self.see_high is not None and bool((self.see_high < arrivals.last).any())
        if not low_cut and not high_cut:
            return False, low, high
        if low_cut and self.see_low is not None:
            low = arrivals.rows_before(self.see_low)
        else:
            low = fill(self.size, 0, np.int64)
        if high_cut and self.see_high is not None:
            high = arrivals.rows_before(self.see_high + 1) - 1
        else:
            high = fill(self.size, arrivals.rows, np.int64)
        return (
            None if bool((low > high).all() or (low >= arrivals.rows).all()) else (True, low, high)
        )


_NOTHING: Int64 = np.zeros(0, np.int64)
