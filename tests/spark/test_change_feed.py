"""Streams of updates and deletes are refused, unless it was said which rows are wanted."""

from __future__ import annotations

from typing import Any

import pytest

import thetajoin as tj
from thetajoin.errors import SchemaError

pytestmark = [pytest.mark.spark]

DELTA = "x long, _change_type string, _commit_version long, _commit_timestamp timestamp"
ROW = "struct<x: long>"
DEBEZIUM = f"x long, before {ROW}, after {ROW}, op string, ts_ms long"
NESTED = f"x long, payload struct<before: {ROW}, after: {ROW}, op: string>"
UNWRAPPED = "x long, __deleted string"
WINDOW = tj.FullHistory()


@pytest.fixture
def stream(spark: Any, tmp_path: Any) -> Any:
    return lambda schema: spark.readStream.schema(schema).parquet(str(tmp_path))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (DELTA, r"\.where\(\"_change_type = 'insert'\"\)\.drop\('_change_type'\)"),
        (DEBEZIUM, r"\.where\(\"op IN \('c', 'r'\)\"\)\.select\('after\.\*'\)"),
        (NESTED, r"payload\.op IN .*'payload\.after\.\*'"),
        (UNWRAPPED, "__deleted"),
    ],
)
def test_a_change_feed_is_refused(stream: Any, schema: str, said: str) -> None:
    plain, feed = stream("x long"), stream(schema)
    calls = [
        lambda: tj.join(plain, feed, "l.x < r.x", window=WINDOW),
        lambda: tj.join_agg(feed, plain, "l.x < r.x", aggs={"n": "count(*)"}, window=WINDOW),
        lambda: tj.sql("SELECT a.x FROM a JOIN b ON a.x < b.x", a=plain, b=feed),
    ]
    for call in calls:
        with pytest.raises(SchemaError, match=said) as refused:
            call()
        assert "\n" not in str(refused.value)


def test_who_looks_at_the_column_or_drops_it_may_go_on(stream: Any) -> None:
    plain, feed = stream("x long"), stream(DELTA)
    tj.join(plain, feed, "l.x < r.x AND r._change_type = 'insert'", window=WINDOW)
    tj.join(plain, feed.drop("_change_type"), "l.x < r.x", window=WINDOW)
    # A column of that name alone says nothing.
    tj.join(plain, stream("x long, op string"), "l.x < r.x", window=WINDOW)
    tj.join(plain, stream(DEBEZIUM).select("after.*"), "l.x < r.x", window=WINDOW)


@pytest.mark.slow
def test_a_table_may_have_such_columns(spark: Any, stream: Any) -> None:
    table = spark.createDataFrame([(1, "insert")], "x long, _change_type string")
    tj.join(stream("x long"), table, "l.x < r.x", window=WINDOW)
