"""Values from text and text from values, spelled as Spark spells them."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as t

from thetajoin.errors import DataError
from thetajoin.predicate.arithmetic import round_half_up
from thetajoin.predicate.arrays import Array, by_value, ticks
from thetajoin.predicate.types import BINARY, STRING, UNITS, ticks_per_second, type_name

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
    """One string as a value of the type (temporal ones as ticks); ValueError where it is none."""
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
