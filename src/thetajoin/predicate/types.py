"""Arrow types under Spark's names, and how Spark 4 coerces them in ANSI mode.

Arrow has types that Spark lacks. Unsigned integers widen exactly, times and durations compare with
their own kind, and a decimal comparison that would need more than 38 digits uses Arrow's 256-bit
decimals, so that decimals always compare exactly. A cast reads timestamps without a zone as UTC.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as t

STRING = pa.large_string()
BINARY = pa.large_binary()
BOOL = pa.bool_()
INT = pa.int32()
LONG = pa.int64()
FLOAT = pa.float32()
DOUBLE = pa.float64()
DATE = pa.date32()
TIMESTAMP = pa.timestamp("us", "UTC")
TIMESTAMP_NTZ = pa.timestamp("us")
DURATION = pa.duration("us")
TIME = pa.time64("us")
NULL = pa.null()

UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # ticks a second
MAX_DIGITS = 38  # of a Spark decimal
_MIN_SCALE = 6  # digits after the point that Spark keeps when a decimal result is too wide
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}  # decimal digits Spark gives an integer of that many bits
_NAMES = {
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    INT: "INT",
    LONG: "BIGINT",
    FLOAT: "FLOAT",
    DOUBLE: "DOUBLE",
    STRING: "STRING",
    BINARY: "BINARY",
    BOOL: "BOOLEAN",
    DATE: "DATE",
    NULL: "VOID",
}
_UNSIGNED_TO_SIGNED = {8: pa.int16(), 16: INT, 32: LONG}


def canonical_type(type_: pa.DataType) -> pa.DataType:
    """The type a stored column is read as: one string type, no encodings, no half floats."""
    if isinstance(type_, pa.BaseExtensionType):
        return canonical_type(type_.storage_type)
    if isinstance(type_, pa.DictionaryType | pa.RunEndEncodedType):
        return canonical_type(type_.value_type)
    if t.is_string(type_) or t.is_large_string(type_) or t.is_string_view(type_):
        return STRING
    if t.is_binary(type_) or t.is_large_binary(type_) or t.is_binary_view(type_):
        return BINARY
    if t.is_fixed_size_binary(type_):
        return BINARY
    if t.is_float16(type_):
        return FLOAT
    if t.is_date64(type_):
        return DATE
    if t.is_decimal32(type_) or t.is_decimal64(type_):
        return pa.decimal128(type_.precision, type_.scale)
    return type_


def type_name(type_: pa.DataType) -> str:
    """Spark SQL's name of a type, or Arrow's where Spark has none.

    >>> type_name(pa.decimal128(10, 2)), type_name(pa.uint8())
    ('DECIMAL(10,2)', 'uint8')
    """
    if type_ in _NAMES:
        return _NAMES[type_]
    if t.is_decimal(type_):
        return f"DECIMAL({type_.precision},{type_.scale})"
    if isinstance(type_, pa.TimestampType) and type_.unit == "us":
        return "TIMESTAMP_NTZ" if type_.tz is None else "TIMESTAMP"
    if type_ == DURATION:
        return "INTERVAL DAY TO SECOND"
    if type_ == TIME:
        return "TIME"
    return str(type_)


def is_number(type_: pa.DataType) -> bool:
    """Whether arithmetic with numbers is defined for the type."""
    return bool(t.is_integer(type_) or t.is_floating(type_) or t.is_decimal(type_))


def is_time_of_day(type_: pa.DataType) -> bool:
    """Whether the type is a time without a date."""
    return bool(t.is_time32(type_) or t.is_time64(type_))


def is_comparable(type_: pa.DataType) -> bool:
    """Whether values of the type have an order."""
    return bool(
        is_number(type_)
        or t.is_boolean(type_)
        or t.is_date32(type_)
        or t.is_timestamp(type_)
        or t.is_duration(type_)
        or is_time_of_day(type_)
        or type_ in (STRING, BINARY, NULL)
    )


def ticks_per_second(type_: pa.DataType) -> int:
    """The resolution of a timestamp, duration or time of day."""
    return UNITS[type_.unit]


def digits_of(type_: pa.DataType) -> tuple[int, int]:
    """All digits of a decimal type, and those after the point."""
    return type_.precision, type_.scale


def finer_unit(a: pa.DataType, b: pa.DataType) -> str:
    """The finer unit of two temporal types."""
    return str(max(a, b, key=ticks_per_second).unit)


def decimal_type(precision: int, scale: int) -> pa.DataType:
    """A decimal of that many digits; 256 bits where 128 do not suffice."""
    if precision <= MAX_DIGITS:
        return pa.decimal128(precision, scale)
    return pa.decimal256(min(precision, 76), scale)


def limit_precision(precision: int, scale: int) -> pa.DataType:
    """Spark's `adjustPrecisionScale`: a result of more than 38 digits gives up its last ones."""
    if precision <= MAX_DIGITS:
        return pa.decimal128(max(precision, 1), scale)
    digits = precision - scale
    return pa.decimal128(MAX_DIGITS, max(MAX_DIGITS - digits, min(scale, _MIN_SCALE)))


