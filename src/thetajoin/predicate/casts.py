"""Casts between Arrow arrays as Spark 4 does them in ANSI mode: a value that does not fit fails."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as t

from thetajoin.errors import DataError
from thetajoin.predicate.arithmetic import fit_decimal, round_half_up
from thetajoin.predicate.arrays import Array, by_value, divided, from_ticks, pc, ticks
from thetajoin.predicate.text import from_text, to_text
from thetajoin.predicate.types import (
    BINARY,
    BOOL,
    DOUBLE,
    LONG,
    NULL,
    STRING,
    UNITS,
    as_decimal,
    is_number,
    is_time_of_day,
    ticks_per_second,
    type_name,
)


def can_cast(a: pa.DataType, b: pa.DataType) -> bool:
    """Whether Spark's ANSI mode has an explicit cast between the types.

    >>> can_cast(pa.int32(), pa.float64()), can_cast(pa.int32(), pa.date32())
    (True, False)
    """
    if a in (b, NULL):
        return True
    if a == STRING:
        return not t.is_duration(b) and _is_scalar(b)
    if b == STRING:
        return _is_scalar(a) and not t.is_duration(a)
    if is_number(a):
        return is_number(b) or b == BOOL or t.is_timestamp(b)
    if a == BOOL:
        return is_number(b)
    if t.is_date32(a):
        return bool(t.is_timestamp(b))
    if t.is_timestamp(a):
        return bool(t.is_timestamp(b) or t.is_date32(b) or is_number(b))
    same_kind = (t.is_duration(a) and t.is_duration(b)) or (is_time_of_day(a) and is_time_of_day(b))
    return bool(same_kind)


def _is_scalar(type_: pa.DataType) -> bool:
    return is_number(type_) or type_ in (STRING, BINARY, BOOL) or t.is_temporal(type_)


def cast(array: Array, type_: pa.DataType, *, lenient: bool = False) -> Array:
    """The array cast to a type that `can_cast` allows; failure is a DataError, or NULL if lenient.

    O(n); text is parsed once for each distinct string.

    >>> cast(pa.array([1.9, -1.9]), pa.int32()).to_pylist()
    [1, -1]
    """
    if array.type == type_:
        return array
    try:
        return _cast(array, type_)
    except pa.ArrowInvalid:
        error = DataError(f"a {type_name(array.type)} value does not fit {type_name(type_)}")
    except DataError as problem:
        error = problem
    if not lenient:
        raise error
    if len(array) <= 1:
        return pa.nulls(len(array), type_)
    half = len(array) // 2
    parts = (array.slice(0, half), array.slice(half))
    return pa.concat_arrays([cast(part, type_, lenient=True) for part in parts])


def _cast(array: Array, to: pa.DataType) -> Array:
    source = array.type
    if source == NULL:
        return pa.nulls(len(array), to)
    if to == STRING:
        return to_text(array)
    if source == STRING:
        return array.cast(BINARY) if to == BINARY else from_text(array, to)
    if to == BOOL:
        result: Array = pc.not_equal(array, pa.scalar(0, source))
        return result
    if source == BOOL:
        return _cast(array.cast(pa.int8()), to)
    if is_number(source) and is_number(to):
        return _between_numbers(array, to)
    if t.is_duration(source) and is_number(to):
        # Whole days, for a date plus an interval; no explicit cast leads here.
        return divided(array, 86400 * ticks_per_second(source), LONG).cast(to)
    if is_number(source) or is_number(to):
        return _seconds(array, to)
    return _between_temporals(array, to)


def _between_numbers(array: Array, to: Any) -> Array:
    source: Any = array.type
    if t.is_decimal(to):
        if t.is_floating(source):
            return by_value(lambda value: _decimal_of(value, to), array, to)
        if t.is_integer(source):
            array = array.cast(as_decimal(source))
        return fit_decimal(array, to)
    if t.is_floating(to):
        if t.is_decimal(source):
            array = _decimal_to_double(array)
        # Unsafe as Arrow calls it: it rounds to the nearest, as Spark does.
        return array.cast(to, safe=False)
    if t.is_floating(source):
        return _float_to_integer(array, to)
    if t.is_decimal(source):
        array = pc.round(array, ndigits=0, round_mode="towards_zero")
    return array.cast(to)


def _decimal_of(value: float, to: Any) -> Decimal:
    if value - value != 0:
        raise DataError(f"{value} does not fit {type_name(to)}")
    return round_half_up(Decimal(repr(value)), to.scale)


def _decimal_to_double(array: Any) -> Array:
    """Correctly rounded: one division of two doubles that are exact, or through Python."""
    precision, scale = array.type.precision, array.type.scale
    if array.type.bit_width != 128 or precision > 15 or not 0 <= scale <= 22 or not len(array):
        return by_value(float, array, DOUBLE)
    words = np.frombuffer(array.buffers()[1], np.int64).reshape(-1, 2)
    unscaled = words[array.offset : array.offset + len(array), 0]
    missing = array.is_null().to_numpy(zero_copy_only=False)
    return pa.array(unscaled / 10.0**scale, DOUBLE, mask=missing)


def _float_to_integer(array: Array, to: pa.DataType) -> Array:
    whole = pc.trunc(array.cast(DOUBLE))
    bits = to.bit_width
    signed = t.is_signed_integer(to)
    low, high = (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1)) if signed else (0.0, 2.0**bits)
    inside = pc.and_(pc.greater_equal(whole, low), pc.less(whole, high))
    if not pc.all(inside, min_count=0).as_py():
        raise DataError(f"a {type_name(array.type)} value does not fit {type_name(to)}")
    result: Array = whole.cast(to, safe=False)
    return result


def _seconds(array: Array, to: Any) -> Array:
    """Numbers as seconds since 1970, and back: whole seconds rounded down, or with a fraction."""
    if t.is_timestamp(to):
        scale = UNITS[to.unit]
        if t.is_integer(array.type):
            scaled: Array = pc.multiply_checked(array.cast(pa.int64()), scale)
            return scaled.view(to)
        return _float_to_integer(pc.multiply(cast(array, DOUBLE), float(scale)), pa.int64()).view(
            to
        )
    scale = ticks_per_second(array.type)
    if t.is_integer(to):
        return divided(array, scale, pa.int64()).cast(to)
    values, missing = ticks(array)
    return cast(pa.array(values / np.float64(scale), DOUBLE, mask=missing), to)


def _between_temporals(array: Array, to: Any) -> Array:
    source = array.type
    if t.is_date32(source):
        return array.cast(pa.timestamp(to.unit)).view(to)
    if t.is_date32(to):
        return divided(array, 86400 * ticks_per_second(source), to)
    if is_time_of_day(to):
        return array.cast(to, safe=False)
    ratio = UNITS[to.unit] // ticks_per_second(source)
    if ratio == 0:
        return divided(array, ticks_per_second(source) // UNITS[to.unit], to)
    if ratio == 1:
        return array.view(to)
    values, missing = ticks(array)
    limit = (2**63 - 1) // ratio
    if values.size and (int(values.max()) > limit or int(values.min()) < -limit):
        raise DataError(f"a {type_name(source)} value does not fit {type_name(to)}")
    return from_ticks(values * ratio, missing, to)
