"""What a routing gives out: for each row, the units that are sent a copy of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thetajoin.kernels.order import gather, order_of

Int32 = NDArray[np.int32]


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

    @staticmethod
    def joined(parts: list[Copies]) -> Copies:
        """Copies of different rows together."""
        homes = [np.ones(len(p.rows), np.bool_) if p.home is None else p.home for p in parts]
        return Copies(
            np.concatenate([p.rows for p in parts]),
            np.concatenate([p.units for p in parts]),
            np.concatenate(homes),
        )
