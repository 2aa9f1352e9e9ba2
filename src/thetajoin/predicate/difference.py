"""Comparisons of ``l.x - r.x`` with a constant as intervals of the difference.

A constant may be of another type than the difference (``l.i - r.i > 0.5``, or days against
microseconds). What the types imply is a non-decreasing function of the difference, so the bound is
found exactly by bisection on it: the first whole difference for which the comparison holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.types as t

from thetajoin.predicate.evaluate import fold
from thetajoin.predicate.nodes import (
    MIRROR,
    Call,
    Cast,
    Difference,
    Expr,
    Literal,
    coerce,
    conjunction,
)
from thetajoin.predicate.types import DOUBLE, digits_of, ticks_per_second, wider_decimal

_FAR = 2**65  # beyond any difference of two 64-bit integers


@dataclass(frozen=True)
class _Subtraction:
    """``first - second`` of one type, of which a whole count of `step` is compared."""

    first: Expr
    second: Expr
    type: pa.DataType
    step: Fraction  # in seconds for durations, else in ones
    rounds: bool  # whether the difference is cast to DOUBLE before it is compared
    far: int = _FAR


def as_difference(atom: Expr) -> Difference | None:
    """The interval form of a comparison, or None where it is no bounded difference.

    >>> from thetajoin.predicate.nodes import Column
    >>> x, y = Column(pa.int32(), "l", "x"), Column(pa.int32(), "r", "y")
    >>> minus = Call(pa.int32(), "-", (y, x))
    >>> print(as_difference(Call(pa.bool_(), ">", (minus, Literal(pa.int32(), 5)))))
    l.x - r.y <= -6
    """
    parts = _constant_right(atom)
    found = _subtraction(parts[1]) if parts is not None else None
    if parts is None or found is None:
        return None
    op, _, constant = parts
    floating = t.is_floating(found.type)
    low, high = _float_bounds(op, constant) if floating else _whole_bounds(op, found, constant)
    left, right = found.first, found.second
    if left.sides() == {"r"}:
        left, right = right, left
        low, high = (None if bound is None else -bound for bound in (high, low))
    if t.is_decimal(found.type):
        low, high = (_decimal(bound, found.type) for bound in (low, high))
    if floating:
        low, high = (None if bound is None else bound + 0.0 for bound in (low, high))  # no -0.0
    strict = floating and op in ("<", ">")
    nan = floating and op in (">", ">=")
    return Difference(left, right, found.type, low, strict, high, strict, atom, not floating, nan)


def _decimal(count: int | None, type_: Any) -> Decimal | None:
    # From text, because arithmetic on a Decimal rounds to 28 digits.
    return None if count is None else Decimal(f"{count}E-{type_.scale}")


def _constant_right(atom: Expr) -> tuple[str, Expr, Literal] | None:
    """The operator, other side and constant of a comparison with a usable constant."""
    if not isinstance(atom, Call) or atom.name not in ("<", "<=", ">", ">=", "="):
        return None
    (first, second), op = atom.args, atom.name
    if not first.sides():
        first, second, op = second, first, MIRROR[op]
    constant = fold(second)
    if constant is None or constant.value is None or len(first.sides()) != 2:
        return None
    if isinstance(constant.value, float) and not math.isfinite(constant.value):
        return None
    return op, first, constant


def _subtraction(value: Expr) -> _Subtraction | None:
    rounds = False
    while isinstance(value, Cast):
        widens = value.implicit or (t.is_integer(value.arg.type) and value.type == DOUBLE)
        if rounds or not widens or t.is_float32(value.type):
            return None
        rounds = value.type == DOUBLE and not t.is_floating(value.arg.type)
        value = value.arg
    if not isinstance(value, Call) or value.name not in ("-", "datediff"):
        return None
    first, second = value.args
    if {first.sides(), second.sides()} != {frozenset("l"), frozenset("r")}:
        return None
    if t.is_decimal(value.type):
        return _decimal_subtraction(value, rounds)
    if first.type != second.type:
        return None
    step = Fraction(1)
    if t.is_duration(value.type):
        is_date = t.is_date32(first.type)
        step = Fraction(86400) if is_date else Fraction(1, ticks_per_second(value.type))
    return _Subtraction(first, second, first.type, step, rounds)


def _decimal_subtraction(value: Call, rounds: bool) -> _Subtraction | None:
    first, second = value.args
    type_: Any = wider_decimal(first.type, second.type)
    if type_.scale != digits_of(value.type)[1]:
        return None  # Spark rounds a difference of so many digits
    operands = coerce(first, type_), coerce(second, type_)
    far = 2 * 10**type_.precision
    return _Subtraction(*operands, type_, Fraction(1, 10**type_.scale), rounds, far)


def _float_bounds(op: str, constant: Literal) -> tuple[Any, Any]:
    number = float(str(constant.value))
    low = number if op in (">", ">=", "=") else None
    high = number if op in ("<", "<=", "=") else None
    return low, high


def _whole_bounds(op: str, found: _Subtraction, constant: Literal) -> tuple[Any, Any]:
    """The first and last count of steps for which the comparison holds."""
    value: Any = constant.value
    target: float | Fraction = value if isinstance(value, float) else Fraction(value)
    if t.is_duration(constant.type):
        target = Fraction(value, ticks_per_second(constant.type))

    def measure(count: int) -> float | Fraction:
        exact = count * found.step
        return exact.numerator / exact.denominator if found.rounds else exact

    def first(holds: Callable[[float | Fraction], bool]) -> int:
        low, high = -found.far, found.far
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if holds(measure(middle)) else (middle + 1, high)
        return low

    low = high = None
    if op in (">=", "="):
        low = first(lambda reached: reached >= target)
    elif op == ">":
        low = first(lambda reached: reached > target)
    if op in ("<=", "="):
        high = first(lambda reached: reached > target) - 1
    elif op == "<":
        high = first(lambda reached: reached >= target) - 1
    return low, high


def merge_differences(differences: list[Difference]) -> tuple[Difference, ...]:
    """Differences of the same two expressions as one interval each."""
    merged: dict[tuple[Expr, Expr, pa.DataType], Difference] = {}
    for difference in differences:
        key = (difference.left, difference.right, difference.type)
        known = merged.get(key)
        merged[key] = difference if known is None else _intersect(known, difference)
    return tuple(merged.values())


def _intersect(a: Difference, b: Difference) -> Difference:
    lows: list[Any] = [(d.low, d.low_strict) for d in (a, b) if d.low is not None]
    highs: list[Any] = [(d.high, not d.high_strict) for d in (a, b) if d.high is not None]
    low, low_strict = max(lows, default=(None, False))
    high, high_included = min(highs, default=(None, True))
    return replace(
        a,
        low=low,
        low_strict=low_strict,
        high=high,
        high_strict=not high_included,
        check=conjunction([a.check, b.check]) or a.check,
        nan=a.nan and b.nan,
    )
