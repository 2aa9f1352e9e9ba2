"""`join_agg` against grouping the oracle's pairs: conditions, windows, groups, batchings."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import strategies as own
import thetajoin as tj
from naive import naive_groups
from strategies import (
    STREAM_L,
    STREAM_R,
    asked,
    assert_same_groups,
    chosen,
    left_rows,
    left_table,
    right_rows,
    right_table,
    table,
)

GROUPS = {
    "l.a": lambda l, r: l["a"],
    "l.c": lambda l, r: l["c"],
    "r.b": lambda l, r: r["b"],
    "r.d": lambda l, r: r["d"],
    "l.a + r.b": lambda l, r: naive.arithmetic("+", l["a"], r["b"]),
}
AGGS = {
    "count(*)": ("count", None),
    "count(r.b)": ("count", lambda l, r: r["b"]),
    "count(l.c)": ("count", lambda l, r: l["c"]),
    "sum(r.d)": ("sum", lambda l, r: r["d"]),
    "sum(l.a)": ("sum", lambda l, r: l["a"]),
    "avg(r.b)": ("avg", lambda l, r: r["b"]),
    "avg(l.c)": ("avg", lambda l, r: l["c"]),
    "min(r.d)": ("min", lambda l, r: r["d"]),
    "max(r.b)": ("max", lambda l, r: r["b"]),
    "min(l.c)": ("min", lambda l, r: l["c"]),
    "max(l.a)": ("max", lambda l, r: l["a"]),
    "sum(l.a * r.d)": ("sum", lambda l, r: naive.arithmetic("*", l["a"], r["d"])),
}
FLOATS = {
    "sum(r.y)": ("sum", lambda l, r: r["y"]),
    "sum(l.x)": ("sum", lambda l, r: l["x"]),
    "avg(r.y)": ("avg", lambda l, r: r["y"]),
    "min(r.y)": ("min", lambda l, r: r["y"]),
    "max(l.x)": ("max", lambda l, r: l["x"]),
    "max(r.y)": ("max", lambda l, r: r["y"]),
}
ONE_SIDED = [g for g in GROUPS if g != "l.a + r.b"]


def expected(pairs, groups, aggs):
    known = AGGS | FLOATS
    return naive_groups(pairs, [GROUPS[g] for g in groups], [known[a] for a in aggs])


@own.examples(120)
@given(
    left_rows(),
    right_rows(),
    own.conditions(),
    chosen(GROUPS, 2),
    chosen(AGGS | FLOATS, 4).filter(bool),
)
def test_any_condition(left, right, condition, groups, aggs):
    got = tj.join_agg(
        left_table(left), right_table(right), condition.sql, **asked(groups, aggs), threads=1
    )
    pairs = naive.naive_join(left, right, condition.pred)
    assert_same_groups(got, expected(pairs, groups, aggs), len(groups))


@pytest.mark.parametrize("first", naive.OPERATORS)
@pytest.mark.parametrize("second", naive.OPERATORS)
@own.examples(5)
@given(left_rows(), right_rows(), chosen(ONE_SIDED, 2), chosen(AGGS, 4).filter(bool))
def test_all_pairs_of_operators(first, second, left, right, groups, aggs):
    got = tj.join_agg(
        left_table(left),
        right_table(right),
        f"l.a {first} r.b AND l.c {second} r.d",
        **asked(groups, aggs),
        threads=1,
    )
    pairs = naive.naive_join(left, right, naive.conj(("a", first, "b"), ("c", second, "d")))
    assert_same_groups(got, expected(pairs, groups, aggs), len(groups))


TIMES = st.none() | st.integers(0, 30)
LEFT = own.rows("lid", {"a": own.nullable_ints, "c": own.nullable_ints, "t": TIMES}, 40)
RIGHT = own.rows("rid", {"b": own.nullable_ints, "d": own.nullable_ints, "t": TIMES}, 40)
OPS = st.tuples(own.operators, own.operators)
PLAIN = [name for name in AGGS if name != "sum(l.a * r.d)"]


@own.examples(100)
@given(LEFT, RIGHT, OPS, own.windows(), chosen(GROUPS, 2), chosen(PLAIN, 3).filter(bool))
def test_windows(left, right, ops, windowed, groups, aggs):
    got = tj.join_agg(
        table(left, STREAM_L),
        table(right, STREAM_R),
        f"l.a {ops[0]} r.b AND l.c {ops[1]} r.d",
        window=windowed.window,
        order_by=windowed.order_by,
        **asked(groups, aggs),
    )
    pairs = naive.naive_join(
        left,
        right,
        naive.conj(("a", ops[0], "b"), ("c", ops[1], "d")),
        window=windowed.naive,
        order_by=windowed.order_by,
    )
    assert_same_groups(got, expected(pairs, groups, aggs), len(groups))


@own.examples(100)
@given(
    own.streams(watermarks=True),
    OPS,
    own.windows(),
    chosen(GROUPS, 2),
    chosen(PLAIN, 3).filter(bool),
    own.engine_options(),
    st.integers(0, 4),
)
def test_streams(steps, ops, windowed, groups, aggs, options, restart):
    stream = tj.StreamJoin(
        f"l.a {ops[0]} r.b AND l.c {ops[1]} r.d",
        window=windowed.window,
        order_by=windowed.order_by,
        left_schema=pa.schema(STREAM_L),
        right_schema=pa.schema(STREAM_R),
        **asked(groups, aggs),
        **options,
    )
    timed = isinstance(windowed.window, tj.TimeWindow)
    latest = {}
    for number, step in enumerate(steps):
        if isinstance(step, naive.Advance):
            if timed:
                stream.advance(step.watermark)
            continue
        changed = stream.push(table(step.left, STREAM_L), table(step.right, STREAM_R))
        latest |= {tuple(row.values())[: len(groups)]: row for row in changed.to_pylist()}
        if number == restart:
            stream = tj.StreamJoin.restore(stream.snapshot())
    known = [step for step in steps if timed or not isinstance(step, naive.Advance)]
    pairs = naive.naive_stream(
        known,
        naive.conj(("a", ops[0], "b"), ("c", ops[1], "d")),
        window=windowed.naive,
        order_by=windowed.order_by,
    ).rows
    want = expected(pairs, groups, aggs)
    assert_same_groups(stream.finish(), want, len(groups))
    if groups:
        # Updates alone are enough to know every group's totals.
        updates = pa.Table.from_pylist(list(latest.values()), schema=stream.schema)
        assert_same_groups(updates, want, len(groups))


@pytest.mark.parametrize(
    "on",
    [
        "l.a <= r.a OR (l.a <= r.a AND l.z < r.z)",
        "l.a <= r.a AND (l.z < r.z OR TRUE)",
        "l.a <= r.a AND (l.z IS NULL OR 1 < 2)",
        "l.a <= r.a AND NOT (l.z < r.z AND FALSE)",
    ],
)
def test_columns_that_only_a_part_without_effect_names(on):
    table = pa.table({"a": [1, 2], "z": [5, 5], "spare": [0, 0]})
    got = tj.join_agg(table, table, on, aggs={"n": "count(*)"})
    assert got.to_pydict() == {"n": [3]}
    alone = tj.self_join_agg(table, on, aggs={"n": "count(*)"})
    assert alone.to_pydict() == {"n": [1]}


NAMED = pa.table({"k": [1, 2], "name": ["a", "b"]})


def test_distinct_extremes_are_extremes():
    assert tj.join_agg(NAMED, NAMED, "l.k < r.k", aggs={"m": "max(DISTINCT r.k)"}).to_pylist() == [
        {"m": 2}
    ]


def test_explain_says_which_way():
    def ways(on, aggs, group_by=(), **more):
        return tj.explain(NAMED, NAMED, on, aggs=aggs, group_by=group_by, **more).ways

    count = {"n": "count(*)"}
    assert [(w.way, w.orders) for w in ways("l.k < r.k", count)] == [("totals", 1)]
    two = "l.k < r.k AND l.name > r.name"
    assert [(w.way, w.orders) for w in ways(two, count)] == [("totals", 2)]
    window = tj.CountWindow(5)
    assert [(w.way, w.orders) for w in ways(two, count, window=window)] == [("totals", 3)]
    (way,) = ways("l.k < r.k AND l.k + r.k < 9", count)
    assert way.way == "pairs"
    assert "l.k + r.k < 9" in way.reason
    (way,) = ways("l.k < r.k", {"s": "sum(l.k * r.k)"})
    assert way.way == "pairs"
    assert "names both sides" in way.reason
    text = str(tj.explain(NAMED, NAMED, "l.k < r.k OR l.name > r.name", aggs=count, group_by="l.k"))
    assert "without pairs" in text
    assert "alternative 2 of" in text
