"""Queries that an engine runs around our joins, against DuckDB running all of them."""

from __future__ import annotations

import math
import random
from collections import Counter

import duckdb
import pyarrow as pa
import pytest

import thetajoin as tj
from thetajoin.predicate.parse import Source, parse
from thetajoin.query.on_duckdb import _MACRO, to_duckdb
from thetajoin.query.run import compile_query

HOWS = ("", "LEFT", "RIGHT", "FULL")
# {op} is any comparison of order, {how} a word before JOIN.
QUERIES = [
    "WITH q AS (SELECT l.lid, r.rid FROM t1 l JOIN t2 r ON l.a {op} r.b) "
    "SELECT q.lid, count(*) AS n FROM q GROUP BY q.lid",
    "WITH q AS (SELECT lid, a FROM t1 WHERE c > 0) SELECT q.lid, r.rid, s.rid AS other "
    "FROM q JOIN t2 r ON q.a {op} r.b JOIN t2 s ON s.d = q.lid",
    "WITH q AS (SELECT lid AS i, a FROM t1) SELECT x.i, y.i AS j FROM q x JOIN q y ON x.a {op} y.a",
    "SELECT l.lid, r.rid FROM t1 l JOIN t2 r ON l.a {op} r.b UNION SELECT lid, a FROM t1",
    "SELECT l.lid FROM t1 l JOIN t2 r ON l.a {op} r.b EXCEPT SELECT rid FROM t2",
    "SELECT l.a FROM t1 l JOIN t2 r ON l.a {op} r.b INTERSECT SELECT b FROM t2 WHERE d > 0",
    "SELECT a, count(DISTINCT c) AS n, median(x) AS m FROM t1 GROUP BY a",
    "SELECT count(*) AS n, sum(c) AS s FROM t1",
    "SELECT l.a, count(DISTINCT r.d) AS n, median(r.d) AS m FROM t1 l {how} JOIN t2 r "
    "ON l.a {op} r.b GROUP BY l.a",
    "SELECT l.lid, count(*) AS n, count(r.rid) AS m, sum(l.c) AS s FROM t1 l {how} JOIN t2 r "
    "ON l.a {op} r.b AND l.c <> r.d GROUP BY l.lid",
    "SELECT l.lid, count(*) FILTER (WHERE r.d > 0) AS n FROM t1 l {how} JOIN t2 r ON l.a {op} r.b "
    "GROUP BY l.lid HAVING count(*) > 1",
    "SELECT l.lid, r.rid, row_number() OVER (PARTITION BY l.lid ORDER BY r.rid DESC) AS k "
    "FROM t1 l {how} JOIN t2 r ON l.a {op} r.b QUALIFY k <= 2",
    "SELECT l.c, count(*) AS n, rank() OVER (ORDER BY count(*) DESC, l.c) AS k, "
    "sum(count(*)) OVER () AS whole FROM t1 l JOIN t2 r ON l.a {op} r.b GROUP BY l.c HAVING n > 1",
    "SELECT l.lid, r.rid FROM t1 l {how} JOIN t2 r ON l.a {op} r.b WHERE r.d IS NULL OR l.c > r.d",
    "SELECT l.lid, r.rid FROM t1 l {how} JOIN t2 r ON l.a {op} r.b "
    "WHERE l.c IN (SELECT d FROM t2) AND r.d >= (SELECT min(c) FROM t1)",
    "SELECT l.lid, r.rid FROM t1 l JOIN t2 r ON l.a {op} r.b "
    "WHERE EXISTS (SELECT 1 FROM t2 s WHERE s.d = l.c AND s.rid = r.rid)",
    "SELECT lid FROM t1 WHERE EXISTS (SELECT 1 FROM t2 WHERE t2.b {op} t1.a AND d <> c)",
    "SELECT lid, c FROM t1 l WHERE NOT EXISTS (SELECT * FROM t2 r WHERE l.a {op} r.b) AND c > 0",
    "SELECT lid, (SELECT count(*) FROM t2 WHERE b {op} a) AS n FROM t1",
    "SELECT lid, (SELECT count(*) FROM t2 p JOIN t2 q ON p.b {op} q.d WHERE p.d = t1.c) AS n "
    "FROM t1",
    "SELECT q.lid, r.rid FROM (SELECT lid, a FROM t1 UNION ALL SELECT 100, 1) q "
    "JOIN t2 r ON q.a {op} r.b",
    "SELECT v.k, r.rid FROM (VALUES (1), (2), (NULL)) AS v(k) JOIN t2 r ON v.k {op} r.b",
    "SELECT lid, r.rid FROM t1 l JOIN (SELECT rid, b AS a FROM t2) r USING (a) WHERE l.c {op} rid",
    "SELECT a, l.lid, r.rid FROM t1 l {how} JOIN (SELECT rid, b AS a, d FROM t2) r USING (a) "
    "WHERE l.c {op} r.d OR lid > 2",
    "SELECT * FROM t1 NATURAL JOIN (SELECT b AS a, d AS c, rid FROM t2) q WHERE lid {op} rid",
    "SELECT a FROM t1 l {how} JOIN (SELECT b AS a, rid FROM t2) r USING (a) WHERE lid {op} rid",
    "WITH q AS (SELECT l.lid, r.rid FROM t1 l {how} JOIN t2 r ON l.a - r.b = 1) "
    "SELECT * FROM q WHERE lid {op} rid OR rid IS NULL",
    "SELECT DISTINCT ON (l.a) l.a, r.b FROM t1 l JOIN t2 r ON l.a {op} r.b ORDER BY l.a, r.b",
    "SELECT l.a, r.b, count(*) AS n FROM t1 l JOIN t2 r ON l.a {op} r.b GROUP BY ROLLUP (l.a, r.b)",
    "SELECT l.lid, r.rid, s.rid AS z FROM t1 l, t2 r, t2 s WHERE l.a {op} s.b AND s.d {op} r.d "
    "AND r.rid IN (SELECT rid FROM t2)",
    "SELECT l.x, r.y FROM t1 l JOIN t2 r ON l.x {op} r.y ORDER BY l.x + 0 * length('a'), r.y "
    "NULLS LAST",
    "SELECT * FROM (SELECT l.a AS p, r.b AS q FROM t1 l JOIN t2 r ON l.a {op} r.b) AS o "
    "JOIN t2 s ON o.p = s.d QUALIFY count(*) OVER () > 0",
    "SELECT * FROM (SELECT l.a, r.b FROM t1 l JOIN t2 r ON l.a {op} r.b) AS o WHERE o.a > 0",
    "SELECT l.lid, r.rid, l.c % 3 AS m, CASE WHEN r.d > 0 THEN 'p' ELSE 'n' END AS s "
    "FROM t1 l {how} JOIN t2 r ON l.a {op} r.b AND l.x {op} r.y QUALIFY count(*) OVER () > 0",
    "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 3) "
    "SELECT n.i, r.rid FROM n JOIN t2 r ON n.i {op} r.b",
]  # fmt: skip


