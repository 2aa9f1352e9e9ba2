"""The evaluator against a slow Python one, and the edge cases of each operator."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal as D

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from naive import OPERATORS, order
from predicate.slow import Failure, bound, constant, value
from predicate.strategies import EXTREME, conditions, numbers, pairs_of, rows
from thetajoin.errors import DataError, SchemaError
from thetajoin.predicate import evaluate
from thetajoin.predicate.bind import bind
from thetajoin.predicate.condition import Scope
from thetajoin.predicate.nodes import Expr
from thetajoin.predicate.operators import compare
from thetajoin.predicate.parse import Source

NAN, INF = float("nan"), float("inf")


def paired(left: pa.Table, right: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The cross product, as evaluation of a residual sees it."""
    n, m = left.num_rows, right.num_rows
    return left.take([i for i in range(n) for _ in range(m)]), right.take(list(range(m)) * n)


def same_values(found: list[object], expected: list[object]) -> bool:
    return len(found) == len(expected) and all(
        a is b if a is None or b is None else type(a) is type(b) and order(a, b) == 0
        for a, b in zip(found, expected, strict=True)
    )


def check_against_slow(expr: Expr, left: pa.Table, right: pa.Table) -> None:
    try:
        expected = [value(expr, pair) for pair in pairs_of(left, right)]
    except Failure:
        with pytest.raises(DataError):
            evaluate(expr, *paired(left, right))
        return
    result = evaluate(expr, *paired(left, right))
    assert result.type == expr.type
    assert same_values(result.to_pylist(), expected), (expr.sql(explicit=True), expected)


@given(text=conditions(), left=rows(EXTREME, 3), right=rows(EXTREME, 3))
def test_conditions_mean_what_they_mean_row_by_row(text, left, right):
    check_against_slow(bound(text), left, right)


@given(text=numbers("lr"), left=rows(EXTREME, 3), right=rows(EXTREME, 3))
def test_arithmetic_is_checked_row_by_row(text, left, right):
    check_against_slow(bound(f"({text}) IS NULL").children[0], left, right)


@given(text=conditions())
def test_text_binds_again_to_the_same_expression(text):
    expr = bound(text)
    assert bound(expr.sql()) == expr


@pytest.mark.parametrize("type_", [pa.float32(), pa.float64()])
@pytest.mark.parametrize("op", OPERATORS)
def test_floats_compare_in_sparks_order(op, type_):
    values = [NAN, INF, -INF, 0.0, -0.0, 1.0, None]
    a = pa.array([x for x in values for _ in values], type_)
    b = pa.array(values * len(values), type_)
    pairs = zip(a.to_pylist(), b.to_pylist(), strict=True)
    expected = [naive.compare(x, op, y) for x, y in pairs]
    assert compare(op, a, b).to_pylist() == expected


@pytest.mark.parametrize("op", OPERATORS)
@given(data=st.data())
def test_times_of_different_units_compare_exactly(op, data):
    edge = [-(2**63), 2**63 - 1, 0, 1, -1, 999, 1000, 1001, -1000, 10**9, -(10**9) - 1]
    ticks = st.sampled_from(edge) | st.integers(-(2**63), 2**63 - 1)
    units = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
    one, other = data.draw(st.sampled_from(list(units))), data.draw(st.sampled_from(list(units)))
    xs = data.draw(st.lists(ticks, min_size=1, max_size=5))
    ys = data.draw(st.lists(ticks, min_size=len(xs), max_size=len(xs)))
    found = compare(op, pa.array(xs, pa.timestamp(one)), pa.array(ys, pa.timestamp(other)))
    expected = [
        naive.compare(x * units[one], op, y * units[other]) for x, y in zip(xs, ys, strict=True)
    ]
    assert found.to_pylist() == expected


