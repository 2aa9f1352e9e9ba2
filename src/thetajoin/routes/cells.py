"""Cells: a key's values cut into pieces of one width, each of which has a unit.

A row of one side is a point and lies in one cell; a row of the other asks for an interval and is
sent to every cell that it reaches. A pair meets in the unit of its point, and nowhere else, for
the point is nowhere else. Which values an interval asks for is the engine's to say, exactly; here
one function that never falls gives the cell of a point and of both ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from thetajoin.batch.keys import INT64_MAX, INT64_MIN, Int64, float_values
from thetajoin.routes.copies import Copies
from thetajoin.routes.hashing import UInt64, hashes_of, units_of

# An interval that reaches this many times as many cells as there are units goes to all of them.
MOST_CELLS = 4
# Cells of doubles are numbered within these, and what lies beyond is in the outermost.
_FURTHEST = 2.0**62


@dataclass(frozen=True)
class Cells:
    """Cells of a key: `width` in the unit of its integers, or of the doubles that they encode.

    >>> Cells(10, floats=False).of(np.array([-1, 0, 9, 10])).tolist()
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
    cells: Cells,
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
