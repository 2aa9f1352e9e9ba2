"""Explicit casts in ANSI meaning, and text as Spark reads and writes it."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal as D

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predicate.slow import constant
from thetajoin.errors import DataError
from thetajoin.predicate.casts import can_cast, cast
from thetajoin.predicate.types import BOOL, DATE, DOUBLE, INT, LONG, STRING, TIMESTAMP

UTC = dt.UTC


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CAST(' 12 ' AS INT)", 12),
        ("CAST('+7' AS BIGINT)", 7),
        ("CAST(1.9D AS INT)", 1),
        ("CAST(-1.9D AS INT)", -1),
        ("CAST(-1.99 AS INT)", -1),
        ("CAST(TRUE AS INT)", 1),
        ("CAST(0.0D AS BOOLEAN)", False),
        ("CAST(2 AS BOOLEAN)", True),
        ("CAST('yes' AS BOOLEAN)", True),
        ("CAST('F' AS BOOLEAN)", False),
        ("CAST(9007199254740993L AS DOUBLE)", 9007199254740992.0),
        ("CAST(0.1 AS DOUBLE)", 0.1),
        ("CAST(12345678901234567890.12345678901234567 AS DOUBLE)", 12345678901234567890.0),
        ("CAST('1e3' AS DOUBLE)", 1000.0),
        ("CAST('-Infinity' AS DOUBLE)", -math.inf),
        ("CAST('1.5d' AS DOUBLE)", 1.5),
        ("CAST(1.005D AS DECIMAL(5,2))", D("1.01")),
        ("CAST(2.345 AS DECIMAL(5,2))", D("2.35")),
        ("CAST(-2.345 AS DECIMAL(5,2))", D("-2.35")),
        ("CAST('2.345' AS DECIMAL(5,2))", D("2.35")),
        ("CAST(7 AS DECIMAL(5,2))", D("7.00")),
        ("CAST(7 AS DECIMAL)", D("7")),
        ("CAST(1e7 AS STRING)", "1.0E7"),
        ("CAST(123456.5D AS STRING)", "123456.5"),
        ("CAST(0.0001D AS STRING)", "1.0E-4"),
        ("CAST(-0.0D AS STRING)", "-0.0"),
        ("CAST(1.1F AS STRING)", "1.1"),
        ("CAST(CAST('nan' AS DOUBLE) AS STRING)", "NaN"),
        ("CAST(1.50 AS STRING)", "1.50"),
        ("CAST(TRUE AS STRING)", "true"),
        ("CAST(DATE '2024-01-02' AS STRING)", "2024-01-02"),
        ("CAST(TIMESTAMP '2024-01-02 03:04:05.120' AS STRING)", "2024-01-02 03:04:05.12"),
        ("CAST(X'6162' AS STRING)", "ab"),
        ("CAST('ab' AS BINARY)", b"ab"),
        ("CAST('2024-1-2' AS DATE)", dt.date(2024, 1, 2)),
        ("CAST('2024-01' AS DATE)", dt.date(2024, 1, 1)),
        ("CAST('2024' AS DATE)", dt.date(2024, 1, 1)),
        ("CAST('2024-01-02 10:00:00' AS DATE)", dt.date(2024, 1, 2)),
        (
            "CAST('2024-01-02T10:00:00.5' AS TIMESTAMP_NTZ)",
            dt.datetime(2024, 1, 2, 10, 0, 0, 500000),
        ),
        ("CAST('2024-01-02 10:00:00+02:00' AS TIMESTAMP)", dt.datetime(2024, 1, 2, 8, tzinfo=UTC)),
        ("CAST('2024-01-02 10:00:00Z' AS TIMESTAMP)", dt.datetime(2024, 1, 2, 10, tzinfo=UTC)),
        ("CAST('2024-01-02' AS TIMESTAMP)", dt.datetime(2024, 1, 2, tzinfo=UTC)),
        ("CAST(DATE '2024-01-02' AS TIMESTAMP_NTZ)", dt.datetime(2024, 1, 2)),
        ("CAST(TIMESTAMP '1969-12-31 23:59:59' AS DATE)", dt.date(1969, 12, 31)),
        ("CAST(TIMESTAMP '1969-12-31 23:59:59.5' AS BIGINT)", -1),
        ("CAST(TIMESTAMP '1970-01-01 00:00:01.5' AS DOUBLE)", 1.5),
        ("CAST(5 AS TIMESTAMP)", dt.datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)),
        ("CAST(0.5D AS TIMESTAMP)", dt.datetime(1970, 1, 1, 0, 0, 0, 500000, tzinfo=UTC)),
        ("CAST('10:11' AS TIME)", dt.time(10, 11)),
        ("CAST(NULL AS INT)", None),
        ("TRY_CAST('x' AS INT)", None),
        ("TRY_CAST('5' AS INT)", 5),
        ("int('5')", 5),
        ("double(5)", 5.0),
        ("date('2024-01-02')", dt.date(2024, 1, 2)),
    ],
)
def test_casts(text, expected):
    found = constant(text)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    "text",
    [
        "CAST('1.5' AS INT)",
        "CAST('0x1F' AS INT)",
        "CAST('' AS INT)",
        "CAST('9223372036854775808' AS BIGINT)",
        "CAST('1e400x' AS DOUBLE)",
        "CAST('maybe' AS BOOLEAN)",
        "CAST('2024-02-30' AS DATE)",
        "CAST('24:00:00' AS TIME)",
        "CAST(1e10 AS INT)",
        "CAST(CAST('nan' AS DOUBLE) AS INT)",
        "CAST(9223372036854775808D AS BIGINT)",
        "CAST(12345 AS DECIMAL(5,2))",
        "CAST('12345' AS DECIMAL(5,2))",
        "CAST(CAST('inf' AS DOUBLE) AS DECIMAL(5,2))",
        "CAST(99999.5 AS SMALLINT)",
        "CAST(X'FF' AS STRING)",
    ],
)
def test_values_that_do_not_fit_fail(text):
    with pytest.raises(DataError) as caught:
        constant(text)
    assert "\n" not in str(caught.value)


def test_a_lenient_cast_spoils_only_the_bad_values():
    array = pa.array(["1", "x", None, "3", "y", "5"], STRING)
    assert cast(array, INT, lenient=True).to_pylist() == [1, None, None, 3, None, 5]


def test_only_sparks_casts_are_allowed():
    assert can_cast(STRING, DATE)
    assert can_cast(pa.null(), BOOL)
    assert can_cast(TIMESTAMP, LONG)
    assert not can_cast(DATE, LONG)
    assert not can_cast(BOOL, DATE)
    assert not can_cast(pa.duration("us"), LONG)
    assert not can_cast(pa.list_(INT), STRING)


def test_units_of_time_change_exactly_or_fail():
    seconds = pa.array([253402300799, None, -1], pa.timestamp("s"))
    assert cast(seconds, TIMESTAMP).cast(LONG).to_pylist() == [253402300799000000, None, -1000000]
    with pytest.raises(DataError, match="does not fit"):
        cast(seconds, pa.timestamp("ns"))
    micros = pa.array([-1, 1_999_999], pa.timestamp("us"))
    assert cast(micros, pa.timestamp("s")).cast(LONG).to_pylist() == [-1, 1]


@given(st.decimals(-(10**20), 10**20, places=8))
def test_decimals_become_the_nearest_double(number):
    for type_ in (pa.decimal128(38, 8), pa.decimal128(15, 8)):
        if abs(number) < 10 ** (type_.precision - 8):
            assert cast(pa.array([number, None], type_), DOUBLE).to_pylist() == [
                float(number),
                None,
            ]


@given(st.floats())
def test_floats_survive_text(number):
    array = cast(pa.array([number]), STRING)
    (again,) = cast(array, DOUBLE).to_pylist()
    assert again == number or (again != again and number != number)


@pytest.mark.parametrize("type_", [pa.decimal64(12, 3), pa.decimal128(12, 3), pa.decimal128(38, 3)])
def test_a_decimal_that_is_rounded_up_to_one_digit_more(type_):
    """Arrow's own rounding gives 0 there, and says nothing."""
    most, rounded = "9" * (type_.precision - 3) + ".998", "1" + "0" * (type_.precision - 3)
    array = pa.array([D(most), D(f"-{most}"), D("0.005"), None], type_)
    got = cast(array, pa.decimal128(38, 2)).to_pylist()
    assert got == [D(rounded), D(f"-{rounded}"), D("0.01"), None]
