"""The functions a condition may call, with Spark's edge cases."""

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
from thetajoin.predicate import scalars
from thetajoin.predicate.types import BOOL, STRING

T = "TIMESTAMP '2024-05-06 07:08:09.123456'"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("floor(-1.5D)", -2),
        ("floor(1e300)", 2**63 - 1),
        ("floor(CAST('nan' AS DOUBLE))", 0),
        ("floor(7)", 7),
        ("floor(-1.5)", D("-2")),
        ("ceil(1.2D)", 2),
        ("ceiling(9.9)", D("10")),
        ("round(2.5D)", 3.0),
        ("round(-2.5D)", -3.0),
        ("round(1.005D, 2)", 1.01),
        ("round(2.345, 2)", D("2.35")),
        ("round(155, -1)", 160),
        ("round(155)", 155),
        ("sqrt(2.25D)", 1.5),
        ("exp(0)", 1.0),
        ("ln(0)", None),
        ("ln(exp(1))", 1.0),
        ("log10(1000)", math.log10(1000)),
        ("log2(8)", 3.0),
        ("log(-1)", None),
        ("log(2, 8)", 3.0),
        ("pow(2, 10)", 1024.0),
        ("power(2, 0.5)", math.sqrt(2)),
        ("sign(-5)", -1.0),
        ("signum(0)", 0.0),
        ("abs(-5)", 5),
        ("abs(-1.5)", D("1.5")),
        ("mod(-7, 3)", -1),
        ("isnan(CAST('nan' AS DOUBLE))", True),
        ("isnan(NULL)", False),
        ("greatest(1, NULL, 3L)", 3),
        ("greatest(1.0D, CAST('nan' AS DOUBLE)) = CAST('nan' AS DOUBLE)", True),
        ("least(2, 1.5)", D("1.5")),
        ("least(NULL, NULL)", None),
        ("coalesce(NULL, 2)", 2),
        ("nvl(NULL, 2)", 2),
        ("ifnull(1, 2)", 1),
        ("nullif(1, 1)", None),
        ("nullif(1, 2)", 1),
        ("if(1 < 2, 'a', 'b')", "a"),
        ("if(NULL, 'a', 'b')", "b"),
        ("CASE 2 WHEN 1 THEN 'x' WHEN 2 THEN 'y' END", "y"),
        ("CASE WHEN FALSE THEN 1 END", None),
        ("CASE WHEN TRUE THEN 1 ELSE 2.5 END", D("1.0")),
        ("isnull(NULL)", True),
        ("isnotnull(NULL)", False),
        ("length('héllo')", 5),
        ("char_length('ab')", 2),
        ("length(X'0102')", 2),
        ("lower('ÀB')", "àb"),
        ("upper('àb')", "ÀB"),
        ("trim('  a b ')", "a b"),
        ("btrim(' a ')", "a"),
        ("ltrim('  a ')", "a "),
        ("rtrim('  a ')", "  a"),
        ("trim(leading from '  a ')", "a "),
        ("substring('hello', 2, 3)", "ell"),
        ("substr('hello', -3)", "llo"),
        ("substring('hello', 0, 2)", "he"),
        ("substring('abc', -5, 3)", "a"),
        ("substring('hello' FROM 2 FOR 1)", "e"),
        ("concat('a', 1, TRUE)", "a1true"),
        ("concat('a', NULL)", None),
        ("'a' || 'b' || 'c'", "abc"),
        ("startswith('abc', 'ab')", True),
        ("endswith('abc', 'ab')", False),
        ("contains('abc', 'b')", True),
        ("'a_c' LIKE 'a\\\\_c'", True),
        ("'abc' LIKE 'a\\\\_c'", False),
        ("'a\nc' LIKE 'a_c'", True),
        ("'abc' LIKE 'A%'", False),
        ("'abc' ILIKE 'A%'", True),
        ("'abc' NOT ILIKE 'A%'", False),
        ("'a%c' LIKE 'a!%c' ESCAPE '!'", True),
        ("'abc' NOT LIKE '%b%'", False),
        ("NULL LIKE 'a'", None),
        (f"year({T})", 2024),
        (f"quarter({T})", 2),
        (f"month({T})", 5),
        (f"day({T})", 6),
        (f"dayofmonth({T})", 6),
        (f"hour({T})", 7),
        (f"minute({T})", 8),
        (f"second({T})", 9),
        (f"extract(hour FROM {T})", 7),
        ("year('2024-01-02')", 2024),
        ("datediff(DATE '2024-03-01', DATE '2024-02-28')", 2),
        ("date_add(DATE '2024-02-28', 2)", dt.date(2024, 3, 1)),
        ("date_sub('2024-03-01', 2)", dt.date(2024, 2, 28)),
        (f"date_trunc('HOUR', {T})", dt.datetime(2024, 5, 6, 7, tzinfo=dt.UTC)),
        (f"date_trunc('week', {T})", dt.datetime(2024, 5, 6, tzinfo=dt.UTC)),
        ("date_trunc('month', DATE '2024-05-06')", dt.datetime(2024, 5, 1, tzinfo=dt.UTC)),
        (f"unix_seconds({T})", 1714979289),
        (f"unix_timestamp({T})", 1714979289),
        (f"unix_millis({T})", 1714979289123),
        (f"unix_micros({T})", 1714979289123456),
        ("timestamp_millis(1500)", dt.datetime(1970, 1, 1, 0, 0, 1, 500000, tzinfo=dt.UTC)),
    ],
)
def test_functions(text, expected):
    found = constant(text)
    if isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-15)
    else:
        assert found == expected
    assert type(found) is type(expected)


@given(
    st.lists(st.text("ab%_\\\n.é", max_size=4), min_size=1, max_size=4),
    st.text("ab%_!\n.é", max_size=4),
)
def test_one_pattern_matches_as_a_column_of_patterns_does(texts, pattern):
    args = [pa.array(texts, STRING), pa.array([pattern] * len(texts), STRING)]
    with_null = [pa.array([*texts, "a"], STRING), pa.array([*args[1].to_pylist(), None], STRING)]
    for kernel in (scalars.like, scalars.starts_with, scalars.ends_with, scalars.contains):
        slow = kernel(with_null, BOOL).to_pylist()
        assert slow[-1] is None
        assert kernel(args, BOOL).to_pylist() == slow[:-1]


@pytest.mark.parametrize(
    "text",
    ["round(127Y, -1)", "'x' LIKE 'a\\\\b'", "timestamp_seconds(9223372036854775807L)"],
)
def test_functions_fail_where_spark_does(text):
    with pytest.raises(DataError):
        constant(text)


@pytest.mark.parametrize("unit", ["second", "hour", "week", "year"])
def test_date_trunc_of_the_first_timestamps_is_an_error_and_not_the_far_future(unit):
    least = pa.array([-(2**63) + 1], pa.timestamp("us", "UTC"))
    with pytest.raises(DataError, match="overflow in date_trunc"):
        scalars.date_trunc([pa.array([unit]), least], least.type)


@pytest.mark.parametrize("unit", ["second", "hour", "week", "year"])
def test_date_trunc_does_not_look_at_what_lies_below_a_null(unit):
    hidden = pa.Array.from_buffers(
        pa.timestamp("us", "UTC"),
        1,
        [pa.py_buffer(b"\0"), pa.py_buffer(b"\1" + b"\0" * 6 + b"\x80")],
    )
    assert scalars.date_trunc([pa.array([unit]), hidden], hidden.type).to_pylist() == [None]
