"""A query that goes on from its checkpoint goes on exactly; another join is refused."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import naive
import thetajoin as tj
from spark.harness import (
    Streams,
    closing,
    distinct_times,
    expected,
    random_batches,
    seconds,
    with_watermarks,
)

pytest.importorskip("pyspark", reason="pyspark is not installed")

from thetajoin.jobs.progress import JoinProgress, ProgressListener

pytestmark = [pytest.mark.spark]

ON = "l.a < r.b AND l.c >= r.d"
PRED = naive.conj(("a", "<", "b"), ("c", ">=", "d"))


def left_join(streams: Streams, **changes: Any) -> Any:
    values: dict[str, Any] = {
        "on": ON,
        "how": "left",
        "window": tj.CountWindow(8, slide=3),
        "order_by": "t",
        "units": 2,
    }
    return tj.join(*streams.both(), **(values | changes))


def test_count_window_goes_on_exactly(streams: Streams) -> None:
    batches = [*distinct_times(random_batches(11, batches=4), 11), closing(20)]
    want, _ = expected(batches, PRED, how="left", window=naive.Count(8, 3), order_by="t")
    streams.push(*batches[:2])
    first = streams.resume(left_join(streams), "cp")
    streams.push(*batches[2:])
    second = streams.resume(left_join(streams), "cp")
    assert {unit["from"] for unit in second.units[0]} == {"state"}
    assert first.ids + second.ids == want
    assert first.ids
    assert second.ids


def test_time_window_goes_on_exactly(streams: Streams) -> None:
    batches = [*random_batches(12, batches=4), closing()]
    want, result = expected(
        with_watermarks(batches, seconds(5), restart_at=2),
        PRED,
        how="full",
        window=naive.Time(seconds(10), seconds(10)),
    )
    window = tj.TimeWindow("10 seconds", time="t")

    def join() -> Any:
        return tj.join(*streams.both("5 seconds"), ON, how="full", window=window)

    streams.push(*batches[:2])
    first = streams.resume(join(), "cp")
    streams.push(*batches[2:])
    second = streams.resume(join(), "cp")
    assert first.ids + second.ids == want
    assert first.total("late_rows") + second.total("late_rows") == result.late_rows


@pytest.mark.slow
def test_one_dataframe_in_two_queries(streams: Streams) -> None:
    """They share the folder of the segment files but nothing else."""
    batches = [*distinct_times(random_batches(13, batches=3), 13), closing(20)]
    streams.push(*batches)
    want, _ = expected(batches, PRED, how="left", window=naive.Count(8, 3), order_by="t")
    df = left_join(streams)
    queries = [streams.start(df), streams.start(df)]
    assert [streams.wait(query).ids for query in queries] == [want, want]


def test_lost_segment_files_are_built_again(streams: Streams, monkeypatch: Any) -> None:
    """Something is in the way of every file: each batch rebuilds, and the result is right."""
    from types import SimpleNamespace

    from thetajoin.spark import unit_spec

    label = "inthewaytest"
    made = SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=label))
    monkeypatch.setattr(unit_spec, "uuid", made)
    local = Path(streams.spark.sparkContext.getConf().get("spark.local.dir"))
    managers = list(local.glob("blockmgr-*"))
    assert managers
    for folder in managers:
        (folder / f"thetajoin-{label}").write_text("not a folder")
    batches = distinct_times(random_batches(14, batches=3), 14)
    streams.push(*batches)
    df = left_join(streams, how="inner", window=tj.FullHistory(), order_by=None)
    run = streams.run(df)
    assert run.ids == expected(batches, PRED)[0]
    assert "files" not in {unit["from"] for batch in run.units for unit in batch}


def test_a_listener_gets_the_numbers_of_every_micro_batch(streams: Streams) -> None:
    """Spark calls it some time after the micro-batch, and for queries before this one too."""
    seen: list[JoinProgress] = []
    ends: list[str | None] = []
    batches = distinct_times(random_batches(15, batches=3), 15)
    streams.push(*batches)
    listener = ProgressListener(seen.append, ends.append)
    streams.spark.streams.addListener(listener)
    try:
        run = streams.run(left_join(streams, how="inner", window=tj.FullHistory(), order_by=None))
        mine = str(run.progress[0].runId)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            own = [progress for progress in seen if progress.run == mine]
            if ends and own and own[-1].batch == 2:
                break
            time.sleep(0.05)
    finally:
        streams.spark.streams.removeListener(listener)
    assert [progress.batch for progress in own] == [0, 1, 2]
    assert sum(progress.matches for progress in own) == sum(run.ids.values())
    assert ends


def test_checkpoint_of_another_join_is_refused(streams: Streams) -> None:
    """By its condition or units here; `test_unit` has the rest of what must be the same."""
    from pyspark.errors import StreamingQueryException

    batches = distinct_times(random_batches(15, batches=2, rows=6), 15)
    streams.push(batches[0])
    streams.resume(left_join(streams), "cp")
    streams.push(batches[1])
    given: list[Any] = []
    writer = left_join(streams, on="l.a <= r.b AND l.c >= r.d").writeStream
    query = (
        writer.foreachBatch(lambda part, _: given.extend(part.collect()))
        .option("checkpointLocation", str(streams.folder / "cp"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination()
    text = str(caught.value)
    assert "another join: its condition was" in text
    assert "checkpointLocation" in text
    assert given == []
    with pytest.raises(StreamingQueryException, match="pass units=2 to go on with it"):
        streams.resume(left_join(streams, units=3), "cp")
    # The right join still goes on.
    want, _ = expected(batches, PRED, how="left", window=naive.Count(8, 3), order_by="t")
    run = streams.resume(left_join(streams), "cp")
    assert set(run.ids) <= set(want)


# `test_unit` refuses a changed schema too.
@pytest.mark.slow
def test_changed_key_type_is_refused(streams: Streams) -> None:
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import functions as F

    batches = random_batches(16, batches=2, rows=6)
    streams.push(batches[0])
    left, right = streams.both()
    streams.resume(tj.join(left, right, "l.a < r.b", window=tj.FullHistory()), "cp")
    streams.push(batches[1])
    left, right = streams.both()
    changed = left.withColumn("a", F.col("a").cast("double"))
    with pytest.raises(StreamingQueryException, match="left columns"):
        streams.resume(tj.join(changed, right, "l.a < r.b", window=tj.FullHistory()), "cp")
