"""Tables that every task needs whole: what travels with the plan stays small."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

import thetajoin as tj
from spark.harness import LEFT, Streams, plan_of
from thetajoin.errors import DataError

pytestmark = [pytest.mark.spark]

ROWS = 60_000
SMALL = 100_000


def recorded(monkeypatch: pytest.MonkeyPatch, module: Any) -> list[Any]:
    """The tasks that a module has Spark run."""
    tasks: list[Any] = []
    map_batches = module.map_batches

    def record(frame: Any, task: Any, schema: Any) -> Any:
        tasks.append(task)
        return map_batches(frame, task, schema)

    monkeypatch.setattr(module, "map_batches", record)
    return tasks


def test_a_table_beside_a_stream(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    from thetajoin.spark import totals as spark_totals
    from thetajoin.spark import whole

    sent = recorded(monkeypatch, whole), recorded(monkeypatch, spark_totals)
    streams.write("l", [{"lid": i, "a": i * 1000, "c": 0, "t": None} for i in range(20)], LEFT)
    table = streams.spark.range(ROWS).selectExpr("id AS rid", "id AS b", "id * 2 AS d")
    on = "l.a < r.b AND r.b <= l.a + 3"
    asked = {"window": tj.FullHistory()}
    joined = tj.join(streams.read("l"), table, on, **asked)
    totals = tj.join_agg(streams.read("l"), table, on, aggs={"n": "count(*)"}, **asked)
    assert totals.columns == ["n"]
    assert [[len(cloudpickle.dumps(task)) < SMALL for task in tasks] for tasks in sent] == [
        [True],
        [True],
    ]
    found = streams.run(joined).rows
    pairs = Counter(zip(found["lid"].to_pylist(), found["rid"].to_pylist(), strict=True))
    assert pairs == Counter((i, i * 1000 + k) for i in range(20) for k in (1, 2, 3))


def test_a_table_that_is_too_large_beside_a_stream(streams: Streams, set_limits: Any) -> None:

    set_limits(static_bytes=1 << 20)
    streams.write("l", [], LEFT)
    table = streams.spark.range(4 * ROWS).withColumnRenamed("id", "b")
    asked = {"window": tj.FullHistory()}
    for call in (
        lambda: tj.join(streams.read("l"), table, "l.a < r.b", **asked),
        lambda: tj.join_agg(streams.read("l"), table.selectExpr("b", "b + 1 AS d"),
                            "l.a < r.b", aggs={"n": "sum(r.d)"}, **asked),
    ):  # fmt: skip
        with pytest.raises(DataError, match="more than 1 MiB"):
            call()


def test_what_spark_does_not_let_through() -> None:
    from thetajoin.spark.whole import collect

    class Frame:
        def __init__(self, words: str) -> None:
            self.words = words

        def toArrow(self) -> Any:
            raise RuntimeError(self.words)

    assert collect(Frame("bigger than spark.driver.maxResultSize (1024.0 MiB)"), 1) is None
    with pytest.raises(RuntimeError, match="other"):
        collect(Frame("other"), 1)


def test_a_small_table_beside_a_table(
    spark: Any, monkeypatch: pytest.MonkeyPatch, set_limits: Any
) -> None:
    from thetajoin.spark.tables import table

    tasks = recorded(monkeypatch, table)
    small = spark.range(ROWS).selectExpr("id AS b", "id * 2 AS d")
    probes = spark.createDataFrame([(i * 1000,) for i in range(20)], "a long")
    on, expected = "l.a < r.b AND r.b <= l.a + 3", 60
    # So large a table is small only by its rows.
    joined = tj.join(probes.union(probes.where("a < 0")), small, on, how="left")
    assert joined.count() == expected
    assert "Exchange" not in plan_of(joined)
    assert max(len(cloudpickle.dumps(task)) for task in tasks) < SMALL
    set_limits(whole_bytes=1000)
    apart = tj.join(probes, small, on, how="left")
    assert "Exchange" in plan_of(apart)
    assert apart.count() == expected


def test_rows_come_as_they_were_sent(spark: Any) -> None:
    from thetajoin.spark.whole import send_whole

    for rows in (0, 3, 100_000):
        batch = pa.record_batch({"x": list(range(rows)), "s": ["x" * 5] * rows})
        sent = send_whole(spark, batch)
        assert sent.rows == rows
        assert sent.batch(batch.schema).equals(batch)
