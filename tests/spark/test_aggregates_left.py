"""`join_agg(how="left")` on Spark: left groups without a match, from tables and streams."""

from __future__ import annotations

import random
from typing import Any

import pytest

import naive
import thetajoin as tj
from naive import Push, naive_groups
from spark.harness import RIGHT, Streams, at, random_batches, seconds, with_watermarks
from spark.test_aggregates import (
    AGGS,
    ON,
    ORACLE,
    PRED,
    last_updates,
    rows_of,
    run_updates,
)
from strategies import assert_same_groups

pytestmark = pytest.mark.spark

A = [lambda l, r: l["a"]]


@pytest.mark.parametrize("units", [1, 6])
@pytest.mark.parametrize("group", ["l.a", None])
def test_tables(spark: Any, units: int, group: str | None) -> None:
    draw = random.Random(5)
    left = [
        {"a": draw.choice([None, *range(40)]), "c": draw.choice([None, 1, 9])} for _ in "x" * 90
    ]
    right = [{"b": draw.randint(0, 20), "d": draw.choice([None, 0, 4])} for _ in range(50)]
    frames = [
        spark.createDataFrame([tuple(row.values()) for row in rows], schema)
        for rows, schema in ((left, "a long, c long"), (right, "b long, d long"))
    ]
    on = f"{ON} AND l.c < 9"
    asked = {"group_by": [group] if group else [], "aggs": AGGS, "units": units, "how": "left"}
    pairs = [(l, r) for l, r in naive.naive_join(left, right, PRED) if l["c"] < 9]
    groups = A if group else []
    got = tj.join_agg(*frames, on, **asked)
    assert_same_groups(got.toArrow(), naive_groups(pairs, groups, ORACLE, left), len(groups))
    nothing = tj.join_agg(frames[0], frames[1].limit(0), on, **asked)
    assert_same_groups(nothing.toArrow(), naive_groups([], groups, ORACLE, left), len(groups))
    none_left = tj.join_agg(frames[0].limit(0), frames[1], on, **asked)
    assert_same_groups(none_left.toArrow(), naive_groups([], groups, ORACLE), len(groups))


@pytest.mark.parametrize("routing", [None, "hash"])
def test_updates_across_a_restart(streams: Streams, routing: str | None) -> None:
    """Whichever unit a left row is sent to, one of them has its group; NULL keys go somewhere."""
    batches = random_batches(6, batches=3, nulls=True)
    on = ON if routing is None else "l.a = r.b AND l.c >= r.d AND l.lid % 3 < 2"
    equal = naive.conj(("a", "=", "b"), ("c", ">=", "d"))
    pred = PRED if routing is None else lambda l, r: l["lid"] % 3 < 2 and equal(l, r)
    count = {"window": tj.CountWindow(20), "order_by": ("lid", "rid")}
    more = count if routing is None else {"window": tj.FullHistory(), "routing": routing}

    def query(how: str = "left") -> Any:
        return tj.join_agg(*streams.both(), on, how=how, group_by="l.a", aggs=AGGS, units=3, **more)

    streams.push(*batches[:2])
    first = run_updates(streams, query(), "ck")
    streams.push(*batches[2:])
    second = run_updates(streams, query(), "ck")
    window = naive.Count(20) if routing is None else naive.Full()
    order_by = ("lid", "rid") if routing is None else None
    pairs = naive.naive_stream(batches, pred, window=window, order_by=order_by).rows
    want = naive_groups(pairs, A, ORACLE, rows_of(batches)[0])
    assert_same_groups(last_updates([b for b in first + second if b.num_rows], 1), want, 1)
    streams.push(*batches[:1])
    with pytest.raises(Exception, match="state of another join: its aggregates"):
        run_updates(streams, query("inner"), "ck")


def test_event_time_groups_in_append_mode(streams: Streams) -> None:
    """A group comes once, with a count of 0 where nothing matched."""
    batches = random_batches(7, batches=4, nulls=False, step=30)
    far = at(10_000)
    closing = Push(
        [{"lid": 99, "a": None, "c": None, "t": far}],
        [{"rid": 99, "b": None, "d": None, "t": far}],
    )
    streams.push(*batches, closing, Push())
    df = tj.join_agg(
        *streams.both("10 seconds"), ON, how="left", group_by="l.t", aggs=AGGS,
        window=tj.TimeWindow("20 seconds", time="t"),
    )  # fmt: skip
    got = streams.run(df)
    steps = with_watermarks([*batches, closing], seconds(10))
    found = naive.naive_stream(steps, PRED, window=naive.Time(seconds(20), seconds(20)))
    assert found.late_rows == 0
    want = naive_groups(found.rows, [lambda l, r: l["t"]], ORACLE, rows_of(batches)[0])
    assert any(values[0] == 0 for values in want.values())
    assert_same_groups(got.rows, want, 1)


def test_a_stream_and_a_table(streams: Streams) -> None:
    batches = random_batches(4, batches=4, nulls=True)
    left, right = rows_of(batches)
    streams.write("table", right, RIGHT)

    def query() -> Any:
        table = streams.spark.read.parquet(str(streams.folder / "table"))
        stream = streams.read("l")
        return tj.join_agg(
            stream, table, ON, how="left", group_by="l.a", aggs=AGGS, window=tj.FullHistory()
        )

    streams.push(*batches[:2])
    first = run_updates(streams, query(), "ck")
    streams.push(*batches[2:])
    second = run_updates(streams, query(), "ck")
    want = naive_groups(naive.naive_join(left, right, PRED), A, ORACLE, left)
    assert_same_groups(last_updates([b for b in first + second if b.num_rows], 1), want, 1)
    table = streams.spark.createDataFrame(left)
    with pytest.raises(tj.ThetaJoinError, match="a table on the left and a stream on the right"):
        tj.join_agg(
            table, streams.both()[1], ON, how="left", group_by="l.a", aggs=AGGS,
            window=tj.FullHistory(),
        )  # fmt: skip
