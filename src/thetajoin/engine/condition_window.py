"""The window that a condition says by itself: one that bounds two event times from both sides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta

import pyarrow as pa

from thetajoin.engine.parts import Side
from thetajoin.predicate import Comparison, Condition, Conjunction, Difference, Expr
from thetajoin.predicate.evaluate import fold
from thetajoin.predicate.nodes import Call, Cast, Column
from thetajoin.predicate.types import ticks_per_second
from thetajoin.window.windows import TimeWindow

# One bound in microseconds: ``l.first - r.second <= most``, or ``>= -most`` where it is `after`.
Bound = tuple[tuple[str, str], bool, int]


def infer_window(
    condition: Condition, left_times: Iterable[str], right_times: Iterable[str]
) -> TimeWindow | None:
    """The least window that every match lies in, over two of the columns; None if there is none.

    >>> from thetajoin.predicate import compile_condition
    >>> schema = pa.schema({"t": pa.timestamp("us")})
    >>> on = "r.t BETWEEN l.t AND l.t + INTERVAL 10 MINUTES"
    >>> infer_window(compile_condition(on, schema, schema), ["t"], ["t"])
    TimeWindow(after='10 minutes', time='t')
    """
    known = {*left_times}, {*right_times}
    found = [_bounds(part, *known) for part in condition.disjuncts]
    for times in found[0] if found else ():
        each = [bounds.get(times, {}) for bounds in found]
        if all(len(bounds) == 2 for bounds in each):
            # A window reaches to both sides of 0; beyond that the condition decides.
            before, after = (max(0, *(bounds[end] for bounds in each)) for end in (False, True))
            after = after or (0 if before else 1)
            lengths = (timedelta(microseconds=n) if n else None for n in (before, after))
            return TimeWindow(before=next(lengths), after=next(lengths), time=times)
    return None


def _bounds(
    part: Conjunction, lefts: set[str], rights: set[str]
) -> dict[tuple[str, str], dict[bool, int]]:
    """The closest bounds of each pair of columns."""
    found: dict[tuple[str, str], dict[bool, int]] = {}
    for times, after, most in _listed(part):
        if times[0] in lefts and times[1] in rights:
            ends = found.setdefault(times, {})
            ends[after] = min(most, ends.get(after, most))
    return found


def _listed(part: Conjunction) -> Iterator[Bound]:
    for comparison in part.comparisons:
        yield from _of_comparison(comparison)
    for difference in part.differences:
        yield from _of_difference(difference)


def _of_comparison(comparison: Comparison) -> Iterator[Bound]:
    """``l.a + x <= r.b + y`` bounds ``l.a - r.b`` by ``y - x``."""
    left, right = _moved(comparison.left, "l"), _moved(comparison.right, "r")
    if left is None or right is None:
        return
    times, most = (left[0], right[0]), right[1] - left[1]
    if comparison.op in ("<", "<=", "="):
        yield times, False, most
    if comparison.op in (">", ">=", "="):
        yield times, True, -most


def _of_difference(difference: Difference) -> Iterator[Bound]:
    left, right = _moved(difference.left, "l"), _moved(difference.right, "r")
    if left is None or right is None or not pa.types.is_timestamp(difference.type):
        return
    times, moved = (left[0], right[0]), right[1] - left[1]
    scale = 10**6 // ticks_per_second(difference.type)
    if isinstance(difference.high, int) and scale:
        yield times, False, difference.high * scale + moved
    if isinstance(difference.low, int) and scale:
        yield times, True, -difference.low * scale - moved


def _moved(expr: Expr, side: Side) -> tuple[str, int] | None:
    """A time column plus some microseconds; None where an expression is anything else."""
    if isinstance(expr, Cast) and expr.implicit:
        return _moved(expr.arg, side)
    if isinstance(expr, Column):
        plain = expr.side == side and not expr.path and pa.types.is_timestamp(expr.type)
        return (expr.name, 0) if plain else None
    if not isinstance(expr, Call) or expr.name not in ("+", "-"):
        return None
    found, length = _moved(expr.args[0], side), fold(expr.args[1])
    if found is None or length is None or not pa.types.is_duration(length.type):
        return None
    if not isinstance(length.value, int):
        return None
    micros = length.value * 10**6 // ticks_per_second(length.type)
    return found[0], found[1] + (micros if expr.name == "+" else -micros)
