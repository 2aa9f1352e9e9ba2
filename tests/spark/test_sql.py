"""`tj.sql` on Spark DataFrames: tables, streams, and a mix of both."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import naive
import thetajoin as tj
from naive import Push, naive_groups
from spark.harness import Streams
from strategies import assert_same_groups

pytestmark = pytest.mark.spark


def test_sql_on_spark(spark: Any, streams: Streams) -> None:
    left = [{"lid": i, "a": i % 4, "c": 1, "t": None} for i in range(8)]
    right = [{"rid": i, "b": i % 3, "d": i, "t": None} for i in range(6)]
    streams.push(Push(left[:5], right[:2]), Push(left[5:], right[2:]))
    query = "SELECT x.lid, y.rid + 0 AS rid FROM x JOIN y ON x.a < y.b WHERE y.d > 0"
    window = " WINDOW AS (SLIDE INTERVAL '1' ON COUNT '100' ORDER BY lid, rid)"
    l, r = streams.both()
    pred = naive.all_of(naive.conj(("a", "<", "b")), lambda l, r: r["d"] > 0)
    want = {(p["lid"], q["rid"]) for p, q in naive.naive_join(left, right, pred)}
    assert set(streams.run(tj.sql(query + window, x=l, y=r)).ids) == want

    tables = [spark.read.parquet(str(streams.folder / name)) for name in "lr"]
    totals = tj.sql(
        "SELECT x.a, count(*) AS n FROM x, y WHERE x.a < y.b AND y.d > 0 GROUP BY x.a",
        x=tables[0],
        y=tables[1],
    )
    assert sum(row["n"] for row in totals.collect()) == len(want)

    ordered = (
        "SELECT x.lid, y.rid + 0 AS rid FROM x JOIN (SELECT * FROM y WHERE d > 0) y ON x.a < y.b"
    )
    ordered += " ORDER BY y.rid DESC NULLS LAST, -x.lid LIMIT 5 OFFSET 1"
    got = [tuple(row) for row in tj.sql(ordered, x=tables[0], y=tables[1]).collect()]
    assert got == sorted(want, key=lambda pair: (-pair[1], -pair[0]))[1:6]
    few = (
        "SELECT x.a, count(*) AS n FROM x, y WHERE x.a < y.b AND y.d > 0 GROUP BY x.a HAVING n < 9"
    )
    kept = [row["n"] for row in tj.sql(few, x=tables[0], y=tables[1]).collect()]
    assert sorted(kept) == sorted(row["n"] for row in totals.collect() if row["n"] < 9)
    for clause in ("ORDER BY x.a", "LIMIT 3", "OFFSET 2"):
        with pytest.raises(tj.ThetaJoinError, match=f"on a stream.*not supported: {clause}"):
            tj.sql(f"SELECT x.a FROM x, y WHERE x.a < y.b {clause}", x=l, y=tables[1])


def test_a_table_with_itself_under_a_window(spark: Any, streams: Streams) -> None:
    """The SPO-Join paper's Q2, of a table and of a stream; one row with itself is no pair."""
    rows = [{"lid": i, "a": i * 7 % 5, "c": i * 3 % 4, "t": None} for i in range(40)]
    streams.push(Push(rows[:15], ()), Push(rows[15:], ()))
    window = "WINDOW AS (SLIDE INTERVAL '4' ON COUNT '10' ORDER BY lid)"
    join = f"FROM x l JOIN x r ON l.a <= r.a WHERE l.c >= r.c {window}"
    pred = naive.conj(("a", "<=", "a"), ("c", ">=", "c"))
    pairs = naive.naive_self_join(rows, pred, window=naive.Count(10, 4), order_by="lid")
    want = Counter((l["lid"], r["lid"]) for l, r in pairs)
    totals = naive_groups(pairs, [lambda l, r: l["a"]], [("count", None)])
    listed, grouped = f"SELECT l.lid, r.lid AS rid {join}", f"SELECT l.a, count(*) AS n {join}"
    for df in (spark.read.parquet(str(streams.folder / "l")), streams.read("l")):
        result = tj.sql(listed, x=df)
        if df.isStreaming:
            assert streams.run(result).ids == want
            continue
        assert Counter(tuple(row) for row in result.collect()) == want
        got = tj.sql(f"{grouped} GROUP BY l.a", x=df).toArrow()
        assert_same_groups(got, totals, 1)


def test_where_above_and_below_outer_joins_on_spark(spark: Any) -> None:
    tables = {
        name: spark.createDataFrame([(value,) for value in values], "k long")
        for name, values in (("a", [0, 1]), ("b", [1, 2]), ("c", [2, 3]))
    }
    query = "SELECT a.k AS x, b.k AS y, c.k AS z FROM a JOIN b ON a.k < b.k RIGHT JOIN c "
    query += "ON b.k < c.k WHERE a.k > 0"
    assert [tuple(row) for row in tj.sql(query, **tables).collect()] == [(1, 2, 3)]
    query = "SELECT a.k AS x, b.k AS y FROM a LEFT JOIN b ON a.k > b.k WHERE a.k = 1"
    assert [tuple(row) for row in tj.sql(query, **tables).collect()] == [(1, None)]
    mistakes = [
        "SELECT nosuch(a.k) FROM a JOIN b ON a.k < b.k",
        "SELECT a.k FROM a LEFT JOIN b ON a.k < b.k WHERE a.k",
        "SELECT max(a.k) FROM a JOIN b ON a.k < b.k HAVING max(a.k)",
        "SELECT a.k FROM (SELECT k FROM a WHERE nosuch(k)) a JOIN b ON a.k < b.k",
    ]
    for wrong in mistakes:
        with pytest.raises(tj.ThetaJoinError, match="in the query") as caught:
            tj.sql(wrong, **tables)
        assert "\n" not in str(caught.value)
