"""A join of streams with an equality gives what Spark's own stream-stream join gives.

Both read the same files, a file a micro-batch, and every row they give out is compared, whole and
as often as it comes. The cases are those of Spark's StreamingJoinSuite:

- inner: on a column that is no time, on windows with and without a watermark, time ranges with one
  bound and with two, self-join, three streams, nullable keys (`<=>`), restarts
- left, right, full, semi: on windows, on ranges, filters of the left and of the right side, a
  condition beside the key that fails, self-join, nullable keys, late rows, restarts, input and
  eviction in one micro-batch (SPARK-38684), rows between the two watermarks and outer joins in a
  chain (SPARK-49829)

Left out is what concerns only Spark's own operator: formats of its state, where its tasks run, its
metrics, and output modes that it refuses. `test_stream_differences` says where the two differ.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import thetajoin as tj
from naive import Row
from spark.harness import Streams
from spark.parity import (
    HOWS,
    LEFT,
    RANGE,
    RIGHT,
    WINDOW,
    Both,
    last_rows,
    plain,
    random_rows,
    sides,
    unmatched,
    write,
)

pytestmark = [pytest.mark.spark]


def on_ranges(streams: Streams, hows: Sequence[str]) -> Both:
    """Joins on an equality of an int and a bigint, a time range and filters of each kind."""
    # No row has a time between two seconds, so none has exactly the watermark's.
    delays = "4500 milliseconds", "7500 milliseconds"
    ours = "l.k = r.rk AND l.v < 8 AND r.w <> 3 AND l.v + r.w <> 5"
    sparks = f"{ours.replace('l.', '').replace('r.', '')} AND {RANGE}"

    def spark(how: str) -> Any:
        from pyspark.sql import functions as F

        left, right = sides(streams, delays)
        return left.join(right, F.expr(sparks), HOWS[how])

    return Both(
        streams,
        lambda: {how: spark(how) for how in hows},
        lambda: {
            how: tj.join(*sides(streams, delays), ours, how=how, window=WINDOW) for how in hows
        },
    )


# A full join has all that inner, left and right joins have; each join more costs seconds.
@pytest.mark.parametrize(
    "hows", [("full", "semi"), pytest.param(tuple(HOWS), marks=pytest.mark.slow)], ids=len
)
def test_kinds_of_join(streams: Streams, hows: tuple[str, ...]) -> None:
    """With late rows, evicted partners, empty sides, and unmatched rows when nothing more comes."""
    write(streams, *random_rows(0), last_rows())
    both = on_ranges(streams, hows)
    plan = tj.explain(*sides(streams, ("1 second",) * 2), "l.k = r.rk", window=WINDOW)
    assert "routing: hash" in str(plan)
    both.run()
    both.check()
    assert both.late > 0
    gone = [given for given in both.given["ours"] if unmatched(json.loads(given.row))]
    assert {given.join for given in gone} == {"left", "right", "full"} & {*hows}
    assert max(given.batch for given in gone) == 6, "the micro-batch without rows is the last"


def test_goes_on_from_a_checkpoint(streams: Streams) -> None:
    """Stopped after a micro-batch of one side only, whose watermark alone could move."""
    rows = random_rows(1)
    both = on_ranges(streams, ["full"])
    write(streams, *rows[:3])
    streams.write("l", rows[3][0], LEFT)
    both.run()
    streams.write("r", rows[3][1], RIGHT)
    write(streams, rows[4], last_rows())
    # The left side has one file less to read now, and ends first.
    both.run()
    both.check()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 4])
def test_every_kind_of_join_with_restarts(streams: Streams, seed: int) -> None:
    rows = random_rows(seed, 7)
    both = on_ranges(streams, list(HOWS))
    write(streams, *rows[:seed])
    both.run()
    write(streams, *rows[seed:], last_rows())
    both.run()
    # Spark's semi join loses rows, its inner join does not: see `test_stream_differences`.
    ours, sparks = both.take_out("semi")
    matched = [json.loads(row) for join, row in both.rows("sparks") if join == "inner"]
    assert {json.loads(row)["lid"] for row in ours} == {row["lid"] for row in matched}
    assert not sparks - ours
    both.check()


@pytest.mark.slow
@pytest.mark.parametrize("filtered", ["l.v > 4", "r.w <> 6", "l.v > 4 AND (r.w < 9 OR r.w > 12)"])
def test_windows_as_keys(streams: Streams, filtered: str) -> None:
    """An equality of windows is one of their times, a microsecond before their ends.

    A row is late when its window has ended, not when its own time has passed.
    """
    from pyspark.sql import functions as F

    def windowed() -> tuple[Any, Any]:
        left = streams.read("a", ("t", "10 seconds"))
        right = streams.read("b", ("t", "10 seconds"))
        span = F.window("t", "10 seconds")
        return (
            left.select(F.col("v").alias("k"), (2 * F.col("v")).alias("v"), span.alias("of")),
            right.select(F.col("v").alias("rk"), (3 * F.col("v")).alias("w"), span.alias("rof")),
        )

    def shown(df: Any, how: str) -> Any:
        right = [] if how == "semi" else ["rk", "w", "rof.end AS rend"]
        return df.selectExpr("k", "v", "of.end", *right)

    def spark(how: str) -> Any:
        left, right = windowed()
        on = f"k = rk AND of = rof AND {filtered.replace('l.', '').replace('r.', '')}"
        return left.join(right, F.expr(on), HOWS[how])

    def ours(how: str) -> Any:
        left, right = windowed()
        left = left.withColumn("time", F.window_time("of"))
        right = right.withColumn("rtime", F.window_time("rof"))
        window = tj.TimeWindow("1 microsecond", time=("time", "rtime"))
        on = f"l.k = r.rk AND l.time = r.rtime AND {filtered}"
        return tj.join(left, right, on, how=how, window=window)

    both = Both(
        streams,
        lambda: {how: shown(spark(how), how) for how in HOWS},
        lambda: {how: shown(ours(how), how) for how in HOWS},
    )

    def push(left: list[int], right: list[int]) -> None:
        plain(streams, {"a": [(v, v) for v in left], "b": [(v, v) for v in right]})

    push([1, 2, 3, 4, 5], [3, 4, 5, 6, 7])
    push([21], [22])
    push([22, 15], [15, 5])
    push([1], [5])
    both.run()
    push([], [22])
    push([40, 41], [41, 40])
    push([1000], [1001])
    both.run()
    both.check()
    assert both.late > 0


@pytest.mark.slow
def test_one_source_on_both_sides(streams: Streams) -> None:
    """A row that matched is not given out again as unmatched (SPARK-26187)."""
    from pyspark.sql import functions as F

    def halves() -> tuple[Any, Any]:
        df = streams.read("s")
        left = df.selectExpr("v AS k", "t").withWatermark("t", "5 seconds")
        right = df.where("v % 2 = 0").selectExpr("v AS rk", "t AS rt")
        return left, right.withWatermark("rt", "5 seconds")

    def spark(how: str) -> Any:
        left, right = halves()
        on = "k = rk AND rt >= t AND rt <= t + INTERVAL 5 SECONDS"
        return left.join(right, F.expr(on), HOWS[how])

    window = tj.TimeWindow(after="5 seconds", time=("t", "rt"))
    both = Both(
        streams,
        lambda: {how: spark(how) for how in HOWS},
        lambda: {how: tj.join(*halves(), "l.k = r.rk", how=how, window=window) for how in HOWS},
    )
    for first in (1, 6, 11):
        rows = [(v, v) for v in range(first, first + 5)]
        plain(streams, {"s": [*rows, (2, first + 0.5), (2, first + 0.5)]})
    both.run()
    plain(streams, {"s": [(50, 60.0)]})
    both.run()
    both.check()


KEYS = pa.schema(
    [
        ("i", pa.int32()),
        ("x", pa.float64()),
        ("m", pa.decimal128(5, 1)),
        ("u", pa.string()),
        ("f", pa.float32()),
    ]
)
RIGHT_KEYS = pa.schema(
    [
        ("j", pa.int64()),
        ("y", pa.float64()),
        ("n", pa.decimal128(9, 3)),
        ("w", pa.string()),
        ("g", pa.float64()),
    ]
)
VALUES: list[list[Any]] = [
    [1, 2, None, -5, 2],
    [0.0, -0.0, float("nan"), None, 1.5],
    [Decimal("1.5"), Decimal("2.0"), None, Decimal("-3.1"), Decimal("2.0")],
    ["a", "A", None, "", "a"],
    [0.5, -0.0, float("nan"), None, 2.0],
]
EQUALITIES = [
    "l.i = r.j",
    "l.x = r.y",
    "l.m = r.n",
    "l.u = r.w",
    "l.f = r.g",
    "l.i <=> r.j",
    "l.i = r.j AND l.x = r.y",
    "l.i = r.j AND l.x <> r.y",
]


@pytest.mark.slow
def test_keys_of_several_types_and_no_watermark(streams: Streams) -> None:
    """All history is kept. Three streams are joined too, of which the middle one has the key."""
    from pyspark.sql import functions as F

    def keys(schema: pa.Schema, first: int) -> list[Row]:
        values = zip(schema.names, VALUES, strict=True)
        picked = [(name, column[first:] + column[:first]) for name, column in values]
        return [{name: column[i] for name, column in picked} for i in range(5)]

    def spark(on: str) -> Any:
        text = on.replace("l.", "").replace("r.", "")
        return streams.read("l").join(streams.read("r"), F.expr(text))

    def ours(on: str) -> Any:
        return tj.join(streams.read("l"), streams.read("r"), on, window=tj.FullHistory())

    def three(join: Callable[[Any, Any, str, str], Any]) -> Any:
        left, middle = streams.read("l").select("i"), streams.read("r").select("j")
        third = streams.read("l").selectExpr("i AS h")
        return join(join(left, middle, "i", "j"), third, "j", "h")

    def spark_pair(left: Any, right: Any, a: str, b: str) -> Any:
        return left.join(right, F.expr(f"{a} = {b}"))

    def our_pair(left: Any, right: Any, a: str, b: str) -> Any:
        return tj.join(left, right, f"l.{a} = r.{b}", window=tj.FullHistory())

    both = Both(
        streams,
        lambda: {on: spark(on) for on in EQUALITIES} | {"three": three(spark_pair)},
        lambda: {on: ours(on) for on in EQUALITIES} | {"three": three(our_pair)},
    )
    streams.write("l", keys(KEYS, 0), KEYS)
    streams.write("r", keys(RIGHT_KEYS, 1), RIGHT_KEYS)
    streams.write("l", keys(KEYS, 2), KEYS)
    both.run()
    streams.write("r", keys(RIGHT_KEYS, 3), RIGHT_KEYS)
    both.run()
    both.check()
    assert {join for join, _ in both.rows("ours")} == {*EQUALITIES, "three"}


def pair_of(streams: Streams, delay: str) -> tuple[Any, Any]:
    left = streams.read("a", ("t", delay))
    return left, streams.read("b", ("t", delay)).selectExpr("v AS w", "t AS rt")


@pytest.mark.slow
def test_a_range_with_one_bound(streams: Streams) -> None:
    """Spark keeps all of one side for ever; a window that is long enough does."""
    from pyspark.sql import functions as F

    delay = "9500 milliseconds"

    def spark() -> Any:
        left, right = pair_of(streams, delay)
        return left.join(right, F.expr("v = w AND t < rt - INTERVAL 5 SECONDS"))

    def ours() -> Any:
        on = "l.v = r.w AND l.t < r.rt - INTERVAL 5 SECONDS"
        window = tj.TimeWindow(after="1000 days", time=("t", "rt"))
        return tj.join(*pair_of(streams, delay), on, window=window)

    both = Both(streams, lambda: {"inner": spark()}, lambda: {"inner": ours()})
    plain(
        streams,
        {"a": [(1, 5)], "b": []},
        {"a": [], "b": [(1, 11), (1, 10)]},
        {"a": [(1, 3), (1, 30)], "b": [(0, 30)]},
        {"a": [], "b": [(1, 20)]},
        {"a": [(1, 20), (1, 21)], "b": [(1, 20), (1, 21), (1, 28)]},
    )
    both.run()
    both.check()
    assert both.late > 0


@pytest.mark.slow
def test_no_micro_batches_without_rows(streams: Streams) -> None:
    """Input and eviction in one micro-batch, under a range and for a time as the key.

    What the newest watermark has passed, but not the one before, is stored and goes out at once.
    """
    from pyspark.sql import functions as F

    delay = "500 milliseconds"
    near = tj.TimeWindow("30 seconds", time=("t", "rt"))
    same = tj.TimeWindow("1 microsecond", time=("t", "rt"))
    bounds = "t BETWEEN rt - INTERVAL 30 SECONDS AND rt + INTERVAL 30 SECONDS"

    def spark(on: str) -> Any:
        left, right = pair_of(streams, delay)
        return left.join(right, F.expr(f"v = w AND {on}"), "left_outer")

    def ours(window: tj.TimeWindow, on: str) -> Any:
        return tj.join(*pair_of(streams, delay), f"l.v = r.w{on}", how="left", window=window)

    both = Both(
        streams,
        lambda: {"near": spark(bounds), "same": spark("t = rt")},
        lambda: {"near": ours(near, ""), "same": ours(same, " AND l.t = r.rt")},
        {"spark.sql.streaming.noDataMicroBatches.enabled": "false"},
    )
    plain(
        streams,
        {"a": [(1, 0), (2, 1)], "b": [(1, 60), (2, 1)]},
        {"a": [(1, 3600), (3, 0)], "b": [(1, 3660)]},
        {"a": [(1, 5400)], "b": []},
        {"a": [], "b": [(1, 5410)]},
        *({"a": [(8, t)], "b": [(9, t)]} for t in (20_000, 20_001, 20_002)),
    )
    both.run()
    both.check()
    assert max(given.batch for given in both.given["ours"]) < 7


@pytest.mark.slow
def test_outer_joins_in_a_chain(streams: Streams) -> None:
    """The second join takes in unmatched rows of the first, when these are past the watermark."""
    from pyspark.sql import functions as F

    def inputs() -> list[Any]:
        read = (streams.read(name, ("t", "500 milliseconds")) for name in "abc")
        return [df.selectExpr(f"t AS t{i}", f"v AS v{i}") for i, df in enumerate(read)]

    def spark() -> Any:
        a, b, c = inputs()
        first = a.join(b, F.expr("t0 = t1"), "left_outer").drop("t1")
        return first.join(c, F.expr("t0 = t2"), "left_outer").drop("t2")

    def ours() -> Any:
        a, b, c = inputs()
        windows = [tj.TimeWindow("1 microsecond", time=("t0", t)) for t in ("t1", "t2")]
        first = tj.join(a, b, "l.t0 = r.t1", how="left", window=windows[0]).drop("t1")
        return tj.join(first, c, "l.t0 = r.t2", how="left", window=windows[1]).drop("t2")

    both = Both(streams, lambda: {"chain": spark()}, lambda: {"chain": ours()})
    plain(
        streams,
        {"a": [(1, 20)], "b": [(1, 20)], "c": [(1, 20)]},
        {"a": [(2, 21)], "b": [(2, 21)], "c": []},
        {"a": [(3, 22)], "b": [], "c": [(3, 22)]},
        {"a": [(4, 23)], "b": [], "c": []},
        {"a": [(5, 24)], "b": [(5, 24)], "c": [(5, 24)]},
        *({name: [(6, t)] for name in "abc"} for t in (100, 101, 102)),
    )
    both.run()
    # A chain may hold a row back by one micro-batch more.
    assert both.rows("ours") == both.rows("sparks")
    assert len(both.rows("ours")) == 8
