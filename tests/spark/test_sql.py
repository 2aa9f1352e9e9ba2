"""`tj.sql` on Spark DataFrames: tables, streams, and a mix of both."""

from __future__ import annotations

from typing import Any

import pytest

import naive
import thetajoin as tj
from naive import Push
from spark.harness import Streams

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
