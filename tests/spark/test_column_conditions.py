"""Conditions given as PySpark columns: the same join as their text, or a refusal in one line."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import thetajoin as tj
from spark.harness import Streams
from thetajoin import ThetaJoinError

pytest.importorskip("pyspark", reason="pyspark is not installed")
from pyspark.sql import functions as F

from thetajoin.spark.column_condition import sql_of

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

NEW_YEAR = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
ROWS = [
    (i, i % 4, None if i % 5 == 0 else i / 4, ["it's", "a, (b", "", None][i % 4], NEW_YEAR, i % 2)
    for i in range(12)
]
SCHEMA = "id int, k long, x double, s string, t timestamp, `odd name` int"


def left(name: str) -> Any:
    return F.col(f"l.{name}")


def right(name: str) -> Any:
    return F.col(f"r.{name}")


@pytest.fixture(scope="module")
def frames(spark: Any) -> tuple[Any, Any]:
    whole = spark.createDataFrame(ROWS, SCHEMA)
    return whole, whole.where("id < 9")


@pytest.mark.parametrize(
    "on",
    [
        lambda: left("x") < right("x"),
        lambda: (left("x") < right("x")) & (left("k") >= right("k") + 1),
        lambda: (left("x") < right("x")) | ~(left("k") != right("k")),
        lambda: (
            left("k").between(right("k"), right("k") + 2)
            & (left("s") == "it's")
            & (right("s") != "a, (b")
        ),
        lambda: F.abs(left("x") - right("x")) <= 0.5,
        lambda: (left("k") == right("k")) & (left("x") < Decimal("1.50")),
        lambda: left("k").eqNullSafe(right("k")) & left("s").isNull() & right("x").isNotNull(),
        lambda: (-left("k") < right("k")) & left("k").isin(1, 2),
        lambda: (left("t") <= right("t") + F.expr("interval 5 minutes")) & (left("k") > right("k")),
        lambda: (left("t") <= dt.datetime(2024, 1, 1)) & (left("k") > right("k")),
        lambda: left("k").cast("double") / 2.5 < right("x"),
        lambda: left("`odd name`") < right("`odd name`"),
        lambda: F.expr("l.x + 0.5D < r.x AND l.s = 'it\\'s'"),
        lambda: (
            (F.greatest(left("k"), F.lit(2)) < right("k"))
            & (left("k") % 3 == 1)
            & (left("k") < 2**40)
        ),
        lambda: (left("s") == "") & (right("k") > 1e-7),
    ],
)
def test_it_is_the_join_that_spark_would_make(
    frames: tuple[Any, Any], on: Callable[[], Any]
) -> None:
    one, two = frames
    want = one.alias("l").join(two.alias("r"), on()).select("l.id", "r.id")
    got = tj.join(one, two, on(), engine="thetajoin").select("id", "id_right")
    found = Counter(map(tuple, got.collect()))
    assert found == Counter(map(tuple, want.collect()))
    assert found


def test_every_call_takes_them(frames: tuple[Any, Any], streams: Streams) -> None:
    one, two = frames
    on, text = [left("x") < right("x"), "l.k = r.k"], "l.x < r.x AND l.k = r.k"
    assert tj.explain(one, two, on).parts == tj.explain(one, two, text).parts
    counts = {"aggs": {"n": "count(*)"}}
    assert tj.join_agg(one, two, on, **counts).collect() == (
        tj.join_agg(one, two, text, **counts).collect()
    )
    pairs = [
        Counter(tj.self_join(one, given).collect())
        for given in (left("x") < right("x"), "l.x < r.x")
    ]
    assert pairs[0] == pairs[1]
    near = {"key": "k", "ties": "all", "how": "inner"}
    matches = [
        tj.nearest(one, two, on=given, **near).collect() for given in (left("x") < right("x"), text)
    ]
    assert all(matches)
    here = pa.table({"a": [1, 2, 3]})
    streams.write("l", here, here.schema)
    stream = streams.read("l")
    joined = tj.self_join(stream, left("a") < right("a"), window=tj.FullHistory())
    assert streams.run(joined).rows.num_rows == 3


@pytest.mark.parametrize(
    ("on", "words"),
    [
        (lambda: left("nope") < right("x"), ["resolve", "l.nope", "F.col('l.x')"]),
        (lambda: F.col("x") < right("x"), ["resolve", "F.col('l.x')"]),
        (
            lambda: F.when(left("k") > 1, 2).otherwise(3) < right("k"),
            ["cannot be written", "CASE WHEN", "as text"],
        ),
        (lambda: left("x") < float("nan"), ["cannot be written", "as text"]),
        (
            lambda: (
                (left("k") < right("k")) & (F.lit(dt.timedelta(minutes=5)) > left("t") - right("t"))
            ),
            ["as text"],
        ),
    ],
)
def test_what_cannot_be_told_is_refused(
    frames: tuple[Any, Any], on: Callable[[], Any], words: list[str]
) -> None:
    with pytest.raises(ThetaJoinError) as caught:
        tj.join(*frames, on())
    assert "\n" not in str(caught.value)
    assert [word for word in words if word not in str(caught.value)] == []


def test_a_text_without_quotes_is_read() -> None:
    """Spark Connect shows texts bare, and names come without quotes of their own."""
    assert sql_of("=(l.s, it's)") == "(l.s = 'it\\'s')"
    assert sql_of("=(l.s, a, b)") is None
    assert sql_of("<(l.x, r.x") is None
    assert sql_of("<(l.x, r.x))") is None
    assert sql_of("<>(CAST(l.x AS LONG), 2.50)") == "(CAST(l.x AS BIGINT) != 2.50D)"
    assert sql_of("<(l.x, 2.50)", decimals=True) == "(l.x < 2.50)"
    assert sql_of("<(l.odd name, r.`a.b`)") == "(l.`odd name` < r.`a.b`)"
    assert sql_of("<=(CAST(l.odd name AS DOUBLE), 1.0E-7)") == (
        "(CAST(l.`odd name` AS DOUBLE) <= 1.0E-7D)"
    )
