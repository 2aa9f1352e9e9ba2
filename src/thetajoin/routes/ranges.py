"""Ranges: the keys of one side cut into boxes by a sample, each box with units of its own.

Rows of the side that is held lie in one box. Rows of the other side are sent to every box that they
can match at all. Boxes end where the sample ended, so that inequalities without a second bound do
not reach all of them; the few held rows that lie in no box are sent to units apart, all of them,
where each row of the other side has one copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from thetajoin.batch.keys import INT64_MAX, INT64_MIN, Int64
from thetajoin.kernels.boxes import find_boxes, reach_boxes
from thetajoin.routes.copies import Copies, UInt64, units_of

Int32 = NDArray[np.int32]
Ints = tuple[int, ...]


@dataclass(frozen=True)
class BoxTree:
    """Boxes over some keys, found by cutting one key after another.

    For each node: the key that is cut (-1 for a leaf) and where, the nodes below, and a leaf's
    units, from `first` on `number` of them. ``low[key][node]`` and `high` are its box. `finite`
    says that boxes end where the sample did, so that rows may lie outside.
    """

    axis: Ints
    cuts: Ints
    left: Ints
    right: Ints
    first: Ints
    number: Ints
    low: tuple[Ints, ...]
    high: tuple[Ints, ...]
    finite: bool

    @cached_property
    def _nodes(self) -> tuple[Int32, Int64, Int32, Int32, Int64, Int64]:
        return (
            np.array(self.axis, np.int32),
            np.array(self.cuts, np.int64),
            np.array(self.left, np.int32),
            np.array(self.right, np.int32),
            np.array(self.low, np.int64),
            np.array(self.high, np.int64),
        )

    @property
    def units(self) -> int:
        """Units that have a box."""
        return max(f + n for f, n in zip(self.first, self.number, strict=True))

    @property
    def places(self) -> int:
        """Units in all: as many again for rows outside of all boxes."""
        return self.units * (2 if self.finite else 1)

    def route_held(self, columns: Int64, hashes: UInt64) -> Copies:
        """Copies of rows of the side that is held; `hashes` are of all that a row holds."""
        axis, cuts, left, right, low, high = self._nodes
        node = np.empty(columns.shape[1], np.int32)
        find_boxes(columns, axis, cuts, left, right, low, high, node)
        inside = np.flatnonzero(node >= 0).astype(np.int32)
        first, number = np.array(self.first, np.int32), np.array(self.number, np.uint64)
        at = node[inside]
        units = first[at] + (hashes[inside] % number[at]).astype(np.int32)
        if inside.size == node.size:
            return Copies(inside, units)
        outside = np.flatnonzero(node < 0).astype(np.int32)
        of = np.repeat(outside, self.units)
        nth = np.tile(np.arange(self.units, dtype=np.int32), len(outside))
        home = nth == units_of(hashes[of], self.units)
        return Copies.concat([Copies(inside, units), Copies(of, self.units + nth, home)])

    def route_streamed(self, low: Int64, high: Int64, hashes: UInt64) -> Copies:
        """Copies of rows of the other side, by what they ask of the held one's keys."""
        of, units = self.find_reached(low, high)
        rows = len(hashes)
        if self.finite:
            # One copy each for held rows outside of all boxes: that is where a row is counted.
            home = self.units + units_of(hashes, self.units)
            counted = np.zeros(len(of) + rows, np.bool_)
            counted[len(of) :] = True
            return Copies(
                np.concatenate([of, np.arange(rows, dtype=np.int32)]),
                np.concatenate([units, home]),
                counted,
            )
        nowhere = np.ones(rows, np.bool_)
        nowhere[of] = False
        alone = np.flatnonzero(nowhere).astype(np.int32)
        of = np.concatenate([of, alone])
        units = np.concatenate([units, units_of(hashes[alone], self.units)])
        return Copies.of(of, units, self.places)

    def find_reached(self, low: Int64, high: Int64) -> tuple[Int32, Int32]:
        """Rows, and the units of all boxes that each of them reaches."""
        axis, _, left, right, box_low, box_high = self._nodes
        rows = low.shape[1]
        count = np.zeros(rows, np.int32)
        found = np.empty(2 * rows + 64, np.int32)
        args = (low, high, axis, left, right, box_low, box_high, count)
        total = reach_boxes(*args, found)
        if total > found.size:
            found = np.empty(total, np.int32)
            reach_boxes(*args, found)
        found = found[:total]
        number = np.array(self.number, np.int32)[found]
        of = np.repeat(np.repeat(np.arange(rows, dtype=np.int32), count), number)
        nth = np.arange(len(of)) - np.repeat(np.cumsum(number) - number, number)
        first = np.repeat(np.array(self.first, np.int32)[found], number)
        return of, (first + nth).astype(np.int32)


