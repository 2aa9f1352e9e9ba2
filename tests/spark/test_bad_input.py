"""What a user gets wrong on Spark: each call, and the one line that answers it at once.

A row is what was typed, read as Python among the names that the test gives, and parts of the
message.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import naive
import thetajoin as tj
from spark.harness import Streams, at
from strategies import refused
from thetajoin import ThetaJoinError

pytestmark = [pytest.mark.spark]

ON = "l.a < r.b"
KEYED = "l.k = r.k AND l.x < r.x"
FULL, COUNTED = tj.FullHistory(), tj.CountWindow(5)
TIMED = tj.TimeWindow("10 seconds", time="t")
N = {"n": "count(*)"}

STREAMS: list[tuple[str, list[str]]] = [
    # windows
    ("tj.join(l, r, ON)", ["TimeWindow", "CountWindow", "FullHistory"]),
    ("tj.join(l, r, ON, window=COUNTED)", ["order_by"]),
    ("tj.join(l, r, ON, window=TIMED)", ["left", "withWatermark('t'"]),
    ("tj.join(marked_l, r, ON, window=TIMED)", ["right", "withWatermark('t'"]),
    ("tj.join(l, marked_r, ON, window=TIMED)", ["left", "withWatermark('t'"]),
    ("tj.join(marked_l, marked_r, ON, window=tj.TimeWindow('1 s', time='u'))",
     ["'u'", "left", "lid"]),
    ("tj.join(marked_l, marked_r, ON, window=tj.TimeWindow('1 s', time=('t', 'u')))",
     ["'u'", "right", "rid"]),
    ("tj.join(marked_l, marked_r, ON, window=tj.TimeWindow(5, time='t'))", ["5", "no unit"]),
    ("tj.join(l, r, ON, window=COUNTED, order_by=('t', 'z'))", ["'z'", "right"]),
    ("tj.join(l, r, ON, window=FULL, how='left')", ["FullHistory", "left"]),
    ("tj.join(l, r, ON, window=FULL, how='right')", ["FullHistory", "right"]),
    ("tj.join(l, r, ON, window=FULL, how='full')", ["FullHistory", "full"]),
    ("tj.join(l, r, ON, window=FULL, how='anti')", ["FullHistory", "anti"]),
    # options
    ("tj.join(l, r, ON, window=FULL, units=0)", ["units", "0"]),
    ("tj.join(l, r, ON, window=FULL, units=True)", ["units"]),
    ("tj.join(l, r, ON, window=FULL, unit=2)", ["unit"]),
    ("tj.join(l, r, ON, window=FULL, how='sideways')", ["sideways"]),
    ("tj.join(marked_l, marked_r, ON, window=TIMED, how='full', units=2)", ["full", "units=1"]),
    ("tj.join(l, r, ON, window=FULL, engine='auto')", ["two Spark tables"]),
    ("tj.join(l, t, 'l.a < r.a', window=FULL, engine='auto')", ["two Spark tables"]),
    # conditions
    ("tj.join(l, r, 'l.x < r.b', window=FULL)", ["x", "left"]),
    ("tj.join(l, r, 'l.a < r.zz', window=FULL)", ["zz", "right"]),
    ("tj.join(l, r, '1 = 1', window=FULL)", []),
    ("tj.join(l, r, 'l.a < r.t', window=FULL)", ["BIGINT", "TIMESTAMP"]),
    ("tj.join(l, r, 'l.a <', window=FULL)", []),
]  # fmt: skip


def both(streams: Streams, delay: str | None = None) -> tuple[Any, Any]:
    if not streams.written:
        left, right = {"lid": 0, "a": 0, "c": 0, "t": at(0)}, {"rid": 0, "b": 1, "d": 0, "t": at(0)}
        streams.push(naive.Push([left], [right]))
    return streams.both(delay)


def test_streams(streams: Streams) -> None:
    names = dict(zip(("l", "r"), both(streams), strict=True))
    names |= zip(("marked_l", "marked_r"), both(streams, "5 seconds"), strict=True)
    names["t"] = streams.spark.createDataFrame([(1, 2)], "a int, b int")
    for typed, words in STREAMS:
        refused(lambda typed=typed: eval(typed, globals(), names), *words)


TABLES: list[tuple[str, list[str]]] = [
    ("tj.join(t, t, 'l.a < r.nope')", ["unknown column"]),
    ("tj.join(t, None, ON)", []),
    ("tj.join(t, [1], ON)", []),
    ("tj.join_agg(t, 5, ON, aggs=N)", []),
    ("tj.join(t, t, ON, how='sideways')", ["sideways"]),
    ("tj.join(t, t, ON, window='10 minutes')", []),
    ("tj.join(t, t, ON, window=COUNTED)", ["order_by"]),
    ("tj.join(t, t, ON, order_by=5)", []),
    ("tj.join(t, t, ON, suffix=None)", []),
    ("tj.join(t, t, ON, suffix=5)", []),
    ("tj.self_join(t, ON, suffix=None)", []),
    ("tj.join(t, t, ON, observe=3)", []),
    ("tj.join(t, t, ON, how='full', observe='twice', broadcast_rows=0)", []),
    ("tj.join(t, t, ON, units=0)", ["units", "0"]),
    ("tj.join_agg(t, t, ON, aggs=N, units=0)", []),
    ("tj.join(t, t, ON, held_rows=-1)", ["held_rows"]),
    ("tj.join(t, t, ON, broadcast_rows=True)", ["broadcast_rows"]),
    ("tj.join(t, t, ON, windows=1)", ["windows"]),
    ("tj.join_many({'x': t, 'y': t}, 'x.a < y.a', how='left')", []),
    # the papers' partitionings
    ("tj.join(t, t, ON, partitioning='fast')", ["rbm, obt, cfs, ftj, prefap"]),
    ("tj.join(t, t, ON, partitioning='prefap', p=0)", ["p=0"]),
    ("tj.join(t, t, ON, pre_filter=True)", ["partitioning='prefap'"]),
    ("tj.join(t, t, ON, partitioning='ftj', amalgamate=1)", ["true or false"]),
    ("tj.join(t, t, 'l.a < r.b AND l.b >= r.a', partitioning='ftj')", ["one comparison"]),
    ("tj.join(t, t, ON, partitioning='ftj', how='left')", ["inner"]),
    # Spark's own join
    ("tj.join(k, k, KEYED, engine='flink')", ["engine='flink'", "'auto', 'thetajoin'"]),
    ("tj.join(k, k, KEYED, engine=['spark'])", ["must be 'auto'"]),
    ("tj.join(k, k, KEYED, engine='spark', units=2)", ["units is an option"]),
    ("tj.join(k, k, KEYED, engine='spark', threads=2)", ["threads is an option"]),
    ("tj.join(k, k, KEYED, engine='spark', partitioning='obt')", ["partitioning is"]),
    ("tj.join(k, k, KEYED, engine='spark', window=COUNTED, order_by='x')", ["no CountWindow"]),
    ("tj.self_join(k, KEYED, engine='spark')", ["self-join"]),
    ("tj.join(here, here, KEYED, engine='spark')", ["two Spark tables"]),
    ("tj.StreamJoin(KEYED, window=FULL, engine='auto')", ["two Spark tables"]),
    # names that are ours
    *((typed.format(name), [name, "rename it"])
      for name in ("__thetajoin_l_row", "__ThetaJoin_metrics")
      for typed in ("tj.self_join(t.toDF('a', '{}'), 'l.a < r.a')",
                    "tj.join(t, t.toDF('a', '{}'), 'l.a < r.a')",
                    "tj.join_agg(t.toDF('a', '{}'), t, 'l.a < r.a', aggs=N)",
                    "tj.join_many({{'x': t, 'y': t.toDF('a', '{}')}}, 'x.a < y.a')")),
]  # fmt: skip


def test_tables(spark: Any) -> None:
    names = {
        "t": spark.createDataFrame([(1, 2)], "a int, b int"),
        "k": spark.range(5).selectExpr("id % 5 AS k", "id AS x").where("x >= 0"),
        "here": pa.table({"k": [1], "x": [1]}),
    }
    for typed, words in TABLES:
        refused(lambda typed=typed: eval(typed, globals(), names), *words)


def test_the_state_store_is_the_users_to_choose(streams: Streams) -> None:
    from thetajoin.spark.session import PROVIDER, ROCKSDB

    streams.spark.conf.unset(PROVIDER)
    try:
        with pytest.raises(ThetaJoinError, match=r"spark\.conf\.set") as caught:
            tj.join(*both(streams), ON, window=tj.FullHistory())
        assert PROVIDER in str(caught.value)
        assert ROCKSDB in str(caught.value)
        assert streams.spark.conf.get(PROVIDER, "") != ROCKSDB, "it is not set behind their back"
    finally:
        streams.spark.conf.set(PROVIDER, ROCKSDB)
