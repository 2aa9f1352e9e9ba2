"""A follower tells of every micro-batch once, whatever it was too late for."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark.sql.streaming.listener import StreamingQueryProgress

import naive
import thetajoin as tj
from spark.harness import Streams, distinct_times, expected, random_batches
from thetajoin.jobs.progress import Follower, JoinProgress, Kept, read_progress

REPORT = json.loads((Path(__file__).parents[1] / "cli" / "progress.json").read_text())
ON = "l.a < r.b AND l.c >= r.d"
PRED = naive.conj(("a", "<", "b"), ("c", ">=", "d"))
RUNS = ("6aa3ce24-b8cd-4b0f-a9e6-54bae9decb4e", "6aa3ce24-b8cd-4b0f-a9e6-54bae9decb4f")


class Query:
    """What a follower asks a query, with reports as Spark would keep them."""

    def __init__(self, kept: int = 100) -> None:
        self.kept = kept
        self.recentProgress: list[Any] = []
        self.failure: Exception | None = None
        self.over = threading.Event()

    def report(self, *batches: int, run: int = 0, second: int = 0) -> None:
        for batch in batches:
            time = f"2026-11-15T08:{batch:02}:{second:02}.000Z"
            given = REPORT | {"batchId": batch, "runId": RUNS[run], "timestamp": time}
            self.recentProgress.append(StreamingQueryProgress.fromJson(given))
        self.recentProgress = self.recentProgress[-self.kept :]

    @property
    def lastProgress(self) -> Any:
        return self.recentProgress[-1] if self.recentProgress else None

    @property
    def isActive(self) -> bool:
        return not self.over.is_set()

    def awaitTermination(self, timeout: float) -> bool:
        ended = self.over.wait(timeout)
        if ended and self.failure is not None:
            raise self.failure
        return ended

    def exception(self) -> Exception | None:
        return self.failure


@pytest.mark.parametrize(
    "steps",
    [
        [[0], [1], [2]],
        [[], [0], [], [1], []],
        [[0, 1, 2]],
        [[0], [1, 2, 3], [], [4, 5]],
        [[7], [8]],  # a restart from a checkpoint
        [[7, 8, 9], [10]],
    ],
)
def test_each_micro_batch_once_and_in_order(steps: list[list[int]]) -> None:
    query, seen = Query(), list[int]()
    follower = Follower(query, lambda p: seen.append(p.batch))
    for batches in steps:
        query.report(*batches)
        follower.look()
    assert seen == [batch for batches in steps for batch in batches]
    assert follower.missed == 0


@pytest.mark.parametrize("looks", [1, 4])
def test_looks_for_rows_that_found_none_are_no_micro_batches(looks: int) -> None:
    """Spark reports them with the number of the micro-batch that is to come."""
    query, seen = Query(), list[int]()
    follower = Follower(query, lambda p: seen.append(p.batch))
    idle = REPORT | {"numInputRows": 0, "durationMs": {"latestOffset": 40, "triggerExecution": 52}}
    steps = [(0, False), (1, True), (1, True), (1, False), (2, False), (3, True)]
    for at, (batch, waits) in enumerate(steps):
        query.report(batch, second=at)
        if waits:
            time = query.recentProgress[-1].timestamp
            given = idle | {"batchId": batch, "runId": RUNS[0], "timestamp": time}
            query.recentProgress[-1] = StreamingQueryProgress.fromJson(given)
        if looks > 1 or at in (2, 5):
            follower.look()
    assert seen == [0, 1, 2]
    assert follower.batches == 3
    assert follower.missed == 0


def test_what_spark_has_thrown_away_is_counted() -> None:
    query, seen = Query(kept=3), list[int]()
    follower = Follower(query, lambda p: seen.append(p.batch))
    query.report(0)
    follower.look()
    query.report(*range(1, 10))
    follower.look()
    assert seen == [0, 7, 8, 9]
    assert follower.missed == 6


def test_a_micro_batch_that_is_tried_again_and_a_run_that_begins_again() -> None:
    query, seen = Query(), list[tuple[str, int]]()
    follower = Follower(query, lambda p: seen.append((p.run, p.batch)))
    for run, second in ((0, 0), (0, 1), (1, 2)):
        query.report(0, run=run, second=second)
        follower.look()
        follower.look()
    assert seen == [(RUNS[0], 0), (RUNS[0], 0), (RUNS[1], 0)]


def test_the_end_comes_after_the_last_numbers() -> None:
    query, told = Query(), list[Any]()
    follower = Follower(query, lambda p: told.append(p.batch), told.append, every=0.01)
    with follower:
        query.report(0, 1)
        query.failure = Exception("thetajoin.errors.DataError: division by zero")
        query.over.set()
        assert follower.wait(10)
    assert told == [0, 1, "division by zero"]
    assert follower.error == "division by zero"


def test_a_subscriber_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    query, seen = Query(), list[int]()
    follower = Follower(query, lambda p: 1 / 0)  # type: ignore[arg-type, return-value]
    follower.subscribe(lambda p: seen.append(p.batch))
    query.report(0)
    follower.look()
    query.report(1)
    follower.look()
    assert seen == [0, 1]
    assert "division by zero" in caplog.text


def test_a_spark_that_is_gone_is_the_end() -> None:
    class Gone(Query):
        @property
        def lastProgress(self) -> Any:
            raise ConnectionRefusedError("no JVM here")

    with Follower(Gone(), every=0.01) as follower:
        assert follower.wait(10)
    assert follower.error == "no JVM here"


def test_stopping_takes_in_what_was_there() -> None:
    query, seen = Query(), list[int]()
    with Follower(query, lambda p: seen.append(p.batch), every=0.05):
        query.report(0, 1, 2)
    assert seen == [0, 1, 2]


def test_times_sources_and_units_are_read() -> None:
    times = {"max": "2026-11-15T08:41:50.000Z", "watermark": "2026-11-15T08:41:40.000Z"}
    p = read_progress(json.dumps(REPORT | {"eventTime": times}))
    assert p.newest_event is not None
    assert p.watermark is not None
    assert p.newest_event - p.watermark == 10
    assert p.began - p.watermark == pytest.approx(16.101)
    assert [source.rows for source in p.sources] == [5000, 5000]
    assert p.output_rows == 25_684
    assert p.segments == 4
    assert p.imbalance == pytest.approx(92.8 / ((92.8 + 76.6) / 2))
    none = {"watermark": "1970-01-01T00:00:00.000Z"}
    assert read_progress(json.dumps(REPORT | {"eventTime": none})).watermark is None


def test_units_without_work_still_store_what_they_store() -> None:
    kept, p = Kept(), read_progress(json.dumps(REPORT))
    both = kept.complete(p)
    assert (both.state_bytes, both.segments, both.window_rows) == (322_336, 4, 10_000)
    assert both.imbalance == p.imbalance
    one = kept.complete(replace(p, units=p.units[:1], state_bytes=161_168, segments=2))
    assert (one.state_bytes, one.segments, one.window_rows) == (322_336, 4, 10_000)
    assert one.imbalance == 2  # one of two did all the work
    none = kept.complete(replace(p, units=(), state_bytes=255_952, segments=0))
    assert (none.state_bytes, none.segments, none.imbalance) == (322_336, 4, None)
    # Of a restarted query nothing is known before its units have worked.
    again = replace(p, units=(), state_bytes=255_952, run="another")
    assert kept.complete(again).state_bytes == 255_952


@pytest.mark.spark
def test_a_real_query_is_followed_to_its_end(streams: Streams) -> None:
    batches = distinct_times(random_batches(15, batches=3), 15)
    streams.push(*batches)
    seen: list[JoinProgress] = []
    joined = tj.join(*streams.both(), ON, window=tj.FullHistory(), units=2)
    query = streams.start(joined)
    with Follower(query, seen.append) as follower:
        assert follower.wait(120)
    run = streams.wait(query)
    assert follower.error is None
    assert [p.batch for p in seen] == [0, 1, 2]
    reports = [read_progress(report) for report in run.progress]
    assert [(p.matches, p.input_rows, p.units) for p in seen] == [
        (p.matches, p.input_rows, p.units) for p in reports
    ]
    assert sum(p.matches for p in seen) == sum(run.ids.values())
    assert run.ids == expected(batches, PRED)[0]
