"""What comes out of a streaming join is an ordinary streaming DataFrame."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import naive
import thetajoin as tj
from spark.harness import Streams, at, closing, expected, random_batches, seconds, with_watermarks

pytestmark = [pytest.mark.spark]

ON = "l.a < r.b AND l.c >= r.d"
PRED = naive.conj(("a", "<", "b"), ("c", ">=", "d"))


def test_filter_aggregate_and_sinks(streams: Streams) -> None:
    from pyspark.sql import functions as F

    batches = random_batches(20, batches=2, rows=16)
    streams.push(*batches)
    want, result = expected(batches, PRED)
    joined = tj.join(*streams.both(), ON, window=tj.FullHistory())
    assert joined.isStreaming

    counted = joined.where("a > -2").groupBy("a").agg(F.count("*").alias("n"))
    counts = counted.writeStream.outputMode("complete").format("memory").queryName("counts")
    files = joined.select("lid", "rid").writeStream.format("parquet")
    files = files.option("checkpointLocation", str(streams.folder / "cp"))
    given: list[Any] = []
    each = joined.writeStream.foreachBatch(lambda df, _: given.extend(df.collect()))
    queries = [
        counts.trigger(availableNow=True).start(),
        files.trigger(availableNow=True).start(str(streams.folder / "out")),
        each.trigger(availableNow=True).start(),
    ]
    for query in queries:
        query.awaitTermination()
    got = {row.a: row.n for row in streams.spark.table("counts").collect()}
    assert got == Counter(l["a"] for l, r in result.rows if l["a"] > -2)
    out = streams.spark.read.parquet(str(streams.folder / "out")).collect()
    assert Counter((row.lid, row.rid) for row in out) == want
    assert Counter((row.lid, row.rid) for row in given) == want


def test_metrics_add_up(streams: Streams) -> None:
    batches = [*random_batches(21, batches=3), closing()]
    streams.push(*batches)
    inputs = streams.both("5 seconds")
    window = tj.TimeWindow("10 seconds", time="t")
    run = streams.run(tj.join(*inputs, ON, window=window, units=3))
    oracle = naive.Time(seconds(10), seconds(10))
    _, result = expected(with_watermarks(batches, seconds(5)), PRED, window=oracle)
    assert run.total("pairs") == result.pairs == run.rows.num_rows
    assert run.total("late_rows") == result.late_rows
    assert run.total("null_times") == result.null_times
    assert run.total("unmatched") == 0
    first = run.units[0]
    assert [unit["unit"] for unit in first] == [0, 1, 2]
    assert sum(unit["window_left"] for unit in first) == len(batches[0].left)
    assert sum(unit["window_right"] for unit in first) == len(batches[0].right)
    names = [name for name in run.progress[0].observedMetrics if name.startswith("thetajoin_")]
    assert len(names) == 1


def test_a_join_of_a_join(streams: Streams) -> None:
    """Full history and count windows chain as they are."""
    batches = random_batches(22, batches=2, rows=8)
    streams.push(*batches)
    left, right = streams.both()
    third = streams.read("r").selectExpr("rid AS id", "b AS e")
    first = tj.join(left, right, ON, window=tj.FullHistory())
    both = tj.join(first, third, "l.b < r.e", window=tj.FullHistory())
    got = Counter((row["lid"], row["rid"], row["id"]) for row in streams.run(both).rows.to_pylist())
    pairs = expected(batches, PRED)[1].rows
    rights = [row for batch in batches for row in batch.right]
    want = Counter(
        (l["lid"], r["rid"], x["rid"])
        for l, r in pairs
        for x in rights
        if naive.compare(r["b"], "<", x["b"])
    )
    assert got == want
    assert want


def _row(id_: str, n: int, t: int, *values: int | None) -> naive.Row:
    names = {"lid": ("a", "c"), "rid": ("b", "d")}[id_]
    return {id_: n, **dict(zip(names, values, strict=True)), "t": at(t)}


OLD_PARTNER = [
    naive.Push([_row("lid", 0, 0, 0, 0), _row("lid", 1, 1, 9, 0)], [_row("rid", 0, 0, -5, 0)]),
    naive.Push([_row("lid", 2, 20, None, 0)], [_row("rid", 1, 20, None, 0)]),
    naive.Push([_row("lid", 3, 20, None, 0)], [_row("rid", 3, 20, None, 0)]),
    # The watermark is 15 s: the row of 18 s is not late, and its partner is of 0 s.
    naive.Push([], [_row("rid", 2, 18, 1, 0)]),
    closing(),
]


@pytest.mark.parametrize("how", [pytest.param("inner", marks=pytest.mark.slow), "left"])
def test_a_join_of_a_time_windowed_join(streams: Streams, how: str) -> None:
    """A pair, and an unmatched row, has its left row's old time and yet is not late."""
    streams.push(*OLD_PARTNER)
    left, right = streams.both("5 seconds")
    third = streams.read("r", ("t", "5 seconds")).selectExpr("rid AS id", "b AS e", "t AS u")
    window = tj.TimeWindow("20 seconds", time="t")
    joined = tj.join(left, right, ON, how=how, window=window)
    second = tj.TimeWindow("20 seconds", time=("t", "u"))
    both = tj.join(joined, third, "l.a > r.e", window=second)
    got = Counter((row["lid"], row["rid"], row["id"]) for row in streams.run(both).rows.to_pylist())
    want = {(0, 2, 0): 1} | ({(1, None, 0): 1, (1, None, 2): 1} if how == "left" else {})
    assert got == Counter(want)


def test_aggregate_by_event_time(streams: Streams) -> None:
    """The later of a pair's times is never late, so Spark's aggregate drops no pair."""
    from pyspark.sql import functions as F

    streams.push(*OLD_PARTNER)
    window = tj.TimeWindow("20 seconds", time="t")
    joined = tj.join(*streams.both("5 seconds"), ON, window=window)
    later = F.greatest("t", "t_right").alias("later", metadata=joined.schema["t"].metadata)
    counted = joined.select(later).groupBy(F.window("later", "10 seconds")).count()
    run = streams.run(counted)
    assert run.rows["count"].to_pylist() == [1]
    dropped = [op.numRowsDroppedByWatermark for p in run.progress for op in p.stateOperators]
    assert sum(dropped) == 0
