"""What is told to monitoring systems: one list of measures, for Prometheus and OpenTelemetry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from thetajoin.spark.listener import JoinProgress, UnitProgress

Kind = Literal["counter", "gauge", "histogram"]
PREFIX = "thetajoin"
# Upper ends of the buckets of a micro-batch's seconds.
BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


@dataclass(frozen=True)
class Measure:
    """A number of a query: its name, what it is, and where it comes from; None is no number."""

    name: str
    kind: Kind
    unit: str
    help: str
    of: Callable[[JoinProgress], float | None]


@dataclass(frozen=True)
class UnitMeasure:
    """The same of one unit."""

    name: str
    kind: Kind
    unit: str
    help: str
    of: Callable[[UnitProgress], float | None]


def _lag(p: JoinProgress) -> float | None:
    if p.watermark is None or p.newest_event is None:
        return None
    return max(0.0, p.newest_event - p.watermark)


MEASURES = (
    Measure("batches", "counter", "", "Micro-batches that have ended.", lambda p: 1),
    Measure("input_rows", "counter", "", "Rows read from all sources.", lambda p: p.input_rows),
    Measure("matches", "counter", "", "Pairs that were found.", lambda p: p.matches),
    Measure(
        "unmatched_rows",
        "counter",
        "",
        "Rows that came out without a match.",
        lambda p: p.unmatched,
    ),
    Measure(
        "output_rows",
        "counter",
        "",
        "Rows written, where the sink counts.",
        lambda p: p.output_rows,
    ),
    Measure(
        "late_rows", "counter", "", "Rows dropped behind the watermark.", lambda p: p.late_rows
    ),
    Measure("null_times", "counter", "", "Rows without an event time.", lambda p: p.null_times),
    Measure(
        "cache_misses",
        "counter",
        "",
        "Indexes that a unit built anew from the state store.",
        lambda p: p.cache_misses,
    ),
    Measure(
        "batch_seconds",
        "histogram",
        "s",
        "How long micro-batches took.",
        lambda p: p.batch_ms / 1000,
    ),
    Measure(
        "input_rows_per_second",
        "gauge",
        "",
        "How fast rows arrived before the last micro-batch.",
        lambda p: p.input_rows_per_s,
    ),
    Measure(
        "processed_rows_per_second",
        "gauge",
        "",
        "How fast the last micro-batch went through its rows.",
        lambda p: p.rows_per_s,
    ),
    Measure(
        "last_batch_timestamp_seconds",
        "gauge",
        "s",
        "When the last micro-batch began, since 1970.",
        lambda p: p.began or None,
    ),
    Measure(
        "watermark_timestamp_seconds",
        "gauge",
        "s",
        "The watermark, since 1970.",
        lambda p: p.watermark,
    ),
    Measure(
        "watermark_lag_seconds",
        "gauge",
        "s",
        "The watermark behind the newest event of the last micro-batch.",
        _lag,
    ),
    Measure("window_rows", "gauge", "", "Rows that the units store.", lambda p: p.window_rows),
    Measure("state_bytes", "gauge", "By", "Stored rows, as bytes.", lambda p: p.state_bytes),
    Measure(
        "state_memory_bytes",
        "gauge",
        "By",
        "Memory of the state store.",
        lambda p: p.state_memory_bytes,
    ),
    Measure("index_bytes", "gauge", "By", "Sorted segments, as bytes.", lambda p: p.index_bytes),
    Measure("segments", "gauge", "", "Sorted segments of all units.", lambda p: p.segments),
    Measure(
        "unit_imbalance",
        "gauge",
        "",
        "The busiest unit's time over the mean of all.",
        lambda p: p.imbalance,
    ),
)

UNIT_MEASURES = (
    UnitMeasure("unit_matches", "counter", "", "Pairs that a unit found.", lambda u: u.matches),
    UnitMeasure("unit_received_rows", "counter", "", "Rows sent to a unit.", lambda u: u.received),
    UnitMeasure(
        "unit_late_rows", "counter", "", "Late rows that a unit dropped.", lambda u: u.late_rows
    ),
    UnitMeasure(
        "unit_seconds",
        "counter",
        "s",
        "How long a unit worked.",
        lambda u: u.ms / 1000,
    ),
    UnitMeasure(
        "unit_window_rows",
        "gauge",
        "",
        "Rows that a unit stores.",
        lambda u: u.window_left + u.window_right,
    ),
    UnitMeasure("unit_segments", "gauge", "", "Segments of a unit.", lambda u: u.segments),
    UnitMeasure(
        "unit_state_bytes", "gauge", "By", "Stored rows of a unit.", lambda u: u.state_bytes
    ),
)

# Whether the query runs, and how often it has failed, do not come with a micro-batch.
RUNNING = ("running", "Whether the query runs: 1 or 0.")
FAILURES = ("failures", "How often the query has ended with an error.")
