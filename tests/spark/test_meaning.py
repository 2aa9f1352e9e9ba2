"""What Spark means by its types and settings: the same pairs as Spark's own join, or an error."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import reduce
from typing import Any

import pytest

import thetajoin as tj
from spark.harness import Streams
from thetajoin import ThetaJoinError

pytestmark = [pytest.mark.spark]

ZONE = "spark.sql.session.timeZone"
ANSI = "spark.sql.ansi.enabled"
CASE = "spark.sql.caseSensitive"


@contextmanager
def settings(spark: Any, **values: str) -> Iterator[None]:
    """Settings of the session for a while; `_` stands for a dot."""
    names = {"zone": ZONE, "ansi": ANSI, "case": CASE}
    before = {names[name]: spark.conf.get(names[name]) for name in values}
    for name, value in values.items():
        spark.conf.set(names[name], value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


def pairs(joined: Any) -> Counter[tuple[int, int]]:
    return Counter((row.lid, row.rid) for row in joined.select("lid", "rid").collect())


def by_spark(left: Any, right: Any, on: str) -> Counter[tuple[int, int]]:
    from pyspark.sql import functions as F

    return pairs(left.alias("l").join(right.alias("r"), F.expr(on)))


def all_by_spark(left: Any, right: Any, conditions: list[str]) -> dict[str, Counter[Any]]:
    """The same for several conditions, in one job over all pairs."""
    from pyspark.sql import functions as F

    told = [F.expr(on).alias(f"c{at}") for at, on in enumerate(conditions)]
    rows = left.alias("l").crossJoin(right.alias("r")).select("lid", "rid", *told).collect()
    return {
        on: Counter((row.lid, row.rid) for row in rows if row[f"c{at}"])
        for at, on in enumerate(conditions)
    }


def all_by_us(left: Any, right: Any, conditions: list[str]) -> dict[str, Counter[Any]]:
    """By thetajoin, in one job; where there is an equality, also by what `join` would choose."""
    from pyspark.sql import functions as F

    calls = [(on, {"engine": "thetajoin"}) for on in conditions]
    calls += [(on, {}) for on in conditions if " = " in on]
    frames = [
        tj.join(left, right, on, **how).select(F.lit(at).alias("call"), "lid", "rid")
        for at, (on, how) in enumerate(calls)
    ]
    rows = reduce(lambda first, second: first.union(second), frames).collect()
    found = [Counter((r.lid, r.rid) for r in rows if r.call == at) for at in range(len(calls))]
    for (on, _), chosen in list(zip(calls, found, strict=True))[len(conditions) :]:
        assert chosen == found[conditions.index(on)], on
    return dict(zip(conditions, found, strict=False))


def one_line(error: Any) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


# Around both changes of the clocks in New York, and around midnight there and in UTC.
MOMENTS = [
    dt.datetime(2024, 3, 10, 6, 30, tzinfo=dt.UTC),
    dt.datetime(2024, 3, 10, 7, 30, tzinfo=dt.UTC),
    dt.datetime(2024, 3, 9, 7, 0, tzinfo=dt.UTC),
    dt.datetime(2024, 11, 3, 5, 30, tzinfo=dt.UTC),
    dt.datetime(2024, 11, 3, 6, 30, tzinfo=dt.UTC),
    dt.datetime(2024, 11, 4, 5, 30, tzinfo=dt.UTC),
    dt.datetime(2024, 7, 1, 2, 0, tzinfo=dt.UTC),
    dt.datetime(2024, 7, 1, 23, 59, 59, 999999, tzinfo=dt.UTC),
    None,
]
TIMES = "ts timestamp, n timestamp_ntz, d date, s string"


@pytest.fixture(scope="module")
def times(spark: Any) -> tuple[Any, Any]:
    rows = [
        (i, *((None,) * 4 if m is None else (m, m.replace(tzinfo=None), m.date(), str(m)[:19])))
        for i, m in enumerate(MOMENTS)
    ]
    return (
        spark.createDataFrame(rows, f"lid int, {TIMES}").cache(),
        spark.createDataFrame(rows[::-1], f"rid int, {TIMES}").cache(),
    )


ANY_ZONE = [
    "l.ts < r.ts",
    "l.ts + INTERVAL 5 MINUTES >= r.ts AND l.ts <= r.ts",
    "r.ts BETWEEN l.ts - INTERVAL 2 HOURS AND l.ts + INTERVAL 23 HOURS",
    "unix_seconds(l.ts) <= unix_seconds(r.ts)",
    "l.n < r.n AND l.n + INTERVAL 1 DAY >= r.n",
    "l.n - r.n <= INTERVAL '1' HOUR AND l.n >= r.n",
    "l.d < r.d AND datediff(r.d, l.d) <= 30",
    "l.ts <= r.ts AND l.ts > TIMESTAMP '2024-07-01 00:00:00Z'",
    "l.ts <= r.ts AND l.ts > '2024-07-01 00:00:00 -04:00'",
    "date_trunc('second', l.ts) < r.ts",
]
BY_ZONE = [
    "l.ts < r.n",
    "l.n = r.ts",
    "l.d <= r.ts",
    "CAST(l.ts AS DATE) = CAST(r.ts AS DATE)",
    "CAST(l.ts AS STRING) < r.s",
    "CAST(l.s AS TIMESTAMP) <= r.ts",
    "l.s <= r.ts",
    "to_date(l.ts) < r.d",
    "l.ts <= r.ts AND l.ts > '2024-07-01'",
    "l.ts <= r.ts AND l.ts > TIMESTAMP '2024-07-01 00:00:00'",
    "l.ts <= r.ts AND l.ts > DATE '2024-07-01'",
    "hour(l.ts) < hour(r.ts)",
    "year(l.ts) = year(r.ts) AND l.ts < r.ts",
    "date_trunc('DAY', l.ts) = date_trunc('DAY', r.ts)",
    "concat(l.ts, '') < r.s",
]
BY_CLOCKS = [
    "r.ts BETWEEN l.ts - INTERVAL 1 DAY AND l.ts + INTERVAL 24 HOURS",
    "ABS(l.ts - r.ts) <= INTERVAL '1' HOUR",
]


@pytest.mark.parametrize(
    ("zone", "exact", "refused"),
    [
        ("UTC", [*ANY_ZONE, *BY_ZONE, *BY_CLOCKS], []),
        ("America/New_York", ANY_ZONE, [*BY_ZONE, *BY_CLOCKS]),
        ("+05:30", [ANY_ZONE[1], *BY_CLOCKS], BY_ZONE),
    ],
)
def test_time_zones(
    spark: Any, times: tuple[Any, Any], zone: str, exact: list[str], refused: list[str]
) -> None:
    left, right = times
    with settings(spark, zone=zone):
        assert all_by_us(left, right, exact) == all_by_spark(left, right, exact)
        for on in refused:
            with pytest.raises(ThetaJoinError, match="time zone") as caught:
                tj.join(left, right, on)
            assert zone in one_line(caught)


def test_time_zones_elsewhere(spark: Any, times: tuple[Any, Any]) -> None:
    """In windows, orders, groups, aggregates, joins of many and streams."""
    left, right = times
    day = tj.TimeWindow("2 days", time="ts")
    counted = {"window": tj.CountWindow(3), "order_by": ("ts", "n")}
    mixed = tj.TimeWindow("1 hour", time=("ts", "n"))
    aggs = {"n": "count(*)"}
    stream = spark.readStream.format("rate").load().withColumnRenamed("value", "lid")
    with settings(spark, zone="America/New_York"):
        assert tj.join(left, right, "l.lid <= r.rid", window=day).count()
        many = {"a": left, "b": left, "c": right}
        assert tj.join_many(many, "a.lid <= b.lid AND b.lid <= c.rid", window=day).count()
        for call in (
            lambda: tj.join(left, right, "l.lid <= r.rid", window=mixed),
            lambda: tj.join(left, right, "l.lid < r.rid", **counted),
            lambda: tj.join_agg(left, right, "l.lid <= r.rid", group_by="hour(l.ts)", aggs=aggs),
            lambda: tj.join_agg(left, right, "l.ts < r.n", aggs=aggs),
            lambda: tj.join_agg(left, right, "l.ts < r.ts", aggs={"d": "max(CAST(r.ts AS DATE))"}),
            lambda: tj.join_many(many, "a.lid <= b.lid AND b.ts <= c.n"),
            lambda: tj.join(stream, right, "l.timestamp < r.n", window=tj.FullHistory()),
        ):  # fmt: skip
            with pytest.raises(ThetaJoinError, match="America/New_York") as caught:
                call()
            one_line(caught)


@pytest.mark.parametrize("collation", ["UTF8_LCASE", "UNICODE_CI"])
def test_collations(spark: Any, collation: str) -> None:
    made = "SELECT * FROM VALUES (1, 'a', 'A'), (2, 'B', 'b'), (3, 'c', 'c') AS t({}, k, v)"
    left, right = (
        spark.sql(made.format(name)).selectExpr(name, f"collate(k, '{collation}') AS k", "v")
        for name in ("lid", "rid")
    )
    carried = tj.join(left, right, "l.v <= r.v", broadcast_rows=0)
    assert carried.schema["k_right"].dataType == right.schema["k"].dataType
    assert pairs(carried) == by_spark(left, right, "l.v <= r.v")
    nested = right.selectExpr("rid", "named_struct('k', k) AS s")
    stream = spark.readStream.format("rate").load()
    text = stream.selectExpr("value AS lid", f"collate('x', '{collation}') AS k")
    count = {"aggs": {"n": "count(*)"}}
    for call in (
        lambda: tj.join(left, right, "l.k = r.k"),
        lambda: tj.join(left, right, "l.lid < r.rid AND lower(l.k) < r.v"),
        lambda: tj.join(left, nested, "l.v <= r.s.k"),
        lambda: tj.join_agg(left, right, "l.lid < r.rid", group_by="l.k", **count),
        lambda: tj.join_agg(left, right, "l.lid < r.rid", aggs={"m": "max(r.k)"}),
        lambda: tj.join_agg(left, nested, "l.lid < r.rid", group_by="r.s", **count),
        lambda: tj.join(left, right, "l.lid < r.rid", window=tj.CountWindow(2), order_by="k"),
        lambda: tj.join_many({"a": left, "b": right, "c": right}, "a.lid < b.rid AND b.k < c.k"),
        lambda: tj.join(text, right, "l.k < r.k", window=tj.FullHistory()),
    ):
        with pytest.raises(ThetaJoinError, match=collation) as caught:
            call()
        assert "column" in one_line(caught)


def test_char_columns(spark: Any) -> None:
    columns = "id int, c5 char(5), d5 char(5), c3 char(3), v varchar(5)"
    same = ("l.c5 = r.d5", "l.c5 < r.d5", "l.v = r.v", "l.c5 = r.v", "rtrim(l.c5) = rtrim(r.c3)")
    padded = ("l.c5 = r.c3", "l.c5 <= r.c3", "l.c5 = 'ab' AND l.lid <= r.rid", "l.c5 IN ('b', r.v)")
    spark.sql(f"CREATE TABLE chars ({columns}) USING parquet")
    spark.sql("INSERT INTO chars VALUES (1, 'ab', 'b', 'ab', 'ab'), (2, 'b', 'ab', 'b', 'abc')")
    try:
        table = spark.table("chars")
        left, right = (table.withColumnRenamed("id", name) for name in ("lid", "rid"))
        assert all_by_us(left, right, same) == all_by_spark(left, right, same)
        for on in padded:
            with pytest.raises(ThetaJoinError, match="CHAR") as caught:
                tj.join(left, right, on)
            one_line(caught)
    finally:
        spark.sql("DROP TABLE chars")


NUMBERS = "i int, b bigint, f float, x double, m decimal(10,2), w decimal(38,18), s string"
VALUES: list[tuple[Any, ...]] = [
    (1, 1, 1.5, 1.5, Decimal("1.50"), Decimal("1.5"), "1"),
    (0, -1, -0.0, 0.0, Decimal("0.00"), Decimal("0.000000000000000001"), "0"),
    (2**31 - 1, 2**53 + 1, 0.1, 0.1, Decimal("0.10"), Decimal("0.1"), " 7 "),
    (-(2**31), 2**53, float("nan"), float("nan"), Decimal("-99999999.99"), Decimal(10**19), "-3"),
    (7, None, float("inf"), float("-inf"), None, None, None),
]


@pytest.fixture(scope="module")
def numbers(spark: Any) -> tuple[Any, Any]:
    return tuple(  # type: ignore[return-value]
        spark.createDataFrame([(i, *row) for i, row in enumerate(VALUES)], f"{name} int, {NUMBERS}")
        for name in ("lid", "rid")
    )


EXACT = [
    "l.i < r.b", "l.b <= r.x", "l.f = r.x", "l.f <= r.m", "l.m >= r.w", "l.m = r.i", "l.x <= r.w",
    "l.i + 0.5 > r.m", "l.m * 2 <= r.w + 1", "l.m / 3 < r.x", "l.w - r.m <= 1",
    "ABS(l.x - r.f) <= 0.5",
    "l.i % 2 = r.b % 2", "l.x % 2 <= r.f", "round(l.x) >= r.i", "floor(l.m) < r.b", "l.x <=> r.f",
    "CAST(l.x AS STRING) < r.s", "CAST(l.m AS STRING) <= r.s", "l.f != r.m",
    "coalesce(l.b, l.i) <= r.i", "CASE WHEN l.i > 0 THEN l.m ELSE l.w END >= r.x",
]  # fmt: skip
WITH_TEXT = [
    "CAST(l.m AS STRING) <= CAST(r.w AS STRING)",
    "l.i < r.s", "l.s <= r.b", "l.x >= r.s", "coalesce(l.i, l.s) < r.b", "l.i IN (r.s, 7)",
]  # fmt: skip
FAIL = ["l.i + 1 > r.i", "l.b / (r.i - r.i) > 1", "CAST(l.x AS INT) < r.i", "l.i * l.i < r.b"]


def test_numbers_are_compared_as_spark_does(spark: Any, numbers: tuple[Any, Any]) -> None:
    left, right = numbers
    for ansi in ("true", "false"):
        with settings(spark, ansi=ansi):
            assert all_by_us(left, right, EXACT) == all_by_spark(left, right, EXACT), ansi
    assert all_by_us(left, right, WITH_TEXT) == all_by_spark(left, right, WITH_TEXT)
    with settings(spark, ansi="false"):
        for on in WITH_TEXT:
            with pytest.raises(ThetaJoinError, match="ansi") as caught:
                tj.join(left, right, on)
            one_line(caught)
        # What gives NULL or wraps there is an error here, never another pair.
        for on in FAIL:
            with pytest.raises(Exception, match=r"(?i)overflow|zero|does not fit"):
                tj.join(left, right, on).collect()


def test_names_that_differ_in_case(spark: Any) -> None:
    left = spark.createDataFrame([(1, 5, 1), (2, 6, 2)], "lid int, x int, t int")
    right = spark.createDataFrame([(1, 6, 1), (2, 4, 3)], "rid int, X int, T int")
    joined = tj.join(left, right, "l.X < r.x", broadcast_rows=0)
    assert " ".join(joined.columns).lower() == "lid x t rid x_right t_right"
    assert [tuple(row) for row in joined.select("lid", "rid", "X_right").collect()] == [(1, 1, 6)]
    everything = "l.lid > 0 OR r.rid > 0"
    expected = Counter({(1, 1): 1, (2, 1): 1, (2, 2): 1})
    for window in (tj.TimeWindow(1, time="T"), tj.TimeWindow(1, time=("T", "t"))):
        assert pairs(tj.join(left, right, everything, window=window)) == expected
    counted = tj.join(left, right, everything, window=tj.CountWindow(9), order_by=("T", "t"))
    assert counted.count() == 4
    aggs = {"n": "count(*)"}
    total = tj.join_agg(left, right, everything, aggs=aggs, window=tj.TimeWindow(1, time="T"))
    assert total.collect()[0].n == 3
    asked = {"order_by": "T", "window": tj.CountWindow(9)}
    many = tj.join_many({"a": left, "b": right, "c": left}, "a.x < b.x AND b.X >= c.X", **asked)
    assert len({name.lower() for name in many.columns}) == len(many.columns)
    assert many.count() == 2
    double = left.toDF("lid", "a", "A")
    taken = left.toDF("lid", "x", "X_RIGHT")
    for call in (
        lambda: tj.join(double, right, "l.lid < r.rid"),
        lambda: tj.self_join(double, "l.lid < r.lid"),
        lambda: tj.join_agg(double, right, "l.lid < r.rid", group_by="l.A", aggs=aggs),
        lambda: tj.join_agg(left, right, "l.lid < r.rid", group_by="l.x", aggs={"X": "count(*)"}),
        lambda: tj.join_many(
            {"a": double, "b": right, "c": left}, "a.lid < b.rid AND b.rid < c.lid"
        ),
        lambda: tj.join(taken, right, "l.lid < r.rid"),
    ):
        with pytest.raises(ThetaJoinError, match="caseSensitive") as caught:
            call()
        one_line(caught)
    with settings(spark, case="true"):
        assert tj.join(double, right, "l.a < r.X").columns == ["lid", "a", "A", "rid", "X", "T"]


def test_variant_is_carried(spark: Any) -> None:
    frame = spark.sql(
        "SELECT CAST(id AS INT) AS lid, parse_json(concat('{\"a\":', id, '.5}')) AS v, "
        "array(parse_json('[1, null]')) AS w FROM range(6)"
    )
    right = frame.selectExpr("lid AS rid", "v")
    want = by_spark(frame, right, "l.lid <= r.rid")
    for options in ({}, {"broadcast_rows": 0}, {"broadcast_rows": 0, "held_rows": 2}):
        joined = tj.join(frame, right, "l.lid <= r.rid", **options)
        assert pairs(joined) == want
        assert joined.where("v_right::string <> concat('{\"a\":', rid, '.5}')").count() == 0
    asked = {"window": tj.CountWindow(2), "order_by": ("lid", "rid")}
    plain = tj.join(frame.select("lid"), right.select("rid"), "l.lid <= r.rid", **asked)
    assert pairs(tj.join(frame, right, "l.lid <= r.rid", **asked)) == pairs(plain)
    assert tj.self_join(frame, "l.lid < r.lid").count() == 15
    with pytest.raises(ThetaJoinError, match="compare"):
        tj.join(frame, right, "l.v < r.v")


@pytest.mark.parametrize("beside", ["stream", "table"])
def test_variant_and_collations_in_streams(streams: Streams, beside: str) -> None:
    """Carried as they are, or refused in one line."""
    spark = streams.spark
    made = spark.sql(
        "SELECT CAST(id AS INT) AS lid, parse_json(concat('{\"a\":', id, '.5}')) AS v, "
        "collate('Ab', 'UTF8_LCASE') AS c FROM range(6)"
    )
    made.write.parquet(str(streams.folder / "made"))
    left = spark.readStream.schema(made.schema).parquet(str(streams.folder / "made"))
    right = (left if beside == "stream" else made).selectExpr("lid AS rid", "v", "c")
    joined = tj.join(left, right, "l.lid <= r.rid", window=tj.FullHistory(), units=2)
    assert joined.schema["c_right"].dataType == made.schema["c"].dataType
    shown = joined.selectExpr("lid", "rid", "v::string AS v", "v_right::string AS w", "c")
    rows = streams.run(shown).rows.to_pylist()
    found = Counter(tuple(row.values()) for row in rows)
    text = '{{"a":{}.5}}'.format
    assert found == Counter((l, r, text(l), text(r), "Ab") for l in range(6) for r in range(l, 6))
