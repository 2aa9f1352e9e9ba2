"""Python workers: started before they are needed, and one set of them for all of a join."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming import StatefulProcessor

from thetajoin.spark.session import SHARED_WORKERS, warm_workers

PIDS = "mapped long, loaded boolean"


def _process(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Which process a task runs in, and whether it had loaded a unit and numba by then."""
    import sys
    import time

    loaded = {"numba", "thetajoin.spark.unit"} <= set(sys.modules)
    for _ in batches:
        time.sleep(0.2)  # so that no worker takes two tasks
        yield pa.RecordBatch.from_pydict({"mapped": [os.getpid()], "loaded": [loaded]})


def _parent(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Which process a task's worker comes from: each set of workers has one."""
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"mapped": [os.getppid()]})


class Processes(StatefulProcessor):  # type: ignore[misc]
    """Which process a stateful operator's worker comes from."""

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        for _ in rows:
            pass
        yield pd.DataFrame({"mapped": [key[0]], "stateful": [os.getppid()]})

    def close(self) -> None:
        pass


@pytest.fixture
def shared(spark: Any) -> Any:
    session = spark.newSession()
    for key, value in {**SHARED_WORKERS, "spark.sql.shuffle.partitions": "2"}.items():
        session.conf.set(key, value)
    return session


def test_workers_are_there_before_the_first_rows(shared: Any) -> None:
    warm_workers(shared, 2).join(timeout=120)
    found = shared.range(0, 2, 1, 2).mapInArrow(_process, PIDS).collect()
    assert len({row.mapped for row in found}) == 2
    assert all(row.loaded for row in found)


def test_a_stopped_session_is_nobodys_concern(capfd: pytest.CaptureFixture[str]) -> None:
    class Stopped:
        def range(self, *_: int) -> None:
            raise RuntimeError("stopped")

    warm_workers(Stopped(), 2).join(timeout=120)
    assert capfd.readouterr() == ("", "")


def test_one_set_of_workers_maps_and_keeps_state(shared: Any, tmp_path: Path) -> None:
    rows = shared.readStream.format("rate-micro-batch").option("rowsPerBatch", 4).load()
    mapped = rows.repartition(2).mapInArrow(_parent, "mapped long")
    kept = mapped.groupBy("mapped").transformWithStateInPandas(
        Processes(), "mapped long, stateful long", "Append", "None"
    )
    seen: list[Any] = []
    query = (
        kept.writeStream.foreachBatch(lambda df, _: seen.extend(df.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="0 seconds")
        .start()
    )
    try:
        while not seen:
            assert query.exception() is None
            query.awaitTermination(0.2)
    finally:
        query.stop()
    assert {row.stateful for row in seen} == {row.mapped for row in seen}
