"""Spark's own join or nearest match of two tables, with the same rows, or why there is none.

The engine's own form is written out as SQL, with every cast that the types imply, over columns by
their position: so nothing depends on how Spark would have read the user's text. What Spark cannot
write, or would compute otherwise, is a problem; what it might compute for rows that the engine
leaves out, and fail, is a doubt.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.types as t
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from thetajoin.batch.keys import INT64_MAX, INT64_MIN
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.layout import How
from thetajoin.engine.parts import SIDES, Side, time_difference
from thetajoin.kernels.nearest import LAST
from thetajoin.predicate import Comparison, Conjunction, Difference
from thetajoin.predicate.nodes import (
    COMPARISONS,
    Call,
    Cast,
    Column,
    Expr,
    Literal,
    coerce,
    conjunction,
    disjunction,
)
from thetajoin.predicate.render import backquote
from thetajoin.predicate.types import (
    BOOL,
    DOUBLE,
    DURATION,
    LONG,
    MAX_DIGITS,
    STRING,
    TIMESTAMP,
    digits_of,
    is_number,
    is_time_of_day,
)
from thetajoin.spark.tables.table import Table
from thetajoin.window.windows import FullHistory

# Calls that have a value for whatever arguments, and those that may overflow in either engine.
_SURE = frozenset(
    {*COMPARISONS, "<=>", "in", "and", "or", "not", "isnull", "isnotnull", "case", "coalesce"}
    | {"if", "nullif", "greatest", "least", "isnan", "year", "quarter", "month", "day", "hour"}
    | {"minute", "second", "datediff", "unix_seconds", "unix_millis", "unix_micros"}
    | {"unix_date", "try_subtract", "timestamp_micros"}
)
_SUMS = frozenset({"+", "-", "neg", "abs"})
_HOW: dict[How, str] = {
    "inner": "inner",
    "left": "left",
    "right": "right",
    "full": "full",
    "semi": "left_semi",
    "anti": "left_anti",
}


@dataclass(frozen=True)
class NativeCondition:
    """Spark SQL over the columns ``l.c0, ...``, ``r.c0, ...`` and those that are made before.

    made: columns ``m0, ...`` of each side, as SQL. keys: both sides of the equalities that every
    match satisfies. problem: why Spark must not join. doubt: why it had better not, unless the
    caller wants it.
    """

    sql: str
    made: dict[Side, list[str]]
    keys: dict[Side, list[str]]
    problem: str | None
    doubt: str | None


def native_condition(compiled: CompiledJoin, *, ansi: bool) -> NativeCondition:
    """The condition and time window of a join, for a session whose casts are strict or not."""
    disjuncts = compiled.condition.disjuncts
    shared = set.intersection(*({c for c in part.comparisons if c.op == "="} for part in disjuncts))
    # In front, so that Spark finds the keys to join by.
    first = [_compare(c) for c in disjuncts[0].comparisons if c in shared]
    rest = [_conjunct(part, shared) for part in disjuncts]
    either = disjunction([part for part in rest if part is not None])
    parts = [*first, *([] if either is None or None in rest else [either])]
    time = time_difference(compiled.window, *(compiled.schemas[side] for side in SIDES))
    if time is not None:
        parts.append(_difference(time))
    whole = conjunction(parts)
    assert whole is not None
    problem = next(_problems(whole, ansi), None)
    doubt = next(_doubts(whole), None)
    if problem is not None:
        return NativeCondition("", {}, {}, problem, doubt)
    keys: dict[Side, list[str]] = {
        side: [_sql(equal.args[at], compiled) for equal in first] for at, side in enumerate(SIDES)
    }
    made: dict[Side, list[str]] = {"l": [], "r": []}
    placed = _place(whole, compiled)
    sql = (placed if doubt else _hoist(placed, made)).sql(explicit=True)
    return NativeCondition(sql, made, keys, None, doubt)


@dataclass(frozen=True)
class NativeNearest:
    """A nearest match as a window over the rows of both sides, which `native_nearest` builds.

    by, key: what is equal and what is near, as SQL over ``l.c0, ...`` and ``r.c0, ...``. fits: what
    a left row and the right row found for it satisfy besides. kept: which right rows take part.
    place: what orders right rows with equal keys. order: of the window's rows. problem, doubt: as
    of `NativeCondition`.
    """

    by: dict[Side, list[str]]
    key: dict[Side, str]
    fits: str
    kept: str
    place: str
    order: str
    problem: str | None
    doubt: str | None


def nearest_condition(compiled: CompiledJoin, *, ansi: bool) -> NativeNearest:
    """The nearest match of a join, for a session whose casts are strict or not."""
    nearest, near = compiled.spec.nearest, compiled.near_key
    assert nearest is not None
    assert near is not None
    part = compiled.condition.disjuncts[0]
    equal = [c for c in part.comparisons if c.op == "="]
    closeness = [] if near.reach is None else [_difference(near.reach)]
    filters = [f for f in (part.left_filter, part.right_filter) if f is not None]
    keys = Call(BOOL, "<=", (near.left, near.right))
    whole = conjunction([keys, *(_compare(c) for c in equal), *filters, *closeness])
    assert whole is not None
    problem = next(itertools.chain(_beyond_a_window(compiled), _problems(whole, ansi)), None)
    doubt = next(_doubts(whole), None)
    if problem is not None:
        return NativeNearest({}, {}, "", "", "", "", problem, doubt)
    able = [*([] if part.left_filter is None else [part.left_filter]), *closeness]
    own = [near.right, *(c.right for c in equal)]
    kept = [f"({_sql(expr, compiled)}) IS NOT NULL" for expr in own]
    if part.right_filter is not None:
        kept.append(f"({_sql(part.right_filter, compiled)})")
    fits = [f"({_sql(near.left, compiled)}) IS NOT NULL", *(f"({_sql(e, compiled)})" for e in able)]
    # The last row before a left one is its match: so its own side comes last among equal keys, and
    # of right ones the one that is wanted.
    backward = nearest.direction == "backward"
    last = nearest.tie_rule == LAST
    names = compiled.schemas["r"].names
    return NativeNearest(
        {
            "l": [_sql(c.left, compiled) for c in equal],
            "r": [_sql(c.right, compiled) for c in equal],
        },
        {"l": _sql(near.left, compiled), "r": _sql(near.right, compiled)},
        " AND ".join(fits),
        " AND ".join(kept),
        "0" if nearest.order_by is None else f"c{names.index(nearest.order_by)}",
        f"near {'ASC' if backward else 'DESC'}, is_left, place {'ASC' if last else 'DESC'}",
        None,
        doubt,
    )


def _beyond_a_window(compiled: CompiledJoin) -> Iterator[str]:
    """What a nearest match asks that a window over both sides does not find."""
    nearest = compiled.spec.nearest
    assert nearest is not None
    if nearest.direction == "nearest":
        yield "Spark's windows look one way, and direction='nearest' looks both ways"
    if nearest.k > 1:
        yield f"Spark's windows find one row, and k={nearest.k}"
    if nearest.ties == "all":
        yield "Spark's windows find one row, and ties='all' asks for all at one distance"
    if not isinstance(compiled.window, FullHistory):
        yield "Spark's windows do not end by a TimeWindow"
    if nearest.order_by is not None:
        type_ = compiled.given["r"].field(nearest.order_by).type
        if t.is_nested(type_):
            yield f"Spark may order {nearest.order_by!r} otherwise, which is {type_}"
    disjuncts = compiled.condition.disjuncts
    part = disjuncts[0]
    more = len(disjuncts) > 1 or part.differences or part.residual is not None
    if more or any(c.op != "=" for c in part.comparisons):
        yield "Spark's windows go by equal keys, and the condition asks for more"


def _hoist(expr: Expr, made: dict[Side, list[str]]) -> Expr:
    """The condition with what one side decides made a column there: once a row, not once a pair.

    Spark would add an interval to a time for every pair, which takes longer than all else. Filters
    of one side it finds itself.
    """
    sides = expr.sides()
    if len(sides) == 1 and expr.type != BOOL and not isinstance(expr, Column):
        side: Side = "l" if "l" in sides else "r"
        sql = expr.sql(explicit=True)
        if sql not in made[side]:
            made[side].append(sql)
        return Column(expr.type, side, f"m{made[side].index(sql)}")
    if isinstance(expr, Cast):
        return replace(expr, arg=_hoist(expr.arg, made))
    if isinstance(expr, Call) and len(sides) == 2:
        return replace(expr, args=tuple(_hoist(arg, made) for arg in expr.args))
    return expr


def _sql(expr: Expr, compiled: CompiledJoin) -> str:
    return _place(expr, compiled).sql(explicit=True)


def _compare(comparison: Comparison) -> Call:
    return Call(BOOL, comparison.op, (comparison.left, comparison.right))


def _conjunct(part: Conjunction, shared: set[Comparison]) -> Expr | None:
    """One alternative; filters come first, since they may guard what follows."""
    parts = [f for f in (part.left_filter, part.right_filter) if f is not None]
    parts += [_compare(c) for c in part.comparisons if c not in shared]
    parts += [_difference(d) if d.exact else d.check for d in part.differences]
    parts += [] if part.residual is None else [part.residual]
    return conjunction(parts)


def _difference(difference: Difference) -> Expr:
    """``low <= left - right <= high`` in exact arithmetic."""
    return conjunction(
        [
            _compare_with(difference, op, bound)
            for op, bound in ((">=", difference.low), ("<=", difference.high))
            if bound is not None
        ]
    ) or Literal(BOOL, True)


def _compare_with(difference: Difference, op: str, bound: object) -> Expr:
    left, right, type_ = difference.left, difference.right, difference.type
    if t.is_decimal(type_):
        precision, scale = digits_of(type_)
        minus = Call(pa.decimal128(min(precision + 1, MAX_DIGITS), scale), "-", (left, right))
        return Call(BOOL, op, (minus, Literal(type_, bound)))
    if type_ not in (TIMESTAMP, pa.date32()) and not t.is_integer(type_):
        return Call(BOOL, op, (Call(DURATION, "-", (left, right)), Literal(DURATION, bound)))
    left, right = (_count(side) for side in (left, right))
    minus = Call(LONG, "try_subtract", (left, right))
    within = Call(BOOL, op, (minus, Literal(LONG, bound)))
    if type_.bit_width < 64:
        return within
    # A difference beyond 64 bits is NULL there, and beyond every bound.
    beyond = Call(BOOL, op[0], (left, right))
    return Call(BOOL, "coalesce", (within, beyond))


def _count(expr: Expr) -> Expr:
    """A time or a number as a BIGINT: Spark takes times apart by the session's clocks."""
    if t.is_date32(expr.type):
        expr = Call(pa.int32(), "unix_date", (expr,))
    elif t.is_timestamp(expr.type):
        return Call(LONG, "unix_micros", (expr,))
    return coerce(expr, LONG)


