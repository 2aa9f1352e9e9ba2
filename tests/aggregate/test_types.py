"""Types of aggregates as Spark gives them, exact sums, groups of odd values, larger tables."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal as D

import pyarrow as pa
import pytest

import naive
import thetajoin as tj
from naive import naive_groups
from strategies import assert_same_groups

ONE = pa.table({"k": [0]})


def over(values, aggs, type_=None, group_by=()):
    """Aggregates of a column, as the right side and as the left one."""
    column = pa.table({"k": [1] * len(values), "v": pa.array(values, type_)})
    right = tj.join_agg(
        ONE, column, "l.k < r.k", aggs={f"a{i}": a.format("r.v") for i, a in enumerate(aggs)}
    )
    left = tj.join_agg(
        column, ONE, "l.k > r.k", aggs={f"a{i}": a.format("l.v") for i, a in enumerate(aggs)}
    )
    assert left.schema == right.schema
    assert left.to_pylist() == right.to_pylist() or any(
        isinstance(v, float) and math.isnan(v) for v in left.to_pylist()[0].values()
    )
    return right


ALL = ("sum({})", "avg({})", "min({})", "max({})", "count({})")


@pytest.mark.parametrize(
    ("type_", "values", "sum_type", "avg_type", "want"),
    [
        (pa.int8(), [100, 100, None], pa.int64(), pa.float64(), [200, 100.0, 100, 100, 2]),
        (pa.int32(), [2**31 - 1] * 3, pa.int64(), pa.float64(),
         [3 * (2**31 - 1), 2.0**31 - 1, 2**31 - 1, 2**31 - 1, 3]),
        (pa.int64(), [2**62, 2**62 - 1, -5], pa.int64(), pa.float64(),
         [2**63 - 6, (2**63 - 6) / 3, -5, 2**62, 3]),
        (pa.int64(), [2**63 - 1, -(2**63), 7], pa.int64(), pa.float64(),
         [6, 2.0, -(2**63), 2**63 - 1, 3]),
        (pa.uint64(), [2**64 - 1, 1], pa.decimal128(30, 0), pa.decimal128(24, 4),
         [D(2**64), D(2**63).quantize(D("0.0001")), 1, 2**64 - 1, 2]),
        (pa.float32(), [0.5, None, 2.0], pa.float64(), pa.float64(), [2.5, 1.25, 0.5, 2.0, 2]),
        (pa.decimal128(7, 2), [D("1.10"), D("-2.15"), None], pa.decimal128(17, 2),
         pa.decimal128(11, 6), [D("-1.05"), D("-0.525000"), D("-2.15"), D("1.10"), 2]),
        (pa.decimal128(30, 3), [D("123456789012345678901234567.125"), D("-0.126"), D("1")],
         pa.decimal128(38, 3), pa.decimal128(34, 7),
         [D("123456789012345678901234567.999"), D("41152263004115226300411522.6663333"),
          D("-0.126"), D("123456789012345678901234567.125"), 3]),
    ],
    ids=str,
)  # fmt: skip
def test_numbers(type_, values, sum_type, avg_type, want):
    got = over(values, ALL, type_)
    assert got.schema.types == [sum_type, avg_type, type_, type_, pa.int64()]
    assert list(got.to_pylist()[0].values()) == want


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.string(), ["b", "", None, "é", "a"]),
        (pa.large_string(), ["b", "a"]),
        (pa.binary(), [b"\x01", b""]),
        (pa.bool_(), [True, False]),
        (pa.date32(), [date(2024, 1, 2), date(1960, 1, 1)]),
        (pa.timestamp("us", "UTC"), [datetime(2024, 1, 1, tzinfo=UTC)]),
        (pa.duration("us"), [timedelta(seconds=3), timedelta(seconds=-1)]),
    ],
    ids=str,
)
def test_extremes_keep_their_type(type_, values):
    got = over(values, ("min({})", "max({})"), type_)
    assert got.schema.types == [type_, type_]
    known = [v for v in values if v is not None]
    order = (lambda v: v.encode()) if isinstance(known[0], str) else (lambda v: v)
    assert list(got.to_pylist()[0].values()) == [min(known, key=order), max(known, key=order)]


def test_floats_that_cancel_and_special_ones():
    got = over([1e16, 1.0, -1e16, 2.0**-30], ("sum({})",)).to_pylist()[0]["a0"]
    assert got == 1.0 + 2.0**-30
    for values, want in (
        ([math.inf, 1.0], math.inf),
        ([-math.inf, 1.0], -math.inf),
        ([math.inf, -math.inf], math.nan),
        ([math.nan, 1.0], math.nan),
        ([1e308, 1e308], math.inf),
        ([5e-324, 5e-324], 1e-323),
    ):
        total = over(values, ("sum({})",), pa.float64()).to_pylist()[0]["a0"]
        assert total == want or (math.isnan(want) and math.isnan(total))
    assert math.isnan(over([math.nan, 1.0], ("max({})",)).to_pylist()[0]["a0"])
    assert over([math.nan, 1.0], ("min({})",)).to_pylist()[0]["a0"] == 1.0


def test_floats_too_far_apart_are_added_pair_by_pair():
    values = [1e300, 1e-300, 3e-300]
    right = pa.table({"k": [3, 2, 1], "v": values})
    left = pa.table({"k": [0, 2, 3]})
    got = tj.join_agg(left, right, "l.k >= r.k", group_by="l.k", aggs={"s": "sum(r.v)"})
    assert dict(zip(got["k"].to_pylist(), got["s"].to_pylist(), strict=True)) == {
        2: 4e-300,
        3: 1e300,
    }


@pytest.mark.parametrize("values", [[2**63 - 1, 1], [-(2**63), -1]])
def test_overflow_is_an_error(values):
    with pytest.raises(tj.ThetaJoinError, match=r"sum\([lr]\.v\) overflows BIGINT"):
        over(values, ("sum({})",))
    assert over(values, ("avg({})",)).to_pylist()[0]["a0"] == float(sum(values)) / 2


def test_overflow_names_the_group_and_wide_decimals_overflow_too():
    left = pa.table({"g": ["ok", "much"], "k": [1, 2]})
    right = pa.table({"k": [1, 2], "v": [2**63 - 1, 5]})
    with pytest.raises(tj.ThetaJoinError, match=r"in group \(much\)"):
        tj.join_agg(left, right, "l.k >= r.k", group_by="l.g", aggs={"s": "sum(r.v)"})
    huge = pa.array([D("9" * 38)] * 2, pa.decimal128(38, 0))
    with pytest.raises(tj.ThetaJoinError, match="overflows decimal128"):
        over(huge.to_pylist(), ("sum({})",), pa.decimal128(38, 0))


def test_no_pairs():
    t = pa.table({"k": [1], "g": ["x"], "v": [2.5]})
    aggs = {"n": "count(*)", "c": "count(r.v)", "s": "sum(r.v)", "m": "max(l.v)", "a": "avg(r.k)"}
    assert tj.join_agg(t, t, "l.k < r.k", aggs=aggs).to_pylist() == [
        {"n": 0, "c": 0, "s": None, "m": None, "a": None}
    ]
    assert tj.join_agg(t, t, "l.k < r.k", group_by="l.g", aggs=aggs).num_rows == 0
    empty = t.slice(0, 0)
    assert tj.join_agg(empty, t, "l.k < r.k", aggs={"n": "count(*)"}).to_pylist() == [{"n": 0}]


def test_groups_of_null_nan_zero_and_structs():
    nan = math.nan
    left = pa.table(
        {
            "k": [0] * 6,
            "x": [nan, nan, 0.0, -0.0, None, None],
            "w": pa.array([{"a": 1}, {"a": 1}, {"a": None}, {"a": None}, None, {"a": 1}]),
        }
    )
    got = tj.join_agg(left, ONE, "l.k <= r.k", group_by="l.x", aggs={"n": "count(*)"})
    assert sorted(got["n"].to_pylist()) == [2, 2, 2]
    got = tj.join_agg(left, ONE, "l.k <= r.k", group_by="l.w", aggs={"n": "count(*)"})
    assert sorted(got["n"].to_pylist()) == [1, 2, 3]


def test_output_is_of_the_left_kind():
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    data = {"k": [1, 2], "g": ["a", "b"]}
    query = {"on": "l.k < r.k", "group_by": ["l.g"], "aggs": {"n": "count(*)"}}
    assert tj.join_agg(pd.DataFrame(data), pl.DataFrame(data), **query).to_dict("list") == {
        "g": ["a"],
        "n": [1],
    }
    assert tj.join_agg(pl.DataFrame(data), pa.table(data), **query).to_dict(as_series=False) == {
        "g": ["a"],
        "n": [1],
    }


def rows(seed, name, n):
    draw = random.Random(seed)
    return [
        {name: i, "a": draw.randrange(40), "b": draw.randrange(60), "t": draw.randrange(300)}
        for i in range(n)
    ]


@pytest.mark.parametrize(
    ("window", "oracle"),
    [
        (tj.FullHistory(), naive.Full()),
        (tj.TimeWindow(before=40, after=90, time="t"), naive.Time(40, 90)),
        (tj.CountWindow(150, slide=7), naive.Count(150, 7)),
    ],
    ids=str,
)
@pytest.mark.parametrize("group", ["l.g", "r.g", None])
def test_larger_tables(window, oracle, group):
    left, right = rows(1, "lid", 500), rows(2, "rid", 450)
    for row in (*left, *right):
        row["g"] = row["b"] % 7
    order_by = "t" if isinstance(window, tj.CountWindow) else None
    got = tj.join_agg(
        pa.Table.from_pylist(left),
        pa.Table.from_pylist(right),
        "l.a < r.a AND l.b >= r.b",
        group_by=[group] if group else [],
        aggs={"n": "count(*)", "s": "sum(r.b)", "lo": "min(r.b)", "hi": "max(l.b)"},
        window=window,
        order_by=order_by,
    )
    pairs = naive.naive_join(
        left, right, naive.conj(("a", "<", "a"), ("b", ">=", "b")), window=oracle, order_by=order_by
    )
    side = 0 if group == "l.g" else 1
    want = naive_groups(
        pairs,
        [lambda *p: p[side]["g"]] if group else [],
        [
            ("count", None),
            ("sum", lambda l, r: r["b"]),
            ("min", lambda l, r: r["b"]),
            ("max", lambda l, r: l["b"]),
        ],
    )
    assert_same_groups(got, want, 1 if group else 0)


def test_an_average_with_more_digits_than_python_keeps_by_itself():
    """It fits its type: 26 digits before the point and 8 behind it."""
    value = D("99999999999999999999999999.9998")
    rows = pa.table({"c": pa.array([value, D(0)], pa.decimal128(30, 4))})
    got = tj.self_join_agg(rows, "r.c >= l.c", aggs={"a": "avg(r.c)"})
    assert got["a"].to_pylist() == [value]
