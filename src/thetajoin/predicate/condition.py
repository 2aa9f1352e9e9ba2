"""From what a user writes after `on` to a checked condition in normal form."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from thetajoin.errors import ConditionError
from thetajoin.predicate.builder import Built
from thetajoin.predicate.forms import Comparison, Condition, Conjunction
from thetajoin.predicate.names import Scope
from thetajoin.predicate.nodes import Expr, Literal, Place, conjunction
from thetajoin.predicate.normal import disjuncts_of, positive
from thetajoin.predicate.parse import Source
from thetajoin.predicate.signatures import MismatchError, comparison, unified
from thetajoin.predicate.simplify import simplify
from thetajoin.predicate.types import BOOL


def compile_condition(
    on: str | Built | Sequence[str | Built], left_schema: pa.Schema, right_schema: pa.Schema
) -> Condition:
    """Parse, check and normalise a condition; linear in its text, but for OR (see `normal`).

    >>> schema = pa.schema({"rp": pa.float64(), "cp": pa.float64()})
    >>> condition = compile_condition("l.rp < r.rp AND r.cp < l.cp", schema, schema)
    >>> [str(comparison) for comparison in condition.disjuncts[0].comparisons]
    ['l.rp < r.rp', 'l.cp > r.cp']
    """
    # The binder loads sqlglot, which importing this package should not.
    from thetajoin.predicate.bind import bind

    sources = sources_of(on)
    scope = Scope(left_schema, right_schema)
    whole = conjunction([bind(source, scope) for source in sources])
    assert whole is not None
    expr = simplify(whole)
    _refuse_useless(expr, " AND ".join(source.text for source in sources))
    return Condition(disjuncts_of(expr), expr, expr.sql(), whole)


def no_condition() -> Condition:
    """The condition that every pair satisfies, for what is decided by something else alone."""
    always = Literal(BOOL, True)
    return Condition((Conjunction(),), always, always.sql(), always)


def _refuse_useless(expr: Expr, text: str) -> None:
    """A condition that no pair decides is a mistake, not a join."""
    sides = expr.sides()
    if len(sides) == 2 and not isinstance(positive(expr), Literal):
        return
    if len(sides) == 1:
        (side,) = sides
        name, other = ("left", "r") if side == "l" else ("right", "l")
        problem = f"the condition names only the {name} side ({side})"
        hint = f"compare it with an expression over {other}"
    else:
        always = isinstance(expr, Literal) and expr.value is True
        problem = f"the condition is constant ({'always' if always else 'never'} true)"
        hint = "compare an expression over l with one over r"
    raise ConditionError(problem, position=1, fragment=text, hint=hint)


def sources_of(on: str | Built | Sequence[str | Built]) -> list[Source]:
    """The texts of a condition, however it was given."""
    parts = list(on) if isinstance(on, list | tuple) else [on]
    if not parts:
        raise ConditionError("the condition is an empty list", hint="give at least one comparison")
    sources = []
    for i, part in enumerate(parts):
        if isinstance(part, Built):
            text = part.sql()
        elif isinstance(part, str):
            text = part
        else:
            raise ConditionError(
                f"a condition is text or built from l and r, not {type(part).__name__}",
                hint="write on='l.a < r.b' or on=tj.l.a < tj.r.b",
            )
        sources.append(Source(text, f"in condition {i + 1}: " if len(parts) > 1 else ""))
    return sources


def condition_text(on: str | Built | Sequence[str | Built]) -> str:
    """A condition as one text that `compile_condition` reads, whatever form it was given in.

    >>> condition_text(["l.a < r.a", "l.b > r.b"])
    '(l.a < r.a) AND (l.b > r.b)'
    """
    texts = [source.text for source in sources_of(on)]
    return texts[0] if len(texts) == 1 else " AND ".join(f"({text})" for text in texts)


def aligned(left: str, right: str, left_schema: pa.Schema, right_schema: pa.Schema) -> Comparison:
    """Two columns as ``left <= right`` in the finer of their types, where differences are exact.

    A condition compares times of different units in the coarser one, which keeps the answer but
    not the distance; a window needs the distance.

    >>> seconds, nanos = (pa.schema({"t": pa.timestamp(unit)}) for unit in ("s", "ns"))
    >>> aligned("t", "t", seconds, nanos).type
    TimestampType(timestamp[ns])
    """
    scope = Scope(left_schema, right_schema)
    try:
        columns = [scope.resolve([side, name]) for side, name in (("l", left), ("r", right))]
        call = comparison("<=", *columns)
        placed = isinstance(call.args[0], Place)
        type_, (first, second) = unified(call.args if placed else columns, "<=")
    except MismatchError as problem:
        raise ConditionError(str(problem), hint=problem.hint) from None
    return Comparison("<=", first, second, type_)
