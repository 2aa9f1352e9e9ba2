"""The shape of an index: which of a condition's keys play which part in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from thetajoin.arrays import filled, numbered
from thetajoin.batch.keys import Int64
from thetajoin.index.arrivals import Arrivals
from thetajoin.index.interval import AnyInterval, Interval
from thetajoin.kernels.order import gather, is_sorted, order_of

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
    means no bound. Sort orders are made once and shared by all segments; `hints` may have one, by
    stored key, that is probably right.
    """

    intervals: tuple[AnyInterval, ...]
    size: int
    see_low: Int64 | None = None
    see_high: Int64 | None = None
    hints: dict[int, NDArray[np.int32]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._orders: dict[int, np.ndarray] = {}
        self._rising: dict[tuple[int, bool], Int64 | None] = {}

    def seeing(self, low: Int64 | None, high: Int64 | None) -> Probe:
        """The same probes that see only some rows; what one of them sorts, both have."""
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
            order = numbered(self.size)
        elif hint is not None and is_sorted(gather(keys, hint)):
            order = hint
        else:
            order = order_of(keys)
        if isinstance(self.intervals[dim], Interval):
            self._orders[dim] = order
        return order

    def rising(self, dim: int, interval: Interval, *, low: bool) -> Int64 | None:
        """One end of this key's intervals in their `order`; None if it goes down somewhere."""
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

    def visible(self, arrivals: Arrivals) -> tuple[bool, Int64, Int64] | None:
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
            low = filled(self.size, 0, np.int64)
        if high_cut and self.see_high is not None:
            high = arrivals.rows_before(self.see_high + 1) - 1
        else:
            high = filled(self.size, arrivals.rows, np.int64)
        return (
            None if bool((low > high).all() or (low >= arrivals.rows).all()) else (True, low, high)
        )


_NOTHING: Int64 = np.zeros(0, np.int64)
