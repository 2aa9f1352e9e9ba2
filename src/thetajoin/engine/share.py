"""A unit's share of the work where several units carry out one join (BiStream, Section 3).

Every unit is given all new rows in the same order, so all agree on arrival numbers. In the
join-biclique each row is stored in one unit and probes all of them. Where a side's rows must know
whether they matched anywhere (outer, semi and anti joins), these rows are stored and probed in one
unit only, and the other side is kept in all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from thetajoin.engine.layout import How
from thetajoin.engine.spec import Side
from thetajoin.errors import OptionError


@dataclass(frozen=True)
class Share:
    """Which part of each micro-batch a unit stores, and which it probes with."""

    unit: int = 0
    units: int = 1
    stored_in_part: frozenset[Side] = field(default_factory=frozenset)
    probed_in_part: frozenset[Side] = field(default_factory=frozenset)

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
