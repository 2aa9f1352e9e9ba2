"""Ids of matches: the same whenever a micro-batch is run again, in whatever order its rows come."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from thetajoin.errors import OptionError, SchemaError
from thetajoin.spark.match_ids import match_ids

pytestmark = [pytest.mark.spark]

SCHEMA = "a STRING, b STRING, t TIMESTAMP, x DOUBLE, n ARRAY<INT>, m MAP<STRING, INT>"
STAMP = "2026-01-01 00:00:00.00000"
ROWS = [
    # Each differs from another in one thing that a careless id would not see.
    ("a", "bc", None, 0.0, [1, 2], {"k": 1, "j": 2}),
    ("ab", "c", None, 0.0, [1, 2], {"k": 1, "j": 2}),
    ("a", None, None, 0.0, [1, 2], {"k": 1, "j": 2}),
    (None, "a", None, 0.0, [1, 2], {"k": 1, "j": 2}),
    ("a", "-", None, 0.0, [1, 2], {"k": 1, "j": 2}),
    ("a", "bc", None, -0.0, [1, 2], {"k": 1, "j": 2}),
    ("a", "bc", None, float("nan"), [1, 2], {"k": 1, "j": 2}),
    ("a", "bc", None, None, [1, 2], {"k": 1, "j": 2}),
    ("a", "bc", None, 0.0, [12], {"k": 1, "j": 2}),
    ("a", "bc", None, 0.0, [], {"k": 1, "j": 2}),
    ("a", "bc", None, 0.0, None, {"k": 1, "j": 2}),
    ("a", "bc", None, 0.0, [None], {"k": 1, "j": 2}),
    ("a", "bc", None, 0.0, [1, 2], {"k": 2, "j": 1}),
    ("a", "bc", None, 0.0, [1, 2], None),
]


def frame(spark: Any, rows: list[Any], partitions: int = 2) -> Any:
    made = spark.createDataFrame(rows, SCHEMA).repartition(partitions)
    later = "CASE WHEN b = 'bc' AND x IS NULL THEN timestamp'2026-01-01 00:00:00.000001' "
    return made.selectExpr("a", "b", later + "ELSE t END AS t", "x", "n", "m")


def ids(df: Any) -> Counter[Any]:
    return Counter(row.match_id for row in df.select("match_id").collect())


def test_the_same_in_any_order_and_different_for_different_rows(spark: Any) -> None:
    """Equal rows are counted, and which of them is the first does not matter."""
    rows = [*ROWS, *ROWS[:3], *ROWS[:3]]
    first = ids(match_ids(frame(spark, rows), batch=7))
    assert len(first) == len(rows)
    shuffled = rows[:]
    random.Random(1).shuffle(shuffled)
    assert ids(match_ids(frame(spark, shuffled, 3), batch=7)) == first
    other = ids(match_ids(frame(spark, rows), batch=8))
    assert not first.keys() & other.keys()
    assert set(map(len, first)) == {32}


def test_keys_alone_decide(spark: Any) -> None:
    df = frame(spark, ROWS)
    by_key = match_ids(df, keys=["a", "b"])
    assert by_key.columns == ["match_id", *df.columns]
    seen: dict[Any, set[Any]] = {}
    for row in by_key.collect():
        seen.setdefault((row.a, row.b), set()).add(row.match_id)
    assert all(len(found) == 1 for found in seen.values())
    assert len(set.union(*seen.values())) == len(seen) == 5


def test_times_are_told_apart_whatever_the_session_shows(spark: Any) -> None:
    """Two times that clocks show alike, an hour apart; and a microsecond is a difference."""
    df = spark.createDataFrame(
        [(1761440400000000,), (1761444000000000,), (1761444000000001,)], "us BIGINT"
    ).selectExpr("timestamp_micros(us) AS t")
    found = ids(match_ids(df, keys=["t"]))
    assert len(found) == 3
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
        assert ids(match_ids(df, keys=["t"])) == found
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_mistakes(spark: Any) -> None:
    df = frame(spark, ROWS)
    with pytest.raises(SchemaError, match="'x' is taken"):
        match_ids(df, "x", keys=["a"])
    with pytest.raises(SchemaError, match=r"key 'bb' is not a column.*'b'"):
        match_ids(df, keys=["bb"])
    with pytest.raises(OptionError, match="batch=NUMBER"):
        match_ids(df)
    stream = spark.readStream.format("rate").load()
    with pytest.raises(OptionError, match="foreachBatch"):
        match_ids(stream, batch=1)
    assert match_ids(stream, keys="value").columns[0] == "match_id"
