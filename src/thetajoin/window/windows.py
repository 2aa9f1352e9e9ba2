"""What a user says about a window: by time, by count, or none at all.

These are configurations only: frozen, comparable, and a plain dictionary for snapshots. A time
window becomes one more band of the condition (`engine.parts`), a count window bounds the arrival
numbers that a row sees (`engine.step`).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

from thetajoin.errors import WindowError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

TimeUnit: TypeAlias = Literal["s", "ms", "us", "ns", "day"]
"""The resolution of a time column; a plain integer column has None instead."""

Length: TypeAlias = str | timedelta | int
"""A span of time: text such as "10 minutes", a timedelta, or a number in the column's own unit."""

_NS: dict[str, int] = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "minute": 60_000_000_000,
    "hour": 3_600_000_000_000,
    "day": 86_400_000_000_000,
    "week": 604_800_000_000_000,
}

_SPELLINGS: dict[str, str] = {
    spelling: unit
    for unit, spellings in {
        "ns": "ns nanosecond nanoseconds",
        "us": "us µs μs microsecond microseconds",
        "ms": "ms millisecond milliseconds",
        "s": "s sec secs second seconds",
        "minute": "min mins minute minutes",
        "hour": "h hr hrs hour hours",
        "day": "d day days",
        "week": "w week weeks",
    }.items()
    for spelling in spellings.split()
}

_TERM = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([^\W\d_]+)")
_MAX = 2**63 - 1
_USE_TEXT = 'write it as text such as "10 minutes", or a timedelta'
_USE = 'write it as text such as "10 minutes", a timedelta, or a whole number'


@dataclass(frozen=True)
class TimeWindow:
    """Pairs rows whose times are close, ends included.

    `TimeWindow(length, time=...)` keeps a pair where the two times differ by at most `length`;
    `TimeWindow(before=..., after=..., time=...)` one where
    `l.time - before <= r.time <= l.time + after`, a bound left out being 0.

    Args:
        length: how far the times may lie apart: text such as "10 minutes", a `timedelta`, or a
            plain number in the unit of an integer column.
        time: the column of times on both sides, or a pair of names.
        before: how much earlier than the left row's the right row's time may be.
        after: how much later.

    >>> TimeWindow("1 hour 30 minutes", time="ts").bounds("s")
    (5400, 5400)
    >>> TimeWindow(before="5 minutes", time=("l_ts", "r_ts")).bounds("s")
    (300, 0)
    """

    length: Length | None = field(default=None, compare=False)
    _: KW_ONLY
    time: str | tuple[str, str] | None = None
    before: Length | None = field(default=None, compare=False)
    after: Length | None = field(default=None, compare=False)
    _before: _Span = field(init=False, repr=False)
    _after: _Span = field(init=False, repr=False)

    def __post_init__(self) -> None:
        left, right = _time_columns(self.time)
        if self.length is not None and (self.before is not None or self.after is not None):
            raise WindowError(
                "TimeWindow takes either a length or before and after, not both: "
                "leave one of the two forms out"
            )
        if self.length is not None:
            before = after = _span(self.length, "TimeWindow's length")
        elif self.before is None and self.after is None:
            raise WindowError(
                f'TimeWindow needs a length, or before and after: TimeWindow("10 minutes", '
                f"time={left!r})"
            )
        else:
            before = _span(0 if self.before is None else self.before, "TimeWindow's before")
            after = _span(0 if self.after is None else self.after, "TimeWindow's after")
        if before.ticks == 0 and after.ticks == 0:
            raise WindowError(
                f"a TimeWindow of length 0 keeps only equal times: add 'l.{left} = r.{right}' to "
                'the condition and leave the window out, or make it "1 microsecond" for a stream'
            )
        if before.ticks and after.ticks and before.plain != after.plain:
            raise WindowError(
                f"TimeWindow's before ({self.before!r}) and after ({self.after!r}) differ in kind: "
                "give both with a unit or both as plain numbers"
            )
        for name, value in (
            ("length", self.length),
            ("before", self.before),
            ("after", self.after),
        ):
            object.__setattr__(self, name, None if value is None else _canonical(value, name))
        object.__setattr__(self, "time", left if left == right else (left, right))
        object.__setattr__(self, "_before", before)
        object.__setattr__(self, "_after", after)

    def __repr__(self) -> str:
        given = [] if self.length is None else [repr(self.length)]
        given += [
            f"{name}={value!r}"
            for name, value in (("before", self.before), ("after", self.after), ("time", self.time))
            if value is not None
        ]
        return f"TimeWindow({', '.join(given)})"

    @property
    def left_time(self) -> str:
        """The left side's time column."""
        return _time_columns(self.time)[0]

    @property
    def right_time(self) -> str:
        """The right side's time column."""
        return _time_columns(self.time)[1]

    def bounds(self, unit: TimeUnit | None) -> tuple[int, int]:
        """The window as `(before, after)` in `unit`, or in a plain integer column's own (None).

        Times are whole numbers of `unit`, so a bound between two of them means the same as the
        one below it: rounding down loses nothing.

        >>> TimeWindow("1500 ms", time="ts").bounds("s")
        (1, 1)
        """
        return self._in(self._before, unit), self._in(self._after, unit)

    def _in(self, span: _Span, unit: TimeUnit | None) -> int:
        if span.ticks == 0:
            return 0
        if span.plain and unit is not None:
            raise WindowError(
                f"window length {span.ticks} has no unit, but the time column {self._columns()} "
                'holds times: write it as text such as "10 minutes", or a timedelta'
            )
        if not span.plain and unit is None:
            raise WindowError(
                f"window length {_text(span.ticks)!r} has a unit, but the time column "
                f"{self._columns()} is a plain integer: write the length as a whole number"
            )
        ticks = span.ticks if unit is None else span.ticks // _NS[unit]
        if ticks > _MAX:
            what = span.ticks if span.plain else repr(_text(span.ticks))
            raise WindowError(
                f"window length {what} does not fit into 64 bits in the unit of the time column "
                f"{self._columns()}: use a shorter one, or FullHistory()"
            )
        return ticks

    def _columns(self) -> str:
        left, right = _time_columns(self.time)
        return f"'{left}'" if left == right else f"'{left}' / '{right}'"

    def to_dict(self) -> dict[str, Any]:
        """The window as values that JSON can hold; `window_from_dict` reads it back."""
        return {
            "kind": "time",
            "length": self.length,
            "before": self.before,
            "after": self.after,
            "time": [self.left_time, self.right_time],
        }


