"""Joins of tables that Spark's own join could do: the same from either engine, and a choice."""

from __future__ import annotations

import datetime as dt
import itertools
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pytest

import naive
import thetajoin as tj
from naive import Near, Row
from spark.harness import plan_of
from strategies import HOWS
from thetajoin import ThetaJoinError
from thetajoin.engine.parts import Side
from thetajoin.planner.engines import KeyEstimate, choose_engine, choose_for_nearest

pytestmark = [pytest.mark.spark]

ENGINES = ("thetajoin", "spark")
FLOATS = (None, float("nan"), float("inf"), -0.0, 0.0, 1.5, -1.5)
TEXTS = (None, "", "a", "ä", "Z", "it's", "a\\b", "\U0001f600", "￿")
UTC = dt.UTC
LEFT = {
    "k": pa.int32(),
    "odd name": pa.string(),
    "x": pa.float64(),
    "a.b": pa.decimal128(9, 2),
    "t": pa.timestamp("us", "UTC"),
    "big": pa.int64(),
}
RIGHT = {
    "k": pa.int64(),
    "odd name": pa.string(),
    "x": pa.float32(),
    "a.b": pa.decimal128(12, 4),
    "t": pa.timestamp("us", "UTC"),
    "until": pa.timestamp("us", "UTC"),
    "big": pa.int64(),
}
WIDTHS: dict[Side, float] = {"l": 24, "r": 24}
BIG = (None, 2**63 - 1, -(2**63), 0, 7, -7)


def moment(rng: random.Random) -> dt.datetime | None:
    # Around the hours at which the clocks of New York are changed.
    start = dt.datetime(2024, 3, 9, 12, tzinfo=UTC)
    return None if rng.random() < 0.1 else start + dt.timedelta(minutes=10 * rng.randint(0, 300))


