"""ASOF JOIN and aggregates over nearest matches on Spark, against the definition."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import naive
import thetajoin as tj
from naive import Near, naive_groups
from spark.harness import Streams, closing, random_batches, seconds, with_watermarks
from spark.test_batch import LEFT, RIGHT, L, R
from spark.test_nearest import ids, on_time
from strategies import assert_same_groups, table

pytestmark = [pytest.mark.spark]

AGGS: dict[str, tuple[str, Any]] = {
    "count(*)": ("count", None),
    "count(r.d)": ("count", lambda l, r: r["d"]),
    "sum(r.d)": ("sum", lambda l, r: r["d"]),
    "avg(r.d)": ("avg", lambda l, r: r["d"]),
    "min(l.c)": ("min", lambda l, r: l["c"]),
    "max(r.rid - l.lid)": ("max", lambda l, r: r["rid"] - l["lid"]),
}
TEXTS = {f"x{at}": text for at, text in enumerate(AGGS)}


@pytest.fixture(scope="module")
def frames(spark: Any) -> tuple[Any, Any]:
    left, right = spark.createDataFrame(table(L, LEFT)), spark.createDataFrame(table(R, RIGHT))
    return left.repartition(3), right.repartition(3)


@pytest.mark.parametrize("how", ["left", "inner"])
@pytest.mark.parametrize("group", ["l.a", "l.c + 1", None])
def test_aggregates_of_nearest(frames: tuple[Any, Any], how: str, group: str | None) -> None:
    """With cells of few rows and with a side sent whole; groups are spread over partitions."""
    ways: list[dict[str, Any]] = [{"broadcast_rows": 0, "held_rows": 20}, {}]
    near = Near(("t", "t"), "nearest", None, 2, "last", "rid")
    pairs = naive.naive_nearest(L, R, naive.conj(("a", "<=", "b")), near, how="inner")
    values = {
        "l.a": [lambda l, r: l["a"]],
        "l.c + 1": [lambda l, r: naive.arithmetic("+", l["c"], 1)],
        None: [],
    }
    groups: list[Any] = values[group]
    want = naive_groups(pairs, groups, list(AGGS.values()), L if how == "left" and groups else ())
    for way in ways:
        got = tj.nearest(
            *frames,
            key="T",
            on="l.a <= r.b",
            direction="nearest",
            k=2,
            ties="last",
            order_by="rid",
            how=how,
            group_by=() if group is None else group,
            aggs=TEXTS,
            **way,
        )
        assert_same_groups(got.toArrow(), want, len(groups))


def test_groups_of_both_sides(frames: tuple[Any, Any]) -> None:
    near = Near(("t", "t"), "backward", None, 1, "all")
    pairs = naive.naive_nearest(L, R, None, near, how="inner")
    groups = [lambda l, r: l["c"], lambda l, r: r["d"]]
    got = tj.nearest(*frames, key="t", ties="all", how="inner", group_by=["l.c", "r.d"], aggs=TEXTS)
    assert_same_groups(got.toArrow(), naive_groups(pairs, groups, list(AGGS.values())), 2)


def test_sql_on_tables(frames: tuple[Any, Any]) -> None:
    """Of rows at equal distance one comes out, the same in whatever partitions they lie."""
    tables = {"x": frames[0], "y": frames[1]}
    pred = naive.conj(("c", "=", "d"), ("a", ">", "b"))
    near = Near(("a", "b"), "backward", None, 1, "all")
    nearest: dict[int, set[Any]] = {}
    for l, r in naive.naive_nearest(L, R, pred, near, how="left"):
        nearest.setdefault(l["lid"], set()).add(None if r is None else r["rid"])
    assert any(len(rids) > 1 for rids in nearest.values()), "the test is about ties"
    query = "SELECT x.lid, y.rid FROM x ASOF LEFT JOIN y ON x.c = y.d AND x.a > y.b"
    got = [tuple(row) for row in tj.sql(query, **tables).collect()]
    assert sorted(lid for lid, _ in got) == sorted(nearest)
    assert all(rid in nearest[lid] for lid, rid in got)
    for where, kept in [
        ("x.c >= 0", [(l, r) for l, r in got if naive.compare(L[l]["c"], ">=", 0)]),
        ("y.rid > 20", [(l, r) for l, r in got if r is not None and r > 20]),
    ]:
        shuffled = {"x": frames[0].repartition(5, "c"), "y": frames[1].repartition(2, "y")}
        again = tj.sql(f"{query} WHERE {where}", **shuffled).collect()
        assert Counter(tuple(row) for row in again) == Counter(kept)
        assert kept
    anti = tj.sql("SELECT x.lid FROM x ASOF ANTI JOIN y ON x.c = y.d AND x.a > y.b", **tables)
    alone = {lid for lid, rids in nearest.items() if rids == {None}}
    assert Counter(row[0] for row in anti.collect()) == Counter(alone)


def test_sql_aggregates_and_expressions(frames: tuple[Any, Any]) -> None:
    tables = {"x": frames[0], "y": frames[1]}
    pred = naive.conj(("t", ">=", "t"))
    near = Near(("t", "t"), "backward", None, 1, "first", "rid")
    pairs = naive.naive_nearest(L, R, pred, near, how="left")
    none = dict.fromkeys(("rid", "t"))
    filled = [(l, none if r is None else r) for l, r in pairs]
    want = naive_groups(
        filled, [lambda l, r: l["a"]], [("count", None), ("max", lambda l, r: r["t"])]
    )
    query = "SELECT x.a, count(*) AS n, max(y.t) AS m FROM x ASOF LEFT JOIN y ON x.t >= y.t "
    got = tj.sql(query + "GROUP BY x.a", **tables)
    assert_same_groups(got.toArrow(), want, 1)
    moved = "SELECT x.a, count(*) AS n, max(y.t) AS m FROM x ASOF LEFT JOIN y "
    moved += "ON 2 * x.t + 1 >= 1 + y.t * 2 GROUP BY x.a"
    assert_same_groups(tj.sql(moved, **tables).toArrow(), want, 1)


def test_sql_on_streams(streams: Streams) -> None:
    batches = [*random_batches(3, batches=3), closing()]
    streams.push(*batches)
    l, r = streams.both("5 seconds")
    query = "SELECT x.lid, y.rid FROM x ASOF JOIN y ON x.a = y.b AND x.t >= y.t"
    kept = on_time(with_watermarks(batches, seconds(5)))
    oracle = naive.Time(seconds(12), seconds(12))
    near = Near(("t", "t"), "backward", None, 1, "all")
    pred = naive.conj(("a", "=", "b"))
    want = ids(naive.naive_nearest(*kept, pred, near, how="inner", window=oracle))
    got = streams.run(tj.sql(f"{query} WITHIN 12 seconds ON t", x=l, y=r)).ids
    assert {lid for lid, _ in got} == {lid for lid, _ in want}
    assert set(got) <= set(want)
    assert len(got) == sum(got.values()) == len({lid for lid, _ in want})
    for wrong, message in [
        (query, "a stream needs a window"),
        (f"{query.replace('x.t >=', 'x.t + INTERVAL 1 SECOND >=')} WITHIN 5 seconds ON t",
         "under a window is a column"),
        ("SELECT count(*) AS n FROM x ASOF JOIN y ON x.t >= y.t WITHIN 5 seconds ON t",
         "aggregates over an ASOF JOIN of a stream"),
    ]:  # fmt: skip
        with pytest.raises(tj.ThetaJoinError, match=message):
            tj.sql(wrong, x=l, y=r)
    window = tj.TimeWindow("5 seconds", time="t")
    with pytest.raises(tj.ThetaJoinError, match="nearest with aggs is for tables"):
        tj.nearest(l, r, key="t", ties="all", aggs={"n": "count(*)"}, window=window)
