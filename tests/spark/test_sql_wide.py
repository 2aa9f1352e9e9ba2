"""SQL around our joins on Spark, where Spark SQL runs it: the same rows as without Spark."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

import naive
import thetajoin as tj
from naive import Push

pytestmark = pytest.mark.spark

R = pa.table({"a1": [1, 5, 9, None], "a2": ["x", "y", "x", "z"], "k": [1, 2, 3, 4]})
S = pa.table({"b1": [0, 4, 8], "b2": [10, 20, 30], "k": [1, 2, 2]})
QUERIES = [
    "SELECT a2, count(*) AS n FROM R GROUP BY a2",
    "WITH q AS (SELECT a1, b1 FROM R JOIN S ON a1 > b1) SELECT x.a1, count(*) AS n FROM q x "
    "JOIN q y ON x.a1 > y.b1 GROUP BY x.a1",
    "SELECT a1, b1 FROM R JOIN S ON a1 > b1 UNION ALL SELECT 1, 2",
    "SELECT a2, count(DISTINCT b1) AS n, median(b2) AS m FROM R JOIN S ON a1 > b1 GROUP BY a2",
    "SELECT a1, b1, row_number() OVER (PARTITION BY a1 ORDER BY b1) AS n FROM R JOIN S ON a1 > b1 "
    "QUALIFY n = 1",
    "SELECT a2, count(*) AS n, rank() OVER (ORDER BY count(*) DESC) AS k FROM R JOIN S ON a1 > b1 "
    "GROUP BY a2 HAVING n > 1",
    "SELECT a1, count(*) AS n, count(b1) AS m FROM R LEFT JOIN S ON a1 < b1 GROUP BY a1",
    "SELECT a1, b1 FROM R FULL JOIN S ON a1 < b1 WHERE b2 > 10 OR a2 IN (SELECT 'z' AS x)",
    "SELECT a1 FROM R WHERE EXISTS (SELECT 1 FROM S WHERE b1 > a1)",
    "SELECT a1 FROM R WHERE NOT EXISTS (SELECT 1 FROM S WHERE b1 > a1)",
    "SELECT k, a1, b1 FROM R LEFT JOIN S USING (k) WHERE b1 < a1 OR b1 IS NULL",
    "SELECT count(*) FILTER (WHERE b2 > 10) AS n, '{k}' AS t FROM R JOIN S ON a1 > b1",
]  # fmt: skip


def bag(rows):
    plain = [[None if v != v else v for v in row] for row in rows]
    return Counter(map(str, map(tuple, plain)))


@pytest.fixture(scope="module")
def frames(spark):
    return {
        name: spark.createDataFrame(
            [tuple(row.values()) for row in table.to_pylist()],
            ", ".join(f"{f.name} {'string' if f.type == pa.string() else 'long'}"
                      for f in table.schema),
        )
        for name, table in (("R", R), ("S", S))
    }  # fmt: skip


def test_spark_runs_the_rest(spark, frames):
    before = {table.name for table in spark.catalog.listTables()}
    for query in QUERIES:
        got = tj.sql(query, **frames)
        want = tj.sql(query, R=R, S=S)
        assert got.columns == want.schema.names, query
        assert bag(map(tuple, got.collect())) == bag(
            tuple(row.values()) for row in want.to_pylist()
        ), query
    assert {table.name for table in spark.catalog.listTables()} == before


def test_few_rows_of_a_join(frames):
    for limit in (0, 2):
        found = tj.sql(f"SELECT a1, b1 FROM R JOIN S ON a1 > b1 LIMIT {limit}", **frames)
        assert found.count() == limit


def test_mistakes_on_spark(frames):
    with pytest.raises(tj.ThetaJoinError, match="nosuch") as caught:
        tj.sql("SELECT nosuch(a1) FROM R JOIN S ON a1 > b1", **frames)
    assert "\n" not in str(caught.value)
    with pytest.raises(tj.ThetaJoinError, match="tables of Spark and others"):
        tj.sql("SELECT a1 FROM R UNION SELECT b1 FROM S", R=frames["R"], S=S)


def test_a_stream_and_its_rest(streams):
    """What Spark allows after a join of streams: here a function that conditions do not have."""
    left = [{"lid": i, "a": i % 4, "c": 1, "t": None} for i in range(8)]
    right = [{"rid": i, "b": i % 3, "d": i, "t": None} for i in range(6)]
    streams.push(Push(left[:5], right[:2]), Push(left[5:], right[2:]))
    query = (
        "WITH q AS (SELECT x.lid, y.rid, y.d FROM x JOIN y ON x.a < y.b WHERE y.d > 0 "
        "WINDOW AS (SLIDE INTERVAL '1' ON COUNT '100' ORDER BY lid, rid)) "
        "SELECT lid, rid FROM q WHERE levenshtein(CAST(d AS STRING), '3') > 0"
    )
    l, r = streams.both()
    pred = naive.all_of(naive.conj(("a", "<", "b")), lambda l, r: r["d"] not in (0, 3))
    want = {(p["lid"], q["rid"]) for p, q in naive.naive_join(left, right, pred)}
    found = tj.sql(query, x=l, y=r)
    assert found.isStreaming
    assert set(streams.run(found).ids) == want
