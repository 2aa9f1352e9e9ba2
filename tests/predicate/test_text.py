"""What a condition's text means: literals, names, forms; and text that comes back the same."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from decimal import Decimal as D

import numpy as np
import pyarrow as pa
import pytest

from thetajoin.predicate import (
    Built,
    align_columns,
    compile_condition,
    condition_text,
    evaluate,
    l,
    r,
)
from thetajoin.predicate.bind import bind
from thetajoin.predicate.condition import Scope
from thetajoin.predicate.nodes import Literal
from thetajoin.predicate.parse import Source

SCHEMA = pa.schema(
    {
        "a": pa.int32(),
        "b": pa.int64(),
        "f": pa.float64(),
        "s": pa.string(),
        "d": pa.date32(),
        "t": pa.timestamp("us"),
        "odd name": pa.int32(),
        "tick`ed": pa.int32(),
        "select": pa.int32(),
        "timestamp": pa.timestamp("us"),
        "Case": pa.int32(),
        "st": pa.struct({"x": pa.int32(), "in ner": pa.struct({"y": pa.int64()})}),
    }
)


def literal(text: str) -> Literal:
    found = bind(Source(f"({text}) IS NULL"), Scope(SCHEMA, SCHEMA)).children[0]
    assert isinstance(found, Literal), found
    return found


@pytest.mark.parametrize(
    ("text", "type_", "value", "rendered"),
    [
        ("5", pa.int32(), 5, "5"),
        ("-2147483648", pa.int32(), -(2**31), "-2147483648"),
        ("2147483648", pa.int64(), 2**31, "2147483648L"),
        ("-9223372036854775808", pa.int64(), -(2**63), "-9223372036854775808L"),
        ("9223372036854775808", pa.decimal128(19, 0), D(2**63), "9223372036854775808BD"),
        ("5L", pa.int64(), 5, "5L"),
        ("5S", pa.int16(), 5, "5S"),
        ("-128Y", pa.int8(), -128, "-128Y"),
        ("1.5", pa.decimal128(2, 1), D("1.5"), "1.5"),
        ("-1.50", pa.decimal128(3, 2), D("-1.50"), "-1.50"),
        ("0.05", pa.decimal128(2, 2), D("0.05"), "0.05"),
        ("5BD", pa.decimal128(1, 0), D("5"), "5BD"),
        ("1e3BD", pa.decimal128(4, 0), D("1000"), "1000BD"),
        ("1e3", pa.float64(), 1000.0, "1000.0D"),
        ("1.5D", pa.float64(), 1.5, "1.5D"),
        ("1e300D", pa.float64(), 1e300, "1e+300D"),
        ("1.5F", pa.float32(), 1.5, "1.5F"),
        ("'it''s'", pa.large_string(), "it's", "'it\\'s'"),
        ("'it\\'s'", pa.large_string(), "it's", "'it\\'s'"),
        ('"dq"', pa.large_string(), "dq", "'dq'"),
        ("'a\\\\b\\n'", pa.large_string(), "a\\b\n", "'a\\\\b\\n'"),
        ("X'1F'", pa.large_binary(), b"\x1f", "X'1F'"),
        ("TRUE", pa.bool_(), True, "TRUE"),
        ("NULL", pa.null(), None, "NULL"),
        ("DATE '1970-01-11'", pa.date32(), 10, "DATE '1970-01-11'"),
        (
            "TIMESTAMP '1970-01-01 00:00:01'",
            pa.timestamp("us", "UTC"),
            10**6,
            "TIMESTAMP '1970-01-01 00:00:01'",
        ),
        (
            "TIMESTAMP '1970-01-01 02:00:01+02:00'",
            pa.timestamp("us", "UTC"),
            10**6,
            "TIMESTAMP '1970-01-01 00:00:01'",
        ),
        (
            "TIMESTAMP_NTZ '1970-01-01 00:00:00.5'",
            pa.timestamp("us"),
            500000,
            "TIMESTAMP_NTZ '1970-01-01 00:00:00.500000'",
        ),
        ("TIME '00:00:01'", pa.time64("us"), 10**6, "TIME '00:00:01'"),
        ("INTERVAL '5' MINUTE", pa.duration("us"), 300 * 10**6, "INTERVAL '5' MINUTE"),
        ("INTERVAL 5 MINUTES", pa.duration("us"), 300 * 10**6, "INTERVAL '5' MINUTE"),
        ("INTERVAL '5 minutes'", pa.duration("us"), 300 * 10**6, "INTERVAL '5' MINUTE"),
        ("INTERVAL '1 day 2 hours'", pa.duration("us"), 26 * 3600 * 10**6, "INTERVAL '26' HOUR"),
        ("INTERVAL '-90' SECOND", pa.duration("us"), -90 * 10**6, "INTERVAL '-90' SECOND"),
        ("INTERVAL '0.0005' SECOND", pa.duration("us"), 500, "INTERVAL '0.0005' SECOND"),
        (
            "INTERVAL '1 02:03:04' DAY TO SECOND",
            pa.duration("us"),
            93784 * 10**6,
            "INTERVAL '93784' SECOND",
        ),
        (
            "INTERVAL '-01:30' HOUR TO MINUTE",
            pa.duration("us"),
            -5400 * 10**6,
            "INTERVAL '-90' MINUTE",
        ),
        ("INTERVAL 2 WEEKS", pa.duration("us"), 14 * 86400 * 10**6, "INTERVAL '14' DAY"),
    ],
)
def test_literals_have_sparks_types_and_come_back(text, type_, value, rendered):
    found = literal(text)
    assert (found.type, found.value, found.sql()) == (type_, value, rendered)
    assert type(found.value) is type(value)
    assert literal(found.sql()) == found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("L.A < R.a", "l.a < r.a"),
        ("`l`.a < `r`.`a`", "l.a < r.a"),
        ("l.`odd name` < r.`tick``ed`", "l.`odd name` < r.`tick``ed`"),
        ("l.`select` < r.`CASE`", "l.`select` < r.`Case`"),
        ("l.timestamp < r.t", "l.`timestamp` < r.t"),
        ("l.st.x < r.ST.`In Ner`.y", "l.st.x < r.st.`in ner`.y"),
        ("l.a == r.a", "l.a = r.a"),
        ("l.a <> r.a", "l.a != r.a"),
        ("!(l.a < r.a)", "NOT l.a < r.a"),
        ("l.a BETWEEN r.a AND r.b", "l.a >= r.a AND l.a <= r.b"),
        ("NOT l.a BETWEEN r.a AND r.b", "NOT (l.a >= r.a AND l.a <= r.b)"),
        ("l.a < r.a AND (l.b < r.b OR l.f < r.f)", "l.a < r.a AND (l.b < r.b OR l.f < r.f)"),
        ("(l.a < r.a AND l.b < r.b) AND l.f < r.f", "l.a < r.a AND l.b < r.b AND l.f < r.f"),
        ("l.a - (r.a - 1) - 2 < 0", "l.a - (r.a - 1) - 2 < 0"),
        ("(l.a + 1) * 2 < r.a", "(l.a + 1) * 2 < r.a"),
        ("-(l.a) < -(-5) + r.a", "-l.a < -(-5) + r.a"),
        ("l.a & 3 = r.a | 4", "l.a & 3 = r.a | 4"),
        ("l.s || 'x' < r.s", "CONCAT(l.s, 'x') < r.s"),
        ("l.a IS DISTINCT FROM r.a", "NOT l.a <=> r.a"),
        ("l.a IS NOT NULL AND l.a < r.a", "l.a IS NOT NULL AND l.a < r.a"),
        ("l.a::double < r.f", "CAST(l.a AS DOUBLE) < r.f"),
        ("l.a < r.a -- as in the paper", "l.a < r.a"),
        ("TRY_CAST(l.s AS INT) < r.a", "TRY_CAST(l.s AS INT) < r.a"),
        ("l.s LIKE 'a%' ESCAPE '!' AND l.a < r.a", "l.s LIKE 'a%' ESCAPE '!' AND l.a < r.a"),
        ("CASE WHEN l.a > 1 THEN l.a END < r.a", "CASE WHEN l.a > 1 THEN l.a ELSE NULL END < r.a"),
    ],
)
def test_conditions_come_back_as_text_that_compiles_the_same(text, expected):
    condition = compile_condition(text, SCHEMA, SCHEMA)
    assert condition.sql == expected
    assert compile_condition(condition.sql, SCHEMA, SCHEMA) == condition


def test_an_unqualified_name_is_found_on_the_one_side_that_has_it():
    left, right = pa.schema({"x": pa.int32()}), pa.schema({"y": pa.int32(), "X2": pa.int32()})
    assert compile_condition("x < y AND x > x2", left, right).sql == "l.x < r.y AND l.x > r.X2"


def test_exact_case_wins_over_any_case():
    schema = pa.schema({"a": pa.int32(), "A": pa.int64()})
    (form,) = compile_condition("l.A < r.a", schema, schema).disjuncts
    assert (form.comparisons[0].left.columns("l"), form.comparisons[0].type) == ({"A"}, pa.int64())


def test_expressions_name_their_sides_and_columns():
    expr = compile_condition("l.a + l.b < r.st.x AND r.f > 0", SCHEMA, SCHEMA).expr
    assert expr.sides() == {"l", "r"}
    assert expr.columns("l") == {"a", "b"}
    assert expr.columns("r") == {"st", "f"}


def test_implied_casts_can_be_shown():
    expr = compile_condition("l.a < r.f", SCHEMA, SCHEMA).expr
    assert expr.sql() == str(expr) == "l.a < r.f"
    assert expr.sql(explicit=True) == "CAST(l.a AS DOUBLE) < r.f"


@pytest.mark.parametrize(
    ("built", "text"),
    [
        (l.a < r.b, "l.a < r.b"),
        ((l.a <= r.b) & (l.f >= r.f) & (l.s != r.s), "l.a <= r.b AND l.f >= r.f AND l.s != r.s"),
        ((l.a == r.a) | ~(l.f > r.f), "l.a = r.a OR NOT l.f > r.f"),
        (l["odd name"] < r["tick`ed"], "l.`odd name` < r.`tick``ed`"),
        (l.st["x"] < r.a, "l.st.x < r.a"),
        (abs(l.f - r.f) <= 1.5, "ABS(l.f - r.f) <= 1.5D"),
        ((l.f - r.f).abs() <= 1, "ABS(l.f - r.f) <= 1"),
        (-l.a < r.a * 2 + 1, "-l.a < r.a * 2 + 1"),
        (2 - l.a < (r.a / 2) % 3, "2 - l.a < r.a / 2 % 3"),
        (1 + l.a > 2 * r.a, "1 + l.a > 2 * r.a"),
        (l.a.between(r.a, r.b), "l.a >= r.a AND l.a <= r.b"),
        (l.a.is_null() & r.b.is_not_null(), "l.a IS NULL AND r.b IS NOT NULL"),
        (l.a.isin(1, 2) & (l.b < r.b), "l.a IN (1, 2) AND l.b < r.b"),
        (l.a.isin([1, 2]) & (l.b < r.b), "l.a IN (1, 2) AND l.b < r.b"),
        (l.a.cast("double") < r.f, "CAST(l.a AS DOUBLE) < r.f"),
        (l.s.like("x%") & (l.s < r.s), "l.s LIKE 'x%' AND l.s < r.s"),
        (l.a.eq_null_safe(r.a), "l.a <=> r.a"),
        (l.t > r.t - dt.timedelta(minutes=5), "l.t > r.t - INTERVAL '5' MINUTE"),
        ((l.d > dt.date(2024, 1, 2)) & (l.a < r.a), "l.d > DATE '2024-01-02' AND l.a < r.a"),
        (
            (l.t > dt.datetime(2024, 1, 2)) & (l.a < r.a),
            "l.t > TIMESTAMP_NTZ '2024-01-02 00:00:00' AND l.a < r.a",
        ),
        ((l.s == "it's") & (l.a < r.a), "l.s = 'it\\'s' AND l.a < r.a"),
        ((l.a == None) | (l.a < r.a), "l.a = NULL OR l.a < r.a"),  # noqa: E711
        ((l.a > D("1.5")) & (l.a < r.a), "l.a > 1.5 AND l.a < r.a"),
        ((l.f < float("nan")) & (l.a < r.a), "l.f < CAST('nan' AS DOUBLE) AND l.a < r.a"),
        (l.a - r.a < np.int64(3), "l.a - r.a < 3"),
        (True & (l.a < r.a), "l.a < r.a"),
    ],
)
def test_built_conditions_are_the_same_as_text(built, text):
    assert isinstance(built, Built)
    condition = compile_condition(built, SCHEMA, SCHEMA)
    assert condition.sql == text
    assert condition == compile_condition(text, SCHEMA, SCHEMA)


def test_a_list_is_anded():
    condition = compile_condition(["l.a < r.a OR l.b < r.b", l.f > r.f], SCHEMA, SCHEMA)
    assert condition.sql == "(l.a < r.a OR l.b < r.b) AND l.f > r.f"
    assert condition_text(["l.a < r.a OR l.b < r.b", l.f > r.f]) == (
        "(l.a < r.a OR l.b < r.b) AND (l.f > r.f)"
    )


def test_only_columns_have_fields():
    with pytest.raises(Exception, match="only a column has fields"):
        (l.a + 1)["x"]
    with pytest.raises(TypeError):
        list(l.a)


def test_columns_of_a_window_are_aligned_in_the_finer_unit():
    left, right = pa.schema({"T": pa.timestamp("us")}), pa.schema({"u": pa.timestamp("ns", "UTC")})
    pair = align_columns("t", "u", left, right)
    assert (pair.left.type, pair.right.type) == (pair.type, pair.type)
    assert pair.type == pa.timestamp("ns", "UTC")
    table = pa.table({"T": pa.array([1, None], pa.timestamp("us"))})
    assert evaluate(pair.left, left=table).cast(pa.int64()).to_pylist() == [1000, None]
    with pytest.raises(Exception, match="unknown column 'v' of the right side"):
        align_columns("t", "v", left, right)
    with pytest.raises(Exception, match="cannot compare"):
        align_columns("t", "n", left, pa.schema({"n": pa.int64()}))


def test_sides_are_not_taken_for_something_else():
    assert repr(l) == "l"
    assert not hasattr(l, "__array__")
    with pytest.raises(Exception, match="cannot be part of a condition"):
        _ = l.a < object()


def test_a_filter_evaluates_on_its_side_alone():
    (form,) = compile_condition("l.a < r.a AND l.b > 1", SCHEMA, SCHEMA).disjuncts
    table = pa.table({"b": pa.array([1, 2, None], pa.int64())})
    assert evaluate(form.left_filter, left=table).to_pylist() == [False, True, None]


def test_importing_the_package_does_not_load_sqlglot():
    code = "import sys, thetajoin.predicate; print('sqlglot' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stdout.strip() == "False"
