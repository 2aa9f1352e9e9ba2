"""What the page keeps: all sums, in bounded room, across restarts."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from spark.progresses import BEGAN, progress
from thetajoin.jobs.history import NEWEST, OLDER, History, history_file, load, save


@pytest.mark.parametrize("batches", [0, 1, NEWEST, NEWEST + 1, 2000, 20_000])
def test_sums_stay_whole_in_bounded_room(batches: int) -> None:
    history = History()
    for number in range(batches):
        history.add(progress(number))
    points = history.points
    assert len(points) <= NEWEST + OLDER
    assert sum(p.batches for p in points) == batches == history.totals.batches
    assert sum(p.rows for p in points) == sum(1000 + n for n in range(batches))
    assert sum(p.rows for p in points) == history.totals.rows
    assert sum(p.late for p in points) == history.totals.late
    assert sum(p.out for p in points) == 300 * batches
    assert [p.at for p in points] == sorted({p.at for p in points})
    if batches:
        covered = points[-1].at - points[0].at + points[0].span
        assert sum(p.span for p in points) == pytest.approx(covered, abs=batches * 0.001 + 0.01)
    assert all(p.batches == 1 for p in points[-NEWEST:])
    if batches == 20_000:
        # Older points cover the same time each, so that a chart of all is even.
        assert len({p.batches for p in points[1 : OLDER // 2]}) == 1


def test_rates_count_pauses() -> None:
    history = History()
    for number in range(3):
        point = history.add(progress(number, every=10.0, batch_ms=500))
    assert point.span == 10
    assert point.rows / point.span == pytest.approx(100.2)
    assert (point.lag, point.age) == (10, 12.5)


def test_a_lag_is_to_the_newest_event_of_all() -> None:
    history = History()
    history.add(progress(0, newest_event=BEGAN + 50, watermark=BEGAN))
    assert history.add(progress(1, newest_event=BEGAN + 20, watermark=BEGAN + 40)).lag == 10
    assert history.add(progress(2, newest_event=None, watermark=BEGAN + 45)).lag == 5
    assert history.add(progress(3, newest_event=None, watermark=None)).lag is None


def test_percentiles_are_those_of_the_sorted_times() -> None:
    history = History()
    assert history.percentiles() == {"p50": None, "p95": None, "p99": None}
    order = list(range(1, 101))
    random.Random(1).shuffle(order)
    for number, ms in enumerate(order):
        history.add(progress(number, batch_ms=ms))
    assert history.percentiles() == {"p50": 50, "p95": 95, "p99": 99}


def test_a_restart_goes_on_and_is_no_rate(tmp_path: Path) -> None:
    path = history_file(tmp_path / "checkpoint")
    history = load(path)
    for number in range(NEWEST + 700):
        history.add(progress(number))
    history.errors.append((BEGAN, "broker gone"))
    save(history.to_json(), path)
    again = load(path)
    assert again.points == history.points
    assert again.totals == history.totals
    assert again.percentiles() == history.percentiles()
    assert list(again.errors) == [(BEGAN, "broker gone")]
    point = again.add(progress(5000, run="two", batch_ms=1500))
    assert point.span == 1.5  # not the hours in between
    assert again.totals.runs == 2
    assert path.name.startswith(".")  # Spark does not take it for rows, wherever it lies
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "null", '{"format": 99}', '{"format": 1, "fields": ["x"], "older": [[1]]}'],
)
def test_a_damaged_file_is_a_new_history(tmp_path: Path, text: str) -> None:
    path = tmp_path / "history"
    path.write_text(text)
    assert load(path).points == []
    whole = History()
    whole.add(progress(1))
    cut = whole.to_json()[:-20]
    path.write_text(cut)
    assert load(path).points == []
    path.write_bytes(b"\xff\xfe")
    assert load(path).points == []


def test_a_query_that_restarts_all_the_time_is_bounded_too() -> None:
    history = History()
    for number in range(4000):
        history.add(progress(number, run=str(number)))
    assert len(history.points) <= NEWEST + OLDER
    assert history.totals.batches == 4000
    assert json.loads(history.to_json())["totals"]["runs"] == 4000
