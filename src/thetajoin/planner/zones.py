"""Zones: a table's rows in the order of the keys they are split by, summarised in runs.

Each task that reads a part of the table cuts what it reads into a few hundred runs of neighbours by
their place (equal keys first, then one ordered key) and gives the runs' boxes. All zones together
are a histogram of the table and say, without sampling, where its rows are and where none are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from thetajoin.batch.keys import INT64_MAX, INT64_MIN, Int64
from thetajoin.engine.parts import Side
from thetajoin.engine.rows import KeyedBatch
from thetajoin.kernels.boxes import CUTS, fold_zones, zones_of
from thetajoin.kernels.order import gather, order_of
from thetajoin.planner.facets import Boxes, Sight

ZONES = 256
# Rows that cuts are made from, and rows that are few enough to be sorted.
SAMPLE = 1 << 12
SMALL = 1 << 16
Index = NDArray[np.intp]


@dataclass(frozen=True)
class Places:
    """Where rows stand: by `equal` first, then by `ordered`; rows without keys stand last."""

    equal: Int64
    ordered: Int64

    def __len__(self) -> int:
        return self.equal.size

    def order(self) -> NDArray[np.int32]:
        """The rows from first to last."""
        by_ordered = order_of(self.ordered)
        return gather(by_ordered, order_of(gather(self.equal, by_ordered)))  # type: ignore[no-any-return]

    def take(self, rows: NDArray[np.integer]) -> Places:
        """The places of some rows."""
        return Places(self.equal[rows], self.ordered[rows])

    def distinct(self) -> Places:
        """Each place once; they must be in order."""
        new = np.ones(len(self), np.bool_)
        new[1:] = (np.diff(self.equal) != 0) | (np.diff(self.ordered) != 0)
        return self.take(np.flatnonzero(new))

    def among(self, cuts: Places, side: str = "right") -> Index:
        """How many of the cuts, which are in order, are at or before each place.

        With ``side="left"``, how many are before it.
        """
        same = len(self) and len(cuts) and (self.equal == cuts.equal[0]).all()
        if same and (cuts.equal == cuts.equal[0]).all():
            return np.searchsorted(cuts.ordered, self.ordered, side)  # type: ignore[call-overload, no-any-return]
        found = np.searchsorted(cuts.equal, self.equal, "left")
        ends = np.searchsorted(cuts.equal, self.equal, "right")
        within = np.flatnonzero(ends > found)
        for value in np.unique(self.equal[within]):
            rows = within[self.equal[within] == value]
            start, end = np.searchsorted(cuts.equal, value), ends[rows[0]]
            ordered = cuts.ordered[start:end]
            found[rows] = start + np.searchsorted(ordered, self.ordered[rows], side)  # type: ignore[call-overload]
        return found

    @staticmethod
    def concat(parts: list[Places]) -> Places:
        """All places one after another."""
        return Places(
            np.concatenate([p.equal for p in parts]), np.concatenate([p.ordered for p in parts])
        )


def places(sight: Sight, side: Side, batch: KeyedBatch, columns: list[Int64]) -> Places:
    """The places of a batch's rows; `columns` are those of the first conjunction."""
    at = sight.places(side)
    rows = batch.parts[0].rows
    whole = []
    for column in at:
        if column is None:
            whole.append(np.zeros(len(batch), np.int64))
        elif len(rows) == len(batch):
            whole.append(columns[column])
        else:
            filled = np.full(len(batch), INT64_MAX, np.int64)
            filled[rows] = columns[column]
            whole.append(filled)
    return Places(whole[0], whole[1])


