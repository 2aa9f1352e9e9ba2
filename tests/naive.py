"""The oracle: joins that are slow and obviously right, in plain Python.

Nothing here imports the package. A row is a dictionary, a join tries every pair in two nested
loops, and windows and late rows follow the definitions word by word. A value is what `pyarrow`
gives for it in Python: None, bool, int, float, Decimal, str, bytes, date, datetime or timedelta.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cmp_to_key
from math import ceil, fsum, isfinite, isnan
from typing import Any

Row = dict[str, Any]
Pair = tuple[Row | None, Row | None]
Predicate = Callable[[Row, Row], bool | None]
Value = Callable[[Any, Any], Any]

OPERATORS = ("<", "<=", ">", ">=", "=", "!=")


# --- comparing two values ------------------------------------------------------------------------


def order(a: Any, b: Any) -> int | None:
    """-1, 0 or 1 as `a` is below, equal to or above `b`; None where one of them is NULL.

    NaN equals NaN and is above every other number; strings compare by their UTF-8 bytes; an integer
    or a decimal against a float as a float; a date against a timestamp as its midnight; a timestamp
    without a zone against one with a zone as UTC.
    """
    if a is None or b is None:
        return None
    a, b = _alike(a, b)
    if isinstance(a, float) and (isnan(a) or isnan(b)):
        return isnan(a) - isnan(b)
    return (a > b) - (a < b)


def _alike(a: Any, b: Any) -> tuple[Any, Any]:
    if isinstance(a, str) and isinstance(b, str):
        return a.encode(), b.encode()
    if isinstance(a, bool) != isinstance(b, bool):
        raise TypeError(f"a boolean compares with booleans only: {a!r}, {b!r}")
    numbers = (int, float, Decimal)
    if isinstance(a, numbers) and isinstance(b, numbers):
        if isinstance(a, float) or isinstance(b, float):
            return as_float(a), as_float(b)
        return a, b  # Python compares int and Decimal exactly
    if isinstance(a, datetime) or isinstance(b, datetime):
        return _as_datetime(a), _as_datetime(b)
    for kind in (bytes, date, time, timedelta):
        if isinstance(a, kind) and isinstance(b, kind):
            return a, b
    raise TypeError(f"cannot compare {a!r} with {b!r}")


def as_float(value: int | float | Decimal) -> float:
    """A number as a double; what is too large is infinite."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _as_datetime(value: date) -> datetime:
    if not isinstance(value, datetime):
        value = datetime.combine(value, time())
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value


def compare(a: Any, op: str, b: Any) -> bool | None:
    """`a op b` with SQL's three values."""
    sign = order(a, b)
    if sign is None:
        return None
    return {
        "<": sign < 0,
        "<=": sign <= 0,
        ">": sign > 0,
        ">=": sign >= 0,
        "=": sign == 0,
        "!=": sign != 0,
        "<>": sign != 0,
    }[op]


def connect(values: Iterable[bool | None], decides: bool) -> bool | None:
    """AND, which one False decides, or OR, which one True decides: else NULL if one is NULL."""
    values = list(values)
    if any(value is decides for value in values):
        return decides
    return None if any(value is None for value in values) else not decides


def extreme(name: str, values: Iterable[Any]) -> Any:
    """The `min` or `max` of values that are not NULL."""
    return (min if name == "min" else max)(values, key=cmp_to_key(lambda a, b: order(a, b) or 0))


# --- conditions ----------------------------------------------------------------------------------


def conj(*comparisons: tuple[str, str, str]) -> Predicate:
    """The AND of comparisons such as `("a", "<", "b")`: left column, operator, right column."""
    return all_of(*(_column_pair(*comparison) for comparison in comparisons))


def _column_pair(left: str, op: str, right: str) -> Predicate:
    return lambda l, r: compare(l[left], op, r[right])


def all_of(*predicates: Predicate) -> Predicate:
    """The AND of predicates."""
    return lambda l, r: connect([predicate(l, r) for predicate in predicates], False)


