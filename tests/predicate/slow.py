"""Expressions bound from text, and their slow, obviously right values: row by row, in Python."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa

import naive
from predicate.strategies import SCHEMA
from thetajoin.predicate import evaluate
from thetajoin.predicate.bind import bind
from thetajoin.predicate.condition import Scope
from thetajoin.predicate.nodes import (
    Call,
    Cast,
    Column,
    Comparison,
    Conjunction,
    Difference,
    Expr,
    Literal,
)
from thetajoin.predicate.parse import Source

Pair = dict[str, dict[str, Any]]


class Failure(Exception):
    """What Spark's ANSI mode would raise: overflow or division by zero."""


def bound(text: str, schema: pa.Schema = SCHEMA) -> Expr:
    return bind(Source(text), Scope(schema, schema))


def constant(text: str) -> object:
    """What the package gives for an expression without columns."""
    return evaluate(bound(f"({text}) IS NULL").children[0])[0].as_py()


def value(expr: Expr, pair: Pair) -> Any:
    """The expression's value for one pair of rows; None is NULL."""
    if isinstance(expr, Column):
        return pair[expr.side][expr.name]
    if isinstance(expr, Literal):
        return expr.value
    if isinstance(expr, Cast):
        return _cast(value(expr.arg, pair), expr.type)
    assert isinstance(expr, Call)
    return _call(expr, pair)


def _cast(known: Any, to: pa.DataType) -> Any:
    if known is None:
        return None
    if pa.types.is_floating(to):
        return float(known)
    if pa.types.is_decimal(to):
        return Decimal(known)
    if pa.types.is_integer(to):
        return _checked(int(known), to)
    return known


def _checked(number: Any, type_: pa.DataType) -> Any:
    if pa.types.is_integer(type_):
        bits = type_.bit_width
        if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
            raise Failure
    return number


def _call(call: Call, pair: Pair) -> Any:
    name, args = call.name, call.args
    if name in ("and", "or"):
        return _logical(args, pair, stops_at=name == "or")
    if name == "case":
        for i in range(0, len(args) - 1, 2):
            if value(args[i], pair) is True:
                return value(args[i + 1], pair)
        return value(args[-1], pair)
    if name == "coalesce":
        return next((v for v in (value(arg, pair) for arg in args) if v is not None), None)
    values = [value(arg, pair) for arg in args]
    if name == "isnull":
        return values[0] is None
    if name == "isnotnull":
        return values[0] is not None
    if name == "<=>":
        a, b = values
        return a is b if a is None or b is None else naive.order(a, b) == 0
    if name == "in":
        return naive.connect([naive.compare(values[0], "=", other) for other in values[1:]], True)
    if None in values:
        return None
    if name == "not":
        return not values[0]
    if name in naive.OPERATORS:
        return naive.compare(values[0], name, values[1])
    return _checked(_arithmetic(name, values), call.type)


def _logical(args: tuple[Expr, ...], pair: Pair, *, stops_at: bool) -> bool | None:
    unknown = False
    for arg in args:
        known = value(arg, pair)
        if known is stops_at:
            return stops_at
        unknown |= known is None
    return None if unknown else not stops_at


def _arithmetic(name: str, values: list[Any]) -> Any:
    a, b = values[0], values[-1]
    if name in ("/", "%", "div") and b == 0:
        raise Failure
    if name == "%" and isinstance(a, float):
        return math.nan if math.isinf(a) or a != a or b != b else math.fmod(a, b)
    return {
        "+": lambda: a + b,
        "-": lambda: a - b,
        "*": lambda: a * b,
        "/": lambda: a / b,
        "%": lambda: int(math.copysign(1, a)) * (abs(a) % abs(b)),
        "neg": lambda: -a,
        "abs": lambda: abs(a),
    }[name]()


def holds(form: Conjunction, pair: Pair) -> bool:
    """Whether a pair satisfies a conjunction of the normal form."""
    # Filters first, as the engine does: they may guard what is compared.
    for test in (form.left_filter, form.right_filter):
        if test is not None and value(test, pair) is not True:
            return False
    if not all(comparison_holds(comparison, pair) for comparison in form.comparisons):
        return False
    if not all(difference_holds(difference, pair) for difference in form.differences):
        return False
    return form.residual is None or value(form.residual, pair) is True


def comparison_holds(comparison: Comparison, pair: Pair) -> bool:
    left, right = value(comparison.left, pair), value(comparison.right, pair)
    return naive.compare(left, comparison.op, right) is True


def difference_holds(difference: Difference, pair: Pair) -> bool:
    """By the interval; for floats it must agree with `check` but for rounding at the bounds."""
    left, right = value(difference.left, pair), value(difference.right, pair)
    if left is None or right is None:
        return False
    distance = left - right
    if distance != distance:
        inside = difference.nan
    else:
        above = difference.low is None or (
            distance > difference.low if difference.low_strict else distance >= difference.low
        )
        below = difference.high is None or (
            distance < difference.high if difference.high_strict else distance <= difference.high
        )
        inside = above and below
    assert inside == (value(difference.check, pair) is True)
    return inside
