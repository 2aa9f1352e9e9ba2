"""Functions of dates and timestamps on Arrow arrays; timestamps are read in UTC."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from thetajoin.errors import DataError
from thetajoin.predicate.arrays import Array, divided, pc
from thetajoin.predicate.types import INT, LONG, TIMESTAMP_NTZ, type_name

Arrays = list[Array]
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


def part(name: str) -> Callable[[Arrays, pa.DataType], Array]:
    """A kernel that takes one calendar field (year, hour, ...) as an INT."""

    def run(args: Arrays, _: pa.DataType) -> Array:
        array = args[0]
        if pa.types.is_timestamp(array.type):
            array = array.view(TIMESTAMP_NTZ)
        result: Array = pc.call_function(name, [array]).cast(INT)
        return result

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


def unix(step: int) -> Callable[[Arrays, pa.DataType], Array]:
    """A kernel that gives the time since 1970 in units of `step` microseconds, rounded down."""

    def run(args: Arrays, _: pa.DataType) -> Array:
        return divided(args[0], step, LONG)

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
