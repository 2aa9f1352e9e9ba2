"""Bound expressions as frozen nodes, and the normal form of the conditions that they make."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from thetajoin.predicate.categories import Categories
from thetajoin.predicate.types import BOOL

COMPARISONS = ("<", "<=", ">", ">=", "=", "!=")
MIRROR = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
# Plus an operator: a call that the normal form makes, see `operators.coarsened`.
COARSENED = "coarsened "
NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "!=", "!=": "="}


@dataclass(frozen=True)
class Expr:
    """An expression over the columns of `l` and `r` whose type is known.

    ``type`` is the Arrow type that `evaluate` returns. Casts that the types imply are nodes too,
    but `sql` leaves them out unless asked, so that the text reads as written and binds to the same
    nodes again.
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
    """A value's position among ordered categories; its SQL is that of the value itself."""

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


def coerce(expr: Expr, type_: pa.DataType) -> Expr:
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


@dataclass(frozen=True)
class Comparison:
    """``left op right``: an expression over `l` against one over `r`, in one type.

    ``op`` is one of ``< <= > >= = !=``. Implied casts are inside the expressions, so that both
    evaluate to `type` and compare in its order (NaN the largest, strings by bytes).
    """

    op: str
    left: Expr
    right: Expr
    type: pa.DataType

    def __str__(self) -> str:
        return Call(BOOL, self.op, (self.left, self.right)).sql()


@dataclass(frozen=True)
class Difference:
    """``low (< or <=) left - right (< or <=) high``, with at least one bound.

    Bounds are Python numbers: int for integers, dates (days), timestamps and durations (ticks of
    the type's unit), Decimal for decimals, float for floats. Where ``low`` is above ``high``
    nothing matches. The subtraction is exact for all types but floats, even where
    Spark would overflow; `exact` says so, and then the interval alone decides. For floats the
    engine searches a slightly wider interval and evaluates `check` on the pairs; ``nan`` says that
    a pair whose difference is NaN (an operand is, or both are the same infinity) matches too.
    """

    left: Expr
    right: Expr
    type: pa.DataType
    low: object | None
    low_strict: bool
    high: object | None
    high_strict: bool
    check: Expr
    exact: bool
    nan: bool = False

    def __str__(self) -> str:
        low = "" if self.low is None else f"{self.low} {'<' if self.low_strict else '<='} "
        high = "" if self.high is None else f" {'<' if self.high_strict else '<='} {self.high}"
        return f"{low}{self.left} - {self.right}{high}"


@dataclass(frozen=True)
class Conjunction:
    """Comparisons and differences that must all hold, filters of one side, and the rest.

    A row passes a filter, and a pair the residual, if it is true: neither false nor NULL. Apply the
    filters before evaluating the compared expressions: a filter may guard a division.
    """

    comparisons: tuple[Comparison, ...] = ()
    differences: tuple[Difference, ...] = ()
    left_filter: Expr | None = None
    right_filter: Expr | None = None
    residual: Expr | None = None


@dataclass(frozen=True)
class Condition:
    """A join condition as disjuncts, of which each matching pair satisfies exactly one.

    ``expr`` is the whole condition and ``sql`` its text, which compiles to an equal condition.
    ``given`` is the condition as it was written, constant parts included, and names every column
    that its text needs; it does not count when conditions are compared.
    """

    disjuncts: tuple[Conjunction, ...]
    expr: Expr
    sql: str
    given: Expr = field(compare=False)
