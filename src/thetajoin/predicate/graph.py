"""A condition over several inputs: its conjuncts, and what each of them connects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from thetajoin.errors import ConditionError
from thetajoin.predicate.builder import Built
from thetajoin.predicate.condition import sources_of
from thetajoin.predicate.names import ManyScope
from thetajoin.predicate.nodes import Call, Cast, Column, Expr, Literal
from thetajoin.predicate.nodes import conjunction as conjoin
from thetajoin.predicate.simplify import simplify


def conjuncts(
    on: str | Built | Sequence[str | Built], schemas: Mapping[str, pa.Schema]
) -> tuple[Expr, ...]:
    """The parts of a condition that must all hold; a column's side is its input's name.

    >>> schema = pa.schema({"x": pa.int64()})
    >>> parts = conjuncts("r.x < s.x AND s.x <= t.x", {name: schema for name in "rst"})
    >>> [sorted(part.sides()) for part in parts]
    [['r', 's'], ['s', 't']]
    """
    from thetajoin.predicate.bind import bind

    scope = ManyScope(schemas)
    sources = sources_of(on)
    whole = conjoin([bind(source, scope) for source in sources])
    assert whole is not None
    expr = simplify(whole)
    parts = expr.args if isinstance(expr, Call) and expr.name == "and" else (expr,)
    for part in parts:
        if isinstance(part, Literal) or not part.sides():
            raise ConditionError(
                "a part of the condition is constant",
                fragment=part.sql(),
                hint="compare columns of two inputs",
            )
    return parts


def with_columns(expr: Expr, change: Callable[[Column], Column]) -> Expr:
    """The expression with every column changed."""
    if isinstance(expr, Column):
        return change(expr)
    if isinstance(expr, Cast):
        return replace(expr, arg=with_columns(expr.arg, change))
    if isinstance(expr, Call):
        return replace(expr, args=tuple(with_columns(arg, change) for arg in expr.args))
    return expr