def cut_boxes(columns: Int64, units: int, *, finite: bool) -> BoxTree:
    """Boxes for so many units with about as many of the sample's rows each.

    ``columns[key, row]`` are the sample's keys. Each cut halves the key that spreads most, by the
    ranks of its values. What no cut can halve, a repeated value, has several units.
    """
    rows = columns.shape[1]
    ranks = np.argsort(np.argsort(columns, axis=1, kind="stable"), axis=1)
    axis: list[int] = []
    cuts: list[int] = []
    left: list[int] = []
    right: list[int] = []
    units_of_node: list[tuple[int, int]] = []
    lows: list[list[int]] = []
    highs: list[list[int]] = []

    def add(
        mine: NDArray[np.intp], first: int, number: int, low: list[int], high: list[int]
    ) -> int:
        node = len(axis)
        if finite and mine.size:
            low = columns[:, mine].min(axis=1).tolist()
            high = columns[:, mine].max(axis=1).tolist()
        for kept, value in ((axis, -1), (cuts, 0), (left, 0), (right, 0)):
            kept.append(value)
        units_of_node.append((first, number))
        lows.append(low)
        highs.append(high)
        cut = _cut(columns, ranks, mine, number) if number > 1 else None
        if cut is None:
            return node
        key, at, below = cut
        axis[node], cuts[node] = key, at
        beneath = columns[key, mine] < at
        upper, lower = list(high), list(low)
        upper[key], lower[key] = at - 1, at
        left[node] = add(mine[beneath], first, below, low, upper)
        right[node] = add(mine[~beneath], first + below, number - below, lower, high)
        return node

    keys = columns.shape[0]
    everything = [[INT64_MIN] * keys, [INT64_MAX] * keys]
    add(np.arange(rows), 0, units, *everything)
    return BoxTree(
        tuple(axis),
        tuple(cuts),
        tuple(left),
        tuple(right),
        tuple(first for first, _ in units_of_node),
        tuple(number for _, number in units_of_node),
        tuple(tuple(int(box[key]) for box in lows) for key in range(keys)),
        tuple(tuple(int(box[key]) for box in highs) for key in range(keys)),
        finite,
    )


def _cut(
    columns: Int64, ranks: Int64, mine: NDArray[np.intp], number: int
) -> tuple[int, int, int] | None:
    """The key to cut, where, and how many of the units are below; None if nothing can be cut."""
    if mine.size < 2:
        return None
    spread = ranks[:, mine].max(axis=1) - ranks[:, mine].min(axis=1)
    for key in np.argsort(-spread, kind="stable").tolist():
        values = np.sort(columns[key, mine])
        if values[0] == values[-1]:
            continue
        at = values[values.size * (number // 2) // number]
        if at == values[0]:
            at = values[np.searchsorted(values, at, side="right")]
        share = np.searchsorted(values, at) / values.size
        below = min(max(round(share * number), 1), number - 1)
        return int(key), int(at), below
    return None
