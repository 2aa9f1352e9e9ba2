"""A time window over more than two inputs: every two of a result's rows lie within it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from thetajoin.errors import WindowError
from thetajoin.predicate.render import interval_text, quote_name
from thetajoin.predicate.types import UNITS
from thetajoin.window.windows import TimeUnit, TimeWindow


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
    # The window is told from the input that was given first.
    before, after = ends if names.index(left) < names.index(right) else ends[::-1]
    return TimeWindow(before=before, after=after, time=columns)


def between(
    window: TimeWindow,
    left: str,
    right: str,
    names: Sequence[str],
    schemas: Mapping[str, pa.Schema],
) -> str:
    """The window between a row that is there and the one that comes in, as a condition."""
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