def _place(expr: Expr, compiled: CompiledJoin) -> Expr:
    """The expression over columns by position, its moments free of the session's time zone."""
    if isinstance(expr, Column):
        names = compiled.schemas["l" if expr.side == "l" else "r"].names
        return replace(expr, name=f"c{names.index(expr.name)}")
    if isinstance(expr, Cast):
        return replace(expr, arg=_place(expr.arg, compiled))
    if isinstance(expr, Call):
        return replace(expr, args=tuple(_place(arg, compiled) for arg in expr.args))
    if expr.type == TIMESTAMP and isinstance(expr, Literal) and expr.value is not None:
        return Call(TIMESTAMP, "timestamp_micros", (Literal(LONG, expr.value),))
    return expr


def _problems(whole: Expr, ansi: bool) -> Iterator[str]:
    """What Spark cannot write, or would compute differently."""
    for expr in whole.walk():
        type_ = expr.type
        if t.is_decimal(type_) and digits_of(type_)[0] > MAX_DIGITS:
            yield f"`{expr}` needs more than the {MAX_DIGITS} digits of Spark's decimals"
        if isinstance(expr, Call) and expr.name == "-":
            if t.is_decimal(type_) and any(digits_of(a.type)[0] >= MAX_DIGITS for a in expr.args):
                yield f"Spark rounds `{expr}`"
            if any(is_time_of_day(arg.type) for arg in expr.args):
                yield f"Spark has no difference of times of day, as in `{expr}`"
        if isinstance(expr, Literal) and not _is_writable(expr):
            yield f"Spark SQL has no way to write {expr.value}"
        if not ansi and _is_doubtful(expr, sums=True):
            yield f"`{expr}` may overflow without an error while spark.sql.ansi.enabled is false"


