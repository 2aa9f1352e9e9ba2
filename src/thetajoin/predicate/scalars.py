"""The functions of a condition on Arrow arrays, with Spark's edge cases: numbers, dates, text."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as t

from thetajoin.errors import DataError
from thetajoin.predicate.operators import (
    Array,
    divide_ticks,
    fit_decimal,
    pc,
    round_half_up,
    rowwise,
)
from thetajoin.predicate.types import (
    BINARY,
    BOOL,
    DOUBLE,
    INT,
    LONG,
    STRING,
    TIMESTAMP_NTZ,
    type_name,
)

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


def arrow(name: str, **options: Any) -> Callable[[Arrays, pa.DataType], Array]:
    """A kernel that is one of Arrow's functions."""

    def run(args: Arrays, _: pa.DataType) -> Array:
        return getattr(pc, name)(*args, **options)

    return run


def logarithm(name: str) -> Callable[[Arrays, pa.DataType], Array]:
    """A kernel of a logarithm to a fixed base; NULL at zero and below."""
    return lambda args, _: _logarithm(name, args[0])


def _logarithm(name: str, array: Array) -> Array:
    """NULL at zero and below, where Arrow would give -inf and NaN."""
    positive = pc.if_else(pc.less_equal(array, 0.0), pa.scalar(None, DOUBLE), array)
    return pc.call_function(name, [positive])


def log(args: Arrays, _: pa.DataType) -> Array:
    """The logarithm of the second to the base of the first."""
    return pc.divide(_logarithm("ln", args[1]), _logarithm("ln", args[0]))


def isnan(args: Arrays, _: pa.DataType) -> Array:
    """Whether the value is NaN; false for NULL."""
    return pc.fill_null(pc.is_nan(args[0]), False)


TRUNCATIONS = {
    "microsecond": "microsecond",
    "millisecond": "millisecond",
    "second": "second",
    "minute": "minute",
    "hour": "hour",
    "day": "day",
    "dd": "day",
    "week": "week",
    "month": "month",
    "mon": "month",
    "mm": "month",
    "quarter": "quarter",
    "year": "year",
    "yyyy": "year",
    "yy": "year",
}


def take_field(name: str) -> Callable[[Arrays, pa.DataType], Array]:
    """A kernel that takes one calendar field (year, hour, ...) as an INT."""

    def run(args: Arrays, _: pa.DataType) -> Array:
        array = args[0]
        if pa.types.is_timestamp(array.type):
            array = array.view(TIMESTAMP_NTZ)
        return pc.call_function(name, [array]).cast(INT)

    return run


def datediff(args: Arrays, _: pa.DataType) -> Array:
    """Days from the second date to the first."""
    try:
        result: Array = pc.subtract_checked(args[0].view(INT), args[1].view(INT))
    except pa.ArrowInvalid:
        raise DataError("overflow in datediff on DATE") from None
    return result


def date_trunc(args: Arrays, type_: pa.DataType) -> Array:
    """The timestamp at the start of its minute, day, week (Monday), ..."""
    if len(args[1]) == 0:
        return args[1]
    unit = TRUNCATIONS[str(args[0][0].as_py()).lower()]
    moments = args[1].view(TIMESTAMP_NTZ)
    result: Array = pc.floor_temporal(moments, unit=unit)
    if pc.any(pc.greater(result, moments)).as_py():  # Arrow wraps below the first timestamp
        raise DataError(f"overflow in date_trunc on {type_name(type_)}")
    return result.view(type_)


def to_unix(step: int) -> Callable[[Arrays, pa.DataType], Array]:
    """A kernel that gives the time since 1970 in units of `step` microseconds, rounded down."""

    def run(args: Arrays, _: pa.DataType) -> Array:
        return divide_ticks(args[0], step, LONG)

    return run


def from_unix(step: int) -> Callable[[Arrays, pa.DataType], Array]:
    """A kernel that makes timestamps of integers in units of `step` microseconds."""

    def run(args: Arrays, type_: pa.DataType) -> Array:
        try:
            result: Array = pc.multiply_checked(args[0], step).view(type_)
        except pa.ArrowInvalid:
            raise DataError(f"overflow in a cast of BIGINT to {type_name(type_)}") from None
        return result

    return run


def length(args: Arrays, _: pa.DataType) -> Array:
    """Characters of a string, bytes of a binary."""
    name = "binary_length" if args[0].type == BINARY else "utf8_length"
    return pc.call_function(name, args).cast(INT)


def concat(args: Arrays, _: pa.DataType) -> Array:
    """One after the other; NULL where one is."""
    return pc.binary_join_element_wise(*args, pa.scalar("", STRING))


def substring(args: Arrays, _: pa.DataType) -> Array:
    """From a position (1 is the first, -1 the last) for a number of characters."""

    def one(text: str, position: int, count: int = 2**31) -> str:
        start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
        return text[max(start, 0) : max(start + count, 0)]

    return rowwise(one, args, STRING)


def starts_with(args: Arrays, _: pa.DataType) -> Array:
    """Whether the first begins with the second."""
    return _search(args, "starts_with", str.startswith)


def ends_with(args: Arrays, _: pa.DataType) -> Array:
    """Whether the first ends with the second."""
    return _search(args, "ends_with", str.endswith)


def contains(args: Arrays, _: pa.DataType) -> Array:
    """Whether the second occurs in the first."""
    return _search(args, "match_substring", str.__contains__)


def like(args: Arrays, _: pa.DataType) -> Array:
    r"""SQL's LIKE; fast for one pattern, a microsecond a row for a column of them.

    >>> like([pa.array(["a_c", "abc"]), pa.array(["a\\_c", "a_c"])], BOOL).to_pylist()
    [True, True]
    """
    pattern, escape = _only(args[1]), _only(args[2]) if len(args) > 2 else "\\"
    if pattern is not None and escape is not None:
        regex = rf"(?s)\A{_like_regex(pattern, escape)}\z"
        return pc.match_substring_regex(args[0], pattern=regex)
    compiled: dict[tuple[str, str], re.Pattern[str]] = {}

    def one(text: str, pattern: str, escape: str = "\\") -> bool:
        key = (pattern, escape)
        if key not in compiled:
            compiled[key] = re.compile(_like_regex(pattern, escape), re.DOTALL)
        return compiled[key].fullmatch(text) is not None

    return rowwise(one, args, BOOL)


def _search(args: Arrays, name: str, one: Callable[[str, str], bool]) -> Array:
    pattern = _only(args[1])
    if pattern is None:
        return rowwise(one, args, BOOL)
    return getattr(pc, name)(args[0], pattern=pattern)


def _only(array: Array) -> str | None:
    """The value that all rows have, if there is one."""
    first = array[0] if len(array) else None
    if first is None or array.null_count or not pc.all(pc.equal(array, first)).as_py():
        return None
    return str(first.as_py())


def _like_regex(pattern: str, escape: str) -> str:
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, None)
            if following not in ("%", "_", escape):
                raise DataError(
                    f"LIKE pattern {pattern!r} escapes {following!r}; only % _ and {escape} can be"
                )
            parts.append(re.escape(following))
        else:
            parts.append({"%": ".*", "_": "."}.get(character) or re.escape(character))
    return "".join(parts)
