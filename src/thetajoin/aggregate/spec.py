"""What a user asks of the matches: groups and aggregates, bound to both sides' columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa

from thetajoin.batch.dtypes import mark_of
from thetajoin.errors import ConditionError, OptionError, is_text, suggest
from thetajoin.predicate import Expr
from thetajoin.predicate.categories import Categories
from thetajoin.predicate.nodes import Column, Place, coerce
from thetajoin.predicate.types import (
    BINARY,
    DOUBLE,
    LONG,
    NULL,
    STRING,
    as_signed,
    is_comparable,
    is_number,
    limit_precision,
    type_name,
)

# What a column's field says of the type its values came in (`batch.dtypes`).
Mark = dict[bytes, bytes] | None
Kind = Literal["count", "sum", "min", "max"]
FUNCTIONS = ("count", "sum", "avg", "min", "max")
_SPELLINGS = {"mean": "avg"}
_EXAMPLE = 'aggregates are written like aggs={"n": "count(*)", "most": "max(r.x)"}'


@dataclass(frozen=True)
class Term:
    """Something kept for each group: how many values an expression has, their sum, an extreme."""

    kind: Kind
    expr: Expr

    @property
    def side(self) -> str | None:
        """The side whose rows have the values; None where both are needed."""
        sides = self.expr.sides()
        return None if len(sides) == 2 else next(iter(sides), "l")


@dataclass(frozen=True)
class Output:
    """A column of the result: a function of one or two terms, or of the number of pairs."""

    name: str
    function: str
    type: pa.DataType
    terms: tuple[int, ...]
    text: str
    mark: Mark = field(default=None, compare=False)
    # Where an extreme is taken of places among ordered categories: these.
    categories: Categories | None = None


@dataclass(frozen=True)
class Group:
    """A column that the matches are grouped by."""

    name: str
    expr: Expr
    type: pa.DataType
    mark: Mark = field(default=None, compare=False)


@dataclass(frozen=True)
class AggSpec:
    """Groups, terms and outputs of one query."""

    groups: tuple[Group, ...]
    terms: tuple[Term, ...]
    outputs: tuple[Output, ...]
    # Whether a group of the left side is there even if no row of it has a match.
    keeps_left: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The result's columns."""
        columns: list[Group | Output] = [*self.groups, *self.outputs]
        return pa.schema([pa.field(c.name, c.type, metadata=c.mark) for c in columns])

    def with_left_groups(self) -> AggSpec:
        """The same with every group of the left side; without groups there is one row anyway."""
        for group in self.groups:
            if "r" in group.expr.sides():
                raise OptionError(
                    f"group_by has {group.expr} of the right side, which a left row without a "
                    "match has none of: with how='left' group by columns of the left side, or "
                    "group the result of join(how='left')"
                )
        return replace(self, keeps_left=bool(self.groups))

    def columns(self, side: str) -> set[str]:
        """The columns of a side that groups and terms are made from."""
        exprs = [group.expr for group in self.groups] + [term.expr for term in self.terms]
        return {name for expr in exprs for name in expr.columns(side)}


def parse_aggregates(
    group_by: Any, aggs: Any, left: pa.Schema, right: pa.Schema, suffix: str = "_right"
) -> AggSpec:
    """Bind groups and aggregates to the columns of both sides; every mistake is reported here.

    >>> schema = pa.schema({"x": pa.int32()})
    >>> parse_aggregates("l.x", {"n": "count(*)", "top": "max(r.x)"}, schema, schema).schema.names
    ['x', 'n', 'top']
    """
    groups = tuple(_groups(group_by, left, right, suffix))
    if not isinstance(aggs, Mapping) or not aggs:
        raise OptionError(f"aggs={aggs!r}: {_EXAMPLE}")
    terms: list[Term] = []
    outputs = []
    for name, text in aggs.items():
        if not is_text(name) or not isinstance(text, str):
            raise OptionError(f"aggs={aggs!r}: {_EXAMPLE}")
        outputs.append(_output(name, text, left, right, terms))
    names = [group.name for group in groups] + [output.name for output in outputs]
    for at, name in enumerate(names):
        if name in names[:at]:
            raise OptionError(f"two columns of the result are called {name!r}: rename one")
    return AggSpec(groups, tuple(terms), tuple(outputs))


def _groups(group_by: Any, left: pa.Schema, right: pa.Schema, suffix: str) -> list[Group]:
    from thetajoin.predicate.parse import Source

    if isinstance(group_by, str):
        group_by = (group_by,)
    if isinstance(group_by, Mapping):
        given = list(group_by.items())
    elif isinstance(group_by, Sequence):
        given = [(None, text) for text in group_by]
    else:
        raise OptionError(f"group_by={group_by!r}: give a column, or a list like ['l.a', 'r.b']")
    groups: list[Group] = []
    for name, text in given:
        if not isinstance(text, str) or not (name is None or is_text(name)):
            raise OptionError(f"group_by={group_by!r}: each is text like 'l.a', not {text!r}")
        source = Source(text, "in group_by: ")
        expr = _bind(source, left, right)
        if pa.types.is_nested(expr.type) and not pa.types.is_struct(expr.type):
            raise source.error(f"rows cannot be grouped by {expr.type}", hint="group by a column")
        if name is None:
            name = expr.name if isinstance(expr, Column) and not expr.path else text
            name += suffix if name in [group.name for group in groups] else ""
        groups.append(Group(name, expr, *_describe_given(expr, left, right)))
    return groups