def any_of(*predicates: Predicate) -> Predicate:
    """The OR of predicates."""
    return lambda l, r: connect([predicate(l, r) for predicate in predicates], True)


def band(left: str, right: str, op: str, width: Any) -> Predicate:
    """`ABS(l.left - r.right) op width`."""

    def near(l: Row, r: Row) -> bool | None:
        difference = arithmetic("-", l[left], r[right])
        if difference is None:
            return None
        with localcontext(prec=100):
            return compare(abs(difference), op, width)

    return near


def arithmetic(op: str, a: Any, b: Any) -> Any:
    """`a op b` where NULL gives NULL."""
    if a is None or b is None:
        return None
    with localcontext(prec=100):  # Python would round a decimal to 28 digits
        return {"+": operator.add, "-": operator.sub, "*": operator.mul}[op](a, b)


# --- windows -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Full:
    """Every pair."""


@dataclass(frozen=True)
class Time:
    """`l.time - before <= r.time <= l.time + after`; numbers, or timedeltas for datetimes."""

    before: Any
    after: Any
    left: str = "t"
    right: str = "t"

    def near(self, l: Row, r: Row) -> bool:
        a, b = l[self.left], r[self.right]
        if a is None or b is None:
            return False
        return bool(a - self.before <= b <= a + self.after)


@dataclass(frozen=True)
class Count:
    """The other side's newest rows, at most `size`, expired `slide` at a time."""

    size: int
    slide: int = 1

    def first_visible(self, n: int) -> int:
        return self.slide * ceil(max(0, n - self.size) / self.slide)


Window = Full | Time | Count
OrderBy = str | tuple[str, str] | None


def arrivals(left: Sequence[Row], right: Sequence[Row], order_by: OrderBy) -> list[tuple[str, Row]]:
    """One micro-batch's rows in the order of `order_by`: ties left before right, NULL first.

    Without `order_by` all rows tie, so the left rows come first, each side as given.
    """
    tagged = [("left", row) for row in left] + [("right", row) for row in right]
    if order_by is None:
        return tagged
    columns = (order_by, order_by) if isinstance(order_by, str) else order_by
    column = {"left": columns[0], "right": columns[1]}

    def before(a: tuple[str, Row], b: tuple[str, Row]) -> int:
        x, y = a[1][column[a[0]]], b[1][column[b[0]]]
        if x is None or y is None:
            return (x is not None) - (y is not None)
        return order(x, y) or 0

    return sorted(tagged, key=cmp_to_key(before))  # stable, and left rows are listed first


# --- joins ---------------------------------------------------------------------------------------


@dataclass
class Result:
    """What a stream of micro-batches gave, in all and by step."""

    rows: list[Pair] = field(default_factory=list)
    steps: list[list[Pair]] = field(default_factory=list)
    pairs: int = 0
    late_rows: int = 0
    null_times: int = 0
    late: list[Row] = field(default_factory=list)


@dataclass(frozen=True)
class Push:
    """A micro-batch of either or both sides."""

    left: Sequence[Row] = ()
    right: Sequence[Row] = ()


@dataclass(frozen=True)
class Advance:
    """The watermark moves: from now on, a row with an earlier time is late."""

    watermark: Any


def naive_join(
    left: Sequence[Row],
    right: Sequence[Row],
    pred: Predicate,
    *,
    how: str = "inner",
    window: Window | None = None,
    order_by: OrderBy = None,
) -> list[Pair]:
    """The join of two tables: one micro-batch that holds everything, and its end."""
    return naive_stream([Push(left, right)], pred, how=how, window=window, order_by=order_by).rows


