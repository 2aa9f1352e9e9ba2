"""`tj.sql`: the same rows as the oracle's joins, and mistakes that quote the clause."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import thetajoin as tj
from naive import naive_groups
from strategies import assert_same_groups, examples, left_rows, left_table, right_rows, right_table

START = datetime(2024, 1, 1)


def minutes(*values):
    return [START + timedelta(minutes=n) for n in values]


R = pa.table({"a1": [1, 5, 9], "a2": ["x", "y", "x"], "ts": minutes(0, 5, 30)})
S = pa.table({"b1": [0, 4, 8], "b2": [10, 20, 30], "ts": minutes(1, 6, 8)})
U = pa.table({"k": [3, 100], "name": ["p", "q"]})


def run(query):
    return tj.sql(query, R=R, S=S, U=U)


def rows(table):
    return Counter(tuple(row.values()) for row in table.to_pylist())


def test_the_papers_queries():
    online = "SELECT ONLINE R.a2, sum(S.b2) AS s FROM R, S WHERE R.a1 > S.b1 WITHIN 10 minutes"
    assert rows(run(online + " GROUP BY R.a2;")) == {("x", 10): 1, ("y", 30): 1}
    whole = "SELECT ONLINE R.a2, sum(S.b2) AS s FROM R, S WHERE R.a1 > S.b1 GROUP BY R.a2"
    assert rows(run(whole)) == {("x", 70): 1, ("y", 30): 1}
    assert rows(run(online.replace("minutes", "minutes ON ts") + " GROUP BY 1")) == rows(
        run(online + " GROUP BY a2")
    )
    q1 = "SELECT R.a1, S.b1 FROM R, S WHERE R.a1 > S.b1 WINDOW AS (SLIDE INTERVAL '1' ON COUNT '2')"
    expected = naive.naive_join(
        R.to_pylist(), S.to_pylist(), naive.conj(("a1", ">", "b1")), window=naive.Count(2, 1)
    )
    assert rows(run(q1)) == Counter((l["a1"], r["b1"]) for l, r in expected)


@pytest.mark.parametrize(
    ("query", "want"),
    [
        ("SELECT DISTINCT a2 FROM R JOIN S ON a1 > b1", {("x",): 1, ("y",): 1}),
        (
            "SELECT a1, count(b1) AS n, sum(b2) AS s FROM R LEFT JOIN S ON a1 > b1 AND b2 > 15 "
            "WHERE a1 < 9 GROUP BY a1 ORDER BY n",
            {(1, 0, None): 1, (5, 1, 20): 1},
        ),
        (
            "SELECT a1 FROM R LEFT JOIN S ON a1 < b1 AND b1 > 5 GROUP BY a1 HAVING count(b1) = 0",
            {(9,): 1},
        ),
        ("SELECT count(b1) AS n FROM R LEFT JOIN S ON a1 < b1", {(3,): 1}),
        (
            "SELECT a2, sum(b2) / count(*) + 1 AS m FROM R JOIN S ON a1 > b1 GROUP BY a2",
            {("x", 18.5): 1, ("y", 16.0): 1},
        ),
        ("SELECT r.a1 * 2 FROM R r JOIN S s ON r.a1 < s.b1 AND s.b2 < 25", {(2,): 1}),
        ("SELECT a1, b1 FROM R LEFT JOIN S ON a1 < b1 AND b1 < 5",
         {(1, 4): 1, (5, None): 1, (9, None): 1}),
        ("SELECT a1 FROM R LEFT JOIN S ON a1 > b1 WHERE b1 > 2", {(5,): 1, (9,): 2}),
        ("SELECT a1 FROM R LEFT SEMI JOIN S ON a1 < b1", {(1,): 1, (5,): 1}),
        ("SELECT a1 FROM R LEFT ANTI JOIN S ON a1 < b1", {(9,): 1}),
        ("SELECT 'WITHIN 5 minutes' AS t FROM R, S WHERE a1 < b1 AND b1 < 5",
         {("WITHIN 5 minutes",): 1}),
        (
            "SELECT u.name, count(*) FROM R r JOIN S s ON r.a1 > s.b1 JOIN U u ON u.k < s.b2 "
            "WHERE r.a1 < 9 GROUP BY u.name",
            {("p", 3): 1},
        ),
        ("SELECT count(*), max(l.b1) FROM R AS r, S AS l WHERE r.a1 > l.b1", {(6, 8): 1}),
    ],
)  # fmt: skip
def test_queries(query, want):
    assert rows(run(query)) == Counter(want)


def test_star_has_the_columns_of_a_join():
    got = run("SELECT * FROM R JOIN S ON R.a1 > S.b1")
    assert got.schema == tj.join(R, S, "l.a1 > r.b1").schema
    assert run("SELECT S.* FROM R JOIN S ON R.a1 > S.b1").schema.names == S.schema.names


OPS = st.sampled_from(naive.OPERATORS)


@examples(30)
@given(left_rows(), right_rows(), OPS, OPS, st.sampled_from(["x.a", "y.d"]))
def test_against_the_oracle(left, right, first, second, group):
    query = (
        f"SELECT {group}, count(*) AS n, sum(y.d) AS s, min(x.c) AS m FROM t1 x "
        f"JOIN t2 AS y ON x.a {first} y.b WHERE x.c {second} y.d GROUP BY {group}"
    )
    got = tj.sql(query, t1=left_table(left), t2=right_table(right))
    pairs = naive.naive_join(left, right, naive.conj(("a", first, "b"), ("c", second, "d")))
    side, name = (0, "a") if group == "x.a" else (1, "d")
    want = naive_groups(
        pairs,
        [lambda *pair: pair[side][name]],
        [("count", None), ("sum", lambda l, r: r["d"]), ("min", lambda l, r: l["c"])],
    )
    assert_same_groups(got, want, 1)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("", "the query is empty"),
        ("INSERT INTO R VALUES (1)", "begins with SELECT, not INSERT"),
        ("SELECT a1 FROM R, T WHERE a1 > b1", "the table 'T', which was not given"),
        ("SELECT q FROM R, S WHERE a1 > b1", "unknown column 'q'"),
        ("SELECT ts FROM R, S WHERE a1 > b1", "'ts' is ambiguous.*r.ts or s.ts"),
        ("SELECT z.a1 FROM R, S WHERE a1 > b1", "unknown table 'z'|unknown column"),
        ("SELECT a1, count(*) FROM R, S WHERE a1 > b1", "must be in GROUP BY.*a1"),
        ("SELECT sum(max(a1)) FROM R, S WHERE a1 > b1", "inside an aggregate"),
        ("SELECT a1 FROM R, S WHERE a1 > b1 WINDOW AS (TUMBLE 5)", "not understood.*TUMBLE 5"),
        ("SELECT a1 FROM R, U WHERE a1 > k WITHIN 5 minutes", "time column of 'U'"),
        ("SELECT a1 FROM R, S WHERE a1 > b1 WITHIN 5 minutes ON tt", "'tt' is not in"),
        ("SELECT a1 FROM R, S, U WHERE a1 > b1 AND k > b1 WITHIN 5 minutes", "two tables"),
        ("SELECT a1 FROM R, S WHERE a1 >", "in the query"),
    ],
)  # fmt: skip
def test_mistakes(query, message):
    with pytest.raises(tj.ThetaJoinError, match=message) as caught:
        run(query)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("type_", [pa.string_view(), pa.binary_view()])
@pytest.mark.parametrize(
    ("query", "want"),
    [
        (
            "SELECT r.k, s.k AS m FROM a r LEFT JOIN a s ON r.k < s.k WHERE s.k IS NULL",
            [("y", None)],
        ),
        ("SELECT r.k FROM a r JOIN a s ON r.k <= s.k ORDER BY 1 DESC LIMIT 2", [("y",), ("x",)]),
        ("SELECT DISTINCT r.k FROM a r JOIN a s ON r.k > s.k", [("y",)]),
        (
            "SELECT k FROM (SELECT k FROM a WHERE k > CAST('x' AS BINARY)) q, b WHERE k >= l",
            [("y",)],
        ),
        ("SELECT r.k, count(*) AS n FROM a r, a s WHERE r.k > s.k GROUP BY r.k", [("y", 1)]),
    ],
)
def test_views(query, want, type_):
    if type_ == pa.string_view():
        query = query.replace("CAST('x' AS BINARY)", "'x'")
    a = pa.table({"k": pa.array(["x", "y"]).cast(type_)})
    got = tj.sql(query, a=a, b=a.rename_columns(["l"]).slice(1)).to_pylist()
    plain = [[v.decode() if isinstance(v, bytes) else v for v in row.values()] for row in got]
    assert list(map(tuple, plain)) == want
