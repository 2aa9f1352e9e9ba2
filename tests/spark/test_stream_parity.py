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
metrics, and output modes that it refuses. Where the two differ, a test at the end says how.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import thetajoin as tj
from naive import Row
from spark.harness import TIME, Streams, at

pytestmark = [pytest.mark.spark]

PARTITIONS = "spark.sql.shuffle.partitions"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
# What Spark's own join runs with: the state store that it has by default, and few tasks.
SPARKS_OWN = {
    PARTITIONS: "1",
    PROVIDER: "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
HOWS = {
    "inner": "inner",
    "left": "left_outer",
    "right": "right_outer",
    "full": "full_outer",
    "semi": "left_semi",
}
LEFT = pa.schema([("lid", pa.int64()), ("k", pa.int32()), ("v", pa.int64()), ("t", TIME)])
RIGHT = pa.schema([("rid", pa.int64()), ("rk", pa.int64()), ("w", pa.int64()), ("rt", TIME)])
PLAIN = pa.schema([("v", pa.int64()), ("t", TIME)])

Joins = dict[str, Any]


class Given(NamedTuple):
    """A row that a join gave out, as JSON, and the micro-batch it came with."""

    batch: int
    join: str
    row: str


@dataclass
class Both:
    """Spark's own joins and ours over the same streams; a call of `run` goes on from the last."""

    streams: Streams
    sparks: Callable[[], Joins]
    ours: Callable[[], Joins]
    settings: dict[str, str] = field(default_factory=dict)
    given: dict[str, list[Given]] = field(default_factory=lambda: {"sparks": [], "ours": []})
    late: int = 0

    def run(self) -> None:
        """Take all files that are new, in two queries side by side."""
        runs = []
        for name, make, own in (("sparks", self.sparks, SPARKS_OWN), ("ours", self.ours, {})):
            with settings(self.streams.spark, own | self.settings):
                runs.append(self._start(name, make()))
        for query in runs:
            query.awaitTermination()
        metrics = [p.observedMetrics for p in runs[1].recentProgress]
        self.late += sum(numbers["late_rows"] or 0 for by in metrics for numbers in by.values())

    def _start(self, name: str, joins: Joins) -> Any:
        """All joins are one query: each query would cost seconds to start."""
        from pyspark.sql import functions as F

        parts = []
        for join, df in joins.items():
            row = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
            parts.append(df.select(F.lit(join).alias("join"), row.alias("row")))
        whole = parts[0]
        for part in parts[1:]:
            whole = whole.union(part)
        kept = self.given[name]
        writer = whole.writeStream.foreachBatch(
            lambda rows, batch: kept.extend(Given(batch, *row) for row in rows.collect())
        )
        place = str(self.streams.folder / f"checkpoint-{name}")
        return writer.option("checkpointLocation", place).trigger(availableNow=True).start()

    def rows(self, whose: str) -> Counter[tuple[str, str]]:
        return Counter((given.join, given.row) for given in self.given[whose])

    def take_out(self, join: str) -> tuple[Counter[str], Counter[str]]:
        """A join's rows, ours and Spark's, which `check` does not see any more."""
        taken = []
        for whose in ("ours", "sparks"):
            taken.append(Counter(given.row for given in self.given[whose] if given.join == join))
            self.given[whose] = [given for given in self.given[whose] if given.join != join]
        return taken[0], taken[1]

    def check(self) -> None:
        """The same rows, and every pair in the same micro-batch; unmatched rows never later."""
        assert self.rows("ours") == self.rows("sparks")
        assert set(self.given["ours"]), "nothing came out"
        assert batches(self.given["ours"], paired) == batches(self.given["sparks"], paired)
        alone = batches(self.given["ours"], unmatched), batches(self.given["sparks"], unmatched)
        for row, when in alone[0].items():
            assert all(mine <= theirs for mine, theirs in zip(when, alone[1][row], strict=True))


def paired(row: Row) -> bool:
    return not unmatched(row)


def unmatched(row: Row) -> bool:
    """A row of an outer join: both sides have as many columns, and those of one are all NULL."""
    values = list(row.values())
    half = len(values) // 2
    return {None} in (set(values[:half]), set(values[half:]))


def batches(
    given: Sequence[Given], which: Callable[[Row], bool]
) -> dict[tuple[str, str], list[int]]:
    """In which micro-batches each row came, of those asked for."""
    found: dict[tuple[str, str], list[int]] = {}
    for batch, join, row in sorted(given):
        if which(json.loads(row)):
            found.setdefault((join, row), []).append(batch)
    return found


@contextmanager
def settings(spark: Any, values: dict[str, str]) -> Iterator[None]:
    """A session's settings for a query that is started meanwhile."""
    before = {key: spark.conf.get(key) for key in values}
    for key, value in values.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


RANGE = "rt BETWEEN t - INTERVAL 5 SECONDS AND t + INTERVAL 10 SECONDS"
WINDOW = tj.TimeWindow(before="5 seconds", after="10 seconds", time=("t", "rt"))


def sides(streams: Streams, delays: Sequence[str]) -> tuple[Any, Any]:
    """Both streams; the watermark that counts is the smaller of theirs."""
    return streams.read("l", ("t", delays[0])), streams.read("r", ("rt", delays[1]))


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


def random_rows(seed: int, count: int = 5) -> list[tuple[list[Row], list[Row]]]:
    """Micro-batches with late rows, duplicates, NULLs, and a side that is empty twice.

    In each, rows that match nothing and pass all filters move the watermark on: Spark filters
    before it looks at the times. NULL keys of the two sides are too far apart to meet in a window
    (see `test_where_sparks_own_join_differs`).
    """
    rng = random.Random(seed)
    made: list[tuple[list[Row], list[Row]]] = []
    for n in range(count):
        base = 15 * n
        both: list[list[Row]] = []
        for side, nulls in enumerate((n == 0, n >= 4)):
            names = (LEFT, RIGHT)[side].names
            rows: list[Row] = []
            for i in range(12):
                key = None if nulls and i % 5 == 0 else rng.randint(0, 3)
                value = None if rng.random() < 0.1 else rng.randint(0, 9)
                time = at(base + rng.randint(-35, 10))
                rows.append(dict(zip(names, (100 * n + i, key, value, time), strict=True)))
            clock = dict(zip(names, (1000 + n, 50 + side, 0, at(base + 12)), strict=True))
            both.append([] if n == side + 1 else [*rows, rows[1], rows[1], clock])
        made.append((both[0], both[1]))
    return made


def last_rows() -> tuple[list[Row], list[Row]]:
    """Rows that match nothing, after which no earlier row is in any window."""
    left: Row = {"lid": 9999, "k": 50, "v": 0, "t": at(10**6)}
    right: Row = {"rid": 9999, "rk": 51, "w": 0, "rt": at(10**6)}
    return [left], [right]


def write(streams: Streams, *given: tuple[list[Row], list[Row]]) -> None:
    for left, right in given:
        streams.write("l", left, LEFT)
        streams.write("r", right, RIGHT)


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
    # Spark's semi join loses rows, its inner join does not: see the tests at the end.
    ours, sparks = both.take_out("semi")
    matched = [json.loads(row) for join, row in both.rows("sparks") if join == "inner"]
    assert {json.loads(row)["lid"] for row in ours} == {row["lid"] for row in matched}
    assert not sparks - ours
    both.check()


def plain(streams: Streams, *given: Mapping[str, Sequence[tuple[int, float]]]) -> None:
    """Micro-batches of streams of a value and a time each."""
    for batch in given:
        for name, rows in batch.items():
            streams.write(name, [{"v": v, "t": at(t)} for v, t in rows], PLAIN)


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


def test_where_sparks_own_join_differs(streams: Streams) -> None:
    """What the documentation says of Spark, and what is right instead, row by row.

    - a row with exactly the watermark's time: late in Spark (a)
    - NULL keys: a full join of Spark's pairs them with each other (b)
    - NULL times: Spark never gives such a row out (c)
    """
    from pyspark.sql import functions as F

    def spark() -> Any:
        left, right = sides(streams, ("1 second", "1 second"))
        return left.join(right, F.expr(f"k = rk AND {RANGE}"), "full_outer")

    def ours() -> Any:
        inputs = sides(streams, ("1 second", "1 second"))
        return tj.join(*inputs, "l.k = r.rk", how="full", window=WINDOW)

    both = Both(streams, lambda: {"full": spark()}, lambda: {"full": ours()})

    def left(lid: int, k: int | None, t: float | None) -> Row:
        return {"lid": lid, "k": k, "v": 0, "t": at(t)}

    def right(rid: int, rk: int | None, t: float | None) -> Row:
        return {"rid": rid, "rk": rk, "w": 0, "rt": at(t)}

    write(
        streams,
        ([left(0, 7, 101), left(1, None, 100)], [right(0, 8, 101), right(1, None, 100)]),
        ([left(2, 7, None)], [right(2, 8, None)]),
        ([left(3, 1, 100), left(4, 1, 99)], [right(3, 1, 100), right(4, 1, 99)]),
        last_rows(),
    )
    both.run()

    def ids(whose: str) -> Counter[tuple[int | None, int | None]]:
        rows = [json.loads(given.row) for given in both.given[whose]]
        return Counter((row["lid"], row["rid"]) for row in rows)

    both_have = [(0, None), (None, 0)]
    only_ours = [(3, 3), (1, None), (None, 1), (2, None), (None, 2)]
    assert ids("ours") == Counter([*both_have, *only_ours])
    assert ids("sparks") == Counter([*both_have, (1, 1)])
    assert both.late == 2, "the rows of second 99"


@pytest.mark.slow
def test_where_sparks_semi_join_loses_rows(streams: Streams) -> None:
    """Two rows of a micro-batch match; the newest watermark has passed the right one already."""
    from pyspark.sql import functions as F

    delays = "1 second", "1 second"

    def spark(how: str) -> Any:
        left, right = sides(streams, delays)
        return left.join(right, F.expr(f"k = rk AND {RANGE}"), HOWS[how])

    def ours(how: str) -> Any:
        return tj.join(*sides(streams, delays), "l.k = r.rk", how=how, window=WINDOW)

    hows = "inner", "semi"
    both = Both(
        streams, lambda: {how: spark(how) for how in hows}, lambda: {how: ours(how) for how in hows}
    )

    def at_once(k: int, rk: int, t: float) -> tuple[list[Row], list[Row]]:
        left: Row = {"lid": k, "k": k, "v": 0, "t": at(t)}
        return [left], [{"rid": rk, "rk": rk, "w": 0, "rt": at(t)}]

    write(streams, at_once(50, 51, 100), at_once(1, 1, 90), last_rows())
    both.run()
    mine, theirs = both.take_out("semi")
    assert [json.loads(row)["lid"] for row in mine] == [1]
    assert not theirs
    both.check()


@pytest.mark.slow
def test_where_spark_never_gives_unmatched_rows_out(streams: Streams) -> None:
    """A filter with a lower bound beside a time range: Spark takes the number for a time."""
    from pyspark.sql import functions as F

    write(streams, *random_rows(0), last_rows())
    delays = "4500 milliseconds", "7500 milliseconds"

    def spark(on: str) -> Any:
        left, right = sides(streams, delays)
        return left.join(right, F.expr(f"k = rk AND {on} AND {RANGE}"), "left_outer")

    def ours(on: str) -> Any:
        return tj.join(*sides(streams, delays), f"l.k = r.rk AND {on}", how="left", window=WINDOW)

    # The second says the same, in words that Spark does not mistake.
    lower, other = "v > 2", "v NOT IN (0, 1, 2)"
    both = Both(
        streams,
        lambda: {lower: spark(lower), other: spark(other)},
        lambda: {lower: ours(f"l.{lower}"), other: ours(f"l.{other}")},
    )
    both.run()

    def of(whose: str, join: str) -> Counter[str]:
        return Counter(given.row for given in both.given[whose] if given.join == join)

    assert of("ours", lower) == of("ours", other) == of("sparks", other)
    missing = of("ours", lower) - of("sparks", lower)
    assert missing
    assert not of("sparks", lower) - of("ours", lower)
    assert all(unmatched(json.loads(row)) for row in missing)
