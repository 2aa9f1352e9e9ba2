"""The column that says which sides a row comes from, on Spark's tables and streams."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import naive
import thetajoin as tj
from spark.harness import Streams, closing, random_batches, seconds, with_watermarks
from spark.harness import expected as expected_rows
from strategies import naive_ids

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

ON = "l.a < r.b AND l.c >= r.d"
PRED = naive.conj(("a", "<", "b"), ("c", ">=", "d"))


def told(found: Any) -> Counter[Any]:
    """What the column must say of rows, given as pairs of ids."""
    return Counter(
        {
            (l, r, "right_only" if l is None else "left_only" if r is None else "both"): count
            for (l, r), count in found.items()
        }
    )


def said(rows: pa.Table, known: Any) -> Counter[Any]:
    columns = [rows[name].to_pylist() for name in ("lid", "rid", "side")]
    found = Counter(zip(*columns, strict=True))
    return Counter({row: n for row, n in found.items() if row[:2] in known})


def test_tables(spark: Any) -> None:
    [batch] = random_batches(3, batches=1)
    rows = batch.left, batch.right
    left, right = (spark.createDataFrame(pa.Table.from_pylist(side)) for side in rows)
    for how in ("inner", "left", "right", "full"):
        got = tj.join(left, right, ON, how=how, indicator="side")
        assert got.columns[-1] == "side"
        ids = naive_ids(naive.naive_join(*rows, PRED, how=how))
        assert said(got.toArrow(), ids) == told(ids), how
    equal = tj.join(left, right, "l.a = r.b", how="full", indicator="side", engine="spark")
    ids = naive_ids(naive.naive_join(*rows, naive.conj(("a", "=", "b")), how="full"))
    assert said(equal.toArrow(), ids) == told(ids)


def test_streams(streams: Streams) -> None:
    batches = [*random_batches(1, batches=3), closing()]
    streams.push(*batches)
    window, oracle = tj.TimeWindow("10 seconds", time="t"), naive.Time(seconds(10), seconds(10))
    inputs = streams.both("5 seconds")
    run = streams.run(tj.join(*inputs, ON, how="full", window=window, units=1, indicator="side"))
    want, _ = expected_rows(with_watermarks(batches, seconds(5)), PRED, how="full", window=oracle)
    assert run.ids == want
    assert said(run.rows, want) == told(want)


def test_no_column_of_the_users_is_lost(spark: Any) -> None:
    left = spark.createDataFrame(pa.table({"a": [1], "_thetajoin_left": ["mine"]}))
    right = spark.createDataFrame(pa.table({"b": [2], "_THETAJOIN_RIGHT": ["yours"]}))
    [row] = tj.join(left, right, "l.a < r.b", indicator="side").collect()
    assert tuple(row) == (1, "mine", 2, "yours", "both")


def test_refused(spark: Any) -> None:
    df = spark.createDataFrame(pa.table({"a": [1]}))
    for arguments, words in (
        ({"indicator": "A"}, "the output has a column of that name"),
        ({"indicator": "side", "how": "semi"}, "has one side"),
        ({"indicator": 1}, "give the name of a column"),
    ):
        with pytest.raises(tj.ThetaJoinError, match=words):
            tj.join(df, df, "l.a < r.a", **arguments)
