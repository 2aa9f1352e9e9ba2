"""What types the operators take and give: Spark's rules, with the implied casts made nodes."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.types as t

from thetajoin.predicate.nodes import Call, Cast, Column, Expr, Literal, Place, coerce
from thetajoin.predicate.types import (
    BOOL,
    DATE,
    DOUBLE,
    DURATION,
    INT,
    LONG,
    MAX_DIGITS,
    NULL,
    STRING,
    TIMESTAMP,
    as_decimal,
    as_signed,
    common_type,
    comparison_types,
    digits_of,
    finer_unit,
    is_comparable,
    is_number,
    limit_precision,
    type_name,
)

_DAY = 86400 * 10**6


class MismatchError(Exception):
    """Types that an operator does not take; the binder adds where."""

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(problem)
        self.hint = hint


def comparison(op: str, a: Expr, b: Expr) -> Call:
    """``a op b`` with both sides in the type they are compared in."""
    if op in ("<", "<=", ">", ">="):
        places = _places(a, b)
        if places is not None:
            return Call(BOOL, op, places)
    types = comparison_types(*_operand_types(a, b))
    if types is None or not is_comparable(types[0]):
        hint = "cast one side to the other's type"
        if {t.is_duration(a.type), t.is_duration(b.type)} == {True, False}:
            hint = "write a duration as INTERVAL '5' MINUTE, or days as DATEDIFF(a, b) <= 5"
        raise MismatchError(f"cannot compare {type_name(a.type)} with {type_name(b.type)}", hint)
    return Call(BOOL, op, (coerce(a, types[0]), coerce(b, types[1])))


def place(column: Expr) -> Place | None:
    """Where a column's values stand among its ordered categories; None if it has none."""
    if not isinstance(column, Column) or column.categories is None:
        return None
    if column.categories.values is None:
        raise MismatchError(
            f"{column.sql()} has ordered categories that are not known yet",
            "leave the schema out, so that the first rows say them",
        )
    return Place(INT, column, implicit=True, categories=column.categories)


def _places(a: Expr, b: Expr) -> tuple[Expr, Expr] | None:
    """Both sides as places among ordered categories; None where neither has any."""
    first, second = place(a), place(b)
    if first is None and second is None:
        return None
    if first is not None and second is not None:
        if first.categories == second.categories:
            return first, second
        raise MismatchError(
            f"{a.sql()} ({first.categories}) and {b.sql()} ({second.categories}) have "
            "different categories",
            "give both the same ones in the same order, or cast both to STRING",
        )
    known = first or second
    assert known is not None
    assert known.categories is not None
    other = b if first is not None else a
    if isinstance(other, Literal) and other.value is not None:
        if known.categories.place(other.value) is None:
            raise MismatchError(
                f"{other.sql()} is none of the categories of {known.sql()} ({known.categories})"
            )
        value = coerce(other, known.arg.type)
        constant = Place(INT, value, implicit=True, categories=known.categories)
        return (known, constant) if first is not None else (constant, known)
    raise MismatchError(
        f"{known.sql()} has ordered categories ({known.categories}) and {other.sql()} has none",
        f"compare as text with CAST({known.sql()} AS STRING)",
    )


def logical(name: str, args: Sequence[Expr]) -> Call:
    """AND, OR or NOT of booleans; nested ANDs and ORs become one."""
    flat: list[Expr] = []
    for arg in args:
        if arg.type not in (BOOL, NULL):
            raise MismatchError(
                f"{name.upper()} takes conditions, not {type_name(arg.type)}",
                f"compare it with something, like {arg.sql()} > 0",
            )
        inner = arg.args if isinstance(arg, Call) and arg.name == name != "not" else (arg,)
        flat.extend(coerce(part, BOOL) for part in inner)
    return Call(BOOL, name, tuple(flat))


def unify(args: Sequence[Expr], what: str) -> tuple[pa.DataType, tuple[Expr, ...]]:
    """The common type of several expressions, and all of them cast to it."""
    type_ = args[0].type
    for arg in args[1:]:
        wider = common_type(type_, arg.type)
        if wider is None:
            raise MismatchError(
                f"{what} mixes {type_name(type_)} and {type_name(arg.type)}",
                "cast them to one type",
            )
        type_ = wider
    return type_, tuple(coerce(arg, type_) for arg in args)


def case(arms: Sequence[tuple[Expr, Expr]], default: Expr) -> Call:
    """CASE WHEN with its values in their common type."""
    type_, values = unify([*(value for _, value in arms), default], "CASE")
    conditions = [logical("not", [condition]).args[0] for condition, _ in arms]
    pairs = zip(conditions, values, strict=False)
    return Call(type_, "case", (*(part for pair in pairs for part in pair), values[-1]))


def arithmetic(op: str, args: Sequence[Expr]) -> Call:
    """An arithmetic or bit operator.

    >>> from thetajoin.predicate.nodes import Column
    >>> arithmetic("/", [Column(pa.int32(), "l", "a"), Column(pa.int32(), "l", "b")]).type
    DataType(double)
    """
    if op in ("neg", "abs"):
        type_ = as_signed(args[0].type)
        if not (is_number(type_) or t.is_duration(type_) or type_ == NULL):
            raise _no_operator(op, args)
        return Call(type_, op, (coerce(args[0], type_),))
    if op in ("&", "|", "^", "~"):
        return _bits(op, args)
    a, b = args
    if op in ("+", "-") and not (is_number(a.type) and is_number(b.type)):
        temporal = _temporal(op, a, b)
        if temporal is not None:
            return temporal
    if op == "*" and (t.is_duration(a.type) or t.is_duration(b.type)):
        return _multiply_duration(a, b)
    return _numeric(op, a, b)


