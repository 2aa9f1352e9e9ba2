"""The normal form of a join condition: what the engine can search by, and what it must check."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from thetajoin.predicate.nodes import Call, Expr
from thetajoin.predicate.types import BOOL


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
    nothing matches. The subtraction is meant in exact arithmetic for all types but floats, where
    Spark would fail on overflow; `exact` says so, and then the interval alone decides. For floats
    the engine searches a slightly wider interval and evaluates `check` on the pairs; ``nan`` says
    that a pair whose difference is NaN (an operand is, or both are the same infinity) matches too.
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

    A row passes a filter, and a pair the residual, where it is true: neither false nor NULL. Apply
    the filters before evaluating the compared expressions: a filter may guard a division.
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
    ``given`` is the condition as it was written, constant parts and all, and names every column
    that its text needs; two conditions that differ only in it are equal.
    """

    disjuncts: tuple[Conjunction, ...]
    expr: Expr
    sql: str
    given: Expr = field(compare=False)
