"""A unit's share of the work where several units carry out one join (BiStream, Section 3).

Every unit is given all new rows in the same order, so all agree on arrival numbers. In the
join-biclique each row is stored in one unit and probes all of them. A unit stores a range of a key
here, so that a band, an equality or two keys that go together need a row's probe in a few units
only, and the others see that from the extremes of what they store. Where a side's rows must know
whether they matched anywhere (outer, semi and anti joins), these rows are stored and probed in one
unit only, and the other side is kept in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from thetajoin.batch.keys import BytesKey, Int64
from thetajoin.engine.layout import How
from thetajoin.engine.parts import OTHER, Part, Side
from thetajoin.engine.rows import KeyedBatch, PartRows
from thetajoin.errors import OptionError
from thetajoin.index.interval import Interval

# Rows of each side from whose keys the units' ranges are cut.
SAMPLED = 1024


@dataclass(frozen=True)
class Share:
    """Which part of each micro-batch a unit stores, and which it probes with.

    stores: False where all new rows are stored in other units, and only probe what is here.
    """

    unit: int = 0
    units: int = 1
    stored_in_part: frozenset[Side] = field(default_factory=frozenset)
    probed_in_part: frozenset[Side] = field(default_factory=frozenset)
    stores: bool = True

    @staticmethod
    def of(how: How, unit: int, units: int) -> Share:
        """The share of one of several units in a join of this kind."""
        if units == 1:
            return Share()
        if how == "full":
            raise OptionError("a full join needs units=1: each side must see all of the other")
        if how == "inner":
            return Share(unit, units, stored_in_part=frozenset(("l", "r")))
        side: frozenset[Side] = frozenset(("r",) if how == "right" else ("l",))
        return Share(unit, units, stored_in_part=side, probed_in_part=side)

    def part(self, rows: int, seen: int) -> tuple[int, int]:
        """The rows ``[start, end)`` of a micro-batch that are this unit's.

        Turning with the number of rows `seen` before spreads small batches over the units.

        >>> [Share(unit, 3).part(8, 0) for unit in range(3)]
        [(0, 2), (2, 5), (5, 8)]
        """
        at = (self.unit + seen) % self.units
        return rows * at // self.units, rows * (at + 1) // self.units

    def stored(
        self, part: Part, batches: Mapping[Side, KeyedBatch], side: Side, seen: int
    ) -> NDArray[np.bool_]:
        """Which rows of a micro-batch this unit stores: those in its range of a key.

        The ranges are cut anew for each micro-batch, from both sides' rows together, so that the
        units are given about as many rows to store and to look for whatever comes. Rows without a
        key, and all of them where there is none to cut, are shared by their position.
        """
        batch = batches[side]
        mask = np.zeros(len(batch), np.bool_)
        mask[slice(*self.part(len(batch), seen))] = True
        rows, others = batch.parts[0], batches[OTHER[side]].parts[0]
        cut = None if len(rows) < self.units else _cut_key(part, rows, others, side)
        if cut is not None:
            mask[rows.rows] = in_range(*cut, self.unit, self.units)
        return mask


def _cut_key(
    part: Part, rows: PartRows, others: PartRows, side: Side
) -> tuple[Int64, Int64] | None:
    """The key that a side is cut by, and a sorted sample of it and of what is asked of it."""
    view = part.views[side]
    for dim in (*view.shape.run, view.shape.primary):
        key = None if dim is None else rows.keys[view.stored[dim]]
        if dim is None or key is None or isinstance(key, BytesKey):
            continue
        sample = [key[_spread(len(rows))]]
        if len(others):
            asked = view.intervals(others.take(_spread(len(others))).keys)[dim]
            assert isinstance(asked, Interval)
            sample.append(_middle(asked))
        return key, np.sort(np.concatenate(sample))
    return None


def _middle(asked: Interval) -> Int64:
    """A key for each interval: its middle, or the end it has."""
    low, high = asked.low, asked.high
    if low is None or high is None:
        only = low if high is None else high
        assert only is not None
        return only
    middle: Int64 = (low & high) + ((low ^ high) >> 1)
    return middle


def _spread(rows: int) -> NDArray[np.int32]:
    """Positions of a sample's rows."""
    return np.linspace(0, rows - 1, min(rows, SAMPLED)).astype(np.int32)


def in_range(keys: Int64, sample: Int64, unit: int, units: int) -> NDArray[np.bool_]:
    """Which keys are a unit's, of units that share a sorted sample evenly.

    Keys equal to one that takes up much of the sample are dealt to the units that share it.

    >>> keys = np.array([1, 5, 5, 5, 5, 9])
    >>> [in_range(keys, keys, unit, 3).astype(int).tolist() for unit in range(3)]
    [[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1]]
    """
    size = len(sample)
    mask = np.ones(len(keys), np.bool_)
    edges = set()
    if unit > 0:
        edges.add(start := sample[size * unit // units])
        mask &= keys >= start
    if unit < units - 1:
        edges.add(end := sample[size * (unit + 1) // units])
        mask &= keys < end
    for edge in edges:
        first, last = np.searchsorted(sample, edge), np.searchsorted(sample, edge, side="right")
        if last - first > 1:
            equal = np.flatnonzero(keys == edge)
            place = first + (np.arange(len(equal)) + 0.5) / max(1, len(equal)) * (last - first)
            mask[equal] = (place * units / size).astype(np.int64) == unit
    return mask