@dataclass(frozen=True)
class CountWindow:
    """Pairs a row with the other side's newest rows: at most `size`, expired `slide` at a time.

    Rows are taken in the order of `order_by`, or as they come: NULL before every value, NaN after
    every number, and on a tie left rows before right ones, each side's in the order of its input.

    Args:
        size: the most rows of the other side that a row sees.
        slide: how many rows expire at a time.

    >>> window = CountWindow(4, slide=2)
    >>> [window.first_visible(n) for n in range(9)]
    [0, 0, 0, 0, 0, 2, 2, 4, 4]
    """

    size: int
    slide: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", _positive(self.size, "size"))
        object.__setattr__(self, "slide", _positive(self.slide, "slide"))

    @overload
    def first_visible(self, n: int) -> int: ...

    @overload
    def first_visible(self, n: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]: ...

    def first_visible(self, n: int | npt.NDArray[np.int64]) -> int | npt.NDArray[np.int64]:
        """The index of the oldest row that is seen when the other side has had `n` rows.

        That is `slide * ceil(max(0, n - size) / slide)`, for one number or for an array of them.

        >>> CountWindow(10, slide=5).first_visible(11)
        5
        """
        size, slide = self.size, self.slide
        if isinstance(n, int):
            return slide * -(-max(0, n - size) // slide)
        import numpy as np

        beyond: npt.NDArray[np.int64] = np.maximum(np.asarray(n, dtype=np.int64) - size, 0)
        if slide == 1:
            return beyond
        # The ceiling as (x + slide - 1) // slide would overflow for a slide near 2**63.
        slides: npt.NDArray[np.int64] = beyond // slide + (beyond % slide != 0)
        return slide * slides

    def to_dict(self) -> dict[str, Any]:
        """The window as values that JSON can hold; `window_from_dict` reads it back."""
        return {"kind": "count", "size": self.size, "slide": self.slide}


@dataclass(frozen=True)
class FullHistory:
    """Pairs every row with every other: nothing ever expires, so the state grows with the input.

    >>> FullHistory()
    FullHistory()
    """

    def to_dict(self) -> dict[str, Any]:
        """The window as values that JSON can hold; `window_from_dict` reads it back."""
        return {"kind": "full"}


Window: TypeAlias = TimeWindow | CountWindow | FullHistory


def window_from_dict(data: Mapping[str, Any]) -> Window:
    """The window that `to_dict` described.

    >>> window_from_dict(CountWindow(100, slide=10).to_dict())
    CountWindow(size=100, slide=10)
    """
    match data:
        case {"kind": "time", "length": length, "before": before, "after": after, "time": time}:
            return TimeWindow(length, before=before, after=after, time=time)
        case {"kind": "count", "size": size, "slide": slide}:
            return CountWindow(size, slide)
        case {"kind": "full"}:
            return FullHistory()
    raise WindowError(f"not the description of a window: {data!r}")


@dataclass(frozen=True)
class _Span:
    """A length of time: nanoseconds, or plain ticks of an integer column."""

    ticks: int
    plain: bool


def _time_columns(time: object) -> tuple[str, str]:
    match time:
        case str() if time:
            return time, time
        case (str() as left, str() as right) if left and right:
            return left, right
        case None:
            raise WindowError('TimeWindow needs a time column: time="ts", or a pair, one per side')
    raise WindowError(f"TimeWindow's time is a column name or a pair of names, not {time!r}")


def length_in(value: Length, unit: TimeUnit, what: str) -> int:
    """A length in a unit, rounded down; `what` names it in errors.

    >>> length_in("1500 ms", "s", "the tolerance")
    1
    """
    span = _span(value, what)
    if span.plain and span.ticks:
        raise WindowError(f"{what} {value!r} has no unit: {_USE_TEXT}")
    return span.ticks // _NS[unit]


def _span(value: object, what: str) -> _Span:
    if isinstance(value, str):
        span = _Span(_parse(value, what), plain=False)
    elif isinstance(value, timedelta):
        micros = value // timedelta(microseconds=1)
        # pandas' subclass of timedelta keeps what is below a microsecond apart.
        span = _Span(micros * 1_000 + getattr(value, "nanoseconds", 0), plain=False)
    else:
        span = _number(value, what)
    if span.ticks < 0:
        raise WindowError(f"{what} {value!r} is negative: it must be above 0")
    return span


def _number(value: object, what: str) -> _Span:
    import numpy as np

    wrong = WindowError(f"{what} {value!r} is a {type(value).__name__}: {_USE}")
    if isinstance(value, np.timedelta64):
        step, count = np.datetime_data(value)
        unit = {"m": "minute", "h": "hour", "D": "day", "W": "week"}.get(step, step)
        if np.isnat(value) or unit not in _NS:
            raise wrong
        return _Span(int(value.astype(np.int64)) * count * _NS[unit], plain=False)
    if isinstance(value, bool | np.bool_):
        raise wrong
    try:
        return _Span(operator.index(value), plain=True)  # type: ignore[arg-type]
    except TypeError:
        raise wrong from None


def _parse(text: str, what: str) -> int:
    """Text such as "1 hour 30 minutes" in nanoseconds."""
    bad = f"{what} {text!r}"
    rest = re.sub(r"^\s*interval\b", "", text, flags=re.IGNORECASE)
    total = Fraction(0)
    if not rest.strip():
        raise WindowError(f'{bad} is empty: write a number and a unit, such as "10 minutes"')
    while rest.strip():
        term = _TERM.match(rest)
        if term is None:
            hint = "it has no unit: " if rest.strip().lstrip("+-").isdecimal() else ""
            raise WindowError(f'{bad}: {hint}write a number and a unit, such as "10 minutes"')
        unit = _SPELLINGS.get(term[2].lower())
        if unit is None:
            known = "weeks, days, hours, minutes, seconds, ms, us or ns"
            raise WindowError(f"{bad}: unknown unit {term[2]!r}; use {known}")
        total += Fraction(term[1]) * _NS[unit]
        rest = rest[term.end() :]
    if total.denominator != 1:
        raise WindowError(f"{bad} is not a whole number of nanoseconds")
    return int(total)


def _text(ns: int) -> str:
    """Nanoseconds as text that `_parse` reads, in the largest units that fit."""
    parts = []
    for unit in ("day", "hour", "minute", "s", "ms", "us", "ns"):
        count, ns = divmod(ns, _NS[unit])
        if count:
            word = {"s": "second"}.get(unit, unit)
            plural = "s" if count > 1 and len(word) > 2 else ""
            parts.append(f"{count} {word}{plural}")
    return " ".join(parts) or "0 seconds"


def _canonical(value: Length, name: str) -> str | int:
    """The length as given where it is text or a number; a timedelta as text."""
    if isinstance(value, str):
        return value
    span = _span(value, f"TimeWindow's {name}")
    return span.ticks if span.plain else _text(span.ticks)


def _positive(value: object, name: str) -> int:
    if not isinstance(value, bool):
        try:
            number = operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            pass
        else:
            if 1 <= number <= _MAX:
                return number
    raise WindowError(f"CountWindow's {name} must be a whole number of at least 1, not {value!r}")
