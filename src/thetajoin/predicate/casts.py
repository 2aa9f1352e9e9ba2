"""Casts between Arrow arrays as Spark 4 does them in ANSI mode: a value that does not fit fails."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as t

from thetajoin.errors import DataError
from thetajoin.predicate.operators import (
    Array,
    by_value,
    divide_ticks,
    fit_decimal,
    from_ticks,
    pc,
    round_half_up,
    ticks,
)
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
        return pc.not_equal(array, pa.scalar(0, source))
    if source == BOOL:
        return _cast(array.cast(pa.int8()), to)
    if is_number(source) and is_number(to):
        return _between_numbers(array, to)
    if t.is_duration(source) and is_number(to):
        # Whole days, for a date plus an interval; no explicit cast leads here.
        return divide_ticks(array, 86400 * ticks_per_second(source), LONG).cast(to)
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
    return whole.cast(to, safe=False)


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
        return divide_ticks(array, scale, pa.int64()).cast(to)
    values, missing = ticks(array)
    return cast(pa.array(values / np.float64(scale), DOUBLE, mask=missing), to)


def _between_temporals(array: Array, to: Any) -> Array:
    source = array.type
    if t.is_date32(source):
        return array.cast(pa.timestamp(to.unit)).view(to)
    if t.is_date32(to):
        return divide_ticks(array, 86400 * ticks_per_second(source), to)
    if is_time_of_day(to):
        return array.cast(to, safe=False)
    ratio = UNITS[to.unit] // ticks_per_second(source)
    if ratio == 0:
        return divide_ticks(array, ticks_per_second(source) // UNITS[to.unit], to)
    if ratio == 1:
        return array.view(to)
    values, missing = ticks(array)
    limit = (2**63 - 1) // ratio
    if values.size and (int(values.max()) > limit or int(values.min()) < -limit):
        raise DataError(f"a {type_name(source)} value does not fit {type_name(to)}")
    return from_ticks(values * ratio, missing, to)


_EPOCH = dt.datetime(1970, 1, 1)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_SPECIAL = re.compile(r"[+-]?(inf|infinity)|nan", re.IGNORECASE)
_DATE = r"(\d{4,5})(?:-(\d{1,2})(?:-(\d{1,2})"
_DAY = re.compile(_DATE + r"(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_CLOCK = r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?"
_ZONE = r"(Z|UTC|GMT|[+-]\d{1,2}(?::?\d{2})?)?"
_MOMENT = re.compile(_DATE + rf"(?:[ T]+{_CLOCK} ?{_ZONE})?)?)?", re.ASCII)
_TIME_OF_DAY = re.compile(_CLOCK, re.ASCII)
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")


def from_text(array: Array, type_: pa.DataType) -> Array:
    """Parse strings as Spark's ANSI cast does; each distinct string once.

    >>> from_text(pa.array([" 12 "]), pa.int64()).to_pylist()
    [12]
    """

    def one(text: str) -> Any:
        try:
            return parse_text(text, type_)
        except (ValueError, OverflowError, ArithmeticError):
            raise DataError(f"{text!r} is not a valid {type_name(type_)}") from None

    try:
        return by_value(one, array, type_)
    except (pa.ArrowInvalid, OverflowError):
        raise DataError(f"text does not fit {type_name(type_)}") from None


def parse_text(text: str, type_: Any) -> Any:
    """One string as a value of the type (temporal ones as ticks); ValueError if it is not one."""
    trimmed = text.strip()
    if type_ == BINARY:
        return text.encode()
    if t.is_boolean(type_):
        lower = trimmed.lower()
        if lower not in _TRUE + _FALSE:
            raise ValueError(text)
        return lower in _TRUE
    if t.is_integer(type_):
        _full(_INTEGER, trimmed)
        value = int(trimmed)
        pa.scalar(value, type_)
        return value
    if t.is_floating(type_):
        number = re.sub(r"(?<=[\d.])[dfDF]$", "", trimmed)
        if not _SPECIAL.fullmatch(number):
            _full(_NUMBER, number)
        return np.float32(number) if t.is_float32(type_) else float(number)
    if t.is_decimal(type_):
        _full(_NUMBER, trimmed)
        rounded = round_half_up(Decimal(trimmed), type_.scale)
        if len(rounded.as_tuple().digits) > type_.precision:
            raise ValueError(text)
        return rounded
    return _parse_temporal(trimmed, type_)


def _full(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return match


def _parse_temporal(text: str, type_: Any) -> int:
    if t.is_date32(type_):
        year, month, day = _full(_DAY, text).groups()
        return dt.date(int(year), int(month or 1), int(day or 1)).toordinal() - 719163
    if t.is_time64(type_) or t.is_time32(type_):
        match = _full(_TIME_OF_DAY, text)
        return _nanos(*match.groups()) * UNITS[type_.unit] // 10**9
    year, month, day, *clock, zone = _full(_MOMENT, text).groups()
    midnight = dt.datetime(int(year), int(month or 1), int(day or 1)) - _EPOCH
    nanos = midnight // dt.timedelta(days=1) * 86400 * 10**9
    if clock[0] is not None:
        nanos += _nanos(*clock)
        if type_.tz is not None:
            nanos -= _offset(zone) * 10**9
    return nanos * UNITS[type_.unit] // 10**9


def _nanos(hour: str, minute: str, second: str | None, fraction: str | None) -> int:
    clock = dt.time(int(hour), int(minute), int(second or 0))
    whole = clock.hour * 3600 + clock.minute * 60 + clock.second
    return whole * 10**9 + int((fraction or "").ljust(9, "0"))


def _offset(zone: str | None) -> int:
    """Seconds east of UTC."""
    if zone is None or zone in ("Z", "UTC", "GMT"):
        return 0
    digits = zone[1:].replace(":", "")
    hours, minutes = (int(digits[:-2]), int(digits[-2:])) if len(digits) > 2 else (int(digits), 0)
    return (-1 if zone[0] == "-" else 1) * (hours * 3600 + minutes * 60)


def to_text(array: Array) -> Array:
    """Values as Spark's cast to STRING writes them."""
    type_ = array.type
    if type_ == BINARY:
        try:
            return array.cast(STRING)
        except pa.ArrowInvalid:
            raise DataError("binary value is not UTF-8 text") from None
    if t.is_timestamp(type_) or t.is_duration(type_):
        values, missing = ticks(array)
        per_second = ticks_per_second(type_)
        texts = [_moment_text(int(value), per_second) for value in values]
        return pa.array(np.array(texts, object), STRING, mask=missing)
    if t.is_floating(type_):
        narrow = t.is_float32(type_)
        return by_value(lambda value: float_text(value, narrow), array, STRING)
    if t.is_decimal(type_):
        return by_value(lambda value: format(value, "f"), array, STRING)
    return array.cast(STRING)


def _moment_text(value: int, per_second: int) -> str:
    seconds, fraction = divmod(value, per_second)
    try:
        moment = _EPOCH + dt.timedelta(seconds=seconds)
    except OverflowError:
        raise DataError("a timestamp past the year 9999 has no text") from None
    digits = f"{fraction * 10**9 // per_second:09d}".rstrip("0")
    return moment.isoformat(" ") + (f".{digits}" if digits else "")


def float_text(value: float, narrow: bool = False) -> str:
    """A float as Java prints it.

    >>> float_text(1e7), float_text(0.5), float_text(float("inf"))
    ('1.0E7', '0.5', 'Infinity')
    """
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    shortest = str(np.float32(value)) if narrow else repr(value)
    if value == 0:
        return "-0.0" if shortest.startswith("-") else "0.0"
    sign, digits, exponent = Decimal(shortest).as_tuple()
    text = "".join(map(str, digits)).rstrip("0")
    power = len(digits) + int(exponent) - 1
    minus = "-" if sign else ""
    if 1e-3 <= abs(value) < 1e7:
        plain = format(Decimal(f"{minus}{text}E{power - len(text) + 1}"), "f")
        return plain if "." in plain else plain + ".0"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{power}"