def in_duckdb(query, **tables):
    """What DuckDB makes of the whole query."""
    con = duckdb.connect(":memory:")
    con.execute(_MACRO)
    for name, table in tables.items():
        con.register(name, table)
    return con.sql(to_duckdb(parse(Source(query, "", "query")))).fetchall()


def rows(table):
    return [tuple(row.values()) for row in table.to_pylist()]


def bag(found):
    return Counter(map(repr, found))


def table(draw, key, ints, float_):
    """A small table with many ties, NULL and NaN."""
    n = draw.randrange(7)
    whole = {name: [draw.choice([None, -1, 0, 1, 2, 3]) for _ in range(n)] for name in ints}
    broken = [draw.choice([None, math.nan, -0.0, 0.0, 1.5, -1.0]) for _ in range(n)]
    types = {name: pa.int64() for name in (key, *ints)} | {float_: pa.float64()}
    return pa.table({key: range(n), **whole, float_: broken}, schema=pa.schema(types))


@pytest.mark.parametrize("seed", range(3))
def test_against_duckdb(seed):
    draw = random.Random(seed)
    for query in QUERIES:
        op, how = draw.choice(["<", "<=", ">", ">=", "<>"]), draw.choice(HOWS)
        text = query.format(op=op, how=how)
        tables = {"t1": table(draw, "lid", "ac", "x"), "t2": table(draw, "rid", "bd", "y")}
        got = rows(tj.sql(text, **tables))
        want = in_duckdb(text, **tables)
        assert bag(got) == bag(want), text
        if "ORDER BY l." in query:
            assert [repr(row[0]) for row in got] == [repr(row[0]) for row in want], text


