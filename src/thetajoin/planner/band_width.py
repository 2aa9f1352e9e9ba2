"""Bands of a condition: keys that the other side bounds from both sides, and how wide they are.

A band may be written as a distance (``ABS(l.x - r.x) <= 3``), or as two ends that lie a constant
apart (``l.x <= r.x AND l.x >= r.x - 20``). The width decides how many copies of a row are sent, not
which rows match: so it may be taken from the text, without regard to rounding.
"""

from __future__ import annotations

from decimal import Decimal
from math import isfinite
from typing import NamedTuple

import pyarrow as pa

from thetajoin.engine.parts import OTHER, Distance, FloatBand, Part, Side
from thetajoin.predicate.nodes import Call, Cast, Expr, Literal

_ABOVE, _BELOW = ("<", "<="), (">", ">=")  # as in `probe < stored`


class Band(NamedTuple):
    """A key of a side, by its place in the view that stores it, and its band's width.

    floats: whether the width is in doubles, else in the key's own whole numbers.
    """

    dim: int
    width: float
    floats: bool


def bands(part: Part, point: Side) -> list[Band]:
    """The keys of a side that the other bounds from both sides, a known distance apart."""
    found = []
    for dim in range(len(part.views[point].asks)):
        width = _by_distance(part, point, dim) or _by_two_ends(part, point, dim)
        if width is not None:
            found.append(Band(dim, *width))
    return found


def _by_distance(part: Part, point: Side, dim: int) -> tuple[float, bool] | None:
    wholes: dict[int, Distance] = {}
    for ask in part.views[point].asks[dim]:
        bound: str | Distance | FloatBand = ask.bound
        if isinstance(bound, Distance):
            # The two ends may have been written as two conditions.
            known = wholes.get(ask.probe_key, Distance(None, None))
            wholes[ask.probe_key] = bound = known & bound
        if isinstance(bound, str) or bound.low is None or bound.high is None:
            continue
        if isinstance(bound, Distance):
            return max(int(bound.high) - int(bound.low) + 1, 1), False
        return float(bound.high - bound.low), True
    return None


def _by_two_ends(part: Part, point: Side, dim: int) -> tuple[float, bool] | None:
    """The distance of two ends that are one expression of the other side, plus constants."""
    view = part.views[point]
    type_ = part.keys[point][view.stored[dim]].expr.type
    floats = bool(pa.types.is_floating(type_))
    if not floats and not pa.types.is_integer(type_):
        return None
    ends = [(ask.bound, part.keys[OTHER[point]][ask.probe_key].expr) for ask in view.asks[dim]]
    lows = [_shifted(expr) for bound, expr in ends if bound in _ABOVE]
    highs = [_shifted(expr) for bound, expr in ends if bound in _BELOW]
    widths = [high[1] - low[1] for low in lows for high in highs if low[0] == high[0]]
    reachable = [width for width in widths if width >= 0 and isfinite(width)]
    if not reachable:
        return None
    return (min(reachable), True) if floats else (max(int(min(reachable)) + 1, 1), False)


def _shifted(expr: Expr) -> tuple[Expr, float]:
    """An expression as another one plus a constant."""
    if isinstance(expr, Cast) and expr.implicit:
        return _shifted(expr.arg)
    if isinstance(expr, Call) and expr.name in ("+", "-") and len(expr.args) == 2:
        first, second = expr.args
        constant = _number(second)
        if constant is not None:
            base, shift = _shifted(first)
            return base, shift + (constant if expr.name == "+" else -constant)
        constant = _number(first)
        if constant is not None and expr.name == "+":
            base, shift = _shifted(second)
            return base, shift + constant
    return expr, 0.0


def _number(expr: Expr) -> float | None:
    if isinstance(expr, Cast):
        return _number(expr.arg)
    if isinstance(expr, Literal) and isinstance(expr.value, int | float | Decimal):
        return float(expr.value)
    return None
