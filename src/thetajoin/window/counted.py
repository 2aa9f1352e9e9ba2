"""A count window over whole tables, as numbers that rows carry and a condition over them.

Rows of all inputs are taken in one order, the input given first before the others on a tie. Of two
rows the later one sees the earlier one, or not; what it sees only moves on, so both cases make one
band. With `x` of the input given first: ``y.index >= x.first`` says that `y` is later, or that `x`
sees it; ``y.before <= x.last`` says that `y` is earlier, or that it sees `x`. The latest row of a
result sees all others exactly where every two of them see each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from thetajoin.window.windows import CountWindow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Int64 = NDArray[np.int64]


def carried(at: int, inputs: int) -> list[str]:
    """Names of the numbers that rows of the input at this place carry.

    index: the row's own place among its input's rows. before_j: rows of input `j` that came before
    it. first_j: the first row of `j` that it sees, or that comes after it. last: how many rows of
    its own input the last row that sees it may have had before.

    >>> carried(1, 3)
    ['index', 'before_0', 'first_2', 'last']
    """
    earlier = ["index", *(f"before_{other}" for other in range(at))] if at else []
    later = [f"first_{other}" for other in range(at + 1, inputs)]
    return [*earlier, *later, *(["last"] if later else [])]


def hidden(side: str, name: str) -> str:
    """The name of a column that only serves the join."""
    return f"__thetajoin_{side}_{name}"


def first_seen(before: Int64, window: CountWindow) -> Int64:
    """The first row of another input that is seen, or comes later; `before` of it came before."""
    import numpy as np

    return np.minimum(before, window.first_visible(before))


def last_seeing(index: Int64, window: CountWindow) -> Int64:
    """How many rows of its own input a row that sees this one may have had before it at most."""
    import numpy as np

    size, slide = (min(number, MOST) for number in (window.size, window.slide))
    return np.maximum(index, size + slide * (index // slide))


# No input has so many rows, and numbers below it can be added up.
MOST = 1 << 40


def sees(x: str, y: str, at: tuple[int, int]) -> str:
    """The condition on two rows, given how to write a number of either and their inputs' places.

    >>> sees("l.{}", "r.{}", (0, 1))
    '(r.index >= l.first_1 AND r.before_0 <= l.last)'
    """
    index, before = y.format("index"), y.format(f"before_{at[0]}")
    return f"({index} >= {x.format(f'first_{at[1]}')} AND {before} <= {x.format('last')})"
