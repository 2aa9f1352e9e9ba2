"""Arithmetic on Arrow arrays as in Spark 4's ANSI mode: overflow is an error, never a wrap."""

from __future__ import annotations

import decimal
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as t

from thetajoin.errors import DataError
from thetajoin.predicate.arrays import Array, from_ticks, pc, rowwise, ticks
from thetajoin.predicate.types import DURATION, ticks_per_second, type_name

_CHECKED = {
    "+": "add_checked",
    "-": "subtract_checked",
    "*": "multiply_checked",
    "/": "divide",
    "%": "remainder_checked",
    "div": "divide_checked",
    "neg": "negate_checked",
    "abs": "abs_checked",
    "&": "bit_wise_and",
    "|": "bit_wise_or",
    "^": "bit_wise_xor",
    "~": "bit_wise_not",
}
_WIDEST = 76  # digits of Arrow's 256-bit decimal
_CONTEXT = decimal.Context(
    prec=160, rounding=decimal.ROUND_HALF_UP, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN
)


def apply(op: str, args: list[Array], type_: pa.DataType) -> Array:
    """The operator on arrays that the binder has cast for it; O(n).

    Decimal division and remainder go through Python, about a microsecond a row.

    >>> apply("+", [pa.array([2**63 - 1]), pa.array([1])], pa.int64())
    Traceback (most recent call last):
    thetajoin.errors.DataError: overflow in + on BIGINT
    """
    if t.is_decimal(type_) and op not in ("neg", "abs"):
        return _decimals(op, args, type_)
    if t.is_date32(args[0].type) and op in ("+", "-"):
        return _dates(op, args, type_)
    if op == "/":
        _refuse_zero(args)
    elif op in ("%", "div"):
        return _remainders(op, args, type_)
    try:
        # Arrow computes on what lies below a NULL, too, and some of its kernels check that.
        result: Array = pc.call_function(_CHECKED[op], [_zero_below_nulls(arg) for arg in args])
    except pa.ArrowInvalid:
        raise DataError(f"overflow in {op} on {type_name(type_)}") from None
    return result if result.type == type_ else result.cast(type_)


def _zero_below_nulls(array: Array) -> Array:
    """The temporal array with zeros where its NULLs are."""
    if not array.null_count or not t.is_temporal(array.type):
        return array
    values, missing = ticks(array)
    return from_ticks(values, missing, array.type)


def _refuse_zero(args: list[Array]) -> None:
    zero = pc.equal(args[1], pa.scalar(0, args[1].type))
    if pc.any(pc.and_(zero, args[0].is_valid())).as_py():
        raise DataError("division by zero; guard it with NULLIF(divisor, 0)")


def _remainders(op: str, args: list[Array], type_: pa.DataType) -> Array:
    """Remainder (sign of the dividend) and whole division; rows with a NULL are never computed."""
    _refuse_zero(args)
    if t.is_floating(type_):
        values = [array.fill_null(1).to_numpy(zero_copy_only=False) for array in args]
        with np.errstate(all="ignore"):
            rest = np.fmod(*values)
        missing = pc.or_(args[0].is_null(), args[1].is_null()).to_numpy(zero_copy_only=False)
        return pa.array(rest, type_, mask=missing)
    known = pc.and_(args[0].is_valid(), args[1].is_valid())
    dividend = pc.if_else(known, args[0], pa.scalar(None, type_))
    divisor = pc.if_else(known, args[1], pa.scalar(None, type_))
    if op == "%":
        # x % -1 is 0, but the machine's division overflows on the least integer.
        divisor = pc.if_else(pc.equal(divisor, pa.scalar(-1, type_)), pa.scalar(1, type_), divisor)
    try:
        result: Array = pc.call_function(_CHECKED[op], [dividend, divisor])
    except pa.ArrowInvalid:
        raise DataError(f"overflow in {op} on {type_name(type_)}") from None
    return result


def _dates(op: str, args: list[Array], type_: pa.DataType) -> Array:
    """date - date as a duration, and date plus or minus days."""
    days, missing = ticks(args[0])
    others, other_missing = ticks(args[1])
    if other_missing is not None:
        missing = other_missing if missing is None else missing | other_missing
    if t.is_date32(type_):
        return _in_range(days + (others if op == "+" else -others), missing, type_)
    per_day = 86400 * ticks_per_second(type_)
    difference = days - others
    limit = (2**63 - 1) // per_day
    if difference.size and max(-int(difference.min()), int(difference.max())) > limit:
        raise DataError(f"overflow in - on {type_name(DURATION)}")
    return from_ticks(difference * per_day, missing, type_)


def _in_range(values: Any, missing: Any, type_: pa.DataType) -> Array:
    try:
        return from_ticks(values, missing, type_)
    except pa.ArrowInvalid:
        raise DataError(f"overflow in arithmetic on {type_name(type_)}") from None


def _decimals(op: str, args: list[Array], type_: pa.DataType) -> Array:
    a, b = args
    exact = _exact_type(op, a.type, b.type)
    if exact is None:
        return _decimals_in_python(op, args, type_)
    wide = [array.cast(pa.decimal256(array.type.precision, array.type.scale)) for array in args]
    try:
        result = pc.call_function(_CHECKED[op], wide)
        return fit_decimal(result, type_)
    except pa.ArrowInvalid:
        raise DataError(f"overflow in {op} on {type_name(type_)}") from None


def _exact_type(op: str, a: Any, b: Any) -> tuple[int, int] | None:
    """Digits and scale of the exact result in Arrow, or None where Arrow cannot give it."""
    if op == "*":
        digits, scale = a.precision + b.precision + 1, a.scale + b.scale
    elif op in ("+", "-"):
        scale = max(a.scale, b.scale)
        digits = max(a.precision - a.scale, b.precision - b.scale) + scale + 1
    else:
        return None
    return (digits, scale) if digits <= _WIDEST else None


def fit_decimal(array: Array, type_: Any) -> Array:
    """A decimal array rounded half up to another decimal type; ArrowInvalid if it does not fit."""
    if array.type.scale > type_.scale:
        # Arrow gives 0 where the rounded value has a digit more than its type.
        digits = min(array.type.precision + 1, _WIDEST)
        array = array.cast(pa.decimal256(digits, array.type.scale))
        array = pc.round(array, ndigits=type_.scale, round_mode="half_towards_infinity")
    return array.cast(type_)


def round_half_up(value: Decimal, scale: int) -> Decimal:
    """A decimal rounded half away from zero to `scale` digits after the point."""
    return value.quantize(Decimal(1).scaleb(-scale, _CONTEXT), context=_CONTEXT)


def _decimals_in_python(op: str, args: list[Array], type_: Any) -> Array:
    def one(x: Decimal, y: Decimal) -> Decimal:
        if op in ("/", "%") and y == 0:
            raise DataError("division by zero; guard it with NULLIF(divisor, 0)")
        exact = {
            "+": _CONTEXT.add,
            "-": _CONTEXT.subtract,
            "*": _CONTEXT.multiply,
            "/": _CONTEXT.divide,
            "%": _CONTEXT.remainder,
        }[op](x, y)
        return round_half_up(exact, type_.scale)

    try:
        return rowwise(one, args, type_)
    except pa.ArrowInvalid:
        raise DataError(f"overflow in {op} on {type_name(type_)}") from None
