"""What a column may hold: how its values behave, and how Arrow stores them.

A value is None, bool, int, float, Decimal, str or bytes. Dates, timestamps, durations and times of
day are whole nanoseconds, so that all units are exact and values of one family compare directly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
DAY = 86_400 * 10**9


@dataclass(frozen=True)
class Kind:
    """How values behave: `size` is bits, digits, or nanoseconds a tick; `scale` a decimal's."""

    name: str
    size: int = 0
    scale: int = 0

    @property
    def family(self) -> str:
        """Kinds of one family compare with each other."""
        numbers = ("int", "uint", "float", "decimal")
        return "number" if self.name in numbers else FAMILIES.get(self.name, self.name)


FAMILIES = {"date": "moment", "timestamp": "moment"}
BOOL, TEXT, BINARY = Kind("bool"), Kind("text"), Kind("binary")
INT, LONG, FLOAT, DOUBLE = Kind("int", 32), Kind("int", 64), Kind("float", 32), Kind("float", 64)
DATE, MOMENT, SPAN = Kind("date", DAY), Kind("timestamp", 1000), Kind("span", 1000)

# Arrow types as they are written in a script, by family.
STORED: dict[str, tuple[str, ...]] = {
    "number": (
        *(f"pa.{sign}int{bits}()" for sign in ("", "u") for bits in (8, 16, 32, 64)),
        *("pa.float64()", "pa.float32()", "pa.float16()", "pa.int64()", "pa.float64()"),
        *("pa.decimal128(9, 2)", "pa.decimal128(18, 0)", "pa.decimal128(30, 4)"),
        *("pa.decimal64(12, 3)", "pa.dictionary(pa.int8(), pa.int64())"),
    ),
    "text": (
        *("pa.string()", "pa.large_string()", "pa.string_view()"),
        "pa.dictionary(pa.int32(), pa.string())",
    ),
    "binary": ("pa.binary()", "pa.large_binary()", "pa.binary_view()", "pa.binary(2)"),
    "bool": ("pa.bool_()",),
    "moment": (
        *(f"pa.timestamp('{unit}')" for unit in UNITS),
        *(f"pa.timestamp('{unit}', 'UTC')" for unit in UNITS),
        *("pa.timestamp('us', 'Europe/Berlin')", "pa.date32()", "pa.date32()", "pa.date64()"),
    ),
    "span": tuple(f"pa.duration('{unit}')" for unit in UNITS),
    "clock": ("pa.time32('s')", "pa.time32('ms')", "pa.time64('us')", "pa.time64('ns')"),
}


@cache
def arrow_type(code: str) -> pa.DataType:
    """The Arrow type that a piece of a script stands for."""
    return eval(code, {"pa": pa})


@cache
def kind_of(type_: pa.DataType) -> Kind:
    """How values of an Arrow type behave."""
    t = pa.types
    if isinstance(type_, pa.DictionaryType | pa.RunEndEncodedType):
        return kind_of(type_.value_type)
    if t.is_boolean(type_):
        return BOOL
    if t.is_integer(type_):
        return Kind("int" if t.is_signed_integer(type_) else "uint", type_.bit_width)
    if t.is_floating(type_):
        return Kind("float", max(32, type_.bit_width))
    if t.is_decimal(type_):
        return Kind("decimal", type_.precision, type_.scale)
    if t.is_date(type_):
        return DATE
    names = {pa.TimestampType: "timestamp", pa.DurationType: "span"}
    clocks = {pa.Time32Type: "clock", pa.Time64Type: "clock"}
    for class_, name in (names | clocks).items():
        if isinstance(type_, class_):
            return Kind(name, UNITS[type_.unit])
    binary = t.is_binary(type_) or t.is_large_binary(type_) or t.is_fixed_size_binary(type_)
    return BINARY if binary or t.is_binary_view(type_) else TEXT


def tick(type_: pa.DataType) -> int:
    """Nanoseconds in a stored tick of a temporal type."""
    if pa.types.is_date64(type_):
        return UNITS["ms"]
    return kind_of(type_).size


def stored_values(values: list[Any], type_: pa.DataType) -> list[Any]:
    """Values as `pa.array` takes them for the type."""
    if not pa.types.is_temporal(type_):
        return values
    step = tick(type_)
    return [None if value is None else value // step for value in values]


def to_array(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Values as an Arrow array."""
    return pa.array(stored_values(values, type_), type_, from_pandas=False)


def from_array(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """An Arrow array's values."""
    type_ = array.type
    if isinstance(type_, pa.RunEndEncodedType):
        return from_array(pc.run_end_decode(array))
    if isinstance(type_, pa.DictionaryType):
        return from_array(array.cast(type_.value_type))
    if not pa.types.is_temporal(type_):
        return array.to_pylist()
    step = tick(type_)
    width = pa.int32() if type_.bit_width == 32 else pa.int64()
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    ticks = [value for chunk in chunks for value in chunk.view(width).to_pylist()]
    return [None if value is None else value * step for value in ticks]


@dataclass(frozen=True)
class Column:
    """A column: its name, its Arrow type as a script writes it, its values."""

    name: str
    code: str
    values: tuple[Any, ...]

    @property
    def type(self) -> pa.DataType:
        """The Arrow type."""
        return arrow_type(self.code)

    @property
    def kind(self) -> Kind:
        """How the values behave."""
        return kind_of(self.type)


@dataclass(frozen=True)
class Table:
    """A table; its first column numbers the rows."""

    columns: tuple[Column, ...]

    @property
    def id(self) -> str:
        """The name of the column that numbers the rows."""
        return self.columns[0].name

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.columns[0].values)

    def column(self, name: str) -> Column:
        """A column by name."""
        return next(column for column in self.columns if column.name == name)

    def arrow(self) -> pa.Table:
        """The table in Arrow."""
        arrays = [to_array(list(c.values), c.type) for c in self.columns]
        return pa.table(arrays, schema=pa.schema([(c.name, c.type) for c in self.columns]))

    def take(self, rows: list[int]) -> Table:
        """Some of the rows, numbered anew."""
        columns = tuple(
            Column(c.name, c.code, tuple(c.values[row] for row in rows)) for c in self.columns[1:]
        )
        return Table((Column(self.id, "pa.int64()", tuple(range(len(rows)))), *columns))
