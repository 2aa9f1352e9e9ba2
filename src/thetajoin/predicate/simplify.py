"""Constant folding, as far as the normal form and the errors about constants need it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as t

from thetajoin.errors import DataError
from thetajoin.predicate.evaluate import evaluate
from thetajoin.predicate.nodes import Call, Expr, Literal, conjunction, disjunction
from thetajoin.predicate.types import BOOL


def fold(expr: Expr) -> Literal | None:
    """The value of an expression without columns; None where it has some, or fails.

    >>> from thetajoin.predicate.nodes import Call
    >>> fold(Call(pa.int32(), "+", (Literal(pa.int32(), 2), Literal(pa.int32(), 3)))).value
    5
    """
    if isinstance(expr, Literal):
        return expr
    if expr.sides():
        return None
    try:
        scalar = evaluate(expr)[0]
    except DataError:
        return None
    if not scalar.is_valid:
        return Literal(expr.type, None)
    if t.is_temporal(expr.type):
        width = pa.int32() if expr.type.bit_width == 32 else pa.int64()
        return Literal(expr.type, pa.array([scalar], expr.type).view(width)[0].as_py())
    return Literal(expr.type, scalar.as_py())


def simplify(expr: Expr) -> Expr:
    """The condition without constant parts of its ANDs and ORs, true where it was true before.

    FALSE and NULL are not told apart: a pair matches only where a condition is true.
    """
    if not expr.sides():
        value = fold(expr)
        return expr if value is None else Literal(BOOL, value.value)
    if not isinstance(expr, Call) or expr.name not in ("and", "or"):
        return expr
    decides = expr.name == "or"
    kept: list[Expr] = []
    for arg in map(simplify, expr.args):
        if not isinstance(arg, Literal):
            kept.append(arg)
        elif (arg.value is True) == decides:
            return arg
    combined = disjunction(kept) if decides else conjunction(kept)
    return combined or Literal(BOOL, not decides)
