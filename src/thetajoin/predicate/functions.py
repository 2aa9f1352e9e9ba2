"""The functions a condition may call: what each takes and gives, and the kernel that runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as t

from thetajoin.predicate import scalars
from thetajoin.predicate.nodes import Call, Expr, Literal, coerce
from thetajoin.predicate.operators import Array, compare, pc
from thetajoin.predicate.signatures import MismatchError, arithmetic, case, comparison, unify
from thetajoin.predicate.types import (
    BINARY,
    BOOL,
    DATE,
    DOUBLE,
    INT,
    LONG,
    NULL,
    STRING,
    TIMESTAMP,
    as_signed,
    is_comparable,
    is_number,
    limit_precision,
    type_name,
)

Typing = Callable[[str, Sequence[Expr]], Call]
Run = Callable[[list[Array], pa.DataType], Array]
MANY = 255


@dataclass(frozen=True)
class Function:
    """A function's number of arguments, its typing, and its kernel.

    ``run`` is None where `bind` gives a call of another name, or one that `evaluate` runs lazily.
    """

    least: int
    most: int
    bind: Typing
    run: Run | None = None


def takes(result: pa.DataType, *types: pa.DataType) -> Typing:
    """A binder that casts the arguments to the given types, of which the last repeats."""

    def bind(name: str, args: Sequence[Expr]) -> Call:
        wanted = (*types, *[types[-1]] * (len(args) - len(types)))
        pairs = zip(args, wanted, strict=False)
        return Call(result, name, tuple(_argument(name, arg, to) for arg, to in pairs))

    return bind


def _argument(name: str, arg: Expr, to: pa.DataType) -> Expr:
    """The argument cast where Spark would cast it unasked."""
    source = arg.type
    fits = (
        source in (to, NULL)
        or (to == DOUBLE and (is_number(source) or source == STRING))
        or (t.is_integer(to) and t.is_integer(source))
        or (to == STRING and is_comparable(source) and not t.is_duration(source))
        or (to in (DATE, TIMESTAMP) and (t.is_timestamp(source) or source in (DATE, STRING)))
    )
    if not fits:
        raise MismatchError(f"{name} takes {type_name(to)}, not {type_name(source)}", "cast it")
    return coerce(arg, to)


def _as(name: str, bind: Typing) -> Typing:
    """The same function under another name."""
    return lambda _, args: bind(name, args)


def _operator(op: str) -> Typing:
    return lambda _, args: arithmetic(op, args)


def _any(name: str, args: Sequence[Expr]) -> Call:
    return Call(BOOL, name, tuple(args))


def _whole(name: str, args: Sequence[Expr]) -> Call:
    """floor and ceil."""
    type_ = as_signed(args[0].type)
    if not is_number(type_):
        raise MismatchError(f"{name} takes a number, not {type_name(type_)}", "cast it")
    if t.is_decimal(type_):
        digits, scale = type_.precision, type_.scale
        result = type_ if scale == 0 else limit_precision(digits - scale + 1, 0)
    else:
        result = LONG
    return Call(result, name, (coerce(args[0], type_),))


def _round(name: str, args: Sequence[Expr]) -> Call:
    type_ = as_signed(args[0].type)
    digits = args[1] if len(args) > 1 else Literal(INT, 0)
    if not is_number(type_):
        raise MismatchError(f"{name} takes a number, not {type_name(type_)}", "cast it")
    if not isinstance(digits, Literal) or not isinstance(digits.value, int):
        raise MismatchError(f"{name} takes a constant number of digits")
    if t.is_decimal(type_):
        whole = type_.precision - type_.scale + 1
        scale = max(0, min(type_.scale, digits.value))
        result: pa.DataType = limit_precision(max(whole, 1 - digits.value) + scale, scale)
    else:
        result = type_
    return Call(result, name, (coerce(args[0], type_), *args[1:]))


def _extreme(name: str, args: Sequence[Expr]) -> Call:
    type_, operands = unify(args, name)
    if not is_comparable(type_):
        raise MismatchError(f"{name} does not take {type_name(type_)}")
    return Call(type_, name, operands)


def _pick(op: str) -> Run:
    """greatest and least; NULLs are skipped."""

    def run(args: list[Array], _: pa.DataType) -> Array:
        best = args[0]
        for other in args[1:]:
            better = pc.fill_null(compare(op, other, best), False)
            best = pc.coalesce(pc.if_else(better, other, best), other)
        return best

    return run


def _coalesce(_: str, args: Sequence[Expr]) -> Call:
    type_, operands = unify(args, "COALESCE")
    return Call(type_, "coalesce", operands)


def _if(_: str, args: Sequence[Expr]) -> Call:
    return case([(args[0], args[1])], args[2])


def _nullif(_: str, args: Sequence[Expr]) -> Call:
    return case([(comparison("=", args[0], args[1]), Literal(NULL, None))], args[0])


def _length(name: str, args: Sequence[Expr]) -> Call:
    arg = args[0] if args[0].type == BINARY else _argument(name, args[0], STRING)
    return Call(INT, "length", (arg,))


def _log(_: str, args: Sequence[Expr]) -> Call:
    return takes(DOUBLE, DOUBLE)("ln" if len(args) == 1 else "log", args)


def _days(op: str) -> Typing:
    def bind(name: str, args: Sequence[Expr]) -> Call:
        return arithmetic(op, (_argument(name, args[0], DATE), args[1]))

    return bind


def _date_trunc(name: str, args: Sequence[Expr]) -> Call:
    unit = args[0]
    if not isinstance(unit, Literal) or str(unit.value).lower() not in scalars.TRUNCATIONS:
        known = ", ".join(dict.fromkeys(scalars.TRUNCATIONS.values()))
        raise MismatchError(f"{name} takes a constant unit first", f"one of {known}")
    return Call(TIMESTAMP, name, (unit, _argument(name, args[1], TIMESTAMP)))


_double, _text = takes(DOUBLE, DOUBLE), takes(STRING, STRING)
_year, _hour, _moment = takes(INT, DATE), takes(INT, TIMESTAMP), takes(LONG, TIMESTAMP)
_from_unix, _test = takes(TIMESTAMP, LONG), takes(BOOL, STRING)

FUNCTIONS: dict[str, Function] = {
    "abs": Function(1, 1, _operator("abs")),
    "mod": Function(2, 2, _operator("%")),
    "floor": Function(1, 1, _whole, scalars.floor),
    "ceil": Function(1, 1, _whole, scalars.ceil),
    "round": Function(1, 2, _round, scalars.round_),
    "sqrt": Function(1, 1, _double, scalars.arrow("sqrt")),
    "exp": Function(1, 1, _double, scalars.arrow("exp")),
    "ln": Function(1, 1, _double, scalars.logarithm("ln")),
    "log10": Function(1, 1, _double, scalars.logarithm("log10")),
    "log2": Function(1, 1, _double, scalars.logarithm("log2")),
    "log": Function(1, 2, _log, scalars.log),
    "pow": Function(2, 2, _double, scalars.arrow("power")),
    "sign": Function(1, 1, _double, scalars.arrow("sign")),
    "isnan": Function(1, 1, takes(BOOL, DOUBLE), scalars.isnan),
    "greatest": Function(2, MANY, _extreme, _pick(">")),
    "least": Function(2, MANY, _extreme, _pick("<")),
    "coalesce": Function(1, MANY, _coalesce),
    "if": Function(3, 3, _if),
    "nullif": Function(2, 2, _nullif),
    "isnull": Function(1, 1, _any, lambda args, _: args[0].is_null()),
    "isnotnull": Function(1, 1, _any, lambda args, _: args[0].is_valid()),
    "length": Function(1, 1, _length, scalars.length),
    "lower": Function(1, 1, _text, scalars.arrow("utf8_lower")),
    "upper": Function(1, 1, _text, scalars.arrow("utf8_upper")),
    # Spaces only, as in Spark.
    "trim": Function(1, 1, _text, scalars.arrow("utf8_trim", characters=" ")),
    "ltrim": Function(1, 1, _text, scalars.arrow("utf8_ltrim", characters=" ")),
    "rtrim": Function(1, 1, _text, scalars.arrow("utf8_rtrim", characters=" ")),
    "substring": Function(2, 3, takes(STRING, STRING, INT, INT), scalars.substring),
    "concat": Function(1, MANY, _text, scalars.concat),
    "startswith": Function(2, 2, _test, scalars.starts_with),
    "endswith": Function(2, 2, _test, scalars.ends_with),
    "contains": Function(2, 2, _test, scalars.contains),
    "year": Function(1, 1, _year, scalars.take_field("year")),
    "quarter": Function(1, 1, _year, scalars.take_field("quarter")),
    "month": Function(1, 1, _year, scalars.take_field("month")),
    "day": Function(1, 1, _year, scalars.take_field("day")),
    "hour": Function(1, 1, _hour, scalars.take_field("hour")),
    "minute": Function(1, 1, _hour, scalars.take_field("minute")),
    "second": Function(1, 1, _hour, scalars.take_field("second")),
    "datediff": Function(2, 2, _year, scalars.datediff),
    "date_add": Function(2, 2, _days("+")),
    "date_sub": Function(2, 2, _days("-")),
    "date_trunc": Function(2, 2, _date_trunc, scalars.date_trunc),
    "unix_seconds": Function(1, 1, _moment, scalars.to_unix(10**6)),
    "unix_millis": Function(1, 1, _moment, scalars.to_unix(10**3)),
    "unix_micros": Function(1, 1, _moment, scalars.to_unix(1)),
    "timestamp_seconds": Function(1, 1, _from_unix, scalars.from_unix(10**6)),
    "timestamp_millis": Function(1, 1, _from_unix, scalars.from_unix(10**3)),
    "timestamp_micros": Function(1, 1, _from_unix, scalars.from_unix(1)),
}
_ALIASES = {
    "ceil": ("ceiling",),
    "pow": ("power",),
    "sign": ("signum",),
    "coalesce": ("nvl", "ifnull"),
    "length": ("len", "char_length", "character_length"),
    "lower": ("lcase",),
    "upper": ("ucase",),
    "trim": ("btrim",),
    "substring": ("substr",),
    "day": ("dayofmonth",),
    "datediff": ("date_diff",),
    "unix_seconds": ("unix_timestamp", "to_unix_timestamp"),
}
for _name, _others in _ALIASES.items():
    _function = FUNCTIONS[_name]
    for _other in _others:
        FUNCTIONS[_other] = Function(
            _function.least, _function.most, _as(_name, _function.bind), _function.run
        )