def _no_operator(op: str, args: Sequence[Expr]) -> MismatchError:
    names = " and ".join(type_name(arg.type) for arg in args)
    return MismatchError(
        f"{op.replace('neg', '-')} does not take {names}", "cast to a type that it takes"
    )


def _numeric(op: str, a: Expr, b: Expr) -> Call:
    left, right = (as_signed(type_) for type_ in _operand_types(a, b))
    type_ = common_type(left, right)
    if type_ is None or not (is_number(type_) or type_ == NULL):
        raise _no_operator(op, (a, b))
    if op == "div":
        if not t.is_integer(type_):
            raise _no_operator(op, (a, b))
        return Call(LONG, op, (coerce(a, LONG), coerce(b, LONG)))
    if t.is_decimal(type_) and is_number(left) and is_number(right):
        operands = as_decimal(left), as_decimal(right)
        result = _decimal_result(op, *operands)
        return Call(result, op, (coerce(a, operands[0]), coerce(b, operands[1])))
    if op == "/" and not t.is_decimal(type_):
        type_ = DOUBLE
    return Call(type_, op, (coerce(a, type_), coerce(b, type_)))


def _decimal_result(op: str, a: pa.DataType, b: pa.DataType) -> pa.DataType:
    (p1, s1), (p2, s2) = digits_of(a), digits_of(b)
    scale = max(s1, s2)
    if op == "*":
        return limit_precision(p1 + p2 + 1, s1 + s2)
    if op == "/":
        scale = max(6, s1 + p2 + 1)
        return limit_precision(p1 - s1 + s2 + scale, scale)
    if op == "%":
        return limit_precision(min(p1 - s1, p2 - s2) + scale, scale)
    return limit_precision(max(p1 - s1, p2 - s2) + scale + 1, scale)


def _operand_types(a: Expr, b: Expr) -> tuple[pa.DataType, pa.DataType]:
    """The operands' types; an integer literal beside a decimal has just the digits it shows."""

    def choose(expr: Expr, other: Expr) -> pa.DataType:
        value = expr.value if isinstance(expr, Literal) and t.is_integer(expr.type) else None
        if isinstance(value, int) and t.is_decimal(other.type):
            return pa.decimal128(len(str(abs(value))), 0)
        return expr.type

    return choose(a, b), choose(b, a)


def _bits(op: str, args: Sequence[Expr]) -> Call:
    type_, operands = unify(args, op)
    if not t.is_integer(type_):
        hint = "between conditions write AND, OR, NOT" if type_ == BOOL else ""
        raise MismatchError(f"{op} takes integers, not {type_name(type_)}", hint)
    return Call(type_, op, operands)


def _temporal(op: str, a: Expr, b: Expr) -> Call | None:
    """Sums and differences with dates, timestamps and durations; None where neither is one."""
    if op == "+" and (t.is_duration(a.type) or is_number(a.type)) and not t.is_duration(b.type):
        a, b = b, a
    if t.is_date32(a.type):
        if op == "-" and b.type in (DATE, STRING):
            return Call(DURATION, op, (a, coerce(b, DATE)))
        if t.is_integer(b.type) and b.type.bit_width <= 32 and not t.is_uint32(b.type):
            return Call(DATE, op, (a, coerce(b, pa.int32())))
        if t.is_duration(b.type):
            return _date_and_duration(op, a, b)
    if t.is_date32(b.type) and t.is_timestamp(a.type) and op == "-":
        b = coerce(b, a.type)
    if t.is_date32(a.type) and t.is_timestamp(b.type) and op == "-":
        a = coerce(a, b.type)
    if t.is_timestamp(a.type) and b.type == STRING and op == "-":
        b = coerce(b, a.type)
    if t.is_timestamp(a.type) and t.is_duration(b.type):
        unit = finer_unit(a.type, b.type)
        type_ = pa.timestamp(unit, a.type.tz)
        return Call(type_, op, (coerce(a, type_), coerce(b, pa.duration(unit))))
    if t.is_timestamp(a.type) and t.is_timestamp(b.type) and op == "-":
        type_, operands = unify([a, b], op)
        return Call(pa.duration(type_.unit), op, operands)
    if t.is_duration(a.type) and t.is_duration(b.type):
        type_, operands = unify([a, b], op)
        return Call(type_, op, operands)
    if t.is_temporal(a.type) or t.is_temporal(b.type):
        raise _no_operator(op, (a, b))
    return None


def _date_and_duration(op: str, date: Expr, duration: Expr) -> Call:
    """Adding whole days to a date gives a date, adding anything else a timestamp."""
    ticks = duration.value if isinstance(duration, Literal) else None
    if isinstance(ticks, int) and ticks % _DAY == 0:
        return Call(DATE, op, (date, Cast(pa.int32(), duration, implicit=True)))
    return Call(TIMESTAMP, op, (coerce(date, TIMESTAMP), coerce(duration, DURATION)))


def _multiply_duration(a: Expr, b: Expr) -> Call:
    duration, count = (a, b) if t.is_duration(a.type) else (b, a)
    if not t.is_integer(count.type) or t.is_uint64(count.type):
        raise _no_operator("*", (a, b))
    operands = (duration, coerce(count, LONG)) if duration is a else (coerce(count, LONG), b)
    return Call(duration.type, "*", operands)


def decimal_literal(value: Decimal) -> Literal:
    """A decimal constant with just the digits it is written with, as Spark types it."""
    exponent = int(value.as_tuple().exponent)
    scale = max(0, -exponent)
    digits = max(len(value.as_tuple().digits) + max(0, exponent), scale)
    if digits > MAX_DIGITS:
        raise MismatchError(
            f"a constant of {digits} digits is too long", f"at most {MAX_DIGITS}, or write 1e40"
        )
    return Literal(pa.decimal128(max(1, digits), scale), value)