def rows(schema: dict[str, pa.DataType], n: int, seed: int) -> list[Row]:
    rng = random.Random(seed)
    places = schema["a.b"].scale

    def hundredths(number: int) -> Decimal:
        return Decimal(number * 10 ** (places - 2)).scaleb(-places)

    draw: dict[str, Callable[[], Any]] = {
        "k": lambda: rng.choice([None, 0, 1, 2, 3, -1]),
        "odd name": lambda: rng.choice(TEXTS),
        "x": lambda: rng.choice(FLOATS),
        "a.b": lambda: rng.choice([None, hundredths(rng.randint(-3, 3)), hundredths(0)]),
        "t": lambda: moment(rng),
        "until": lambda: moment(rng),
        "big": lambda: rng.choice(BIG),
    }
    made = [{name: draw[name]() for name in schema} for _ in range(n)]
    return made + made[: n // 4]  # rows that are there twice


L, R = rows(LEFT, 40, 1), rows(RIGHT, 36, 2)


@pytest.fixture(scope="module")
def frames(spark: Any) -> tuple[Any, Any]:
    tables = (
        pa.Table.from_pylist(L, pa.schema(LEFT)),
        pa.Table.from_pylist(R, pa.schema(RIGHT)),
    )
    return tuple(spark.createDataFrame(table).repartition(3) for table in tables)  # type: ignore[return-value]


def whole(pairs: list[naive.Pair], how: str) -> Counter[str]:
    """Rows of the output by what they show: NaN is like NaN, and -0.0 is not like 0.0."""
    shown = []
    for l, r in pairs:
        left = [None if l is None else l[name] for name in LEFT]
        right = [None if r is None else r[name] for name in RIGHT]
        shown.append(repr(left if how in ("semi", "anti") else left + right))
    return Counter(shown)


def found(joined: Any) -> Counter[str]:
    return found_each([joined])[0]


def put_together(joined: Sequence[Any]) -> Any:
    """Results that have the same columns as one, numbered: jobs take longer than their rows."""
    from pyspark.sql import functions as F

    numbered = [frame.select(F.lit(at).alias("at"), "*") for at, frame in enumerate(joined)]
    return reduce(lambda some, more: some.union(more), numbered)


def found_each(joined: Sequence[Any]) -> list[Counter[str]]:
    table = put_together(joined).toArrow()
    columns = [column.to_pylist() for column in table.columns]
    utc = [
        [v.astimezone(UTC) if isinstance(v, dt.datetime) else v for v in column]
        for column in columns
    ]
    each: list[Counter[str]] = [Counter() for _ in joined]
    for at, *row in zip(*utc, strict=True):
        each[at][repr(row).replace("<UTC>", "UTC")] += 1
    return each


def within(low: int, high: int) -> naive.Predicate:
    """``low <= l.big - r.big <= high`` with as many digits as it takes."""

    def holds(l: Row, r: Row) -> bool | None:
        difference = naive.arithmetic("-", l["big"], r["big"])
        return None if difference is None else low <= difference <= high

    return holds


def shifted(column: str, op: str, other: str, minutes: int) -> naive.Predicate:
    def holds(l: Row, r: Row) -> bool | None:
        later = None if r[other] is None else r[other] + dt.timedelta(minutes=minutes)
        return naive.compare(l[column], op, later)

    return holds


SAME_KEY = naive.conj(("k", "=", "k"))
CONDITIONS = {
    "l.k = r.k AND l.t >= r.t AND l.t < r.until": naive.conj(
        ("k", "=", "k"), ("t", ">=", "t"), ("t", "<", "until")
    ),
    "l.x = r.x AND l.k <= r.k": naive.conj(("x", "=", "x"), ("k", "<=", "k")),
    "l.`odd name` = r.`odd name` AND l.x < r.x": naive.conj(
        ("odd name", "=", "odd name"), ("x", "<", "x")
    ),
    "l.`a.b` = r.`a.b` AND l.`odd name` >= r.`odd name`": naive.conj(
        ("a.b", "=", "a.b"), ("odd name", ">=", "odd name")
    ),
    "l.k = r.k AND l.`a.b` - r.`a.b` BETWEEN -0.03 AND 0.01": naive.all_of(
        SAME_KEY,
        lambda l, r: (
            None
            if None in (l["a.b"], r["a.b"])
            else Decimal("-0.03") <= l["a.b"] - r["a.b"] <= Decimal("0.01")
        ),
    ),
    "l.k = r.k AND (l.x < r.x OR l.`odd name` != r.`odd name`)": naive.all_of(
        SAME_KEY,
        naive.any_of(naive.conj(("x", "<", "x")), naive.conj(("odd name", "!=", "odd name"))),
    ),
    "(l.k = r.k AND l.x > r.x) OR (l.k = r.k AND l.`odd name` = 'it\\'s')": naive.all_of(
        SAME_KEY,
        naive.any_of(
            naive.conj(("x", ">", "x")), lambda l, _: naive.compare(l["odd name"], "=", "it's")
        ),
    ),
    "l.k = r.k AND ABS(l.big - r.big) <= 7": naive.all_of(SAME_KEY, within(-7, 7)),
    "l.k = r.k AND l.big - r.big >= -7": naive.all_of(SAME_KEY, within(-7, 2**70)),
    "l.k = r.k AND r.big - l.big > 6": naive.all_of(SAME_KEY, within(-(2**70), -7)),
    "l.k = r.k AND ABS(l.x - r.x) <= 1.5D AND l.t > TIMESTAMP '2024-03-10 03:00:00Z'": naive.all_of(
        SAME_KEY,
        naive.band("x", "x", "<=", 1.5),
        lambda l, _: naive.compare(l["t"], ">", dt.datetime(2024, 3, 10, 3, tzinfo=UTC)),
    ),
    "l.k = r.k AND l.t <= r.t + INTERVAL 90 MINUTES AND l.t >= r.t": naive.all_of(
        SAME_KEY, naive.conj(("t", ">=", "t")), shifted("t", "<=", "t", 90)
    ),
}


@contextmanager
def setting(spark: Any, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("how", HOWS)
def test_every_kind_of_join(frames: tuple[Any, Any], how: str, engine: str) -> None:
    conditions = list(CONDITIONS.items())
    asked = dict(conditions if how in ("inner", "full") else conditions[:6:5])
    got = found_each([tj.join(*frames, on, how=how, engine=engine) for on in asked])
    for (on, pred), rows in zip(asked.items(), got, strict=True):
        expected = naive.naive_join(L, R, pred, how=how)
        assert expected, on
        assert rows == whole(expected, how), on


@pytest.mark.parametrize("how", HOWS)
def test_the_output_says_the_same_of_itself(spark: Any, how: str) -> None:
    spark.sql("CREATE TABLE coded (k INT NOT NULL, code CHAR(3), list ARRAY<INT>) USING parquet")
    try:
        spark.sql("INSERT INTO coded VALUES (1, 'a', array(1)), (2, 'b', NULL)")
        coded = spark.table("coded")
        never = spark.range(3).selectExpr("id AS k", "CAST(id AS INT) AS v")
        made = {
            engine: tj.join(coded, never, "l.k = r.k", how=how, suffix=" too", engine=engine)
            for engine in ENGINES
        }
        assert made["spark"].schema == made["thetajoin"].schema
        rows = {engine: Counter(map(str, frame.collect())) for engine, frame in made.items()}
        assert rows["spark"] == rows["thetajoin"]
    finally:
        spark.sql("DROP TABLE coded")


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize("engine", ENGINES)
def test_time_windows(spark: Any, frames: tuple[Any, Any], zone: str, engine: str) -> None:
    """A day is 24 hours in a window, whatever the clocks do."""
    day = dt.timedelta(days=1)
    window, oracle = tj.TimeWindow("1 day", time="t"), naive.Time(day, day)
    on = "l.k = r.k AND l.t > TIMESTAMP '2024-03-10 03:00:00Z'"
    late = dt.datetime(2024, 3, 10, 3, tzinfo=UTC)
    pred = naive.all_of(SAME_KEY, lambda l, _: naive.compare(l["t"], ">", late))
    with setting(spark, "spark.sql.session.timeZone", zone):
        for how in ("inner", "full"):
            got = tj.join(*frames, on, how=how, window=window, engine=engine)
            assert found(got) == whole(naive.naive_join(L, R, pred, how=how, window=oracle), how)


@pytest.mark.parametrize(
    ("type_", "length", "expected"),
    [
        ("date", "2 days", {(0, 1), (1, 0), (0, 0), (1, 1), (2, 2)}),
        ("timestamp_ntz", "36 hours", {(0, 1), (1, 0), (0, 0), (1, 1), (2, 2)}),
        ("int", 20, {(0, 1), (1, 0), (0, 0), (1, 1), (2, 2)}),
    ],
)
def test_windows_of_other_times(spark: Any, type_: str, length: Any, expected: Any) -> None:
    times = ["0001-01-01", "0001-01-02", "9999-12-31"]
    if type_ == "int":
        times = [str(-(2**31)), str(-(2**31) + 20), str(2**31 - 1)]
    frame = spark.createDataFrame(list(enumerate(times)), "id int, t string")
    frame = frame.selectExpr("id", "0 AS k", f"CAST(t AS {type_}) AS t")
    for engine in ENGINES:
        window = tj.TimeWindow(length, time="t")
        got = tj.join(frame, frame, "l.k = r.k", window=window, engine=engine)
        assert {(row.id, row.id_right) for row in got.collect()} == expected


def keyed(spark: Any, rows: int, keys: int) -> Any:
    """Rows ``(k, x)`` whose keys are spread evenly, behind a filter."""
    frame = spark.range(rows).selectExpr(f"id % {keys} AS k", "id AS x")
    return frame.where("x >= 0")


def test_few_rows_a_key_are_left_to_spark(spark: Any) -> None:
    left, right = keyed(spark, 1_200_000, 600_000), keyed(spark, 600_000, 300_000)
    on = "l.k = r.k AND l.x <= r.x"
    joined = tj.join(left, right, on)
    assert "MapInArrow" not in plan_of(joined)
    told = tj.explain(left, right, on)
    assert re.match("Spark: about .* pairs of .*, by the left side's first rows", told.engine)
    assert f"\n  engine: {told.engine}\n" in str(told)
    forced = tj.join(left, right, on, engine="thetajoin")
    assert "MapInArrow" in plan_of(forced)
    order = [("x", "ascending"), ("x_right", "ascending")]
    assert joined.toArrow().sort_by(order) == forced.toArrow().sort_by(order)


def test_small_tables_are_joined_without_a_look(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from thetajoin.spark.tables import engine

    def looked(*_: Any) -> Any:
        raise AssertionError("read rows")

    monkeypatch.setattr(engine, "first_keys", looked)
    left, right = keyed(spark, 1_000, 1), keyed(spark, 500, 1)
    on = "l.k = r.k AND ABS(l.x - r.x) <= 1"
    told = tj.explain(left, right, on).engine
    assert re.fullmatch("Spark: .* and .* rows, as Spark reckons from sizes, are few, .*", told)
    assert "MapInArrow" not in plan_of(tj.join(left, right, on))
    larger = keyed(spark, 100_000, 1)
    told = tj.explain(larger, larger, on).engine
    assert re.fullmatch(
        "thetajoin: .* rows, as Spark reckons .*: Spark could save little, .*", told
    )
    with pytest.raises(AssertionError, match="read rows"):
        tj.explain(keyed(spark, 5_000_000, 1), larger, on)


def test_sizes_of_two_tables_in_one_look(spark: Any) -> None:
    from thetajoin.spark.tables.table import estimate_bytes

    small, large = spark.range(10), spark.range(5_000).selectExpr("id", "id AS `b``c`")
    for frames in ((small, large), (large, small), (small, small), (large, large.where("id < 3"))):
        apart = [estimate_bytes(frame)[0] for frame in frames]
        assert estimate_bytes(*frames) == apart
    assert estimate_bytes(small)[0] < estimate_bytes(large)[0] < float("inf")
    assert (
        estimate_bytes(large, spark.createDataFrame([], "x int"))[0] == (estimate_bytes(large)[0])
    )


def test_more_rows_a_key_are_counted_by_samples(spark: Any) -> None:
    left, right = keyed(spark, 2_000_000, 500), keyed(spark, 1_000_000, 500)
    told = tj.explain(left, right, "l.k = r.k AND l.x <= r.x").engine
    pairs = re.match("Spark: about (.*) pairs of .* rows have equal keys", told)
    assert int(pairs[1].replace(",", "")) == pytest.approx(4_000_000_000, rel=0.1)


def test_first_rows_that_stand_by_key_leave_it_open(spark: Any) -> None:
    """All first rows have one key, or keys that the other side's first rows have not."""
    few = spark.range(0, 2_000_000, 1, 2).selectExpr("id DIV 50 AS k", "id AS x")
    told = tj.explain(few, few, "l.k = r.k AND l.x <= r.x").engine
    pairs = re.match("Spark: about (.*) pairs of .* rows have equal keys", told)
    assert int(pairs[1].replace(",", "")) == pytest.approx(100_000_000, rel=0.2)
    many = spark.range(0, 2_000_000, 1, 2).selectExpr("id DIV 10000 AS k", "id AS x")
    other = many.selectExpr("199 - k AS k", "x")
    told = tj.explain(many, other, "l.k = r.k AND l.x <= r.x").engine
    pairs = re.match("Spark: about (.*) pairs of .* rows have equal keys", told)
    assert int(pairs[1].replace(",", "")) == pytest.approx(20_000_000_000, rel=0.1)
    assert told.endswith("what shares a key matches")  # and output is cheaper inside the JVM
    told = tj.explain(many, other, "l.k = r.k AND ABS(l.x - r.x) <= 20").engine
    pairs = re.match("thetajoin: about (.*) pairs of .* rows have equal keys", told)
    assert int(pairs[1].replace(",", "")) == pytest.approx(20_000_000_000, rel=0.1)


def test_many_rows_a_key_are_thetajoin_s(spark: Any) -> None:
    left, right = keyed(spark, 2_000_000, 100), keyed(spark, 1_000_000, 100)
    on = "l.k = r.k AND ABS(l.x - r.x) <= 20"
    joined = tj.join(left, right, on)
    assert "MapInArrow" in plan_of(joined)
    told = tj.explain(left, right, on)
    assert told.engine.startswith("thetajoin: about ")
    pairs = re.match("thetajoin: about (.*) pairs", told.engine)
    assert int(pairs[1].replace(",", "")) == pytest.approx(20_000_000_000, rel=0.1)
    assert "many rows share a key" in told.engine
    few, fewer = left.where("x < 9000"), right.where("x < 5000")
    assert (
        tj.join(few, fewer, on, engine="thetajoin").count()
        == tj.join(few, fewer, on, engine="spark").count()
        > 0
    )


def test_a_frequent_key_is_one_task_of_spark_s() -> None:
    even = KeyEstimate({"l": 2e8, "r": 2e8}, pairs=1e10, hottest=100, matches=1e8)
    hot, widths = replace(even, hottest=9.9e9), WIDTHS
    assert [choose_engine(even, widths, cores).engine for cores in (1, 64)] == ["spark", "spark"]
    assert [choose_engine(hot, widths, cores).engine for cores in (1, 64)] == ["spark", "thetajoin"]
    assert "one key has most" in choose_engine(hot, widths, 64).reason


@pytest.mark.parametrize(
    ("on", "options", "reason"),
    [
        ("l.k < r.k", {}, "no equality"),
        ("l.k = r.k OR l.x < r.x", {}, "no equality"),
        ("l.k = r.k AND l.x <= r.x", {"units": 2}, "units"),
        ("l.k = r.k AND l.x <= r.x", {"engine": "thetajoin"}, "asked for"),
        ("l.k = r.k AND l.x / r.x > 2", {}, "l.x"),
        ("l.k = r.k AND l.x <= r.x", {"window": tj.CountWindow(9), "order_by": "x"}, "CountWindow"),
    ],
)
def test_what_stays(spark: Any, on: str, options: dict[str, Any], reason: str) -> None:
    left, right = keyed(spark, 100, 100), keyed(spark, 50, 50)
    told = tj.explain(left, right, on, **options).engine
    assert told.startswith("thetajoin: ")
    assert reason in told
    assert "MapInArrow" in plan_of(tj.join(left, right, on, **options))


def test_a_nested_loop_where_it_is_asked_for(spark: Any) -> None:
    left, right = keyed(spark, 30, 7), keyed(spark, 20, 5)
    pairs = Counter(tj.join(left, right, "l.k < r.k", engine="spark").collect())
    assert pairs == Counter(tj.join(left, right, "l.k < r.k").collect())
    assert pairs


def test_decimals_that_are_too_long_for_spark(spark: Any) -> None:
    left = spark.sql("SELECT 1BD AS k, CAST('1e-10' AS DECIMAL(38,10)) AS x")
    right = spark.sql("SELECT 1BD AS k, CAST(0 AS DECIMAL(38,0)) AS x")
    on = "l.k = r.k AND l.x > r.x"
    assert tj.join(left, right, on).count() == 1
    assert "38 digits" in tj.explain(left, right, on).engine
    with pytest.raises(ThetaJoinError, match="38 digits"):
        tj.join(left, right, on, engine="spark")


def test_sums_where_spark_would_not_notice_an_overflow(spark: Any) -> None:
    left, right = keyed(spark, 10, 10), keyed(spark, 10, 10)
    on = "l.k = r.k AND l.x + 1 > r.x"
    assert tj.explain(left, right, on).engine.startswith("Spark")
    with setting(spark, "spark.sql.ansi.enabled", "false"):
        assert tj.explain(left, right, on).engine.startswith("thetajoin")
        with pytest.raises(ThetaJoinError, match=r"spark\.sql\.ansi\.enabled"):
            tj.join(left, right, on, engine="spark")


NEAR_RIGHT = {**RIGHT, "n": pa.int64()}
# The last is before all others where it comes to an order; no two are alike.
NEAR_R = [{**row, "n": at if at < len(R) - 1 else None} for at, row in enumerate(R)]


def near_pairs(pairs: list[naive.Pair], how: str) -> Counter[str]:
    one_side = how in ("semi", "anti")
    return Counter(
        repr(
            [l[name] for name in LEFT]
            + ([] if one_side else [None if r is None else r[name] for name in NEAR_RIGHT])
        )
        for l, r in pairs
    )


@pytest.mark.parametrize(
    ("key", "tolerance"),
    [
        ("x", None),
        ("x", 1.5),
        ("a.b", None),
        ("a.b", Decimal("0.01")),
        ("t", dt.timedelta(minutes=50)),
        ("big", 7),
        ("big", None),
        ("odd name", None),
    ],
)
def test_nearest(spark: Any, key: str, tolerance: Any) -> None:
    """Ties, NULLs, NaN, both zeros, texts, and columns of different types."""
    left = spark.createDataFrame(pa.Table.from_pylist(L, pa.schema(LEFT))).repartition(3)
    right = spark.createDataFrame(pa.Table.from_pylist(NEAR_R, pa.schema(NEAR_RIGHT)))
    right = right.repartition(3)
    conditions: list[tuple[Any, Any, naive.Predicate | None]] = [
        (None, None, None),
        ("k", None, naive.conj(("k", "=", "k"))),
        (
            [("k", "k"), ("odd name", "odd name")],
            "l.big IS NOT NULL AND r.big >= 0",
            naive.all_of(
                naive.conj(("k", "=", "k"), ("odd name", "=", "odd name")),
                lambda l, r: l["big"] is not None and r["big"] is not None and r["big"] >= 0,
            ),
        ),
    ]
    ways = itertools.product(("backward", "forward"), conditions, (None, "first", "last"))
    made: dict[bool, list[Any]] = {True: [], False: []}
    wanted: dict[bool, list[Any]] = {True: [], False: []}
    for at, (direction, (by, on, pred), ties) in enumerate(ways):
        how = ("left", "inner", "semi", "anti")[at % 4]
        near = Near((key, key), direction, tolerance, 1, ties, "n")
        expected = near_pairs(naive.naive_nearest(L, NEAR_R, pred, near, how=how), how)
        got = tj.nearest(
            left,
            right,
            key=key,
            by=by,
            on=on,
            direction=direction,
            tolerance=tolerance,
            ties=ties,
            order_by="n",
            how=how,
            engine="spark",
        )
        one_side = how in ("semi", "anti")
        made[one_side].append(got)
        wanted[one_side].append((expected, (direction, by, on, ties, how)))
        other = tj.nearest(left, right, key=key, by=by, order_by="n", how=how, engine="thetajoin")
        assert got.schema == other.schema
    for one_side, frames in made.items():
        assert "MapInArrow" not in plan_of(put_together(frames))
        for got, (expected, way) in zip(found_each(frames), wanted[one_side], strict=True):
            assert got == expected, way


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"direction": "nearest"}, "look one way"),
        ({"k": 2}, "find one row, and k=2"),
        ({"ties": "all"}, "ties='all' asks for all"),
        ({"window": tj.TimeWindow("5 seconds", time="t")}, "do not end by a TimeWindow"),
        ({"on": "l.x < r.x"}, "condition asks for more"),
        ({"on": "l.big - r.big <= 7"}, "condition asks for more"),
        ({"on": "l.big % 3 != r.big % 2 OR l.k = 2"}, "condition asks for more"),
    ],
)
def test_nearest_matches_that_only_thetajoin_finds(
    frames: tuple[Any, Any], options: dict[str, Any], words: str
) -> None:
    given: dict[str, Any] = {"key": "t", "by": "k", "order_by": "until", **options}
    with pytest.raises(ThetaJoinError, match=words) as caught:
        tj.nearest(*frames, engine="spark", **given)
    assert "\n" not in str(caught.value)
    assert "MapInArrow" in plan_of(tj.nearest(*frames, **given))