R = pa.table({"a1": [1, 5, 9], "a2": ["x", "y", "x"]})
S = pa.table({"b1": [0, 4, 8], "b2": [10, 20, 30]})


def run(query, **more):
    return rows(tj.sql(query, R=R, S=S, **more))


@pytest.mark.parametrize(
    ("query", "pairs"),
    [
        ("SELECT a2, count(*) AS n, rank() OVER (ORDER BY count(*)) FROM R, S WHERE a1 > b1 "
         "GROUP BY a2", False),
        ("SELECT a1, count(b1) AS n, sum(count(b1)) OVER () FROM R LEFT JOIN S ON a1 > b1 "
         "GROUP BY a1", False),
        ("SELECT a1, count(*) AS n, sum(count(*)) OVER () FROM R LEFT JOIN S ON a1 > b1 "
         "GROUP BY a1", True),
        ("SELECT a2, median(b1) FROM R, S WHERE a1 > b1 GROUP BY a2", True),
    ],
)  # fmt: skip
def test_pairs_are_listed_only_where_they_must_be(query, pairs):
    call = compile_query(query, {"R": R, "S": S})
    (join,) = call.joins.values()
    assert join.totals is not pairs


def test_only_the_columns_that_matter_are_joined():
    wide = R.append_column("big", pa.array(["y" * 100] * 3))
    call = compile_query("SELECT median(a1) AS m FROM R, S WHERE a1 > b1 AND b2 > 10",
                         {"R": wide, "S": S})  # fmt: skip
    (join,) = call.joins.values()
    assert join.left.table.schema.names == ["a1"]
    assert list(join.columns) == ["a1"]


@pytest.mark.parametrize(
    ("query", "want"),
    [
        ("SELECT sum(a1) AS s, median(a1) AS m FROM R", {"s": pa.int64(), "m": pa.float64()}),
        ("SELECT a1 / 2 AS h, row_number() OVER (ORDER BY a1) AS n FROM R",
         {"h": pa.float64(), "n": pa.int64()}),
    ],
)  # fmt: skip
def test_types_are_sparks(query, want):
    assert tj.sql(query, R=R).schema == pa.schema(want)


def test_a_tables_own_columns_keep_their_types():
    t = pa.table(
        {
            "a": pa.array([1, 2], pa.timestamp("us", "Europe/Berlin")),
            "b": pa.array(["x", "y"]).dictionary_encode(),
            "c": pa.array(["x", "y"], pa.large_string()),
            "d": pa.array([1, 2], pa.time32("s")),
        }
    )
    query = "SELECT a, t.b, c, d, row_number() OVER (ORDER BY c) AS n FROM t"
    got = tj.sql(query, t=t)
    assert got.select(["a", "b", "c", "d"]).schema == t.schema
    assert got.select(["a", "b", "c", "d"]).to_pylist() == t.to_pylist()
    query = "SELECT x.b, y.a, count(*) OVER () AS n FROM t x JOIN t y ON x.a < y.a"
    assert tj.sql(query, t=t).schema.types[:2] == [
        t.schema.field("b").type,
        t.schema.field("a").type,
    ]


