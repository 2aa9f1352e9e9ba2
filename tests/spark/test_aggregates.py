"""`join_agg` on Spark: tables and streams, update and append, and across a restart."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import naive
import thetajoin as tj
from naive import Push, naive_groups
from spark.harness import LEFT, RIGHT, Streams, at, random_batches, seconds, with_watermarks
from strategies import assert_same_groups

pytestmark = pytest.mark.spark

AGGS = {"n": "count(*)", "c": "count(r.d)", "s": "sum(r.d)", "m": "avg(l.c)", "lo": "min(r.b)"}
ORACLE = [
    ("count", None),
    ("count", lambda l, r: r["d"]),
    ("sum", lambda l, r: r["d"]),
    ("avg", lambda l, r: l["c"]),
    ("min", lambda l, r: r["b"]),
]
ON = "l.a < r.b AND l.c >= r.d"
PRED = naive.conj(("a", "<", "b"), ("c", ">=", "d"))


def rows_of(batches: list[Push]) -> tuple[list[Any], list[Any]]:
    left = [row for batch in batches for row in batch.left]
    return left, [row for batch in batches for row in batch.right]


@pytest.mark.parametrize("group", ["l.a", "r.d", None])
def test_tables(spark: Any, group: str | None) -> None:
    draw = random.Random(5)
    left = [{"a": draw.randint(0, 9), "c": draw.choice([None, 1, 5, 7])} for _ in range(60)]
    right = [{"b": draw.randint(0, 9), "d": draw.choice([None, 0, 4])} for _ in range(50)]
    frames = [
        spark.createDataFrame([tuple(row.values()) for row in rows], schema)
        for rows, schema in ((left, "a long, c long"), (right, "b long, d long"))
    ]
    got = tj.join_agg(*frames, ON, group_by=[group] if group else [], aggs=AGGS, units=3)
    side = 0 if group == "l.a" else 1
    groups = [lambda *pair: pair[side][group[2:]]] if group else []
    want = naive_groups(naive.naive_join(left, right, PRED), groups, ORACLE)
    assert_same_groups(got.toArrow(), want, len(groups))


def test_a_sum_that_overflows_on_spark(spark: Any) -> None:
    df = spark.createDataFrame([(1, 2**62), (2, 2**62)], "k long, v long")
    total = tj.join_agg(df, df, "l.k <= r.k", aggs={"s": "sum(r.v)"})
    with pytest.raises(Exception, match=r"sum\(r.v\) overflows BIGINT"):
        total.collect()


def test_float_sums_with_infinities(spark: Any) -> None:
    """As joining and then grouping in Spark gives, whichever cells the rows are in."""
    from pyspark.sql import functions as F

    infinite, most = float("inf"), 1.7e308
    groups = [
        [1.0, infinite], [infinite, -infinite], [-infinite, 2.0, -infinite], [most, most],
        [float("nan"), infinite], [None, None], [None, -infinite], [0.1, 0.2],
    ]  # fmt: skip
    rows = [(g, v) for g, values in enumerate(groups) for v in values * 6]
    right = spark.createDataFrame(rows, "g int, v double")
    left = spark.createDataFrame([(g,) for g in range(len(groups)) for _ in range(4)], "g int")
    aggs = {"s": "sum(r.v)", "a": "avg(r.v)", "lo": "min(r.v)", "hi": "max(r.v)", "n": "count(r.v)"}
    on = "l.g >= r.g AND l.g <= r.g"
    grouped = left.alias("l").join(right.alias("r"), F.expr(on)).groupBy("l.g")
    expected = grouped.agg(*[F.expr(text).alias(name) for name, text in aggs.items()])
    want = {row.g: row for row in expected.collect()}
    for units in (1, 6):
        got = tj.join_agg(left, right, on, group_by="l.g", aggs=aggs, units=units).collect()
        assert {row.g for row in got} == set(want)
        for row in got:
            for name in aggs:
                mine, theirs = row[name], want[row.g][name]
                assert mine == pytest.approx(theirs, nan_ok=True), (units, row.g, name)


def last_updates(batches: list[pa.Table], groups: int) -> pa.Table:
    latest = {tuple(row.values())[:groups]: row for table in batches for row in table.to_pylist()}
    return pa.Table.from_pylist(list(latest.values()), schema=batches[0].schema)


def run_updates(streams: Streams, df: Any, checkpoint: str) -> list[pa.Table]:
    batches: list[pa.Table] = []
    writer = df.writeStream.outputMode("update")
    writer = writer.foreachBatch(lambda part, _: batches.append(part.toArrow()))
    location = str(streams.folder / checkpoint)
    query = writer.option("checkpointLocation", location).trigger(availableNow=True).start()
    query.awaitTermination()
    return batches


def test_updates_across_a_restart(streams: Streams) -> None:
    batches = random_batches(7, batches=3, nulls=False)

    def query() -> Any:
        return tj.join_agg(
            *streams.both(), ON, group_by="l.a", aggs=AGGS, window=tj.CountWindow(20),
            order_by=("lid", "rid"),
        )  # fmt: skip

    streams.push(*batches[:2])
    first = run_updates(streams, query(), "ck")
    streams.push(*batches[2:])
    second = run_updates(streams, query(), "ck")
    pairs = naive.naive_stream(batches, PRED, window=naive.Count(20), order_by=("lid", "rid")).rows
    want = naive_groups(pairs, [lambda l, r: l["a"]], ORACLE)
    assert_same_groups(last_updates(first + second, 1), want, 1)


def test_event_time_groups_in_append_mode(streams: Streams) -> None:
    """A group comes once, when nothing can be added to it any more, and with nothing missing."""
    batches = random_batches(7, batches=4, nulls=False, step=30)
    far = at(10_000)
    closing = Push(
        [{"lid": 99, "a": None, "c": None, "t": far}],
        [{"rid": 99, "b": None, "d": None, "t": far}],
    )
    streams.push(*batches, closing, Push())
    left, right = streams.both("10 seconds")
    df = tj.join_agg(
        left, right, ON, group_by="l.t", aggs=AGGS,
        window=tj.TimeWindow("20 seconds", time="t"),
    )  # fmt: skip
    got = streams.run(df)
    steps = list(with_watermarks([*batches, closing], seconds(10)))
    pairs = naive.naive_stream(steps, PRED, window=naive.Time(seconds(20), seconds(20))).rows
    want = naive_groups(pairs, [lambda l, r: l["t"]], ORACLE)
    assert_same_groups(got.rows, want, 1)


@pytest.mark.parametrize("streaming", ["l", "r"])
def test_a_stream_and_a_table(streams: Streams, streaming: str) -> None:
    """Nothing of the stream is kept but the groups, which go on across a restart."""
    batches = random_batches(4, batches=4, nulls=False)
    left, right = rows_of(batches)

    def query() -> Any:
        frames = streams.both()
        table = streams.spark.read.parquet(str(streams.folder / "table"))
        sides = (frames[0], table) if streaming == "l" else (table, frames[1])
        return tj.join_agg(*sides, ON, group_by="l.a", aggs=AGGS, window=tj.FullHistory())

    if streaming == "l":
        streams.write("table", right, RIGHT)
    else:
        streams.write("table", left, LEFT)
    streams.push(*batches[:2])
    first = run_updates(streams, query(), "ck")
    streams.push(*batches[2:])
    second = run_updates(streams, query(), "ck")
    want = naive_groups(naive.naive_join(left, right, PRED), [lambda l, r: l["a"]], ORACLE)
    assert_same_groups(last_updates(first + second, 1), want, 1)


def test_a_stream_and_a_table_in_append_mode(streams: Streams) -> None:
    batches = random_batches(8, batches=4, nulls=False, step=30)
    far = Push([{"lid": 99, "a": None, "c": None, "t": at(10_000)}], [])
    left, right = rows_of(batches)
    streams.push(*batches, far, Push())
    df = tj.join_agg(
        streams.both("100 seconds")[0], streams.spark.createDataFrame(right), ON, group_by="l.t",
        aggs=AGGS, window=tj.FullHistory(),
    )  # fmt: skip
    want = naive_groups(naive.naive_join(left, right, PRED), [lambda l, r: l["t"]], ORACLE)
    assert_same_groups(streams.run(df).rows, want, 1)
    counted = {"aggs": {"n": "count(*)"}, "window": tj.CountWindow(5), "order_by": "t"}
    with pytest.raises(tj.ThetaJoinError, match="a table has none that arrive"):
        tj.join_agg(*streams.both()[:1], streams.spark.createDataFrame(right), ON, **counted)


SELF_AGGS = {"n": "count(*)", "s": "sum(r.c)", "hi": "max(r.a)"}
SELF_ORACLE = [
    ("count", None),
    ("sum", lambda l, r: r["c"]),
    ("max", lambda l, r: r["a"]),
]
# Rows may satisfy it with themselves, which is no pair.
SELF_ON = "l.a <= r.a AND l.c >= r.c"
SELF_PRED = naive.conj(("a", "<=", "a"), ("c", ">=", "c"))
SELF_WINDOWS = [
    (tj.FullHistory(), naive.Full(), None),
    (tj.TimeWindow("20 seconds", time="t"), naive.Time(seconds(20), seconds(20)), None),
    (tj.CountWindow(12, 5), naive.Count(12, 5), "lid"),
]


@pytest.mark.parametrize(("window", "oracle", "order_by"), SELF_WINDOWS)
def test_self_join_of_a_table(spark: Any, window: Any, oracle: Any, order_by: Any) -> None:
    """Among the rows are equal ones, which meet each other."""
    rows = rows_of(random_batches(7, batches=4))[0]
    if order_by is None:
        rows = [row | {"lid": row["lid"] // 2} for row in rows]
    rows = rows * 2 if order_by is None else rows
    df = spark.createDataFrame(pa.Table.from_pylist(rows, LEFT))
    asked = {"window": window, "order_by": order_by, "aggs": SELF_AGGS, "units": 4}
    pairs = naive.naive_self_join(rows, SELF_PRED, window=oracle, order_by=order_by)
    for group in ("l.a", "r.c", None):
        got = tj.self_join_agg(df, SELF_ON, group_by=[group] if group else [], **asked)
        side = 0 if group == "l.a" else 1
        groups = [lambda *pair, s=side, g=group: pair[s][g[2:]]] if group else []
        assert_same_groups(got.toArrow(), naive_groups(pairs, groups, SELF_ORACLE), len(groups))


@pytest.mark.parametrize("counted", [True, False])
def test_self_join_of_a_stream_across_a_restart(streams: Streams, counted: bool) -> None:
    batches = [Push(batch.left, ()) for batch in random_batches(7, batches=3, nulls=False)]
    window, oracle, order_by = SELF_WINDOWS[2 if counted else 1]

    def query() -> Any:
        mark = None if counted else ("t", "1000 seconds")
        return tj.self_join_agg(
            streams.read("l", mark), SELF_ON, group_by="l.a", aggs=SELF_AGGS, window=window,
            order_by=order_by,
        )  # fmt: skip

    streams.push(*batches[:2])
    first = run_updates(streams, query(), "ck")
    streams.push(*batches[2:])
    second = run_updates(streams, query(), "ck")
    rows = rows_of(batches)[0]
    pairs = naive.naive_self_join(rows, SELF_PRED, window=oracle, order_by=order_by)
    want = naive_groups(pairs, [lambda l, r: l["a"]], SELF_ORACLE)
    assert_same_groups(last_updates([b for b in first + second if b.num_rows], 1), want, 1)
