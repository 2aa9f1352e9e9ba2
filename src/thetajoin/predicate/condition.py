"""From what a user writes after `on` to a checked condition in normal form, or to its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from thetajoin.errors import ConditionError, suggest
from thetajoin.predicate.builder import Built
from thetajoin.predicate.categories import categories_of
from thetajoin.predicate.evaluate import simplify
from thetajoin.predicate.nodes import (
    Call,
    Cast,
    Column,
    Comparison,
    Condition,
    Conjunction,
    Expr,
    Literal,
    Place,
    conjunction,
)
from thetajoin.predicate.nodes import conjunction as conjoin
from thetajoin.predicate.normal import disjuncts_of, push_negations
from thetajoin.predicate.parse import Source
from thetajoin.predicate.signatures import MismatchError, comparison, unify
from thetajoin.predicate.types import BOOL, canonical_type, type_name


class Names(Protocol):
    """Whatever finds columns by their names."""

    def resolve(self, parts: list[str]) -> Column:
        """The column that a dotted name means; MismatchError if it means none or several."""


@dataclass(frozen=True)
class Scope:
    """The columns a condition may name: those of `l` and those of `r`."""

    left: pa.Schema
    right: pa.Schema

    def resolve(self, parts: list[str]) -> Column:
        """The column that a dotted name means: exact case first, then any case if that is unique.

        >>> Scope(pa.schema({"A": pa.int8()}), pa.schema({})).resolve(["l", "a"]).name
        'A'
        """
        schemas = {"l": self.left, "r": self.right}
        alias = parts[0].lower()
        if len(parts) > 1 and alias in schemas:
            return column_of(alias, schemas[alias], parts[1:], _OWNERS[alias])
        owners = [side for side, schema in schemas.items() if _find(schema.names, parts[0])]
        if len(owners) == 1:
            return column_of(owners[0], schemas[owners[0]], parts, _OWNERS[owners[0]])
        if len(owners) == 2:
            name = parts[0]
            raise MismatchError(
                f"column {name!r} is ambiguous: both sides have it", f"write l.{name} or r.{name}"
            )
        if len(parts) > 1:
            raise MismatchError(
                f"unknown alias {parts[0]!r}", "only l (left) and r (right) are known"
            )
        known = [f"{side}.{name}" for side, schema in schemas.items() for name in schema.names]
        close = suggest(parts[0], [*self.left.names, *self.right.names])
        hint = close if close.startswith("did you") else suggest(parts[0], known)
        raise MismatchError(f"unknown column {parts[0]!r}", hint)


_OWNERS = {"l": "the left side", "r": "the right side"}


@dataclass(frozen=True)
class ManyScope:
    """The columns a condition over several inputs may name, by the inputs' own names."""

    schemas: Mapping[str, pa.Schema]

    def resolve(self, parts: list[str]) -> Column:
        """The column that a dotted name means: an input's name first, unless only one has it."""
        inputs = {name.lower(): name for name in self.schemas}
        if len(parts) > 1 and parts[0].lower() in inputs:
            name = inputs[parts[0].lower()]
            return column_of(name, self.schemas[name], parts[1:], f"input {name!r}")
        owners = [name for name, schema in self.schemas.items() if _find(schema.names, parts[0])]
        if len(owners) == 1:
            return column_of(owners[0], self.schemas[owners[0]], parts, f"input {owners[0]!r}")
        if owners:
            raise MismatchError(
                f"column {parts[0]!r} is ambiguous: {', '.join(owners)} have it",
                f"write {owners[0]}.{parts[0]}",
            )
        if len(parts) > 1:
            raise MismatchError(
                f"unknown input {parts[0]!r}", f"the inputs are {', '.join(self.schemas)}"
            )
        known = [f"{n}.{c}" for n, schema in self.schemas.items() for c in schema.names]
        raise MismatchError(f"unknown column {parts[0]!r}", suggest(parts[0], known))


def column_of(side: str, schema: pa.Schema, parts: list[str], owner: str) -> Column:
    """A column of one input, or a field inside it."""
    name = _one(schema.names, parts[0], f"of {owner}")
    if schema.names.count(name) > 1:
        raise MismatchError(f"{owner} has several columns {name!r}", "rename one")
    type_: Any = schema.field(name).type
    path: list[str] = []
    for part in parts[1:]:
        if not pa.types.is_struct(type_):
            known = type_name(canonical_type(type_))
            raise MismatchError(f"{'.'.join([name, *path])} is {known}, so has no field {part!r}")
        fields = [type_.field(i).name for i in range(type_.num_fields)]
        path.append(_one(fields, part, f"in struct {name!r}"))
        type_ = type_.field(path[-1]).type
    categories = categories_of(pa.field(name, type_) if path else schema.field(name))
    return Column(canonical_type(type_), side, name, tuple(path), categories)


def _one(names: Iterable[str], name: str, where: str) -> str:
    found = _find(names, name)
    if not found:
        raise MismatchError(f"unknown column {name!r} {where}", suggest(name, names))
    if len(found) > 1:
        raise MismatchError(
            f"column {name!r} {where} is ambiguous", f"write one of {', '.join(found)}"
        )
    return found[0]


def _find(names: Iterable[str], name: str) -> list[str]:
    known = list(dict.fromkeys(names))
    if name in known:
        return [name]
    return [other for other in known if other.lower() == name.lower()]


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
    """The condition that every pair satisfies, for joins that something else decides."""
    always = Literal(BOOL, True)
    return Condition((Conjunction(),), always, always.sql(), always)


def _refuse_useless(expr: Expr, text: str) -> None:
    """Refuse a condition whose outcome is the same for all pairs: that is a mistake, not a join."""
    sides = expr.sides()
    if len(sides) == 2 and not isinstance(push_negations(expr), Literal):
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


def align_columns(
    left: str, right: str, left_schema: pa.Schema, right_schema: pa.Schema
) -> Comparison:
    """Two columns as ``left <= right`` in the finer of their types, where differences are exact.

    A condition compares times of different units in the coarser one, which keeps the answer but
    not the distance; a window needs the distance.

    >>> seconds, nanos = (pa.schema({"t": pa.timestamp(unit)}) for unit in ("s", "ns"))
    >>> align_columns("t", "t", seconds, nanos).type
    TimestampType(timestamp[ns])
    """
    scope = Scope(left_schema, right_schema)
    try:
        columns = [scope.resolve([side, name]) for side, name in (("l", left), ("r", right))]
        call = comparison("<=", *columns)
        placed = isinstance(call.args[0], Place)
        type_, (first, second) = unify(call.args if placed else columns, "<=")
    except MismatchError as problem:
        raise ConditionError(
            str(problem), fragment=f"l.{left}, r.{right}", hint=problem.hint
        ) from None
    return Comparison("<=", first, second, type_)


def conjuncts(
    on: str | Built | Sequence[str | Built], schemas: Mapping[str, pa.Schema]
) -> tuple[Expr, ...]:
    """The parts of a condition that must all hold; each column's side is the name of its input.

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
