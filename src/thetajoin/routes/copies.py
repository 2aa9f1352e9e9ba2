"""Copies: for each row the units that are sent one, by functions of its keys or of all it holds.

Each unit is then a join of its own, and two rows that match meet in exactly one. `HashRoute` and
others of `planner.routing_keys` give these functions their keys: a hash of equal keys (BiStream,
Section 3.2), cells of a key, or a matrix of units (BiStream's rival, Sections 2.2 and 4), which
serves any condition at the price of many copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from thetajoin.batch.keys import INT64_MAX, INT64_MIN, BytesKey, Int64, Key, float_values
from thetajoin.kernels.hashes import fold_bytes, fold_words
from thetajoin.kernels.order import gather, order_of

Int32 = NDArray[np.int32]
UInt64 = NDArray[np.uint64]
_SEEDS = 0x452821E638D01377, 0xBE5466CF34E90C6C
# An interval that reaches this many times as many cells as there are units goes to all of them.
MOST_CELLS = 4
# Cells of doubles are numbered within these, and what lies beyond is in the outermost.
_FURTHEST = 2.0**62


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
    """The fewest parts of which every two have one of at least so many units.

    >>> pairs_of(3), pairs_of(16).pairs
    (Grid(rows=2, columns=2), 21)
    """
    parts = 1
    while Grid(parts, parts).pairs < units:
        parts += 1
    return Grid(parts, parts)


def grid_of(units: int, single: Literal["l", "r"] | None = None) -> Grid:
    """The grid of at most so many units in which each is sent the fewest rows.

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