@dataclass(frozen=True)
class Zones:
    """Runs of rows: where each begins and ends, how many rows it has, and its box."""

    first: Places
    last: Places
    rows: Int64
    boxes: Boxes

    def __len__(self) -> int:
        return self.rows.size

    @property
    def total(self) -> int:
        """Rows in all zones."""
        return int(self.rows.sum())

    def to_matrix(self) -> Int64:
        """All of it as one matrix of integers, a column for each zone."""
        ends = [self.first.equal, self.first.ordered, self.last.equal, self.last.ordered, self.rows]
        return np.vstack([*ends, *self.boxes.low, *self.boxes.high])

    @staticmethod
    def from_matrix(matrix: Int64, widths: list[int]) -> Zones:
        """Zones from the matrices of all tasks side by side; `widths` of the conjunctions."""
        splits = np.cumsum([5, *widths, *widths])[:-1]
        ends, *boxes = np.split(matrix, splits)
        number = len(widths)
        return Zones(
            Places(ends[0], ends[1]),
            Places(ends[2], ends[3]),
            ends[4],
            Boxes(boxes[:number], boxes[number:]),
        )

    def coarser(self, number: int) -> Zones:
        """At most `number` zones, neighbours taken together."""
        if len(self) <= number:
            return self
        order = self.first.order()
        weight = np.cumsum(self.rows[order])
        into = np.minimum((weight - self.rows[order]) * number // max(1, weight[-1]), number - 1)
        _, into = np.unique(into, return_inverse=True)
        count = int(into.max()) + 1
        rows = np.zeros(count, np.int64)
        np.add.at(rows, into, self.rows[order])
        firsts = np.searchsorted(into, np.arange(count))
        latest = self.last.take(order)
        ranks = np.empty(len(self), np.int64)
        ranks[latest.order()] = np.arange(len(self))
        last = np.zeros(count, np.int64)
        np.maximum.at(last, into, ranks)
        back = np.empty(len(self), np.intp)
        back[ranks] = np.arange(len(self))
        boxes = self.boxes.merged(order, into, count)
        return Zones(self.first.take(order[firsts]), latest.take(back[last]), rows, boxes)


def summarise(
    sights: tuple[Sight, ...], side: Side, batch: KeyedBatch, zones: int = ZONES
) -> Zones:
    """The zones of a batch of rows; O(n), or O(n log n) for few rows and with equal keys."""
    columns = [s.columns(side, rows) for s, rows in zip(sights, batch.parts, strict=True)]
    where = places(sights[0], side, batch, columns[0])
    by_key_alone = sights[0].places(side)[0] is None
    if by_key_alone and zones == CUTS + 1 and len(batch) > SMALL:
        zone, rows, first, last = _by_cuts(where.ordered)
    else:
        zone, rows, first, last = _by_order(where, zones)
    low: list[Int64] = []
    high: list[Int64] = []
    for part, values in zip(batch.parts, columns, strict=True):
        low.append(np.full((len(values), rows.size), INT64_MAX, np.int64))
        high.append(np.full((len(values), rows.size), INT64_MIN, np.int64))
        own = zone if len(part) == len(batch) else gather(zone, part.rows)
        for at, column in enumerate(values):
            fold_zones(column, own, low[-1][at], high[-1][at])
    filled = np.flatnonzero(rows)
    boxes = Boxes([m[:, filled] for m in low], [m[:, filled] for m in high])
    return Zones(first.take(filled), last.take(filled), rows[filled], boxes)


Cut = tuple[NDArray[np.int32], Int64, Places, Places]


def _by_order(where: Places, zones: int) -> Cut:
    """Each row's zone, all of one size; the zones' rows, first and last places."""
    order, size = where.order(), len(where)
    starts = np.unique(np.linspace(0, size, min(zones, size), endpoint=False).astype(np.intp))
    rows = np.diff(np.append(starts, size)).astype(np.int64)
    zone = np.empty(size, np.int32)
    zone[order] = np.repeat(np.arange(starts.size, dtype=np.int32), rows)
    return zone, rows, where.take(order[starts]), where.take(order[starts + rows - 1])


def _by_cuts(values: Int64) -> Cut:
    """The same of rows that stand by one key alone: cut by a sample of it, so of about one size."""
    sample = np.sort(values[:: max(1, values.size // SAMPLE)])
    cuts = sample[np.linspace(0, sample.size, CUTS + 1, endpoint=False).astype(np.intp)[1:]]
    zone, rows = np.empty(values.size, np.int32), np.zeros(CUTS + 1, np.int64)
    zones_of(values, cuts, zone, rows)
    low = np.full(CUTS + 1, INT64_MAX, np.int64)
    high = np.full(CUTS + 1, INT64_MIN, np.int64)
    fold_zones(values, zone, low, high)
    alone = np.zeros(CUTS + 1, np.int64)
    return zone, rows, Places(alone, low), Places(alone, high)
