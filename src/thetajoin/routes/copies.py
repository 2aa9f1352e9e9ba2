"""Copies: for each row the units that are sent one, by functions of its keys or of all it holds.

Each unit is then a join of its own, and two rows that match meet in exactly one. `HashRoute` and
others of `planner.routing_keys` give these functions their keys: a hash of equal keys (BiStream,
Section 3.2), cells of a key, or a matrix of units (BiStream's rival, Sections 2.2 and 4), which
serves any condition at the price of many copies.

A box tree cuts the keys of one side into boxes by a sample, each with units of its own. Rows of the
side that is held lie in one box. Rows of the other side are sent to every box that they can match
at all. Boxes end where the sample ended, so that inequalities without a second bound do not reach
all of them; the few held rows that lie in no box are sent to units apart, all of them, where each
row of the other side has one copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from thetajoin.batch.keys import INT64_MAX, INT64_MIN, BytesKey, Int64, Key, float_values
from thetajoin.kernels.boxes import find_boxes, reach_boxes
from thetajoin.kernels.hashes import fold_bytes, fold_words
from thetajoin.kernels.order import gather, order_of

Int32 = NDArray[np.int32]
UInt64 = NDArray[np.uint64]
_SEEDS = 0x452821E638D01377, 0xBE5466CF34E90C6C
# An interval that reaches this many times as many cells as there are units goes to all of them.
MOST_CELLS = 4
# Cells of doubles are numbered within these, and what lies beyond is in the outermost.
_FURTHEST = 2.0**62
Ints = tuple[int, ...]


class Copies(NamedTuple):
    """Row ``rows[i]`` is sent to unit ``units[i]``, and to no unit twice.

    One copy of each row is at `home`: what is counted once, such as a late row, is counted there.
    None says that every copy is, because there is one of each row.
    """

    rows: Int32
    units: Int32
    home: NDArray[np.bool_] | None = None

    @staticmethod
    def single(units: Int32) -> Copies:
        """One copy of each row."""
        return Copies(np.arange(len(units), dtype=np.int32), units)

    @staticmethod
    def of(rows: NDArray[np.integer], units: NDArray[np.integer], number: int) -> Copies:
        """Copies in any order, some perhaps twice; `number` is how many units there are.

        >>> Copies.of(np.array([1, 0, 1, 1]), np.array([2, 0, 2, 1]), 4)
        Copies(rows=array([0, 1, 1], dtype=int32), units=array([0, 1, 2], dtype=int32), \
home=array([ True,  True, False]))
        """
        places = rows.astype(np.int64) * number + units
        places = gather(places, order_of(places))
        first = np.ones(len(places), np.bool_)
        first[1:] = places[1:] != places[:-1]
        places = places[first]
        of_row = (places // number).astype(np.int32)
        home = np.ones(len(of_row), np.bool_)
        home[1:] = of_row[1:] != of_row[:-1]
        return Copies(of_row, (places % number).astype(np.int32), home)

    def by_unit(self) -> Iterator[tuple[int, bool, Int32]]:
        """For each unit that is sent any: the rows at home there, and, marked, those that are not.

        >>> copies = Copies.of(np.array([1, 0, 1]), np.array([2, 0, 1]), 4)
        >>> [(unit, visits, rows.tolist()) for unit, visits, rows in copies.by_unit()]
        [(0, False, [0]), (1, False, [1]), (2, True, [1])]
        """
        places = 2 * self.units.astype(np.int64)
        if self.home is not None:
            places += ~self.home
        order = order_of(places)
        places, rows = gather(places, order), gather(self.rows, order)
        starts = np.flatnonzero(np.diff(places, prepend=-1))
        for start, end in pairwise([*starts.tolist(), len(places)]):
            yield int(places[start]) // 2, bool(places[start] % 2), rows[start:end]

    @staticmethod
    def concat(parts: list[Copies]) -> Copies:
        """Copies of different rows together."""
        homes = [np.ones(len(p.rows), np.bool_) if p.home is None else p.home for p in parts]
        return Copies(
            np.concatenate([p.rows for p in parts]),
            np.concatenate([p.units for p in parts]),
            np.concatenate(homes),
        )


def hashes_of(keys: Sequence[Key], rows: int) -> UInt64:
    """A hash of each row's keys: equal keys, of whatever columns, give the same hash.

    >>> first, other, again = hashes_of([np.array([7, 8, 7])], 3)
    >>> bool(first == again != other)
    True
    """
    lanes = tuple(np.full(rows, seed, np.uint64) for seed in _SEEDS)
    there = np.ones(rows, np.bool_)
    for key in keys:
        if isinstance(key, BytesKey):
            fold_bytes(key.offsets, key.data, there, *lanes)
        else:
            fold_words(key.view(np.uint64), there, *lanes)
    return lanes[0]


def units_of(hashes: UInt64, units: int) -> Int32:
    """Units that share all hashes evenly."""
    return (hashes % np.uint64(units)).astype(np.int32)


class Grid(NamedTuple):
    """Units in `rows` by `columns`: a left row is sent to one of the rows, a right one to one of
    the columns."""

    rows: int
    columns: int

    @property
    def units(self) -> int:
        """How many units it takes."""
        return self.rows * self.columns

    def copies(self, hashes: UInt64, side: Literal["l", "r"]) -> Copies:
        """The copies of rows that have these hashes."""
        number = self.columns if side == "l" else self.rows
        line = units_of(hashes, self.rows if side == "l" else self.columns)
        of = np.repeat(np.arange(len(hashes), dtype=np.int32), number)
        across = np.tile(np.arange(number, dtype=np.int32), len(hashes))
        units = (
            line[of] * self.columns + across if side == "l" else across * self.columns + line[of]
        )
        # Each row's home is another of its copies, so that counting is shared as well.
        home = across == units_of(hashes >> np.uint64(32), number)[of]
        return Copies(of, units.astype(np.int32), home)

    @property
    def pairs(self) -> int:
        """How many units it takes if rows and columns are parts of one table."""
        return self.rows * (self.rows + 1) // 2

    def copies_in_pairs(self, hashes: UInt64, side: Literal["l", "r"]) -> Copies:
        """The copies of a self-join's rows: every two parts have a unit, and each part its home.

        As left rows they go to the units shared with later parts, as right rows to those shared
        with earlier ones.
        """
        parts = self.rows
        mine = units_of(hashes, parts)
        number = parts - mine if side == "l" else mine
        of = np.repeat(np.arange(len(hashes), dtype=np.int32), number)
        nth = np.arange(len(of)) - np.repeat(np.cumsum(number) - number, number)
        own = mine[of].astype(np.int64)
        low, high = (own, own + nth) if side == "l" else (nth, own)
        units = low * parts - low * (low - 1) // 2 + high - low
        return Copies(of, units.astype(np.int32), low == high)


def pairs_of(units: int) -> Grid:
    """The fewest parts, every two of which have a unit of their own, that make this many units.

    >>> pairs_of(3), pairs_of(16).pairs
    (Grid(rows=2, columns=2), 21)
    """
    parts = 1
    while Grid(parts, parts).pairs < units:
        parts += 1
    return Grid(parts, parts)


def grid_of(units: int, single: Literal["l", "r"] | None = None) -> Grid:
    """The grid of no more units than these in which each is sent the fewest rows.

    `single` names a side of which each row must have one copy only.

    >>> grid_of(64), grid_of(7), grid_of(7, "l")
    (Grid(rows=8, columns=8), Grid(rows=3, columns=2), Grid(rows=7, columns=1))
    """
    if single is not None:
        return Grid(units, 1) if single == "l" else Grid(1, units)
    shapes = [Grid(rows, units // rows) for rows in range(1, units + 1)]
    return min(shapes, key=lambda g: (1 / g.rows + 1 / g.columns, -g.rows))


@dataclass(frozen=True)
class KeyCells:
    """Cells of a key: `width` in the unit of its integers, or of the doubles that they encode.

    >>> KeyCells(10, floats=False).of(np.array([-1, 0, 9, 10])).tolist()
    [-1, 0, 0, 1]
    """

    width: float
    floats: bool

    def of(self, keys: Int64) -> Int64:
        """Each key's cell; it never falls as keys rise."""
        if not self.floats:
            cells: Int64 = keys // np.int64(self.width)
            return cells
        with np.errstate(over="ignore"):
            at = np.floor(float_values(keys) / self.width)
        return np.clip(at, -_FURTHEST, _FURTHEST).astype(np.int64)


