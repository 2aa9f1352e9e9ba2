"""Every Arrow type as a key, alone and against the types it may be compared with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import strategies as own
import thetajoin as tj
from strategies import ids, naive_ids


@dataclass(frozen=True)
class Column:
    """Values of one Arrow type, and what they are compared as (themselves unless said)."""

    name: str
    type: pa.DataType
    values: tuple[Any, ...]
    meaning: tuple[Any, ...] | None = None
    raw: pa.DataType | None = None

    def array(self) -> pa.Array:
        if self.raw is not None:
            return pa.array(self.values, self.raw).cast(self.type)
        return pa.array(self.values, self.type)

    def compared(self) -> tuple[Any, ...]:
        return self.values if self.meaning is None else self.meaning

    def __str__(self) -> str:
        return self.name


def integers(bits: int, signed: bool) -> Column:
    name = f"{'' if signed else 'u'}int{bits}"
    low = -(2 ** (bits - 1)) if signed else 0
    high = 2 ** (bits - 1 if signed else bits) - 1
    values = (low, low + 1, 0, 1, 1, 100, high - 1, high, None)
    return Column(name, getattr(pa, name)(), values)


def big(text: str) -> Decimal:
    return Decimal(text)


FLOATS = (None, math.nan, -math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, 1.0, -1.5, 0.25)
DAYS = (date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29), date(2024, 2, 29), None)
MOMENTS = (
    datetime(1969, 12, 31, 23, 59, 59),
    datetime(1970, 1, 1),
    datetime(2024, 2, 29),
    datetime(2024, 2, 29),
    datetime(2024, 2, 29, 0, 0, 1),
    None,
)
STRINGS = (None, "", "", "a", "a\x00", "A", "aa", "b", "é", "\uffff", "\U00010000")
LONG = "the same long beginning of a string, well past any prefix kept in eight bytes "
LONG_STRINGS = (None, LONG, LONG + "a", LONG + "a", LONG + "b", LONG[:-1], LONG[:8], LONG[:9])
BYTES = (None, b"", b"\x00", b"\x00\x00", b"a", b"\x7f", b"\x80", b"\xff", b"\xff", b"\xff\x00")


def ticks(name: str, type_: pa.DataType, values: tuple[int | None, ...]) -> Column:
    """Counts of a unit finer than Python's own types can hold, compared as integers."""
    return Column(name, type_, values, values, pa.int64())


def aware(values: tuple[datetime | None, ...]) -> tuple[datetime | None, ...]:
    return tuple(None if v is None else v.replace(tzinfo=UTC) for v in values)


EXTREME = (-(2**63), -(2**63) + 1, -1, 0, 1, 1, 2**63 - 2, 2**63 - 1, None)

