"""Nearest matches on Spark, of tables and of streams, against the definition."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import naive
import thetajoin as tj
from naive import Advance, Near
from spark.harness import CLOSING, Streams, closing, random_batches, seconds, with_watermarks
from spark.test_batch import LEFT, RIGHT, L, R
from strategies import table

pytestmark = [pytest.mark.spark]

CONDITIONS: list[tuple[Any, Any, Any]] = [
    (None, (), None),
    (None, [("a", "b")], naive.conj(("a", "=", "b"))),
    ("l.a <= r.b", (), naive.conj(("a", "<=", "b"))),
    (
        "(l.lid + r.rid) % 3 != 0",
        [("a", "b")],
        naive.all_of(naive.conj(("a", "=", "b")), lambda l, r: (l["lid"] + r["rid"]) % 3 != 0),
    ),
]
DIRECTIONS = ("backward", "forward", "nearest")
HOWS = ("left", "inner", "semi", "anti")


def ids(pairs: Any) -> Counter[Any]:
    return Counter(
        (l["lid"], None if r is None else r["rid"])
        for l, r in pairs
        if l["lid"] < CLOSING and (r is None or r["rid"] < CLOSING)
    )


def got_ids(rows: pa.Table) -> Counter[Any]:
    lids = rows["lid"].to_pylist()
    rids = rows["rid"].to_pylist() if "rid" in rows.column_names else [None] * len(lids)
    return Counter(zip(lids, rids, strict=True))


@pytest.fixture(scope="module")
def frames(spark: Any) -> tuple[Any, Any]:
    left, right = (
        spark.createDataFrame(table(L, LEFT)),
        spark.createDataFrame(table(R, RIGHT)),
    )
    return left.repartition(3), right.repartition(3)


@pytest.mark.parametrize(("at", "condition"), list(enumerate(CONDITIONS)))
def test_tables(frames: tuple[Any, Any], at: int, condition: tuple[Any, Any, Any]) -> None:
    on, by, pred = condition
    ways: list[dict[str, Any]] = [
        {"broadcast_rows": 0, "held_rows": 20},
        {"engine": "thetajoin"},
        {},
    ]
    for number, (direction, way) in enumerate(itertools.product(DIRECTIONS, ways)):
        how = HOWS[(number + at) % 4]
        ties, order_by = [(None, "rid"), ("first", "rid"), ("last", "rid"), ("all", None)][
            (number + at) % 4
        ]
        near = Near(("t", "t"), direction, [None, 5][number % 2], 1 + number % 3, ties, order_by)
        got = tj.nearest(
            *frames,
            key="t",
            by=by,
            on=on,
            direction=direction,
            tolerance=near.tolerance,
            k=near.k,
            ties=ties,
            order_by=order_by,
            how=how,
            **way,
        )
        expected = naive.naive_nearest(L, R, pred, near, how=how)
        assert got_ids(got.toArrow()) == ids(expected), (direction, how, way)


def on_time(steps: Any) -> tuple[list[Any], list[Any]]:
    left: list[Any] = []
    right: list[Any] = []
    watermark = None
    for step in steps:
        if isinstance(step, Advance):
            watermark = step.watermark
            continue
        for rows, kept in ((step.left, left), (step.right, right)):
            kept += [
                row
                for row in rows
                if row["t"] is None or watermark is None or row["t"] >= watermark
            ]
    return left, right


def test_streams(streams: Streams) -> None:
    """Every direction and kind, hashed or not, with late and unordered rows."""
    batches = [*random_batches(3, batches=3), closing()]
    streams.push(*batches)
    delay, before, after = 5, 12, 7
    window = tj.TimeWindow(before=f"{before} seconds", after=f"{after} seconds", time="t")
    oracle = naive.Time(seconds(before), seconds(after))
    kept = on_time(with_watermarks(batches, seconds(delay)))
    queries = []
    for number, (on, by, pred) in enumerate(CONDITIONS):
        direction, how = DIRECTIONS[number % 3], HOWS[number]
        near = Near(("t", "t"), direction, None, 1 + number % 2, None, "rid")
        df = tj.nearest(
            *streams.both(f"{delay} seconds"),
            key="t",
            by=by,
            on=on,
            direction=direction,
            k=near.k,
            order_by="rid",
            how=how,
            window=window,
            units=3,
        )
        expected = ids(naive.naive_nearest(*kept, pred, near, how=how, window=oracle))
        queries.append((streams.start(df), expected))
    for number, (query, expected) in enumerate(queries):
        assert streams.wait(query).ids == expected, number
        assert expected


def test_a_restart_in_between(streams: Streams) -> None:
    batches = [*random_batches(4, batches=3, nulls=False), closing()]
    window = tj.TimeWindow("15 seconds", time="t")
    near = Near(("t", "t"), "nearest", None, 1, "last", "rid")

    def query() -> Any:
        return tj.nearest(
            *streams.both("5 seconds"),
            key="t",
            by=[("a", "b")],
            direction="nearest",
            ties="last",
            order_by="rid",
            window=window,
            units=2,
        )

    streams.push(*batches[:2])
    got = streams.resume(query(), "ck").ids
    streams.push(*batches[2:])
    got += streams.resume(query(), "ck").ids
    kept = on_time(with_watermarks(batches, seconds(5), restart_at=2))
    pred, oracle = naive.conj(("a", "=", "b")), naive.Time(seconds(15), seconds(15))
    assert got == ids(naive.naive_nearest(*kept, pred, near, window=oracle))


def test_a_stream_with_a_table(streams: Streams, spark: Any) -> None:
    batches = random_batches(5, batches=2)
    streams.push(*batches)
    left = [row for batch in batches for row in batch.left]
    right = [row for batch in batches for row in batch.right]
    quotes = spark.read.parquet(str(streams.folder / "r"))
    stream, other = streams.both("5 seconds")
    df = tj.nearest(stream, quotes, key="t", ties="all", window=tj.FullHistory())
    expected = naive.naive_nearest(left, right, None, Near(("t", "t"), ties="all"))
    assert streams.run(df).ids == ids(expected)
    with pytest.raises(tj.ThetaJoinError, match="make the left input the stream"):
        tj.nearest(quotes, other, key="t", ties="all", window=tj.FullHistory())


def test_bad_input(frames: tuple[Any, Any], streams: Streams) -> None:
    with pytest.raises(tj.ThetaJoinError, match="ties=None on Spark needs order_by"):
        tj.nearest(*frames, key="t")
    assert tj.nearest(*frames, key="t", how="semi").count() > 0
    assert tj.nearest(*frames, key="T", order_by="RID").count() >= len(L), "names fold"
    streams.push(*random_batches(1, batches=1))
    both = streams.both("5 seconds")
    for window, message in [
        (None, "a stream needs a window"),
        (tj.FullHistory(), "needs a TimeWindow on its key"),
        (tj.TimeWindow(after="5 seconds", time="t"), "nothing on the side"),
    ]:
        with pytest.raises(tj.ThetaJoinError, match=message):
            tj.nearest(*both, key="t", order_by="rid", window=window)