def naive_stream(
    steps: Iterable[Push | Advance | tuple[Sequence[Row], Sequence[Row]]],
    pred: Predicate,
    *,
    how: str = "inner",
    window: Window | None = None,
    order_by: OrderBy = None,
) -> Result:
    """The join of two streams that come in micro-batches.

    `rows` holds everything up to and including the end of the streams, in no particular order:
    matches as `(left, right)`, unmatched rows with None for the other side, and for semi and anti
    joins `(left, None)`. `steps` holds the matches (for semi joins: the first matches) by step.
    """
    window = Full() if window is None else window
    result = Result()
    seen_left: list[Row] = []
    seen_right: list[Row] = []
    matched_left: set[int] = set()
    matched_right: set[int] = set()
    watermark: Any = None

    def on_time(rows: Sequence[Row], column: str) -> list[Row]:
        kept = []
        for row in rows:
            if row[column] is None:
                result.null_times += 1
                kept.append(row)
            elif watermark is not None and row[column] < watermark:
                result.late_rows += 1
                result.late.append(row)
            else:
                kept.append(row)
        return kept

    for step in steps:
        if isinstance(step, Advance):
            watermark = step.watermark if watermark is None else max(watermark, step.watermark)
            result.steps.append([])
            continue
        new_left, new_right = (step.left, step.right) if isinstance(step, Push) else step
        if isinstance(window, Time):
            new_left, new_right = on_time(new_left, window.left), on_time(new_right, window.right)
        fresh: list[Pair] = []
        for side, row in arrivals(new_left, new_right, order_by):
            others = seen_right if side == "left" else seen_left
            first = window.first_visible(len(others)) if isinstance(window, Count) else 0
            index = len(seen_left) if side == "left" else len(seen_right)
            for other_index, other in list(enumerate(others))[first:]:
                l, r = (row, other) if side == "left" else (other, row)
                if isinstance(window, Time) and not window.near(l, r):
                    continue
                if pred(l, r) is not True:
                    continue
                i, j = (index, other_index) if side == "left" else (other_index, index)
                result.pairs += 1
                if how in ("inner", "left", "right", "full"):
                    fresh.append((l, r))
                elif how == "semi" and i not in matched_left:
                    fresh.append((l, None))
                matched_left.add(i)
                matched_right.add(j)
            (seen_left if side == "left" else seen_right).append(row)
        result.steps.append(fresh)
        result.rows += fresh

    if how in ("left", "full", "anti"):
        result.rows += [(row, None) for i, row in enumerate(seen_left) if i not in matched_left]
    if how in ("right", "full"):
        result.rows += [(None, row) for j, row in enumerate(seen_right) if j not in matched_right]
    return result


def naive_self_join(
    rows: Sequence[Row],
    pred: Predicate,
    *,
    window: Window | None = None,
    order_by: str | None = None,
) -> list[Pair]:
    """A table joined with itself: each row sees the earlier ones, in both roles, never itself."""
    window = Full() if window is None else window
    ordered = [row for _, row in arrivals(rows, [], order_by)]
    pairs: list[Pair] = []
    for index, row in enumerate(ordered):
        first = window.first_visible(index) if isinstance(window, Count) else 0
        for earlier in ordered[first:index]:
            for l, r in ((row, earlier), (earlier, row)):
                if isinstance(window, Time) and not window.near(l, r):
                    continue
                if pred(l, r) is True:
                    pairs.append((l, r))
    return pairs


# --- aggregates ----------------------------------------------------------------------------------


def naive_groups(
    pairs: Sequence[Pair],
    groups: Sequence[Value],
    aggs: Sequence[tuple[str, Value | None]],
    left: Sequence[Row] = (),
) -> dict[tuple[Any, ...], list[Any]]:
    """Each group's aggregates; without groups there is one group even without pairs.

    The groups of the rows `left` are there too, whatever they match: groups are of that side then.
    """
    found: dict[tuple[Any, ...], list[Pair]] = {} if groups else {(): []}
    for l in left:
        found.setdefault(tuple(group_key(group(l, {})) for group in groups), [])
    for l, r in pairs:
        found.setdefault(tuple(group_key(group(l, r)) for group in groups), []).append((l, r))
    return {
        key: [
            len(members) if value is None else aggregate(name, [value(l, r) for l, r in members])
            for name, value in aggs
        ]
        for key, members in found.items()
    }


def group_key(value: Any) -> Any:
    """A group's key: NaN is one value, -0.0 is 0.0."""
    if isinstance(value, float):
        return "NaN" if isnan(value) else value + 0.0
    return value