ALONE = [
    *(integers(bits, signed) for bits in (8, 16, 32, 64) for signed in (True, False)),
    Column("float16", pa.float16(), FLOATS),
    Column("float32", pa.float32(), (*FLOATS, 3.4028234663852886e38, 2.0**-149)),
    Column("float64", pa.float64(), (*FLOATS, 1.7976931348623157e308, 5e-324)),
    Column(
        "decimal(9,2)", pa.decimal128(9, 2), (big("-1.00"), big("0"), big("0.01"), big("1"), None)
    ),
    Column(
        "decimal(38,0)",
        pa.decimal128(38, 0),
        (big("9" * 38), big("9" * 37 + "8"), big("-" + "9" * 38), big("0"), big("1"), None),
    ),
    Column(
        "decimal(38,38)",
        pa.decimal128(38, 38),
        (big("0." + "9" * 38), big("0." + "9" * 37 + "8"), big("0"), big("-0." + "1" * 38), None),
    ),
    Column(
        "decimal256",
        pa.decimal256(60, 10),
        (big("9" * 50), big("9" * 49 + "8"), big("-" + "9" * 50), big("0.0000000001"), None),
    ),
    Column("date32", pa.date32(), DAYS),
    Column("date64", pa.date64(), DAYS),
    *(Column(f"timestamp[{u}]", pa.timestamp(u), MOMENTS) for u in ("s", "ms", "us", "ns")),
    Column("timestamp[us, zone]", pa.timestamp("us", "Europe/Berlin"), aware(MOMENTS)),
    ticks("timestamp[ns] extremes", pa.timestamp("ns"), EXTREME),
    ticks("timestamp[us] extremes", pa.timestamp("us"), EXTREME),
    ticks("duration[ns]", pa.duration("ns"), EXTREME),
    Column(
        "duration[us]",
        pa.duration("us"),
        (timedelta(-1), timedelta(0), timedelta(microseconds=1), timedelta(1), timedelta(1), None),
    ),
    Column("bool", pa.bool_(), (True, False, True, None)),
    Column("string", pa.string(), STRINGS),
    Column("large_string", pa.large_string(), STRINGS),
    Column("string_view", pa.string_view(), STRINGS),
    Column("long strings", pa.string(), LONG_STRINGS),
    Column("dictionary", pa.dictionary(pa.int8(), pa.string()), STRINGS),
    Column("binary", pa.binary(), BYTES),
    Column("large_binary", pa.large_binary(), BYTES),
    Column("fixed_size_binary", pa.binary(2), (b"\x00\x00", b"a\x00", b"\xff\xff", b"ab", None)),
]


def by_name(*names: str) -> tuple[Column, ...]:
    known = {column.name: column for column in ALONE}
    return tuple(known[name] for name in names)


MIXED = [
    by_name("int8", "int64"),
    by_name("int64", "uint64"),
    by_name("uint8", "int8"),
    by_name("int32", "float64"),
    by_name("int32", "float32"),
    by_name("uint64", "float64"),
    by_name("float32", "float64"),
    by_name("decimal(9,2)", "int32"),
    by_name("decimal(9,2)", "uint64"),
    by_name("decimal(9,2)", "float64"),
    by_name("decimal(38,0)", "int64"),
    by_name("decimal(38,0)", "decimal(9,2)"),
    by_name("decimal(38,0)", "decimal(38,38)"),
    by_name("decimal(38,38)", "int8"),
    by_name("date32", "date64"),
    by_name("date32", "timestamp[s]"),
    by_name("date32", "timestamp[us]"),
    by_name("timestamp[s]", "timestamp[ns]"),
    by_name("timestamp[ms]", "timestamp[us]"),
    by_name("date32", "timestamp[us, zone]"),
    by_name("string", "large_string"),
    by_name("string", "dictionary"),
    by_name("string_view", "long strings"),
    by_name("binary", "fixed_size_binary"),
    (
        Column("int64 near 2^53", pa.int64(), (2**53, 2**53 + 1, -(2**53) - 1, 0, None)),
        Column("float64 at 2^53", pa.float64(), (2.0**53, -(2.0**53), 2.0**53 + 2, 0.0, None)),
    ),
    (
        Column("int64 ends", pa.int64(), (2**63 - 1, -(2**63), 0, None)),
        Column("float64 at 2^63", pa.float64(), (2.0**63, -(2.0**63), math.inf, math.nan, None)),
    ),
    (
        Column("decimal tenth", pa.decimal128(3, 1), (big("0.1"), big("0.3"), None)),
        Column("float tenth", pa.float64(), (0.1, 0.1 + 0.2, None)),
    ),
    (
        Column("far future", pa.timestamp("s"), (datetime(9999, 12, 31), datetime(1, 1, 1), None)),
        Column("nanoseconds", pa.timestamp("ns"), (datetime(1970, 1, 1), datetime(2200, 1, 1))),
    ),
    (
        Column("duration[s]", pa.duration("s"), (timedelta(0), timedelta(1), timedelta(-1), None)),
        Column("duration[ms]", pa.duration("ms"), (timedelta(0), timedelta(milliseconds=1), None)),
    ),
    (
        Column("berlin", pa.timestamp("us", "Europe/Berlin"), aware(MOMENTS)),
        Column("tokyo", pa.timestamp("us", "Asia/Tokyo"), aware(MOMENTS)),
    ),
]


