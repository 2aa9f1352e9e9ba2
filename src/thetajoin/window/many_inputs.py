"""Windows over two and more inputs as conditions: each two of a result's rows see each other.

A time window is a band between two times. A count window over whole tables becomes numbers that
rows carry, and a condition over them: rows of all inputs are taken in one order, the input given
first before the others on a tie. Of two rows the later one sees the earlier one, or not; what it
sees only moves on, so both cases make one band. With `x` of the input given first:
``y.index >= x.first`` says that `y` is later, or that `x` sees it; ``y.before <= x.last`` says that
`y` is earlier, or that it sees `x`. The latest row of a result sees all others exactly where every
two of them see each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from thetajoin.errors import WindowError
from thetajoin.predicate.render import interval_text, quote_name
from thetajoin.predicate.types import UNITS
from thetajoin.window.windows import CountWindow, TimeUnit, TimeWindow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Int64 = NDArray[np.int64]

# A column that only a cross join has.
ONE = "__thetajoin_one"


def list_numbers(at: int, inputs: int) -> list[str]:
    """Names of the numbers that rows of the input at this place carry.

    index: the row's own place among its input's rows. before_j: rows of input `j` that came before
    it. first_j: the first row of `j` that it sees, or that comes after it. last: how many rows of
    its own input the last row that sees it may have had before.

    >>> list_numbers(1, 3)
    ['index', 'before_0', 'first_2', 'last']
    """
    earlier = ["index", *(f"before_{other}" for other in range(at))] if at else []
    later = [f"first_{other}" for other in range(at + 1, inputs)]
    return [*earlier, *later, *(["last"] if later else [])]


def hide_name(side: str, name: str) -> str:
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


def _time(window: TimeWindow) -> str:
    if window.left_time != window.right_time:
        raise WindowError(
            "with more than two inputs, time is one column's name that all of them have; "
            f"not {window.left_time!r} and {window.right_time!r}"
        )
    return window.left_time


def pair_window(window: TimeWindow, left: str, right: str, names: Sequence[str]) -> TimeWindow:
    """The window between two inputs of a join of many, as a step of two sees it."""
    time = _time(window)
    columns = f"{left}.{time}", f"{right}.{time}"
    if window.length is not None:
        return TimeWindow(window.length, time=columns)
    ends = window.before or 0, window.after or 0
    # The window is seen from the input that was given first.
    before, after = ends if names.index(left) < names.index(right) else ends[::-1]
    return TimeWindow(before=before, after=after, time=columns)


def between(
    window: TimeWindow,
    left: str,
    right: str,
    names: Sequence[str],
    schemas: Mapping[str, pa.Schema],
) -> str:
    """The window between a row of an earlier step and a new one, as a condition."""
    time = _time(window)
    for name in (left, right):
        if time not in schemas[name].names:
            raise WindowError(f"the window's time column {time!r} is not in input {name!r}")
    type_ = schemas[left].field(time).type
    timed = pa.types.is_timestamp(type_) or pa.types.is_duration(type_)
    unit: TimeUnit | None = type_.unit if timed else None
    unit = "day" if pa.types.is_date(type_) else unit
    ends = window.bounds(unit)
    before, after = ends if names.index(left) < names.index(right) else ends[::-1]
    here, there = (f"{s}.{quote_name(f'{n}.{time}')}" for s, n in (("l", left), ("r", right)))

    def span(ticks: int) -> str:
        if unit is None:
            return str(ticks)
        return (
            interval_text(ticks * 86_400, 1) if unit == "day" else interval_text(ticks, UNITS[unit])
        )

    return f"{there} BETWEEN {here} - {span(before)} AND {here} + {span(after)}"