def aggregate(name: str, values: Iterable[Any]) -> Any:
    """An aggregate of values; a sum of floats is rounded once."""
    there = [value for value in values if value is not None]
    if name == "count":
        return len(there)
    if not there:
        return None
    if name in ("min", "max"):
        return extreme(name, there)
    if isinstance(there[0], float):
        total: Any = fsum(there) if all(map(isfinite, there)) else sum(there)
    else:
        total = sum(there)
    if name == "sum":
        return total
    return total / len(there) if isinstance(total, Decimal) else float(total) / len(there)


# --- nearest matches -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Near:
    """What `nearest` is given, in the words of its definition; `order_by` is a right column."""

    key: tuple[str, str]
    direction: str = "backward"
    tolerance: Any = None
    k: int = 1
    ties: str | None = None
    order_by: str | None = None


def naive_nearest(
    left: Sequence[Row],
    right: Sequence[Row],
    pred: Predicate | None,
    near: Near,
    *,
    how: str = "left",
    window: Time | None = None,
) -> list[Pair]:
    """For each left row the nearest of the right rows that qualify."""
    result: list[Pair] = []
    for l in left:
        fits = [r for r in right if _fits(l, r, pred, near, window)]
        by_order = [row for _, row in arrivals(fits, [], near.order_by)]
        if near.ties == "last" or (near.ties is None and near.direction == "backward"):
            by_order.reverse()
        elif near.ties is None and near.direction == "nearest":
            # As pandas: those at or below the left key, the last first, then those above it.
            above = [r for r in by_order if order(r[near.key[1]], l[near.key[0]]) == 1]
            below = [r for r in by_order if order(r[near.key[1]], l[near.key[0]]) != 1]
            by_order = [*reversed(below), *above]
        best = sorted(by_order, key=lambda r: distance(l[near.key[0]], r[near.key[1]]))
        if near.ties == "all" and len(best) > near.k:
            last = distance(l[near.key[0]], best[near.k - 1][near.key[1]])
            best = [r for r in best if distance(l[near.key[0]], r[near.key[1]]) <= last]
        else:
            best = best[: near.k]
        if how in ("left", "inner"):
            result += [(l, r) for r in best]
        if (how in ("left", "anti") and not best) or (how == "semi" and best):
            result.append((l, None))
    return result


def _fits(l: Row, r: Row, pred: Predicate | None, near: Near, window: Time | None) -> bool:
    a, b = l[near.key[0]], r[near.key[1]]
    sign = order(a, b)
    if sign is None or (pred is not None and pred(l, r) is not True):
        return False
    if window is not None and not window.near(l, r):
        return False
    if (near.direction == "backward" and sign < 0) or (near.direction == "forward" and sign > 0):
        return False
    if near.tolerance is None:
        return True
    difference = arithmetic("-", *_alike(a, b))
    return compare(abs(difference), "<=", near.tolerance) is True


def distance(a: Any, b: Any) -> Any:
    """What orders keys by their distance from one of them: exact, and infinite ones by order."""
    a, b = _alike(a, b)
    sign = order(a, b)
    if isinstance(a, float):
        if sign and not all(map(isfinite, (a, b))):
            return (1, abs(_place(a) - _place(b)))
        return (0, abs(Fraction(a) - Fraction(b)) if sign else 0)
    if isinstance(a, bytes):  # only one direction makes sense, and there order is distance
        return (-2, []) if not sign else _reversed(b) if sign > 0 else (0, b)
    return abs(arithmetic("-", a, b))


def _place(value: float) -> int:
    """The place of a double among all of them; NaN is the last."""
    if isnan(value):
        return 2**63 - 1
    bits = struct.unpack("<q", struct.pack("<d", value + 0.0))[0]
    return bits if bits >= 0 else -(bits & (2**63 - 1)) - 1


def _reversed(text: bytes) -> tuple[int, list[int]]:
    """Orders strings downwards."""
    return (-1, [*(-byte for byte in text), 1])