def test_columns_that_duckdb_has_no_type_for():
    """It is given numbers for them only where it does no more than give them out."""
    half = pa.array([1.5, 1.5, 2.5], pa.float32()).cast(pa.float16())
    t = pa.table({"a": [1, 2, 3], "h": half, "d": pa.array([1, 2, 3], pa.duration("s"))})
    got = tj.sql("SELECT DISTINCT x.h FROM t x JOIN t y ON x.a <= y.a LIMIT 3", t=t)
    assert sorted(got["h"].to_pylist()) == [1.5, 2.5]
    assert got.schema.field("h").type == pa.float16()
    # The table is read twice: as it is, and for an input of the join.
    query = "SELECT x.h, x.a FROM (SELECT h, a FROM t WHERE a % 2 = 1) x JOIN R ON x.a < a1 "
    got = run(query + "WHERE (SELECT max(h) FROM t) > 2 AND a1 < 9", t=t)
    assert got == [(1.5, 1), (2.5, 3)]
    # Another table has a column of the same name and another type.
    other = pa.table({"b": [1, 2], "d": ["p", "q"]})
    got = run("SELECT d FROM t WHERE a IN (SELECT b FROM u) ORDER BY a", t=t, u=other)
    assert [row[0].total_seconds() for row in got] == [1, 2]


@pytest.mark.parametrize(
    ("outputs", "groups"),
    [("b1 + a1 AS s", "a1 + b1"), ("INTERVAL 1 DAY + t AS s", "t + INTERVAL 1 DAY")],
)
@pytest.mark.parametrize("more", ["count(*) AS n", "median(b1) AS m"])
def test_groups_written_the_other_way_round(outputs, groups, more):
    times = R.append_column("t", pa.array([0, 0, 1], pa.timestamp("us")))
    query = f"SELECT {outputs}, {more} FROM R JOIN S ON a1 > b1 GROUP BY {groups}"
    distinct = f"SELECT DISTINCT {outputs} FROM R JOIN S ON a1 > b1"
    got, want = (tj.sql(q, R=times, S=S)["s"].to_pylist() for q in (query, distinct))
    assert Counter(got) == Counter(want)


def test_joins_inside_a_recursive_query():
    """The query that WITH RECURSIVE defines is not there yet, so the engine runs such a join."""
    for start in ("n", "(SELECT i FROM n) n"):
        query = f"WITH RECURSIVE n AS (SELECT 1 AS i UNION SELECT n.i + 1 FROM {start} JOIN S "
        assert sorted(run(query + "ON n.i < b1 WHERE n.i < 3) SELECT i FROM n")) == [
            (1,),
            (2,),
            (3,),
        ]
    query = (
        "WITH RECURSIVE n AS (WITH z AS (SELECT min(a1) AS i FROM R) SELECT i FROM z UNION "
        "SELECT n.i + 1 FROM n JOIN S ON n.i < b1 WHERE n.i < 3) "
        "SELECT a1, i FROM n JOIN R ON i > a1"
    )
    assert sorted(run(query)) == [(1, 2), (1, 3)]


