"""Overlapping intervals: every strictness, reversed and empty intervals, with and without keys."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import strategies as own
import thetajoin as tj
from strategies import HOWS, ids, left_rows, left_table, naive_ids, right_rows, right_table
from thetajoin.engine import tables

STRICT = list(itertools.product(("<", "<="), (">", ">=")))


def conditions(first, second, keyed):
    """``l.a .. l.c`` overlaps ``r.b .. r.d``."""
    on = f"l.a {first} r.d AND l.c {second} r.b"
    pred = naive.conj(("a", first, "d"), ("c", second, "b"))
    if keyed:
        on += " AND l.x = r.y"
        pred = naive.all_of(pred, naive.conj(("x", "=", "y")))
    return on, pred


@pytest.mark.parametrize(("first", "second"), STRICT)
@own.examples(40)
@given(
    left=left_rows(),
    right=right_rows(),
    keyed=st.booleans(),
    how=st.sampled_from(HOWS),
    straight=st.booleans(),
)
def test_overlaps(first, second, left, right, keyed, how, straight):
    """With as many reversed intervals as come, and with none."""
    if straight:
        for row, start, end in [(r, "a", "c") for r in left] + [(r, "b", "d") for r in right]:
            if row[start] is not None and row[end] is not None and row[start] > row[end]:
                row[start], row[end] = row[end], row[start]
    on, pred = conditions(first, second, keyed)
    most, tables.MOST_REVERSED = tables.MOST_REVERSED, 1.0
    try:
        got = tj.join(left_table(left), right_table(right), on, how=how)
    finally:
        tables.MOST_REVERSED = most
    assert ids(got) == naive_ids(naive.naive_join(left, right, pred, how=how))


@own.examples(30)
@given(rows=left_rows(16))
def test_a_table_with_itself(rows):
    on, pred = "l.a <= r.c AND l.c >= r.a", naive.conj(("a", "<=", "c"), ("c", ">=", "a"))
    got = tj.self_join(left_table(rows), on)
    expected = naive.naive_self_join(rows, pred)
    assert sorted(zip(got["lid"].to_pylist(), got["lid_right"].to_pylist(), strict=True)) == sorted(
        (l["lid"], r["lid"]) for l, r in expected
    )


def test_columns_that_arrow_cannot_filter():
    """Rows that meet themselves are left out before their columns are gathered."""
    words = pa.table({"w": pa.array(["a", "b", "b"], pa.string_view())})
    got = tj.self_join(words, "l.w <= r.w")
    pairs = zip(got["w"].to_pylist(), got["w_right"].to_pylist(), strict=True)
    assert sorted(pairs) == [("a", "b"), ("a", "b"), ("b", "b"), ("b", "b")]
