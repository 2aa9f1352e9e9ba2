"""Bound expressions: four kinds of frozen nodes, each with its Arrow type and its Spark SQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from thetajoin.predicate.categories import Categories
from thetajoin.predicate.types import BOOL

COMPARISONS = ("<", "<=", ">", ">=", "=", "!=")
MIRROR = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
COARSENED = "coarsened "  # plus an operator: a call the normal form makes, see `compare.coarsened`
NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "!=", "!=": "="}


@dataclass(frozen=True)
class Expr:
    """An expression over the columns of `l` and `r` whose type is known.

    ``type`` is the Arrow type that `evaluate` returns. Casts that the types imply are nodes too,
    but `sql` does not show them unless asked, so that the text reads as written and binds again to
    the same nodes.
    """

    type: pa.DataType

    @property
    def children(self) -> tuple[Expr, ...]:
        """The expressions this one is made of."""
        return ()

    def sql(self, *, explicit: bool = False) -> str:
        """Spark SQL that binds to this expression again; with `explicit`, implied casts too."""
        from thetajoin.predicate.render import render

        return render(self, explicit)

    def __str__(self) -> str:
        return self.sql()

    def walk(self) -> Iterator[Expr]:
        """This node and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    def depth(self) -> int:
        """How many levels there are, this one included."""
        levels, here = 0, [self]
        while here:
            here = [child for expr in here for child in expr.children]
            levels += 1
        return levels

    @cached_property
    def _names(self) -> frozenset[tuple[str, str]]:
        return frozenset().union(*(child._names for child in self.children))

    def sides(self) -> frozenset[str]:
        """Which of "l" and "r" the expression names."""
        return frozenset(side for side, _ in self._names)

    def columns(self, side: str) -> frozenset[str]:
        """The columns of one side that evaluation needs."""
        return frozenset(name for named, name in self._names if named == side)


@dataclass(frozen=True)
class Column(Expr):
    """A column of one side, or with `path` a field inside a struct column.

    `categories` are those of a column whose values are in the order of a list.
    """

    side: str
    name: str
    path: tuple[str, ...] = ()
    categories: Categories | None = None

    @cached_property
    def _names(self) -> frozenset[tuple[str, str]]:
        return frozenset({(self.side, self.name)})


@dataclass(frozen=True)
class Literal(Expr):
    """A constant: int, float, Decimal, str, bytes, bool or None.

    Dates are days since 1970, timestamps and durations ticks of their unit, as ints.
    """

    value: object


@dataclass(frozen=True)
class Cast(Expr):
    """A cast to `type`; `implicit` where coercion added it, `lenient` where failure gives NULL."""

    arg: Expr
    implicit: bool = False
    lenient: bool = False

    @property
    def children(self) -> tuple[Expr, ...]:
        """The expression that is cast."""
        return (self.arg,)


@dataclass(frozen=True)
class Place(Cast):
    """Where a value stands among ordered categories; reads as the value itself."""

    categories: Categories | None = None


@dataclass(frozen=True)
class Call(Expr):
    """An operator or function by its canonical name, its arguments cast as it wants them.

    The names are those of `render` and `operators`: ``and``, ``<``, ``+``, ``case``, ``abs``, ...
    """

    name: str
    args: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        """The arguments."""
        return self.args


FALSE = Literal(BOOL, False)


def coerced(expr: Expr, type_: pa.DataType) -> Expr:
    """The expression cast to a type by coercion, or itself where it has it."""
    return expr if expr.type == type_ else Cast(type_, expr, implicit=True)


def conjunction(parts: list[Expr]) -> Expr | None:
    """The AND of the parts, flat; None for no parts."""
    return _flat("and", parts)


def disjunction(parts: list[Expr]) -> Expr | None:
    """The OR of the parts, flat; None for no parts."""
    return _flat("or", parts)


def _flat(name: str, parts: list[Expr]) -> Expr | None:
    flat: list[Expr] = []
    for part in parts:
        flat.extend(part.args if isinstance(part, Call) and part.name == name else (part,))
    if len(flat) <= 1:
        return flat[0] if flat else None
    return Call(BOOL, name, tuple(flat))


def negation(expr: Expr) -> Expr:
    """NOT of a boolean expression."""
    return Call(BOOL, "not", (expr,))