def test_whose_nearest_match_costs_less(spark: Any) -> None:
    wide = [f"CAST(x AS STRING) AS s{at}" for at in range(8)]

    def engine(rows: int, keys: int, *, by: str | None = "k", more: Sequence[str] = ()) -> str:
        frame = keyed(spark, rows, keys).selectExpr("*", *more)
        joined = tj.nearest(frame, frame, key="x", by=by, order_by="x")
        return "thetajoin" if "MapInArrow" in plan_of(joined) else "spark"

    assert engine(1_000, 10) == engine(9_000_000, 100_000) == "thetajoin"
    assert engine(9_000_000, 5_000_000, more=wide) == "spark"
    assert engine(9_000_000, 1, more=wide) == "thetajoin"
    assert engine(9_000_000, 5, more=wide, by=None) == "thetajoin"
    rows: dict[Side, float] = {"l": 1e6, "r": 1e6}
    assert "one key has most" in choose_for_nearest(rows, {"l": 500, "r": 500}, 0.9, 8).reason


def test_drawn_rows_stand_for_the_table(spark: Any) -> None:
    from thetajoin.spark.tables.table import Table, draw

    ids = spark.range(0, 60_000, 1, 7).selectExpr("id AS x", "id % 3 AS y")
    schema = pa.schema({"x": pa.int64()})
    sample, rows = draw(Table(ids), [0], schema, 1, most=2_000)
    assert sample.num_rows == 2_000
    assert len(set(sample["x"].to_pylist())) == 2_000
    assert rows == pytest.approx(60_000, rel=0.1)
    quarters = Counter(x * 4 // 60_000 for x in sample["x"].to_pylist())
    assert sorted(quarters) == [0, 1, 2, 3]
    assert min(quarters.values()) > 400
    some, rows = draw(Table(ids.where("x < 150")), [0], schema, 1, most=2_000)
    assert (sorted(some["x"].to_pylist()), rows) == (list(range(150)), 150.0)
    none, rows = draw(Table(ids.where("x < 0")), [0], schema, 1)
    assert (none.num_rows, rows) == (0, 0.0)
