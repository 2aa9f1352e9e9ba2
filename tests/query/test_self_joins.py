"""A table with itself in SQL: an ordinary join, and under a window the self-join of one stream."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import thetajoin as tj
from naive import naive_groups
from strategies import assert_same_groups, examples, nullable_ints, rows, table
from thetajoin.query.run import compile_query

SCHEMA = {"id": pa.int64(), "k": pa.int64(), "v": pa.int64(), "t": pa.int64()}
ROWS = rows(
    "id",
    {"k": nullable_ints, "v": nullable_ints, "t": st.none() | st.integers(0, 8)},
)
OPS = st.tuples(*[st.sampled_from(naive.OPERATORS)] * 2)
WINDOWS = st.one_of(
    st.builds(
        lambda size, slide, order: (
            f"WINDOW AS (SLIDE INTERVAL '{slide}' ON COUNT '{size}'"
            f"{' ORDER BY t' if order else ''})",
            naive.Count(size, slide),
            "t" if order else None,
        ),
        st.integers(1, 6),
        st.integers(1, 8),
        st.booleans(),
    ),
    st.integers(1, 4).map(lambda n: (f"WITHIN {n} ON t", naive.Time(n, n), None)),
)


def pairs(result):
    return Counter(tuple(row.values()) for row in result.to_pylist())


@examples(60)
@given(ROWS, OPS, WINDOWS)
def test_under_a_window_it_is_the_self_join(given_rows, ops, window):
    clause, oracle, order_by = window
    query = (
        f"SELECT a.id, b.id AS other FROM s a JOIN S AS b ON a.k {ops[0]} b.v "
        f"WHERE a.v {ops[1]} b.k AND b.k > -1 {clause}"
    )
    pred = naive.all_of(
        naive.conj(("k", ops[0], "v"), ("v", ops[1], "k")),
        lambda l, r: naive.compare(r["k"], ">", -1),
    )
    found = naive.naive_self_join(given_rows, pred, window=oracle, order_by=order_by)
    data = table(given_rows, SCHEMA)
    assert pairs(tj.sql(query, s=data)) == Counter((l["id"], r["id"]) for l, r in found)
    totals = query.replace("a.id, b.id AS other", "a.k, count(*) AS n, max(b.id) AS m")
    got = tj.sql(f"{totals} GROUP BY a.k", s=data)
    aggs = [("count", None), ("max", lambda l, r: r["id"])]
    assert_same_groups(got, naive_groups(found, [lambda l, r: l["k"]], aggs), 1)


def test_the_papers_second_query():
    """600 rows in a window of 200 that slides by 20: pairs in both roles, of one stream."""
    rng = np.random.default_rng(7)
    trips = pa.table({"km": rng.integers(0, 90, 600), "fare": rng.integers(0, 90, 600)})
    where = "FROM trips a, trips b WHERE a.km > b.km AND a.fare < b.fare"
    window = "WINDOW AS (SLIDE INTERVAL '20' ON COUNT '200')"
    on = "l.km > r.km AND l.fare < r.fare"
    want = tj.self_join(trips, on, window=tj.CountWindow(200, 20))
    query = f"SELECT a.km, a.fare, b.km AS km_right, b.fare AS fare_right {where} {window}"
    assert pairs(tj.sql(query, trips=trips)) == pairs(want)
    counted = f"SELECT count(*) AS n {where} {window}"
    assert tj.sql(counted, trips=trips).to_pydict() == {"n": [want.num_rows]}
    (join,) = compile_query(counted, {"trips": trips}).joins.values()
    assert join.spec.self_join
    assert tj.sql(f"{query} LIMIT 5", trips=trips).num_rows == 5
    ordinary = tj.join(trips, trips, on)
    assert tj.sql(f"SELECT count(*) AS n {where}", trips=trips).to_pydict() == {
        "n": [ordinary.num_rows]
    }


def test_without_a_window_a_row_may_meet_itself():
    data = pa.table({"k": [1, 2]})
    assert tj.sql("SELECT a.k FROM t a, t b WHERE a.k <= b.k", t=data).num_rows == 3
    window = "WINDOW AS (SLIDE INTERVAL '1' ON COUNT '9')"
    assert tj.sql(f"SELECT a.k FROM t a, t b WHERE a.k <= b.k {window}", t=data).num_rows == 1
    given_window = (tj.CountWindow(9), None)
    call = compile_query("SELECT a.k FROM t a, t b WHERE a.k <= b.k", {"t": data}, given_window)
    assert call.table().num_rows == 1
    # Two names are two tables, whatever they hold.
    both = tj.sql(f"SELECT t.k FROM t, u WHERE t.k <= u.k {window}", t=data, u=data)
    assert both.num_rows == 3


def test_columns_and_names_of_a_self_join():
    data = pa.table({"k": [1, 2], "k_right": [5, 6], "K_RIGHT_": [7, 8]})
    window = "WINDOW AS (SLIDE INTERVAL '1' ON COUNT '9')"
    got = tj.sql(f"SELECT * FROM t a, t b WHERE a.k < b.k {window}", t=data)
    assert [tuple(row.values()) for row in got.to_pylist()] == [(1, 5, 7, 2, 6, 8)]
    starting = datetime(2024, 1, 1)
    timed = pa.table({"k": [1, 2, 3], "ts": [starting + timedelta(minutes=n) for n in (0, 5, 20)]})
    near = tj.sql("SELECT a.k, b.k AS j FROM t a, t b WHERE a.k < b.k WITHIN 10 minutes", t=timed)
    assert near.to_pydict() == {"k": [1], "j": [2]}


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("t a LEFT JOIN t b ON a.k < b.k {}", "'t' with itself under a window.*not left"),
        ("t a LEFT ANTI JOIN t b ON a.k < b.k {}", "is an inner join, not anti"),
        ("t a, t b {}", "nothing joins 'b'"),
        ("t a, t b WHERE a.k < 3 {}", "names only the left side"),
        ("t a, t b WHERE a.k < b.k WINDOW AS (SLIDE INTERVAL '1' ON COUNT '9' ORDER BY k, v)",
         "have one order"),
        ("t a, t b WHERE a.k < b.k WINDOW AS (SLIDE INTERVAL '1' ON COUNT '9' ORDER BY z)",
         "the window's column 'z'"),
    ],
)  # fmt: skip
def test_mistakes(query, message):
    data = pa.table({"k": [1, 2], "v": [1, 2]})
    window = "WINDOW AS (SLIDE INTERVAL '1' ON COUNT '9')"
    with pytest.raises(tj.ThetaJoinError, match=message) as caught:
        tj.sql(f"SELECT a.k FROM {query.format(window)}", t=data)
    assert "\n" not in str(caught.value)
