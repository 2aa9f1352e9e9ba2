"""HAVING, ORDER BY, LIMIT and queries in FROM of `tj.sql`."""

from __future__ import annotations

from functools import cmp_to_key

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import thetajoin as tj
from strategies import examples, left_rows, left_table, right_rows, right_table

R = pa.table({"a1": [1, 5, 9], "a2": ["x", "y", "x"]})
S = pa.table({"b1": [0, 4, 8], "b2": [10, 20, 30]})
NAN = float("nan")


def run(query, **more):
    return [tuple(row.values()) for row in tj.sql(query, R=R, S=S, **more).to_pylist()]


@pytest.mark.parametrize(
    ("query", "want"),
    [
        ("SELECT a2, count(*) AS n FROM R, S WHERE a1 > b1 GROUP BY a2 HAVING n > 2", [("x", 4)]),
        ("SELECT a2 FROM R, S WHERE a1 > b1 GROUP BY a2 HAVING sum(b2) < 40 AND a2 > 'a'",
         [("y",)]),
        ("SELECT count(*) FROM R, S WHERE a1 > b1 HAVING max(b1) > 100", []),
        ("SELECT a1, b1 FROM R, S WHERE a1 > b1 ORDER BY b1 DESC, a1",
         [(9, 8), (5, 4), (9, 4), (1, 0), (5, 0), (9, 0)]),
        ("SELECT a1 AS q FROM R, S WHERE a1 > b1 ORDER BY q DESC, b2 LIMIT 2 OFFSET 2",
         [(9,), (5,)]),
        ("SELECT a1 * -1 AS a1 FROM R, S WHERE a1 > b1 AND b1 = 0 ORDER BY a1",
         [(-9,), (-5,), (-1,)]),
        ("SELECT a1 FROM R, S WHERE a1 > b1 AND b1 = 0 ORDER BY 1 DESC LIMIT 1", [(9,)]),
        ("SELECT a1 FROM R, S WHERE a1 > b1 LIMIT 0", []),
        ("SELECT a2 FROM R, S WHERE a1 > b1 GROUP BY a2 ORDER BY count(*)", [("y",), ("x",)]),
        ("SELECT DISTINCT a1 % 4 AS m FROM R, S WHERE a1 > b1 ORDER BY m", [(1,)]),
        ("SELECT a1, b1 FROM R LEFT JOIN S ON a1 < b1 AND b1 < 5 ORDER BY b1 DESC, a1",
         [(1, 4), (5, None), (9, None)]),
        ("SELECT a1, b1 FROM R LEFT JOIN S ON a1 < b1 AND b1 < 5 ORDER BY b1 NULLS LAST, a1",
         [(1, 4), (5, None), (9, None)]),
        ("SELECT a1, b1 FROM R LEFT JOIN S ON a1 < b1 AND b1 < 5 ORDER BY b1, a1",
         [(5, None), (9, None), (1, 4)]),
        ("SELECT a1, c FROM R, (SELECT b1 + 1 AS c FROM S WHERE b2 < 25) s WHERE a1 > c "
         "ORDER BY 1, 2", [(5, 1), (9, 1), (9, 5)]),
        ("SELECT count(*) FROM (SELECT * FROM R ORDER BY a1 DESC LIMIT 1) AS r, S WHERE a1 > b1",
         [(3,)]),
        ("SELECT t.a2, count(*) FROM (SELECT R.a2, S.b1 FROM R, S WHERE a1 > b1) t JOIN S "
         "ON t.b1 < S.b1 GROUP BY t.a2 ORDER BY t.a2", [("x", 5), ("y", 3)]),
        ("SELECT count(*) FROM (SELECT a1 FROM (SELECT a1 FROM R WHERE a1 > 1) i) o, S "
         "WHERE o.a1 < b1", [(1,)]),
    ],
)  # fmt: skip
def test_clauses(query, want):
    assert run(query) == want