def _is_writable(literal: Literal) -> bool:
    value = literal.value
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or INT64_MIN <= value <= INT64_MAX


def _doubts(whole: Expr) -> Iterator[str]:
    """What Spark may compute for rows that the engine leaves out, and then fail."""
    for expr in whole.walk():
        if _is_doubtful(expr, sums=False):
            yield f"Spark may compute `{expr.sql(explicit=True)}` for more rows, and fail on one"


def _widens(cast: Cast) -> bool:
    """Whether every value has a place in the type it is cast to."""
    source, type_ = cast.arg.type, cast.type
    if is_number(source) and type_ == DOUBLE:
        return True
    if t.is_integer(source) and t.is_integer(type_):
        return bool(source.bit_width <= type_.bit_width)
    return cast.implicit and source != STRING


def _is_doubtful(expr: Expr, *, sums: bool) -> bool:
    """Whether a node may have no value, sums among them or not."""
    if isinstance(expr, Cast):
        return not (expr.lenient or _widens(expr))
    if not isinstance(expr, Call) or expr.name in _SURE:
        return False
    if expr.name in _SUMS:
        return sums and not t.is_floating(expr.type)
    return True


def native_join(
    tables: Mapping[Side, Table], condition: NativeCondition, how: How, output: StructType
) -> Any:
    """The join as Spark plans it; nothing is read before the result is used."""
    one, two = (_make_columns(table.frame, side, condition) for side, table in tables.items())
    joined = one.join(two, F.expr(condition.sql), _HOW[how])
    columns = [f"{side}.{name}" for side, table in tables.items() for name in table.frame.columns]
    # Whatever the inputs said of NULLs and other things, the output says what it always does. As
    # text it is read in one call, where columns would be some for each.
    return joined.selectExpr(
        *[
            f"if(true, {column}, NULL) AS {backquote(field.name)}"
            for column, field in zip(columns, output.fields, strict=False)
        ]
    )