def as_decimal(type_: pa.DataType) -> pa.DataType:
    """The decimal type that holds every value of an integer or decimal type."""
    if t.is_decimal(type_):
        return type_
    return pa.decimal128(_DIGITS[type_.bit_width], 0)


def as_signed(type_: pa.DataType) -> pa.DataType:
    """The type arithmetic uses for an unsigned integer: the next wider signed one."""
    if t.is_unsigned_integer(type_):
        return _UNSIGNED_TO_SIGNED.get(type_.bit_width, pa.decimal128(20, 0))
    return type_


def wider_decimal(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """The decimal type that holds both exactly."""
    (p1, s1), (p2, s2) = digits_of(a), digits_of(b)
    scale = max(s1, s2)
    return decimal_type(max(p1 - s1, p2 - s2) + scale, scale)


def common_type(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The type two values are compared in, or None where Spark would refuse.

    >>> common_type(pa.int64(), pa.float32()), common_type(pa.int32(), pa.date32())
    (DataType(double), None)
    """
    if a == b:
        return a
    if a == NULL or b == NULL:
        return b if a == NULL else a
    if is_number(a) and is_number(b):
        return _common_number(a, b)
    if a == STRING or b == STRING:
        return _common_with_string(b if a == STRING else a)
    return _common_temporal(a, b)


def _common_number(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    if t.is_floating(a) or t.is_floating(b):
        return DOUBLE
    if t.is_decimal(a) or t.is_decimal(b):
        return wider_decimal(as_decimal(a), as_decimal(b))
    if t.is_unsigned_integer(a) and t.is_unsigned_integer(b):
        return max(a, b, key=lambda type_: type_.bit_width)
    a, b = as_signed(a), as_signed(b)
    if t.is_decimal(a) or t.is_decimal(b):
        return wider_decimal(as_decimal(a), as_decimal(b))
    return max(a, b, key=lambda type_: type_.bit_width)


def _common_with_string(other: pa.DataType) -> pa.DataType | None:
    if t.is_integer(other):
        return pa.decimal128(20, 0) if t.is_uint64(other) else LONG
    if is_number(other):
        return DOUBLE
    if t.is_duration(other) or not is_comparable(other):
        return None
    return other


def _common_temporal(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if t.is_date32(a) and t.is_timestamp(b):
        return b
    if t.is_date32(b) and t.is_timestamp(a):
        return a
    if isinstance(a, pa.TimestampType) and isinstance(b, pa.TimestampType):
        return pa.timestamp(finer_unit(a, b), _common_zone(a, b))
    if t.is_duration(a) and t.is_duration(b):
        return pa.duration(finer_unit(a, b))
    if is_time_of_day(a) and is_time_of_day(b):
        finest = finer_unit(a, b)
        return pa.time32("ms") if finest == "ms" else pa.time64("us" if finest == "us" else "ns")
    return None


def _common_zone(a: pa.TimestampType, b: pa.TimestampType) -> str | None:
    return None if a.tz is None and b.tz is None else "UTC"


def comparison_types(a: pa.DataType, b: pa.DataType) -> tuple[pa.DataType, pa.DataType] | None:
    """The types both sides of a comparison are cast to, or None where Spark would refuse.

    They are equal, but for timestamps and durations of different units: those keep their own, for
    a cast to the finer one could overflow (the year 9999 has no nanoseconds).

    >>> comparison_types(pa.timestamp("s"), pa.timestamp("ns", "UTC"))
    (TimestampType(timestamp[s, tz=UTC]), TimestampType(timestamp[ns, tz=UTC]))
    """
    if t.is_date32(a) and isinstance(b, pa.TimestampType):
        return (b, b) if b.unit != "ns" else (pa.timestamp("s", b.tz), b)
    if isinstance(a, pa.TimestampType) and t.is_date32(b):
        return (a, a) if a.unit != "ns" else (a, pa.timestamp("s", a.tz))
    if isinstance(a, pa.TimestampType) and isinstance(b, pa.TimestampType) and a.unit != b.unit:
        zone = _common_zone(a, b)
        return pa.timestamp(a.unit, zone), pa.timestamp(b.unit, zone)
    if t.is_duration(a) and t.is_duration(b):
        return a, b
    common = BOOL if a == b == NULL else common_type(a, b)  # a key needs a type with an order
    return None if common is None or not is_comparable(common) else (common, common)
