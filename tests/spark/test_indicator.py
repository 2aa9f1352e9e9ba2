"""A column that says which sides a row comes from, on Spark's tables and streams."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import naive
import thetajoin as tj
from spark.harness import CLOSING, Streams, closing, random_batches, seconds, with_watermarks
from spark.test_batch import LEFT, RIGHT, L, R
from strategies import table

pytestmark = [pytest.mark.spark]

ON, PRED = "l.a < r.b", naive.conj(("a", "<", "b"))
HOWS = ("inner", "left", "right", "full")


@pytest.fixture(scope="module")
def frames(spark: Any) -> tuple[Any, Any]:
    left, right = (spark.createDataFrame(table(*of)) for of in ((L, LEFT), (R, RIGHT)))
    return left.repartition(3), right.repartition(2)


def expected(pairs: Any) -> Counter[Any]:
    return Counter(
        (
            None if l is None else l["lid"],
            None if r is None else r["rid"],
            "right_only" if l is None else "left_only" if r is None else "both",
        )
        for l, r in pairs
        if (l is None or l["lid"] < CLOSING) and (r is None or r["rid"] < CLOSING)
    )


def said(rows: pa.Table) -> Counter[Any]:
    found = zip(*(rows[name].to_pylist() for name in ("lid", "rid", "side")), strict=True)
    return Counter(row for row in found if max(row[0] or 0, row[1] or 0) < CLOSING)


@pytest.mark.parametrize("how", HOWS)
def test_tables(frames: tuple[Any, Any], how: Any) -> None:
    got = tj.join(*frames, ON, how=how, indicator="side")
    plain = tj.join(*frames, ON, how=how)
    assert got.columns == [*plain.columns, "side"]
    assert said(got.toArrow()) == expected(naive.naive_join(L, R, PRED, how=how))


def test_sparks_own_engine(frames: tuple[Any, Any]) -> None:
    got = tj.join(*frames, "l.a = r.b", how="full", indicator="side", engine="spark")
    want = naive.naive_join(L, R, naive.conj(("a", "=", "b")), how="full")
    assert said(got.toArrow()) == expected(want)


def test_nearest(frames: tuple[Any, Any]) -> None:
    got = tj.nearest(*frames, key="t", tolerance=2, order_by="rid", indicator="side")
    near = naive.Near(("t", "t"), "backward", 2, 1, "first", "rid")
    assert said(got.toArrow()) == expected(naive.naive_nearest(L, R, None, near, how="left"))


@pytest.mark.parametrize("how", ["left", "full"])
def test_streams(streams: Streams, how: Any) -> None:
    batches = [*random_batches(7, batches=3), closing()]
    streams.push(*batches)
    window = tj.TimeWindow("20 seconds", time="t")
    units = 1 if how == "full" else 2
    got = tj.join(
        *streams.both("10 seconds"), ON, how=how, window=window, indicator="side", units=units
    )
    want = naive.naive_stream(
        with_watermarks(batches, seconds(10)),
        PRED,
        window=naive.Time(seconds(20), seconds(20)),
        how=how,
    ).rows
    found = said(streams.run(got).rows)
    assert found == expected(want)
    assert {side for _, _, side in found} >= {"both", "left_only"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"indicator": "lid"}, "indicator='lid': the output has a column of that name"),
        ({"indicator": "RID"}, "indicator='rid': the output has a column of that name"),
        ({"indicator": ""}, "indicator='': give the name of a column"),
        ({"indicator": "m", "how": "left_semi"}, "with how='semi' has one side"),
    ],
)
def test_refused(frames: tuple[Any, Any], arguments: Any, words: str) -> None:
    with pytest.raises(tj.ThetaJoinError, match=words):
        tj.join(*frames, ON, **arguments)