def test_kinds_of_tables():
    import pandas as pd
    import polars as pl

    query = "SELECT a2, median(b1) AS m FROM R JOIN S ON a1 > b1 GROUP BY a2 ORDER BY a2"
    want = [("x", 2.0), ("y", 2.0)]
    assert run(query) == want
    got = tj.sql(query, R=R.to_pandas(), S=S.to_pandas())
    assert isinstance(got, pd.DataFrame)
    assert list(got.itertuples(index=False, name=None)) == want
    got = tj.sql(query, R=pl.from_arrow(R), S=S)
    assert isinstance(got, pl.DataFrame)
    assert got.rows() == want
    assert run(query.replace("S ON", "u ON"), u=S.to_reader()) == want


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT nosuch(a1) FROM R JOIN S ON a1 > b1", "unknown function 'nosuch' at position 8"),
        ("SELECT median(R.zz) FROM R JOIN S ON a1 > b1", "unknown column 'zz' at position 15"),
        ("SELECT zz FROM R QUALIFY 1 = 1", "unknown column 'zz' at position 8"),
        ("SELECT x.a1 FROM R x JOIN S y ON x.a1 > y.b3 QUALIFY 1 = 1", "'b3' at position 41"),
        ("SELECT a1 FROM R WHERE a1 > (SELECT zz FROM S)", "zz.* at position 37: `zz`"),
        ("SELECT row_number() OVER (), a1 / 0 FROM R", "division by zero; guard it"),
        ("SELECT median(a1), CAST(a2 AS INT) FROM R GROUP BY a2", "'[xy]'.*INT32"),
        ("SELECT a1 FROM R UNION SELECT b1, b2 FROM S", "same number"),
        ("SELECT median(a1) FROM R, S r WHERE a1 > b1", "two tables are called 'r'"),
        ("WITH q AS (SELECT * FROM T) SELECT * FROM q", "table 'T', which was not given"),
        ("SELECT a1 FROM R JOIN S ON a1 > b1 GROUP BY a2 QUALIFY count(*) > 0",
         "must be in GROUP BY at position 8: `a1`"),
        ("WITH p AS (SELECT a1 FROM R, S WHERE a1 > b1) SELECT count(*) FROM p, S WHERE a1 < b1 "
         "WINDOW AS (SLIDE INTERVAL '1' ON COUNT '2')", "not clear which join"),
        ("SELECT median(a1) FROM R WITHIN 2 ON a1", "no join that it is for"),
        ("SELECT sum(x) OVER () FROM (SELECT 9223372036854775807 AS x UNION ALL SELECT 1) q",
         "does not fit BIGINT|too large"),
    ],
)  # fmt: skip
def test_mistakes(query, message):
    with pytest.raises(tj.ThetaJoinError, match=message) as caught:
        run(query)
    said = str(caught.value)
    assert "\n" not in said
    assert "thetajoin" not in said.replace("thetajoin[sql]", "")


def test_errors_in_the_words_of_the_query():
    a = pa.table({"id": [1], "s": [{"f": 1}]})
    b = pa.table({"id": [2], "s": [{"f": 1}]})
    with pytest.raises(tj.ThetaJoinError) as caught:
        tj.sql("SELECT x.id FROM a x JOIN b y ON x.id < y.id AND x.s < y.s + 1", a=a, b=b)
    assert "l." not in str(caught.value)
    assert "y.s + 1" in str(caught.value)


@pytest.mark.parametrize(
    ("query", "want"),
    [
        # A name in WITH hides a table's, but in its own query.
        ("WITH R AS (SELECT a1 + 100 AS a1 FROM R) SELECT a1 FROM R JOIN S ON a1 > b1 AND b1 > 4 "
         "ORDER BY 1", [(101,), (105,), (109,)]),
        ("SELECT q.x FROM (WITH z AS (SELECT a1 AS x FROM R) SELECT z.x FROM z JOIN S ON z.x > b1 "
         "AND b1 > 0) q ORDER BY 1", [(5,), (9,), (9,)]),
        ("SELECT a1 AS b1, b1 AS a1 FROM R JOIN S ON a1 > b1 ORDER BY a1, b1 LIMIT length('ab')",
         [(1, 0), (5, 0)]),
        ("SELECT a2, first_value(b1) OVER w AS f FROM R JOIN S ON a1 > b1 AND b1 > 0 "
         "WINDOW w AS (PARTITION BY a2 ORDER BY b1) ORDER BY 1", [("x", 4), ("x", 4), ("y", 4)]),
        ("SELECT a2, b1, count(*) AS n FROM R JOIN S ON a1 > b1 AND b1 > 0 GROUP BY ALL "
         "ORDER BY ALL", [("x", 4, 1), ("x", 8, 1), ("y", 4, 1)]),
        ("SELECT R.a1, e.v FROM R JOIN S ON a1 > b1 LATERAL VIEW explode(array(1, 2)) e AS v "
         "ORDER BY 1, 2 LIMIT 3", [(1, 1), (1, 2), (5, 1)]),
        ("SELECT a.a1, b.b1 FROM R a LEFT JOIN S b ON a.a1 < b.b1 AND b.b1 IN (SELECT 8) "
         "ORDER BY 1", [(1, 8), (5, 8), (9, None)]),
        ("SELECT a.a1, b.a1 AS z FROM R a JOIN R b ON a.a1 < b.a1 AND b.a2 IN "
         "(SELECT a2 FROM R WHERE a1 = 9) ORDER BY 1", [(1, 9), (5, 9)]),
        ("SELECT a1, b1 FROM R JOIN S ON a1 > b1 AND levenshtein(a2, 'x') < 1 AND b1 > 0 "
         "ORDER BY 1, 2", [(9, 4), (9, 8)]),
        ("SELECT r.a1, s.b1, t.b1 AS c FROM R r CROSS JOIN S t JOIN S s ON r.a1 > s.b1 "
         "ORDER BY 1, 2, 3 LIMIT 2", [(1, 0, 0), (1, 0, 4)]),
        ("SELECT x.a1, (SELECT max(b1) FROM S WHERE b1 < x.a1) AS m FROM R x JOIN S y "
         "ON x.a1 < y.b1 ORDER BY 1", [(1, 0), (1, 0), (5, 4)]),
        ("SELECT a2 AS g, count(*) AS n FROM R, S WHERE a1 > b1 GROUP BY g "
         "QUALIFY rank() OVER (ORDER BY n DESC) = 1", [("x", 4)]),
        ("SELECT transform(array(a1), v -> v + 1) AS l, current_date IS NULL AS d FROM R "
         "WHERE a1 > ALL (SELECT b1 FROM S)", [([10], False)]),
        ("SELECT a1, b1 FROM R CROSS JOIN S WHERE a1 > b1 INTERSECT SELECT 9, 8", [(9, 8)]),
    ],
)  # fmt: skip
def test_queries(query, want):
    assert run(query) == want


