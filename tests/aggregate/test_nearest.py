"""Aggregates over nearest matches against grouping what the definition gives."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import thetajoin as tj
from naive import Near, naive_groups
from strategies import assert_same_groups, examples, left_rows, left_table, right_rows, right_table

AGGS: dict[str, tuple[str, Any]] = {
    "count(*)": ("count", None),
    "count(r.d)": ("count", lambda l, r: r["d"]),
    "sum(r.d)": ("sum", lambda l, r: r["d"]),
    "avg(r.d)": ("avg", lambda l, r: r["d"]),
    "min(l.c)": ("min", lambda l, r: l["c"]),
    "max(r.rid)": ("max", lambda l, r: r["rid"]),
    "sum(l.c - r.d)": ("sum", lambda l, r: naive.arithmetic("-", l["c"], r["d"])),
}
TEXTS = {f"x{at}": text for at, text in enumerate(AGGS)}


def expected(pairs: Any, groups: list[Any], how: str, left: list[Any]) -> Any:
    matched = [(l, r) for l, r in pairs if r is not None]
    return naive_groups(
        matched, groups, list(AGGS.values()), left if how == "left" and groups else ()
    )


@examples(120)
@given(
    left=left_rows(),
    right=right_rows(),
    direction=st.sampled_from(["backward", "forward", "nearest"]),
    k=st.integers(1, 3),
    ties=st.sampled_from([None, "first", "last", "all"]),
    how=st.sampled_from(["left", "inner"]),
    group=st.sampled_from([None, "l.c", "l.a", "l.lid"]),
    equal=st.booleans(),
)
def test_against_the_definition(left, right, direction, k, ties, how, group, equal):
    near = Near(("a", "b"), direction, None, k, ties)
    pred = naive.conj(("c", "=", "d")) if equal else None
    groups = [] if group is None else [lambda l, r: l[group[2:]]]
    pairs = naive.naive_nearest(left, right, pred, near)
    got = tj.nearest(
        left_table(left),
        right_table(right),
        key=("a", "b"),
        by=[("c", "d")] if equal else (),
        direction=direction,
        k=k,
        ties=ties,
        how=how,
        group_by=() if group is None else group,
        aggs=TEXTS,
    )
    assert_same_groups(got, expected(pairs, groups, how, left), len(groups))


@examples(40)
@given(left_rows(), right_rows(), st.integers(1, 3))
def test_groups_of_both_sides(left, right, k):
    near = Near(("a", "b"), "nearest", None, k, "all")
    pairs = naive.naive_nearest(left, right, naive.conj(("c", "<=", "d")), near)
    groups = [lambda l, r: l["c"], lambda l, r: r["d"]]
    got = tj.nearest(
        left_table(left),
        right_table(right),
        key=("a", "b"),
        on="l.c <= r.d",
        direction="nearest",
        k=k,
        ties="all",
        how="inner",
        group_by=["l.c", "r.d"],
        aggs=TEXTS,
    )
    assert_same_groups(got, expected(pairs, groups, "inner", left), 2)


def test_more_pairs_than_are_added_at_once(monkeypatch):
    monkeypatch.setattr("thetajoin.aggregate.rows.CHUNK", 7)
    left = [{"lid": i, "a": i % 11, "c": i % 5} for i in range(60)]
    right = [{"rid": i, "b": i % 13, "d": i % 4} for i in range(40)]
    near = Near(("a", "b"), "nearest", None, 3, "all")
    pairs = naive.naive_nearest(left, right, None, near)
    both = pa.Table.from_pylist(left), pa.Table.from_pylist(right)
    arguments: dict[str, Any] = {"direction": "nearest", "k": 3, "ties": "all", "how": "inner"}
    for group_by in (["l.c", "r.d"], ["l.c + r.d"]):
        got = tj.nearest(*both, key=("a", "b"), **arguments, group_by=group_by, aggs=TEXTS)
        groups: list[Any] = [lambda l, r: l["c"], lambda l, r: r["d"]]
        groups = groups if len(group_by) == 2 else [lambda l, r: l["c"] + r["d"]]
        assert_same_groups(got, expected(pairs, groups, "inner", left), len(groups))


def test_a_filter_on_the_left_side_leaves_its_groups():
    left = pa.table({"g": ["a", "b", "b"], "t": [5, 6, None]})
    right = pa.table({"t": [1, 4], "x": [1.5, 2.5]})
    aggs = {"n": "count(*)", "s": "sum(r.x)"}
    arguments: dict[str, Any] = {"key": "t", "on": "l.g = 'a' AND r.x > l.t - 9", "aggs": aggs}
    got = tj.nearest(left, right, **arguments, group_by="l.g")
    assert got.to_pydict() == {"g": ["a", "b"], "n": [1, 0], "s": [2.5, None]}
    got = tj.nearest(left, right, **arguments, group_by="l.g", how="inner")
    assert got.to_pydict() == {"g": ["a"], "n": [1], "s": [2.5]}
    empty = tj.nearest(left.slice(0, 0), right, **arguments)
    assert empty.to_pydict() == {"n": [0], "s": [None]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"group_by": "l.g"}, "group_by='l.g' goes with aggs"),
        ({"aggs": {}}, "aggregates are written like"),
        ({"aggs": {"n": "count(*)"}, "how": "semi"}, "how='inner' or how='left'"),
        ({"aggs": {"n": "count(*)"}, "group_by": "r.t"}, "of the right side"),
        ({"aggs": {"n": "count(*)"}, "window": tj.CountWindow(3)}, "use a TimeWindow"),
        ({"aggs": {"n": "median(r.t)"}}, "median"),
        ({"aggs": {"n": "count(*)"}, "key": "nope"}, "key column 'nope'"),
    ],
)
def test_bad_input(arguments, message):
    table = pa.table({"t": [1], "g": ["a"]})
    with pytest.raises(tj.ThetaJoinError, match=message) as caught:
        tj.nearest(table, table, **({"key": "t"} | arguments))
    assert "\n" not in str(caught.value)