def compared(a, b) -> int:
    """Spark's order of two values: NULL first, NaN last."""
    place = [(v is not None, v is not None and v != v, v) for v in (a, b)]
    if place[0][:2] != place[1][:2] or a is None or a != a:
        return (place[0][:2] > place[1][:2]) - (place[0][:2] < place[1][:2])
    return (a > b) - (a < b)


@examples(30)
@given(
    left_rows(),
    right_rows(),
    st.sampled_from(["", "NULLS FIRST", "NULLS LAST"]),
    st.booleans(),
    st.integers(0, 5),
    st.integers(0, 2),
)
def test_order_against_python(left, right, nulls, falling, limit, offset):
    way = "DESC" if falling else "ASC"
    query = (
        f"SELECT x.c, y.d FROM t1 x JOIN t2 y ON x.a <= y.b ORDER BY x.c {way} {nulls}, y.d "
        f"LIMIT {limit} OFFSET {offset}"
    )
    got = tj.sql(query, t1=left_table(left), t2=right_table(right)).to_pylist()
    pairs = naive.naive_join(left, right, naive.conj(("a", "<=", "b")))
    last = nulls == "NULLS LAST" or (not nulls and falling)

    def order(p, q) -> int:
        first, second = p[0]["c"], q[0]["c"]
        if (first is None) != (second is None):
            by_null = -1 if first is None else 1
            return -by_null if last else by_null
        by_c = compared(first, second) * (-1 if falling else 1)
        return by_c or compared(p[1]["d"], q[1]["d"])

    want = [(l["c"], r["d"]) for l, r in sorted(pairs, key=cmp_to_key(order))]
    assert repr([tuple(row.values()) for row in got]) == repr(want[offset : offset + limit])


def test_nan_is_above_all_numbers_and_strings_by_their_bytes():
    t = pa.table({"x": [2.0, NAN, None, -1.0], "s": ["b", "é", "B", None]})
    one = pa.table({"k": [0]})
    query = "SELECT {0} FROM t JOIN u ON k >= 0 AND k + 1 > -t.z ORDER BY {0} DESC"
    t = t.append_column("z", pa.array([0] * 4))
    got = tj.sql(query.format("x"), t=t, u=one).column(0).to_pylist()
    assert repr(got) == "[nan, 2.0, -1.0, None]"
    got = tj.sql(query.format("s"), t=t, u=one).column(0).to_pylist()
    assert got == ["é", "b", "B", None]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT a1 FROM R, S WHERE a1 > b1 HAVING a1 > 3", "HAVING without groups.*use WHERE"),
        ("SELECT a2 FROM R, S WHERE a1 > b1 GROUP BY a2 HAVING a1 > 3", "must be in GROUP BY.*a1"),
        ("SELECT a2 FROM R, S WHERE a1 > b1 GROUP BY a2 ORDER BY a1", "must be in GROUP BY.*a1"),
        ("SELECT a1 FROM R, S WHERE a1 > b1 ORDER BY 2", "ORDER BY 2: there are 1 columns"),
        ("SELECT a1 FROM R, S WHERE a1 > b1 ORDER BY q", "unknown column 'q'"),
        ("SELECT DISTINCT a1 FROM R, S WHERE a1 > b1 ORDER BY b1", "SELECT DISTINCT.*: b1"),
        ("SELECT a1 FROM R, (SELECT b9 FROM S) s WHERE a1 > 0", "unknown column 'b9'"),
        ("SELECT a1 FROM R, (SELECT * FROM T) s WHERE a1 > 0", "table 'T', which was not given"),
        ("SELECT a1 FROM R, (SELECT S.b1 FROM S, R WHERE a1 > b1) s WHERE a1 > s.b1 "
         "WINDOW AS (SLIDE INTERVAL '1' ON COUNT '2')", "not clear which join"),
    ],
)  # fmt: skip
def test_mistakes(query, message):
    with pytest.raises(tj.ThetaJoinError, match=message) as caught:
        run(query)
    assert "\n" not in str(caught.value)