def test_windows_around_a_rest():
    query = (
        "SELECT median(b2) AS m, count(*) AS n FROM R, S WHERE a1 > b1 "
        "WINDOW AS (SLIDE INTERVAL '1' ON COUNT '2')"
    )
    plain = tj.join(R, S, "l.a1 > r.b1", window=tj.CountWindow(2))
    assert run(query)[0][1] == plain.num_rows
    with_cte = f"WITH q AS ({query}) SELECT n FROM q"
    assert run(with_cte) == [(plain.num_rows,)]


def test_asof_joins_around_a_rest():
    query = (
        "WITH q AS (SELECT a1, b1 FROM R ASOF JOIN S ON a1 >= b1) "
        "SELECT a1, b1, lag(b1) OVER (ORDER BY a1) AS before FROM q ORDER BY a1"
    )
    assert run(query) == [(1, 0, None), (5, 4, 0), (9, 8, 4)]


def test_a_failure_inside_the_join_is_told_as_it_is():
    with pytest.raises(tj.ThetaJoinError, match="division by zero; guard it with NULLIF"):
        run("SELECT median(a1) FROM R JOIN S ON a1 / b1 > 0 AND a1 > b1")


def test_without_duckdb(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "duckdb", None)
    for query in (
        "SELECT count(*) FROM R JOIN S ON a1 > b1",
        "SELECT a1, b1 FROM R JOIN S ON a1 > b1",
        "SELECT a1 FROM R WHERE a1 > 4 ORDER BY 1 DESC",
    ):
        with pytest.raises(tj.ThetaJoinError, match="needs DuckDB, which is not") as caught:
            run(query)
        assert str(caught.value).endswith("pip install 'thetajoin[sql]'")
        assert "\n" not in str(caught.value)


def test_a_difference_that_equals_something_is_a_join_of_ours():
    """DuckDB compares every pair for it, and has no difference of these two types."""
    left = pa.table({"at": pa.array([5000, 6001], pa.timestamp("ns", "UTC"))})
    right = pa.table({"then": pa.array([4, 5], pa.timestamp("us", "Europe/Berlin"))})
    on = "x.at - y.then = INTERVAL '1' MICROSECOND"
    query = f"WITH q AS (SELECT x.at FROM a x JOIN b y ON {on}) SELECT count(*) AS n FROM q"
    assert tj.sql(query, a=left, b=right).to_pydict() == {"n": [1]}