def native_nearest(
    tables: Mapping[Side, Table], condition: NativeNearest, how: How, output: StructType
) -> Any:
    """The nearest match as a window over the rows of both tables; nothing is read before.

    Spark's own `ASOF JOIN`, which 4.3 brought and which is off by default, cannot say which of
    right rows with equal keys to take, and takes longer where many rows share a key.
    """
    kept: dict[Side, Any] = {
        "l": tables["l"].frame.alias("l"),
        "r": tables["r"].frame.alias("r").where(condition.kept),
    }
    rows = [
        frame.selectExpr(
            *(f"({sql}) AS by{at}" for at, sql in enumerate(condition.by[side])),
            f"({condition.key[side]}) AS near",
            f"{str(side == 'l').lower()} AS is_left",
            *([f"({condition.place}) AS place"] if side == "r" else []),
            f"struct(*) AS {side}",
        )
        for side, frame in kept.items()
    ]
    equal = ", ".join(f"by{at}" for at in range(len(condition.by["l"])))
    window = (
        f"OVER ({f'PARTITION BY {equal}' if equal else ''} ORDER BY {condition.order} "
        "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    )
    both = rows[0].unionByName(rows[1], allowMissingColumns=True)
    nearest = both.selectExpr("l", f"last(r, true) {window} AS r").where("l IS NOT NULL")
    found = nearest.selectExpr("l", f"if({condition.fits}, r, NULL) AS r")
    if how != "left":
        found = found.where(f"r IS {'' if how == 'anti' else 'NOT '}NULL")
    columns = [f"{side}.{name}" for side, table in tables.items() for name in table.frame.columns]
    return found.selectExpr(
        *[
            f"{column} AS {backquote(field.name)}"
            for column, field in zip(columns, output.fields, strict=False)
        ]
    )


def _make_columns(frame: Any, side: Side, condition: NativeCondition) -> Any:
    """A side with the columns that the condition needs."""
    made = [f"({sql}) AS m{at}" for at, sql in enumerate(condition.made[side])]
    return (frame.alias(side).selectExpr("*", *made) if made else frame).alias(side)
