"""Mathematical functions on Arrow arrays, with Spark's edge cases."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as t

from thetajoin.errors import DataError
from thetajoin.predicate.arithmetic import fit_decimal, round_half_up
from thetajoin.predicate.arrays import Array, pc, rowwise
from thetajoin.predicate.types import DOUBLE, LONG, type_name

Arrays = list[Array]


def floor(args: Arrays, type_: pa.DataType) -> Array:
    """The integer at or below: BIGINT for floats, a decimal without a fraction for decimals."""
    return _whole(args[0], type_, "floor")


def ceil(args: Arrays, type_: pa.DataType) -> Array:
    """The integer at or above."""
    return _whole(args[0], type_, "ceil")


def _whole(array: Array, type_: pa.DataType, name: str) -> Array:
    if t.is_integer(array.type):
        return array.cast(type_)
    if t.is_decimal(array.type):
        return _decimal_whole(array, type_, name)
    values = pc.call_function(name, [array.cast(DOUBLE)]).to_numpy(zero_copy_only=False)
    # Java's conversion to long: NaN gives 0, and what is out of range the nearest end of it.
    inside = np.where(np.abs(values) < 2.0**63, values, 0.0).astype(np.int64)
    inside[values >= 2.0**63] = 2**63 - 1
    inside[values < -(2.0**63)] = -(2**63)
    return pa.array(inside, LONG, mask=array.is_null().to_numpy(zero_copy_only=False))


def _decimal_whole(array: Any, type_: pa.DataType, name: str) -> Array:
    # One more digit first: the ceiling of 9.9 does not fit the type of 9.9.
    wide = array.cast(pa.decimal256(min(76, array.type.precision + 1), array.type.scale))
    return fit_decimal(pc.call_function(name, [wide]), type_)


def round_(args: Arrays, type_: Any) -> Array:
    """Half away from zero at a number of digits after the point; a microsecond a row."""

    def one(value: Any, digits: int = 0) -> Any:
        if isinstance(value, float):
            if value - value != 0:
                return value
            return float(round_half_up(Decimal(repr(value)), digits))
        rounded = round_half_up(Decimal(value), digits)
        if isinstance(value, int):
            return int(rounded)
        return round_half_up(rounded, type_.scale)

    try:
        return rowwise(one, args, type_)
    except (pa.ArrowInvalid, OverflowError):
        raise DataError(f"overflow in round on {type_name(type_)}") from None


def sqrt(args: Arrays, _: pa.DataType) -> Array:
    """The square root; NaN below zero."""
    result: Array = pc.sqrt(args[0])
    return result


def exp(args: Arrays, _: pa.DataType) -> Array:
    """e to the power."""
    result: Array = pc.exp(args[0])
    return result


def power(args: Arrays, _: pa.DataType) -> Array:
    """The first to the power of the second."""
    result: Array = pc.power(*args)
    return result


def _logarithm(name: str, array: Array) -> Array:
    """NULL at zero and below, where Arrow would give -inf and NaN."""
    positive = pc.if_else(pc.less_equal(array, 0.0), pa.scalar(None, DOUBLE), array)
    result: Array = pc.call_function(name, [positive])
    return result


def ln(args: Arrays, _: pa.DataType) -> Array:
    """The natural logarithm; NULL at zero and below."""
    return _logarithm("ln", args[0])


def log10(args: Arrays, _: pa.DataType) -> Array:
    """The decimal logarithm; NULL at zero and below."""
    return _logarithm("log10", args[0])


def log2(args: Arrays, _: pa.DataType) -> Array:
    """The binary logarithm; NULL at zero and below."""
    return _logarithm("log2", args[0])


def log(args: Arrays, _: pa.DataType) -> Array:
    """The logarithm of the second to the base of the first."""
    result: Array = pc.divide(_logarithm("ln", args[1]), _logarithm("ln", args[0]))
    return result


def sign(args: Arrays, _: pa.DataType) -> Array:
    """-1, 0 or 1 as a double; NaN of NaN."""
    result: Array = pc.sign(args[0])
    return result


def isnan(args: Arrays, _: pa.DataType) -> Array:
    """Whether the value is NaN; false for NULL."""
    result: Array = pc.fill_null(pc.is_nan(args[0]), False)
    return result