def check(left: Column, right: Column, op: str, how: str = "inner", key: str = "l.k") -> None:
    left_rows = [{"lid": i, "k": v, "n": i % 3} for i, v in enumerate(left.compared())]
    right_rows = [{"rid": i, "k": v, "n": i % 2} for i, v in enumerate(right.compared())]
    left_table = pa.table(
        {
            "lid": pa.array(range(len(left.values))),
            "k": left.array(),
            "n": [row["n"] for row in left_rows],
        }
    )
    right_table = pa.table(
        {
            "rid": pa.array(range(len(right.values))),
            "k": right.array(),
            "n": [row["n"] for row in right_rows],
        }
    )
    got = tj.join(left_table, right_table, f"{key} {op} r.k", how=how)
    one = naive.conj(("k", op, "k"))
    assert ids(got) == naive_ids(naive.naive_join(left_rows, right_rows, one, how=how))
    got = tj.join(left_table, right_table, f"l.n <= r.n AND {key} {op} r.k", how=how)
    two = naive.conj(("n", "<=", "n"), ("k", op, "k"))
    assert ids(got) == naive_ids(naive.naive_join(left_rows, right_rows, two, how=how))


@pytest.mark.parametrize("op", naive.OPERATORS)
def test_a_cast_compares_times_with_a_zone_and_without(op):
    """Nothing but a cast does: without one the join is refused."""
    without, zoned = by_name("timestamp[us]", "timestamp[us, zone]")
    check(without, zoned, op, key="CAST(l.k AS TIMESTAMP)")
    check(zoned, without, op, key="CAST(l.k AS TIMESTAMP_NTZ)")


@pytest.mark.parametrize("column", ALONE, ids=str)
def test_one_type(column):
    for op in naive.OPERATORS:
        check(column, column, op)
    check(column, column, "<", how="full")


@pytest.mark.parametrize(("left", "right"), MIXED, ids=str)
def test_two_types(left, right):
    for op in naive.OPERATORS:
        check(left, right, op)
        check(right, left, op)


def test_payload_of_any_type_passes_through():
    """Columns that are not keys keep their type and values, whatever they are."""
    payload = {
        column.name: column.array().slice(0, 4)
        for column in ALONE
        if column.meaning is None  # what Python cannot hold cannot be compared below
    } | {
        "list": pa.array([[1], [], None, [1, 2]]),
        "struct": pa.array([{"p": 1}, None, {"p": 3}, {"p": 4}]),
        "map": pa.array([[("k", 1)], [], None, []], pa.map_(pa.string(), pa.int64())),
        "null": pa.nulls(4),
    }
    payload = {
        name: array if len(array) == 4 else pa.concat_arrays([array, array]).slice(0, 4)
        for name, array in payload.items()
    }
    left = pa.table({"k": [0, 1, 2, 3]} | payload)
    right = pa.table({"j": [3, 0, 2]})
    got = tj.join(left, right, "l.k = r.j", how="left")
    assert got.schema.types == [*left.schema.types, pa.int64()]
    rows = sorted(got.to_pylist(), key=lambda row: row["k"])
    assert [row.pop("j") for row in rows] == [0, None, 2, 3]
    for row, expected in zip(rows, left.to_pylist(), strict=True):
        assert repr(row) == repr(expected)  # by its text, for NaN differs from itself


def test_chunked_and_sliced_inputs():
    whole = pa.table({"lid": range(20), "k": [None if i % 7 == 0 else i % 5 for i in range(20)]})
    chunked = pa.concat_tables([whole.slice(3, 4), whole.slice(7, 0), whole.slice(7, 9)])
    right = pa.table({"rid": range(9), "k": ["", "x"] + [str(i) for i in range(7)]}).slice(2)
    right = right.set_column(1, "k", right["k"].cast(pa.int64()))
    pred = naive.conj(("k", "<", "k"))
    got = tj.join(chunked, right, "l.k < r.k", how="full")
    expected = naive.naive_join(chunked.to_pylist(), right.to_pylist(), pred, how="full")
    assert ids(got) == naive_ids(expected)


