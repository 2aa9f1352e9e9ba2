"""The join-matrix: left rows go to a row of units, right rows to a column of them.

Any pair meets in exactly one unit, whatever the condition, at the price of many copies. BiStream
takes it as its rival (Sections 2.2 and 4); it is what remains where no key says where a row's
matches are.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from thetajoin.routes.copies import Copies
from thetajoin.routes.hashing import UInt64, units_of


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
