"""Where a condition of WHERE may be applied first without changing the query's result.

A condition may go below a join into the side whose rows that join gives out as they are: into the
left side of an inner, left, semi or anti join, into the right side of an inner or right join. A row
that it removes there would have made only rows that it removes later. Below a join that makes up
NULLs for that side it would remove the row's matches but not the row of NULLs that then takes their
place, so it stays above. An inner join's ON and a condition right above it are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

_LEFT_AS_IT_IS = ("inner", "left", "semi", "anti")


@dataclass(frozen=True)
class Place:
    """Where a condition is applied; tables are numbered from 0, and so are the joins with them.

    what: "on" is with the ON of table `at`'s join, "joined" on the rows of that join (of table 0:
    its own), "table" on the rows of table `at` before it is joined.
    """

    what: Literal["on", "joined", "table"]
    at: int


def place(
    about: set[str], aliases: Sequence[str], hows: Sequence[str], *, windowed: bool = False
) -> Place:
    """The first place for a condition about some tables, joined from left to right.

    ``hows[at]`` says how table `at` is joined to those before it. Rows that are not there would not
    be counted by a window, so `windowed` joins are given all of them.

    >>> place({"a"}, "abc", ["", "inner", "left"])
    Place(what='on', at=1)
    >>> place({"a"}, "abc", ["", "inner", "right"])
    Place(what='joined', at=2)
    """
    for at in range(len(aliases) - 1, 0, -1):
        how, left = hows[at], set(aliases[:at])
        below = bool(about) and about <= left and how in _LEFT_AS_IT_IS and not windowed
        if how == "inner" and (at == 1 or not below):
            return Place("on", at)
        if how == "right" and about == {aliases[at]} and not windowed:
            return Place("table", at)
        if not below:
            return Place("joined", at)
    return Place("joined", 0)