def test_strings_compare_by_utf8_bytes():
    words = ["", "a", "Z", "é", "\uffff", "\U0001f600", "aa"]
    a = pa.array([x for x in words for _ in words], pa.large_string())
    b = pa.array(words * len(words), pa.large_string())
    found = compare("<", a, b).to_pylist()
    assert found == [x.encode() < y.encode() for x in words for y in words]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7 % -3", 1),
        ("-7 % 3", -1),
        ("-7.5D % 2", -1.5),
        ("7 / 2", 3.5),
        ("7 div 2", 3),
        ("-7 div 2", -3),
        ("CAST('-9223372036854775808' AS BIGINT) % -1L", 0),
        ("1.5 + 1", D("2.5")),
        ("1.5 * 1.5", D("2.25")),
        ("1.0 / 3.0", D("0.333333")),
        ("1 / 3.0", D("0.333333")),
        ("7.5 % 2", D("1.5")),
        ("NULL / 0", None),
        ("5 & 3", 1),
        ("5 | 3", 7),
        ("5 ^ 3", 6),
        ("~5", -6),
        ("2147483647 + 1L", 2147483648),
        ("DATE '2024-02-28' + 2", dt.date(2024, 3, 1)),
        ("2 + DATE '2024-02-28'", dt.date(2024, 3, 1)),
        ("DATE '2024-03-01' - 2", dt.date(2024, 2, 28)),
        ("DATE '2024-03-01' - DATE '2024-02-28'", dt.timedelta(days=2)),
        ("DATE '2024-03-01' + INTERVAL 1 DAY", dt.date(2024, 3, 2)),
        ("DATE '2024-03-01' - INTERVAL '48' HOUR", dt.date(2024, 2, 28)),
        (
            "TIMESTAMP_NTZ '2024-01-01 00:00:10' - INTERVAL 5 SECONDS",
            dt.datetime(2024, 1, 1, 0, 0, 5),
        ),
        (
            "TIMESTAMP_NTZ '2024-01-01 00:01:00' - TIMESTAMP_NTZ '2024-01-01 00:00:00'",
            dt.timedelta(minutes=1),
        ),
        ("INTERVAL 1 DAY + INTERVAL '2' HOUR", dt.timedelta(hours=26)),
        ("3 * INTERVAL '1' HOUR", dt.timedelta(hours=3)),
        ("-INTERVAL '1' HOUR", dt.timedelta(hours=-1)),
        ("ABS(INTERVAL '-1' HOUR)", dt.timedelta(hours=1)),
        ("NULL AND FALSE", False),
        ("NULL OR TRUE", True),
        ("NULL AND TRUE", None),
        ("NULL <=> NULL", True),
        ("1 <=> NULL", False),
        ("1 IN (2, NULL)", None),
        ("1 NOT IN (1, NULL)", False),
        ("CAST('NaN' AS DOUBLE) = CAST('NaN' AS DOUBLE)", True),
        ("-0.0D = 0.0D", True),
        ("FALSE < TRUE", True),
        ("X'01' < X'FF'", True),
        ("'a' < X'62'", True),
        ("TIME '10:00:00' < TIME '10:00:01'", True),
    ],
)
def test_operators(text, expected):
    found = constant(text)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("2147483647 + 1", "overflow in + on INT"),
        ("9223372036854775807L * 2", "overflow in * on BIGINT"),
        ("-(CAST('-128' AS TINYINT))", "overflow in neg on TINYINT"),
        ("ABS(CAST('-128' AS TINYINT))", "overflow in abs on TINYINT"),
        ("1 / 0", "division by zero"),
        ("1.5 / 0", "division by zero"),
        ("1 % 0", "division by zero"),
        ("1.5D % 0", "division by zero"),
        ("99999999999999999999999999999999999999BD + 1BD", "overflow in +"),
        ("CAST('x' AS INT)", "'x' is not a valid INT"),
        ("CAST(300 AS TINYINT)", "does not fit TINYINT"),
        ("DATE '9999-12-31' + 2147483647", "overflow"),
    ],
)
def test_failures_are_data_errors(text, problem):
    with pytest.raises(DataError, match=problem.replace("+", r"\+").replace("*", r"\*")):
        constant(text)


def test_a_guard_keeps_a_division_from_failing():
    table = pa.table({"a": pa.array([0, 2], pa.int32())}, pa.schema({"a": pa.int32()}))
    schema = table.schema
    for text, expected in [
        ("l.a != 0 AND 10 / l.a > 2", [False, True]),
        ("l.a = 0 OR 10 / l.a > 9", [True, False]),
        ("CASE WHEN l.a = 0 THEN FALSE ELSE 10 / l.a = 5 END", [False, True]),
        ("COALESCE(NULLIF(l.a, 2) = 0, 10 / l.a = 5)", [True, True]),
        ("10 / NULLIF(l.a, 0) = 5", [None, True]),
    ]:
        assert evaluate(bound(text, schema), left=table).to_pylist() == expected, text
    with pytest.raises(DataError, match="division by zero"):
        evaluate(bound("10 / l.a > 2 AND l.a != 0", schema), left=table)