def _describe_given(expr: Expr, left: pa.Schema, right: pa.Schema) -> tuple[pa.DataType, Mark]:
    """How an expression's values look in the result: a plain column's as they came."""
    if isinstance(expr, Column) and not expr.path:
        own = (left if expr.side == "l" else right).field(expr.name)
        if pa.types.is_string(own.type) or pa.types.is_binary(own.type):
            return own.type, mark_of(own)
        return expr.type, mark_of(own)
    return expr.type, None


def _bind(source: Any, left: pa.Schema, right: pa.Schema) -> Expr:
    from thetajoin.predicate.bind import bind_tree
    from thetajoin.predicate.condition import Scope
    from thetajoin.predicate.parse import parse

    return bind_tree(source, Scope(left, right), parse(source))


def _output(name: str, text: str, left: pa.Schema, right: pa.Schema, terms: list[Term]) -> Output:
    from sqlglot import exp

    from thetajoin.predicate.bind import AGGREGATES, bind_tree
    from thetajoin.predicate.condition import Scope
    from thetajoin.predicate.parse import Source, parse

    source = Source(text, f"in aggregate {name!r}: ")
    tree = parse(source)
    while isinstance(tree, exp.Paren):
        tree = tree.this
    function = _SPELLINGS.get(tree.name.lower(), tree.name.lower())
    if not isinstance(tree, exp.Anonymous) or function not in FUNCTIONS:
        what = (
            f"unsupported aggregate {tree.name!r}"
            if isinstance(tree, exp.Anonymous)
            else ("this is not an aggregate")
        )
        hint = _EXAMPLE
        if isinstance(tree, exp.Anonymous):
            # A name that is an aggregate elsewhere is no slip of the finger.
            known = tree.name.lower() in AGGREGATES
            hint = f"there are: {', '.join(FUNCTIONS)}" if known else suggest(tree.name, FUNCTIONS)
        raise source.error(what, tree, hint)
    arguments = list(tree.expressions)
    if len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
        if function not in ("min", "max") or len(arguments[0].expressions) != 1:
            raise source.error(
                "DISTINCT inside an aggregate is not supported",
                tree,
                "aggregate a join of distinct rows, or leave it out",
            )
        arguments = list(arguments[0].expressions)
    if len(arguments) != 1:
        raise source.error(f"{function} takes one argument, not {len(arguments)}", tree)
    if isinstance(arguments[0], exp.Star):
        if function != "count":
            raise source.error(f"{function}(*) is not an aggregate", tree, "only count takes *")
        return Output(name, "count", LONG, (), text)
    for inner in arguments[0].find_all(exp.Anonymous):
        if inner.name.lower() in (*FUNCTIONS, *_SPELLINGS):
            raise source.error(f"an aggregate ({inner.name}) inside an aggregate", inner)
    expr = bind_tree(source, Scope(left, right), arguments[0])
    return _make_output(
        name, function, expr, _describe_given(expr, left, right), terms, text, source
    )


def _make_output(
    name: str,
    function: str,
    expr: Expr,
    given: tuple[pa.DataType, Mark],
    terms: list[Term],
    text: str,
    source: Any,
) -> Output:
    def term(kind: Kind, of: Expr) -> int:
        wanted = Term(kind, of)
        if wanted not in terms:
            terms.append(wanted)
        return terms.index(wanted)

    if function == "count":
        return Output(name, function, LONG, (term("count", expr),), text)
    if function in ("min", "max"):
        if expr.type == NULL:  # as pandas has it where a column of objects is empty
            expr, given = coerce(expr, STRING), (pa.string(), given[1])
        if not is_comparable(expr.type):
            raise _wrong_type(source, function, expr, "values with an order")
        kind: Kind = "min" if function == "min" else "max"
        placed = _place(source, expr)
        at = term(kind, placed or expr)
        categories = None if placed is None else placed.categories
        return Output(name, function, given[0], (at,), text, given[1], categories)
    if not is_number(expr.type):
        raise _wrong_type(source, function, expr, "numbers")
    expr = coerce(expr, as_signed(expr.type))
    if pa.types.is_decimal(expr.type) and expr.type.precision > 38:
        raise _wrong_type(source, function, expr, "decimals of at most 38 digits")
    return Output(
        name,
        function,
        _number_type(function, expr.type),
        (term("sum", expr), term("count", expr)),
        text,
    )


def _place(source: Any, expr: Expr) -> Place | None:
    from thetajoin.predicate.signatures import MismatchError, place

    try:
        return place(expr)
    except MismatchError as problem:
        raise source.error(str(problem), hint=problem.hint) from None


def _number_type(function: str, type_: pa.DataType) -> pa.DataType:
    """What Spark gives for the sum or the average of a number."""
    if pa.types.is_decimal(type_):
        if function == "sum":
            return pa.decimal128(min(38, type_.precision + 10), type_.scale)
        return limit_precision(type_.precision + 4, type_.scale + 4)
    return LONG if function == "sum" and pa.types.is_integer(type_) else DOUBLE


def _wrong_type(source: Any, function: str, expr: Expr, wanted: str) -> ConditionError:
    hint = "cast it to a number" if expr.type in (STRING, BINARY) else ""
    error: ConditionError = source.error(
        f"{function} takes {wanted}, not {type_name(expr.type)}", hint=hint
    )
    return error
