"""Totals of two streams: what is refused, and rows that wait for the other side's columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import thetajoin as tj

AGGS = {"n": "count(*)"}


def rows(*values: int) -> pa.Table:
    return pa.table({"k": [str(value % 3) for value in values], "x": values})


def totals(**more: Any) -> tj.StreamJoin:
    given = {"group_by": "l.k", "aggs": AGGS, "window": tj.FullHistory()}
    return tj.StreamJoin("l.x < r.x", **(given | more))


def test_rows_that_wait_for_the_other_sides_columns():
    stream = totals()
    assert stream.push(left=rows(0, 1, 2)).num_columns == 0
    assert stream.schema is None
    stream = tj.StreamJoin.restore(stream.snapshot())
    stream.push(left=rows(3))
    assert stream.push(right=rows(2)).to_pydict() == {"k": ["0", "1"], "n": [1, 1]}
    assert stream.push(right=rows(9)).to_pydict() == {"k": ["0", "1", "2"], "n": [3, 2, 1]}
    assert stream.push(right=rows(0)).num_rows == 0
    assert stream.finish().to_pydict() == {"k": ["0", "1", "2"], "n": [3, 2, 1]}


def test_without_groups_there_is_always_one_row():
    schema = rows(0).schema
    stream = totals(group_by=(), left_schema=schema, right_schema=schema)
    assert stream.push(left=rows(1)).to_pydict() == {"n": [0]}
    assert stream.push(right=rows(2)).to_pydict() == {"n": [1]}
    assert stream.finish().to_pydict() == {"n": [1]}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"keep_late": True}, "leave it out beside aggs"),
        ({"indicator": "found"}, "leave it out beside aggs"),
        ({"how": "semi"}, "aggregates over a join take"),
        ({"index": "pim_tree"}, "aggregates are answered by"),
        ({"aggs": None}, "goes with aggs"),
        ({"aggs": {"n": "count(l.nothing)"}}, "unknown column"),
    ],
)
def test_refusals(more: dict[str, Any], message: str):
    schema = rows(0).schema
    with pytest.raises(tj.ThetaJoinError, match=message):
        totals(left_schema=schema, right_schema=schema, **more)


def test_columns_that_never_came():
    stream = totals()
    stream.push(left=rows(1))
    with pytest.raises(tj.ThetaJoinError, match="pass right_schema"):
        stream.finish()