STORED = {
    "dictionary": pa.array(["b", "a", None]).dictionary_encode(),
    "view": pa.array(["b", "a", None], pa.string_view()),
    "large": pa.array(["b", "a", None], pa.large_string()),
    "plain": pa.array(["b", "a", None]),
}


@pytest.mark.parametrize("kind", list(STORED))
def test_every_kind_of_string_column_is_read(kind):
    for table in (pa.table({"s": STORED[kind]}), pa.record_batch({"s": STORED[kind]})):
        found = evaluate(bound("l.s < 'b'", table.schema), left=table)
        assert found.to_pylist() == [False, True, None]


def test_other_encodings_are_read():
    table = pa.table(
        {
            "half": pa.array([1.5, None], pa.float16()),
            "day": pa.array([dt.date(2024, 1, 2), None], pa.date64()),
            "small": pa.array([D("1.50"), None], pa.decimal32(5, 2)),
            "fixed": pa.array([b"ab", None], pa.binary(2)),
            "uuid": pa.array([b"0" * 16, None], pa.uuid()),
            "runs": pa.RunEndEncodedArray.from_arrays([1, 2], [7, None]),
            "st": pa.array([{"x": 5}, None], pa.struct({"x": pa.int32()})),
        }
    )
    for text in [
        "half = 1.5D",
        "day = DATE '2024-01-02'",
        "small = 1.5",
        "fixed = X'6162'",
        "uuid > X'00'",
        "runs = 7",
        "st.x = 5",
        "l.st.X = 5",
    ]:
        expr = bind(Source(text), Scope(table.schema, pa.schema([])))
        assert evaluate(expr, left=table).to_pylist() == [True, None], text


def test_chunks_become_one_array():
    table = pa.table({"a": pa.chunked_array([[1], [], [2, None]], pa.int32())})
    found = evaluate(bound("l.a > 1", table.schema), left=table)
    assert isinstance(found, pa.Array)
    assert found.to_pylist() == [False, True, None]
    assert evaluate(bound("l.a > 1", table.schema), left=table.slice(0, 0)).to_pylist() == []


def test_rows_that_do_not_fit_are_a_schema_error():
    expr = bound("l.a < r.a")
    with pytest.raises(SchemaError, match="differ in length"):
        evaluate(expr, pa.table({"a": [1]}), pa.table({"a": [1, 2]}))
    with pytest.raises(SchemaError, match=r"l\.a is needed"):
        evaluate(expr, right=pa.table({"a": pa.array([1], pa.int32())}))
    with pytest.raises(SchemaError, match="came where"):
        evaluate(bound("l.a > 0"), left=pa.table({"a": ["x"]}))
    with pytest.raises(SchemaError, match="no column 'a', or several"):
        evaluate(bound("l.a > 0"), left=pa.table({"b": [1]}))


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (pa.timestamp("us"), "l.x - INTERVAL '1' DAY"),
        (pa.timestamp("us"), "l.x - r.x"),
        (pa.timestamp("us"), "DATE_TRUNC('hour', l.x)"),
        (pa.duration("us"), "l.x - INTERVAL '1' DAY"),
        (pa.duration("us"), "-l.x"),
        (pa.duration("us"), "ABS(l.x)"),
        (pa.duration("us"), "l.x * 3"),
        (pa.int64(), "l.x - 1"),
        (pa.int64(), "-l.x"),
        (pa.int64(), "l.x * r.x"),
        (pa.int64(), "l.x DIV -1"),
        (pa.int64(), "CAST(l.x AS INT)"),
    ],
)
def test_what_lies_below_a_null_is_never_computed(type_, text):
    # pandas writes NaT as the least integer, and it stays below the NULL that it becomes
    least = pa.py_buffer((1 << 63).to_bytes(8, "little"))
    rows = pa.table({"x": pa.Array.from_buffers(type_, 1, [pa.py_buffer(b"\0"), least])})
    expr = bound(f"({text}) IS NULL", rows.schema).children[0]
    assert evaluate(expr, rows, rows).to_pylist() == [None]