KEYS = st.sampled_from(["", "a", "b", "ab", LONG, LONG + "a", LONG + "b"]) | st.text(max_size=3)


@own.examples(60)
@given(
    st.lists(st.none() | KEYS, max_size=12),
    st.lists(st.none() | KEYS, max_size=12),
    st.sampled_from(naive.OPERATORS),
    st.sampled_from(naive.OPERATORS),
)
def test_strings(left, right, op1, op2):
    left_rows = [{"lid": i, "k": v, "n": (v or "")[:1]} for i, v in enumerate(left)]
    right_rows = [{"rid": i, "k": v, "n": (v or "")[:1]} for i, v in enumerate(right)]
    tables = [
        pa.Table.from_pylist(
            rows, schema=pa.schema({name: pa.int64(), "k": pa.string(), "n": pa.string()})
        )
        for name, rows in (("lid", left_rows), ("rid", right_rows))
    ]
    got = tj.join(*tables, f"l.k {op1} r.k AND l.n {op2} r.n")
    pred = naive.conj(("k", op1, "k"), ("n", op2, "n"))
    assert ids(got) == naive_ids(naive.naive_join(left_rows, right_rows, pred))


@own.examples(60)
@given(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=8),
    st.lists(st.none() | st.floats(), max_size=8),
    st.sampled_from(naive.OPERATORS),
)
def test_any_integer_against_any_float(left, right, op):
    left_rows = [{"lid": i, "k": v} for i, v in enumerate(left)]
    right_rows = [{"rid": i, "k": v} for i, v in enumerate(right)]
    got = tj.join(
        pa.table({"lid": range(len(left)), "k": pa.array(left, pa.int64())}),
        pa.table({"rid": range(len(right)), "k": pa.array(right, pa.float64())}),
        f"l.k {op} r.k",
    )
    expected = naive.naive_join(left_rows, right_rows, naive.conj(("k", op, "k")))
    assert ids(got) == naive_ids(expected)


@own.examples(40)
@given(
    st.lists(st.decimals(-10, 10, places=2), max_size=8),
    st.lists(st.decimals(-10, 10, places=1), max_size=8),
    st.sampled_from(naive.OPERATORS),
)
def test_decimals_of_two_scales(left, right, op):
    left_rows = [{"lid": i, "k": v} for i, v in enumerate(left)]
    right_rows = [{"rid": i, "k": v} for i, v in enumerate(right)]
    got = tj.join(
        pa.table({"lid": range(len(left)), "k": pa.array(left, pa.decimal128(10, 2))}),
        pa.table({"rid": range(len(right)), "k": pa.array(right, pa.decimal128(4, 1))}),
        f"l.k {op} r.k",
    )
    expected = naive.naive_join(left_rows, right_rows, naive.conj(("k", op, "k")))
    assert ids(got) == naive_ids(expected)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.int64(), pa.bool_()),
        (pa.int64(), pa.date32()),
        (pa.float64(), pa.timestamp("us")),
        (pa.binary(), pa.int64()),
        (pa.list_(pa.int64()), pa.list_(pa.int64())),
        (pa.struct({"p": pa.int64()}), pa.struct({"p": pa.int64()})),
        (pa.duration("us"), pa.timestamp("us")),
        (pa.date32(), pa.bool_()),
    ],
    ids=str,
)
def test_types_that_do_not_compare(left, right):
    l, r = pa.table({"k": pa.nulls(1, left)}), pa.table({"j": pa.nulls(1, right)})
    with pytest.raises(tj.ThetaJoinError) as caught:
        tj.join(l, r, "l.k < r.j")
    message = str(caught.value)
    assert "\n" not in message
    assert "l.k" in message or "r.j" in message
