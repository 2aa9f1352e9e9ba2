"""Mistakes in groups and aggregates: one line that says what, where and what would be right."""

from __future__ import annotations

import pyarrow as pa
import pytest

import thetajoin as tj

T = pa.table({"k": [1, 2], "name": ["a", "b"], "tags": [["x"], []]})


def run(aggs, group_by=(), on="l.k < r.k", **more):
    return tj.join_agg(T, T, on, group_by=group_by, aggs=aggs, **more)


@pytest.mark.parametrize(
    ("aggs", "message"),
    [
        ({"s": "sum(l.kk)"}, r"in aggregate 's': unknown column 'kk' of the left side.*'k'"),
        ({"s": "sum(k)"}, "ambiguous"),
        ({"s": "sum(max(l.k))"}, r"in aggregate 's': an aggregate \(max\) inside an aggregate"),
        ({"s": "count(DISTINCT l.k)"}, "DISTINCT inside an aggregate is not supported"),
        ({"s": "sum(DISTINCT l.k)"}, "DISTINCT inside an aggregate is not supported"),
        ({"s": "median(l.k)"}, "unsupported aggregate 'median'"),
        ({"s": "summ(l.k)"}, "did you mean 'sum'"),
        ({"s": "l.k"}, "this is not an aggregate"),
        ({"s": "sum(l.k) + 1"}, "this is not an aggregate"),
        ({"s": "sum(*)"}, r"sum\(\*\) is not an aggregate"),
        ({"s": "sum(l.k, r.k)"}, "sum takes one argument, not 2"),
        ({"s": "sum(l.name)"}, "sum takes numbers, not STRING .*; cast it"),
        ({"s": "max(l.tags)"}, "max takes values with an order"),
        ({"s": "sum(l.k"}, "in aggregate 's'"),
        ({"s": "sum(l.k) OVER ()"}, "this is not an aggregate"),
        ({"s": "sum(l.k) FILTER (WHERE l.k > 1)"}, "this is not an aggregate"),
        ({}, "aggregates are written like"),
        (["count(*)"], "aggregates are written like"),
        ({"s": 5}, "aggregates are written like"),
    ],
)
def test_aggregates(aggs, message):
    with pytest.raises(tj.ThetaJoinError, match=message) as caught:
        run(aggs)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("group_by", "message"),
    [
        ("l.kk", "in group_by: unknown column 'kk'"),
        (["l.tags"], "cannot be grouped by"),
        ([5], "each is text"),
        (7, "give a column"),
        (["l.k", "r.k", "l.k"], "two columns of the result are called 'k_right'"),
        ({"n": "l.k"}, "two columns of the result are called 'n'"),
    ],
)
def test_groups(group_by, message):
    with pytest.raises(tj.ThetaJoinError, match=message):
        run({"n": "count(*)"}, group_by)


def test_the_rest_is_checked_as_in_a_join():
    with pytest.raises(tj.ThetaJoinError, match="unknown column"):
        run({"n": "count(*)"}, on="l.q < r.k")
    with pytest.raises(tj.ThetaJoinError, match="did you mean 'threads'"):
        run({"n": "count(*)"}, thread=1)
    with pytest.raises(tj.ThetaJoinError, match="no window"):
        run({"n": "count(*)"}, window=5)


def test_distinct_extremes_are_extremes():
    assert run({"m": "max(DISTINCT r.k)"}).to_pylist() == [{"m": 2}]


def test_explain_says_which_way():
    def ways(on, aggs, group_by=(), **more):
        return tj.explain(T, T, on, aggs=aggs, group_by=group_by, **more).ways

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
    text = str(tj.explain(T, T, "l.k < r.k OR l.name > r.name", aggs=count, group_by="l.k"))
    assert "without pairs" in text
    assert "alternative 2 of" in text
