"""A join's numbers from a progress report that Spark 4.3 has written."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark.sql.streaming.listener import StreamingQueryProgress
from rich.console import Console

from thetajoin.cli.demo import draw_numbers, steady_rate
from thetajoin.jobs.progress import ProgressListener, read_progress

CANNED = (Path(__file__).parent / "progress.json").read_text()


def test_the_units_are_added_up():
    p = read_progress(CANNED)
    assert (p.batch, p.input_rows, p.batch_ms) == (3, 10_000, 1432)
    assert (p.input_rows_per_s, p.rows_per_s) == (6027.7, 6983.2)
    assert p.matches == 12758 + 12926
    assert p.window_rows == 10_000
    assert p.state_bytes == 2 * 161_168
    assert p.state_memory_bytes == 983_592
    assert p.state_entries == 6
    assert (p.cache_hits, p.cache_misses) == (1, 1)
    assert p.late_rows == 7
    assert [unit.unit for unit in p.units] == [0, 1]  # unit 2 was idle
    assert [unit.origin for unit in p.units] == ["memory", "state"]


def test_state_bytes_without_the_units_numbers_are_rocksdbs():
    given = json.loads(CANNED)
    given["observedMetrics"] = {}
    assert read_progress(json.dumps(given)).state_bytes == 255_952


def test_a_query_without_a_join_or_rates():
    given = json.loads(CANNED) | {"observedMetrics": {}, "stateOperators": []}
    del given["inputRowsPerSecond"]
    given["processedRowsPerSecond"] = float("nan")
    p = read_progress(json.dumps(given))
    assert (p.units, p.matches, p.state_bytes, p.input_rows_per_s, p.rows_per_s) == ((), 0, 0, 0, 0)


def test_connects_report_is_read_the_same():
    report = StreamingQueryProgress.fromJson(json.loads(CANNED))
    assert read_progress(report) == read_progress(CANNED)


def test_the_listener_calls_back():
    seen, ends = [], []
    listener = ProgressListener(seen.append, ends.append)
    listener.onQueryProgress(SimpleNamespace(progress=SimpleNamespace(json=CANNED)))
    listener.onQueryTerminated(SimpleNamespace(runId="x", exception=None))
    assert seen == [read_progress(CANNED)]
    assert ends == [None]


def test_the_terminals_view_has_all_numbers():
    p = read_progress(CANNED)
    console = Console(width=140, record=True, file=StringIO())
    console.print(draw_numbers([p, p], 5, 3.0))
    text = console.export_text()
    for part in ("2 of 5 micro-batches", "25,684", "10,000", "322.3 kB", "1/2", "6,983", "memory"):
        assert part in text
    assert steady_rate([p]) == 6983.2
