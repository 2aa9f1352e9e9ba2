"""Spark's own stateful operators before a streaming join: none of their rows is late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import naive
import thetajoin as tj
from spark.harness import CLOSING, Streams, closing, expected, random_batches, seconds
from thetajoin.errors import SchemaError
from thetajoin.spark.unit import METRICS

pytestmark = [pytest.mark.spark]

WINDOW = tj.TimeWindow("20 seconds", time="t")
DELAY = "5 seconds"


def totals(df: Any, side: str) -> Any:
    """Rows by ten seconds; what a window's rows are known by is its end."""
    from pyspark.sql import functions as F

    id_, value = ("lid", "a") if side == "l" else ("rid", "b")
    grouped = df.groupBy(F.window("t", "10 seconds")).agg(
        F.min(id_).alias(id_), F.sum(value).alias(value)
    )
    return grouped.select(id_, value, F.window_time("window").alias("t"))


def distinct(df: Any, side: str) -> Any:
    """Each row once."""
    return df.dropDuplicates([*df.columns])


def joined(df: Any, side: str) -> Any:
    """Each row with itself, by Spark's own join; its time is the event time on."""
    from pyspark.sql import functions as F

    other = df.selectExpr(*[f"{name} AS x_{name}" for name in df.columns])
    id_ = "lid" if side == "l" else "rid"
    same = f"{id_} = x_{id_} AND x_t >= t - INTERVAL 1 SECOND AND x_t <= t + INTERVAL 1 SECOND"
    return df.join(other, F.expr(same)).select(*df.columns)


@pytest.mark.parametrize(
    "upstream",
    [
        totals,
        pytest.param(distinct, marks=pytest.mark.slow),
        pytest.param(joined, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("how", ["inner", pytest.param("left", marks=pytest.mark.slow)])
def test_an_operator_upstream_gives_no_late_rows(
    streams: Streams, upstream: Callable[[Any, str], Any], how: str
) -> None:
    """The stream gives what the same tables do: the rows come in order enough to be none late."""
    batches = [*random_batches(51, batches=6, rows=10, nulls=False, step=40), closing(), closing()]
    streams.push(*batches)
    sides = [upstream(df, side) for df, side in zip(streams.both(DELAY), "lr", strict=True)]
    run = streams.run(tj.join(*sides, "l.a <= r.b", how=how, window=WINDOW))
    tables = [
        upstream(streams.spark.read.parquet(str(streams.folder / side)), side) for side in "lr"
    ]
    rows = tj.join(*tables, "l.a <= r.b", how=how, window=WINDOW).toArrow().to_pylist()
    want = Counter((row["lid"], row["rid"]) for row in rows)
    want = Counter({ids: n for ids, n in want.items() if max(i or 0 for i in ids) < CLOSING})
    assert run.total("late_rows") == 0
    assert run.ids == want
    assert len(want) > 20


def test_late_rows_are_in_sparks_own_report(streams: Streams) -> None:
    batches = [
        *(naive.Push(*_rows(t, n)) for n, t in enumerate((0, 100, 200))),
        naive.Push(*_rows(0, 3)),
        naive.Push(*_rows(1, 4)),
        closing(),
    ]
    streams.push(*batches)
    run = streams.run(tj.join(*streams.both(DELAY), "l.a <= r.b", window=WINDOW))
    counted = [dict(m.asDict()) for p in run.progress for m in p.observedMetrics.values()]
    assert sum(row.get("late_rows") or 0 for row in counted) == run.total("late_rows") == 4


def _rows(t: int, n: int) -> tuple[list[naive.Row], list[naive.Row]]:
    from spark.harness import at

    left = [{"lid": n, "a": 0, "c": 0, "t": at(t)}]
    return left, [{"rid": n, "b": 0, "d": 0, "t": at(t)}]


def test_columns_may_have_any_name_but_our_own(streams: Streams) -> None:
    """`c0` is what the units call their first column."""
    batches = random_batches(52, batches=2, rows=6)
    streams.push(*batches)
    left, right = streams.both()
    with pytest.raises(SchemaError, match="rename it"):
        tj.join(left.withColumnRenamed("c", METRICS), right, "l.a < r.b", window=tj.FullHistory())
    right = right.withColumnRenamed("d", "c0").withColumnRenamed("t", "a.`b` c")
    run = streams.run(tj.join(left, right, "l.a < r.b", window=tj.FullHistory()))
    assert run.rows.column_names == ["lid", "a", "c", "t", "rid", "b", "c0", "a.`b` c"]
    assert run.ids == expected(batches, naive.conj(("a", "<", "b")))[0]


def test_the_time_of_an_unmatched_row_is_past(streams: Streams) -> None:
    """Watermark and lateness in a left join, against the oracle, with rows out of order."""
    from spark.harness import with_watermarks

    batches = [*random_batches(11, batches=3), closing(), closing()]
    streams.push(*batches)
    run = streams.run(tj.join(*streams.both(DELAY), "l.a < r.b", how="left", window=WINDOW))
    want, result = expected(
        with_watermarks(batches, seconds(5)),
        naive.conj(("a", "<", "b")),
        how="left",
        window=naive.Time(seconds(20), seconds(20)),
    )
    assert run.ids == want
    assert run.total("late_rows") == result.late_rows > 0