def units_of_points(cells: Int64, among: UInt64 | None, units: int) -> NDArray[np.int32]:
    """The unit of each point's cell; `among` are hashes of keys that must be equal as well."""
    keys = [cells] if among is None else [cells, among.view(np.int64)]
    return units_of(hashes_of(keys, len(cells)), units)


def copies_of_intervals(
    cells: KeyCells,
    low: Int64 | None,
    high: Int64 | None,
    among: UInt64 | None,
    units: int,
) -> Copies:
    """The units of all cells that each interval reaches; an empty one has a copy all the same.

    An end that is None is open. What reaches far more cells than there are units goes to all.
    """
    rows = len(low if low is not None else high if high is not None else ())
    first = np.full(rows, INT64_MIN) if low is None else cells.of(low)
    last = np.full(rows, INT64_MAX) if high is None else cells.of(high)
    nothing = np.zeros(rows, np.bool_) if low is None or high is None else low > high
    # In doubles, because the difference of two far ends does not fit into 64 bits.
    wide = (last.astype(np.float64) - first.astype(np.float64)) >= MOST_CELLS * units
    wide &= ~nothing
    number = np.where(wide, units, 1)
    some = ~wide & ~nothing
    number[some] = last[some] - first[some] + 1
    of = np.repeat(np.arange(rows), number)
    nth = np.arange(len(of)) - np.repeat(np.cumsum(number) - number, number)
    reached = first[of] + np.where(wide[of], 0, nth)
    there = None if among is None else among[of]
    found = units_of_points(reached, there, units)
    return Copies.of(of, np.where(wide[of], nth, found), units)


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
    """Boxes with about as many of the sample's rows for each of the units.

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
