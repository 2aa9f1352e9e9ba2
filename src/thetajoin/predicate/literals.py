"""Constants of Spark SQL: the types of literals, and the lengths of INTERVALs."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

import pyarrow as pa

from thetajoin.predicate.casts import parse_text
from thetajoin.predicate.nodes import Literal
from thetajoin.predicate.signatures import MismatchError, decimal_literal
from thetajoin.predicate.types import (
    BINARY,
    BOOL,
    DATE,
    DOUBLE,
    DURATION,
    FLOAT,
    INT,
    LONG,
    MAX_DIGITS,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    type_name,
)

if TYPE_CHECKING:
    from sqlglot import exp

# sqlglot's names of the types a CAST or a typed literal may name
_TYPES: dict[str, pa.DataType] = {
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": INT,
    "BIGINT": LONG,
    "FLOAT": FLOAT,
    "DOUBLE": DOUBLE,
    "TEXT": STRING,
    "VARCHAR": STRING,
    "CHAR": STRING,
    "BINARY": BINARY,
    "BOOLEAN": BOOL,
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMPTZ": TIMESTAMP,
    "TIMESTAMPLTZ": TIMESTAMP,
    "TIMESTAMPNTZ": TIMESTAMP_NTZ,
    "TIME": TIME,
}
TYPE_FUNCTIONS: dict[str, pa.DataType] = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": INT,
    "bigint": LONG,
    "float": FLOAT,
    "double": DOUBLE,
    "decimal": pa.decimal128(10, 0),
    "string": STRING,
    "binary": BINARY,
    "boolean": BOOL,
    "date": DATE,
    "timestamp": TIMESTAMP,
    "to_date": DATE,
    "to_timestamp": TIMESTAMP,
}
_MICROS = {
    "microsecond": 1,
    "millisecond": 10**3,
    "second": 10**6,
    "minute": 60 * 10**6,
    "hour": 3600 * 10**6,
    "day": 86400 * 10**6,
    "week": 7 * 86400 * 10**6,
}
_SPAN = re.compile(
    r"\s*(?P<sign>[+-])?(?:(?P<day>\d+)(?:\s+|$))?"
    r"(?:(?P<first>\d+):(?P<second>\d+)(?::(?P<third>\d+(?:\.\d+)?))?)?\s*"
)
_PIECE = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


def sql_type(node: exp.DataType) -> pa.DataType | None:
    """The Arrow type that a SQL type names, or None where it is not supported."""
    name = getattr(node.this, "name", "")
    if name == "DECIMAL":
        numbers = [int(param.name[:9]) for param in node.expressions]
        precision, scale = (*numbers, *(10, 0)[len(numbers) :])
        if not 1 <= precision <= 38 or scale > precision:
            raise MismatchError(f"DECIMAL({precision},{scale}) has no such digits", "at most 38")
        return pa.decimal128(precision, scale)
    return _TYPES.get(name)


def parse_number(
    text: str, suffix: pa.DataType | None = None, *, negative: bool = False
) -> Literal:
    """A numeric literal as Spark types it.

    >>> parse_number("1.5").type, parse_number("1e3").type, parse_number("2147483648").type
    (Decimal128Type(decimal128(2, 1)), DataType(double), DataType(int64))
    """
    signed = f"-{text}" if negative else text
    if suffix is not None and pa.types.is_decimal(suffix):
        return decimal_literal(Decimal(format(Decimal(signed), "f")))
    if suffix is not None:
        return parse_typed(signed, suffix)
    if "e" in text.lower():
        return Literal(DOUBLE, float(signed))
    if "." in text:
        return decimal_literal(Decimal(signed))
    if len(text) > MAX_DIGITS:
        return decimal_literal(Decimal(signed))
    value = int(signed)
    for type_ in (INT, LONG):
        if abs(value + (value < 0)) < 2 ** (type_.bit_width - 1):
            return Literal(type_, value)
    return decimal_literal(Decimal(value))


def parse_typed(text: str, type_: pa.DataType) -> Literal:
    """A literal with its type before it, like DATE '2024-01-31'."""
    try:
        value = parse_text(text, type_)
    except (ValueError, OverflowError, ArithmeticError, pa.ArrowInvalid):
        raise MismatchError(f"{text!r} is not a valid {type_name(type_)}") from None
    return Literal(type_, float(value) if pa.types.is_floating(type_) else value)


def parse_interval(text: str, unit: str | None, until: str | None) -> Literal:
    """An INTERVAL literal in microseconds.

    >>> (
    ...     parse_interval("5", "MINUTES", None).value,
    ...     parse_interval("1 02:00:00", "DAY", "SECOND").value,
    ... )
    (300000000, 93600000000)
    """
    if unit is None:
        pieces = _PIECE.findall(text)
        if not pieces or _PIECE.sub("", text):
            raise MismatchError(f"INTERVAL {text!r} is not understood", "write INTERVAL 5 MINUTES")
        return Literal(DURATION, sum(_count_micros(count, name) for count, name in pieces))
    if until is None:
        return Literal(DURATION, _count_micros(text, unit))
    return Literal(DURATION, _sum_span(text, unit.lower(), until.lower()))


def _count_micros(count: str, unit: str) -> int:
    name = unit.lower().removesuffix("s")
    if name in ("month", "year", "quarter"):
        raise MismatchError(
            f"an INTERVAL of {unit.upper()} has no fixed length", "use DAY, HOUR, MINUTE or SECOND"
        )
    if name not in _MICROS:
        raise MismatchError(f"unknown interval unit {unit}", f"one of {', '.join(_MICROS)}")
    try:
        micros = Decimal(count) * _MICROS[name]
        whole = int(micros)
    except (InvalidOperation, OverflowError, ValueError):
        raise MismatchError(f"{count!r} is not a number of {unit}") from None
    if abs(whole) >= 2**63:
        raise MismatchError(f"an INTERVAL of {count} {unit} is too long")
    return whole


def _sum_span(text: str, unit: str, until: str) -> int:
    match = _SPAN.fullmatch(text)
    order = ["day", "hour", "minute", "second"]
    if match is None or unit not in order or until not in order:
        raise MismatchError(
            f"INTERVAL {text!r} {unit.upper()} TO {until.upper()} is not understood",
            "write INTERVAL '1 02:03:04' DAY TO SECOND",
        )
    clock = [part for part in (match["first"], match["second"], match["third"]) if part]
    names = order[order.index("hour" if unit == "day" else unit) :]
    total = sum(_count_micros(count, name) for count, name in zip(clock, names, strict=False))
    total += _count_micros(match["day"] or "0", "day")
    return -total if match["sign"] == "-" else total
