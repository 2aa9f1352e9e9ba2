"""The operators of a condition on Arrow arrays, checked as in Spark's ANSI mode."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.types as t

from thetajoin.errors import DataError
from thetajoin.predicate.nodes import MIRROR
from thetajoin.predicate.types import DURATION, ticks_per_second, type_name

Array: TypeAlias = pa.Array
pc = pyarrow.compute


def rowwise(function: Callable[..., Any], arrays: Iterable[Array], type_: pa.DataType) -> Array:
    """A Python function of each row's values, NULL where an input is; slow, for rare operations."""
    columns = [array.to_pylist() for array in arrays]
    rows = zip(*columns, strict=True)
    return pa.array([None if None in row else function(*row) for row in rows], type_)


def by_value(function: Callable[[Any], Any], array: Array, type_: pa.DataType) -> Array:
    """A Python function of each distinct value; its cost grows with their number."""
    encoded: Any = array.dictionary_encode()
    results = [function(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(results, type_).take(encoded.indices)


def ticks(array: Array) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, Any] | None]:
    """The integers behind a date, timestamp, duration or integer array, and where NULLs are."""
    if pa.types.is_date32(array.type):
        array = array.view(pa.int32())
    integers = array.cast(pa.int64()) if array.type != pa.int64() else array
    if array.null_count == 0:
        return integers.to_numpy(zero_copy_only=False), None
    missing = integers.is_null().to_numpy(zero_copy_only=False)
    return integers.fill_null(0).to_numpy(zero_copy_only=False), missing


def from_ticks(values: Any, missing: Any, type_: pa.DataType) -> Array:
    """An array of a date, timestamp or duration type from its integers."""
    width = pa.int32() if type_.bit_width == 32 else pa.int64()
    return pa.array(values, pa.int64(), mask=missing).cast(width).view(type_)


def divide_ticks(array: Array, by: int, type_: pa.DataType, *, up: bool = False) -> Array:
    """The ticks divided by a whole number and rounded down, or up; never overflows."""
    values, missing = ticks(array)
    quotient, rest = np.divmod(values, by)
    return from_ticks(quotient + (rest != 0) if up else quotient, missing, type_)


def spread(array: Array, mask: Array) -> Array:
    """Values for the rows where the mask is true, in order, put back there; NULL elsewhere."""
    chosen = mask.to_numpy(zero_copy_only=False)
    places = np.cumsum(chosen, dtype=np.int64) - 1
    return array.take(pa.array(places, mask=~chosen))


def repeat_value(value: Any, type_: pa.DataType, length: int) -> Array:
    """An array of one value."""
    if value is None:
        return pa.nulls(length, type_)
    return pa.repeat(pa.scalar(value, type_), length)


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


_ARROW = {
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
    "=": "equal",
    "!=": "not_equal",
}


def compare(op: str, a: Array, b: Array) -> Array:
    """``a op b`` row by row, NULL where either is.

    The types are equal but for the unit of timestamps and durations. O(n).

    >>> compare(">", pa.array([float("nan"), 1.0]), pa.array([float("inf"), None])).to_pylist()
    [True, None]
    """
    if a.type != b.type:
        return _compare_units(op, a, b)
    if a.type == pa.null():
        return pa.nulls(len(a), pa.bool_())
    result: Array = pc.call_function(_ARROW[op], [a, b])
    return _with_nan(op, a, b, result) if t.is_floating(a.type) else result


def same(a: Array, b: Array) -> Array:
    """``a <=> b``: like equality, but NULL equals NULL and nothing is unknown."""
    both_null = pc.and_(a.is_null(), b.is_null())
    return pc.or_(pc.fill_null(compare("=", a, b), False), both_null)


def _with_nan(op: str, a: Array, b: Array, result: Array) -> Array:
    a_nan, b_nan = pc.is_nan(a), pc.is_nan(b)
    if not (pc.any(a_nan).as_py() or pc.any(b_nan).as_py()):
        return result
    # Where a NaN takes part, comparing "is NaN" (true above false) gives the order of the values.
    in_nan_order = pc.call_function(_ARROW[op], [a_nan, b_nan])
    return pc.if_else(pc.or_(a_nan, b_nan), in_nan_order, result)


def _compare_units(op: str, a: Array, b: Array) -> Array:
    """Compare in the coarser unit, so that nothing can overflow (see `coarsen`)."""
    if ticks_per_second(a.type) > ticks_per_second(b.type):
        return _compare_units(MIRROR[op], b, a)
    step = ticks_per_second(b.type) // ticks_per_second(a.type)
    down = divide_ticks(b, step, a.type)
    up = divide_ticks(b, step, a.type, up=True)
    if op in ("=", "!="):
        equal = pc.and_(pc.equal(a, down), pc.equal(a, up))
        return equal if op == "=" else pc.invert(equal)
    return compare(op, a, down if op in ("<=", ">") else up)


def coarsen(op: str, fine: Array, type_: pa.DataType) -> Array:
    """The finer side of ``coarse op fine`` in the coarser unit, so that the answer is the same.

    ``a <= b`` and ``a > b`` are as with b rounded down, ``a < b`` and ``a >= b`` as with b rounded
    up, and ``a = b`` needs b to be whole: NULL where it is not.
    """
    step = ticks_per_second(fine.type) // ticks_per_second(type_)
    down = divide_ticks(fine, step, type_)
    if op in ("<=", ">"):
        return down
    up = divide_ticks(fine, step, type_, up=True)
    if op != "=":
        return up
    return pc.if_else(pc.equal(down, up), down, pa.scalar(None, type_))
