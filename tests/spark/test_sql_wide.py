"""SQL around our joins on Spark, where Spark SQL runs it: the same rows as without Spark."""

from __future__ import annotations

import math
from collections import Counter

import pyarrow as pa
import pytest

import thetajoin as tj

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
    "SELECT a1, b1 FROM R FULL JOIN S ON a1 < b1 WHERE b2 > 10 OR a2 IN (SELECT 'z')",
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
    assert math.isfinite(1)


def test_mistakes_on_spark(frames):
    with pytest.raises(tj.ThetaJoinError, match="nosuch") as caught:
        tj.sql("SELECT nosuch(a1) FROM R JOIN S ON a1 > b1", **frames)
    assert "\n" not in str(caught.value)
    with pytest.raises(tj.ThetaJoinError, match="tables of Spark and others"):
        tj.sql("SELECT a1 FROM R UNION SELECT b1 FROM S", R=frames["R"], S=S)


def test_a_stream_and_its_rest(spark, tmp_path):
    """What Spark allows after a join of streams: here an expression that only Spark has."""
    spark.createDataFrame([(1, 5), (2, 9)], "n int, x int").write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema("n int, x int").parquet(str(tmp_path / "in"))
    query = (
        "SELECT a.n, levenshtein(CAST(a.x AS STRING), CAST(b.x AS STRING)) AS d FROM t a, u b "
        "WHERE a.x < b.x WITHIN 10 ON n"
    )
    found = tj.sql(query, t=stream, u=stream.select("*"))
    assert found.isStreaming
    assert found.columns == ["n", "d"]
