"""The numbers of a streaming join, micro-batch by micro-batch.

A joined DataFrame carries an observed metric with a line of JSON from each unit. `read_progress`
turns Spark's progress report into a `JoinProgress`; `ProgressListener` does so as reports come in.
`thetajoin.spark.follow` does the same for one query, and costs less.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

METRIC = "thetajoin_"
OPERATOR = "transformWithState"
# Of the observed metric that counts a topic's unreadable messages; the source's name follows.
POISON = "thetajoin-poison-"


@dataclass(frozen=True)
class UnitProgress:
    """What one unit of a join did in one micro-batch."""

    join: str
    unit: int
    matches: int
    unmatched: int
    late_rows: int
    null_times: int
    window_left: int
    window_right: int
    segments: int
    index_bytes: int
    state_bytes: int
    origin: str
    ms: float
    received: int = 0
    received_bytes: int = 0

    @property
    def cache_hit(self) -> bool:
        """Whether the unit's segments were at hand or mapped, not built from the state store."""
        return self.origin != "state"


@dataclass(frozen=True)
class SourceProgress:
    """What one source gave to a micro-batch."""

    description: str
    rows: int
    rows_per_s: float


@dataclass(frozen=True)
class JoinProgress:
    """What all joins of a query did in one micro-batch.

    `window_rows` counts what the units store together: outer, semi and anti joins keep one side in
    every unit. `late_rows` came behind the watermark and were dropped; `null_times` had no time.
    `began`, `watermark` and `newest_event` are seconds since 1970; the latter two are None where
    there is no watermark yet. `output_rows` is None where the sink does not count them. `imbalance`
    is the busiest unit's time over the mean. Units that had nothing to do are not among `units`.
    `unreadable` are messages of Kafka topics that were passed over.
    """

    batch: int
    input_rows: int
    input_rows_per_s: float
    rows_per_s: float
    matches: int
    unmatched: int
    window_rows: int
    state_bytes: int
    state_memory_bytes: int
    state_entries: int
    index_bytes: int
    cache_hits: int
    cache_misses: int
    late_rows: int
    null_times: int
    batch_ms: int
    units: tuple[UnitProgress, ...] = ()
    query: str = ""
    run: str = ""
    began: float = 0.0
    watermark: float | None = None
    newest_event: float | None = None
    output_rows: int | None = None
    sources: tuple[SourceProgress, ...] = ()
    sink: str = ""
    segments: int = 0
    imbalance: float | None = None
    unreadable: int = 0


def read_progress(progress: Any) -> JoinProgress:
    """A `StreamingQueryProgress` (classic or Connect), or its JSON text, as a join's numbers.

    Costs the parsing of the report. A query without a join gives zeros and no units.
    """
    given = json.loads(progress if isinstance(progress, str) else progress.json)
    units = tuple(_unit(join, numbers) for join, numbers in unit_numbers(progress))
    operators = [
        operator
        for operator in given.get("stateOperators") or []
        if str(operator.get("operatorName", "")).startswith(OPERATOR)
    ]
    memory = sum(operator.get("memoryUsedBytes", 0) for operator in operators)
    files = sum((o.get("customMetrics") or {}).get("rocksdbSstFileSize", 0) for o in operators)
    hits = sum(unit.cache_hit for unit in units)
    times, sink = given.get("eventTime") or {}, given.get("sink") or {}
    written = sink.get("numOutputRows")
    return JoinProgress(
        batch=given.get("batchId", -1),
        input_rows=given.get("numInputRows") or 0,
        input_rows_per_s=_rate(given.get("inputRowsPerSecond")),
        rows_per_s=_rate(given.get("processedRowsPerSecond")),
        matches=sum(unit.matches for unit in units),
        unmatched=sum(unit.unmatched for unit in units),
        window_rows=sum(unit.window_left + unit.window_right for unit in units),
        state_bytes=sum(unit.state_bytes for unit in units) or files or memory,
        state_memory_bytes=memory,
        state_entries=sum(operator.get("numRowsTotal", 0) for operator in operators),
        index_bytes=sum(unit.index_bytes for unit in units),
        cache_hits=hits,
        cache_misses=len(units) - hits,
        late_rows=sum(unit.late_rows for unit in units),
        null_times=sum(unit.null_times for unit in units),
        batch_ms=(given.get("durationMs") or {}).get("triggerExecution", 0),
        unreadable=_unreadable(given),
        units=units,
        query=given.get("name") or given.get("id", ""),
        run=given.get("runId", ""),
        began=_seconds(given.get("timestamp")) or 0.0,
        watermark=_seconds(times.get("watermark")),
        newest_event=_seconds(times.get("max")),
        output_rows=written if isinstance(written, int) and written >= 0 else None,
        sources=tuple(_source(source) for source in given.get("sources") or []),
        sink=sink.get("description") or "",
        segments=sum(unit.segments for unit in units),
        imbalance=imbalance(units, len(units)),
    )


def imbalance(units: tuple[UnitProgress, ...], number: int) -> float | None:
    """The busiest unit's time over the mean of `number` units, those without work included."""
    total = sum(unit.ms for unit in units)
    return max(unit.ms for unit in units) * number / total if total > 0 else None


def _unreadable(given: dict[str, Any]) -> int:
    metrics = given.get("observedMetrics") or {}
    return sum(n.get("messages") or 0 for name, n in metrics.items() if name.startswith(POISON))


def unit_numbers(progress: Any) -> list[tuple[str, dict[str, Any]]]:
    """Each working unit's numbers as it sent them, with its join's name.

    They are read from the report's JSON, which is the same for classic and Connect.
    """
    given = json.loads(progress if isinstance(progress, str) else progress.json)
    found = [
        (join, json.loads(text))
        for join, columns in (given.get("observedMetrics") or {}).items()
        if join.startswith(METRIC)
        for text in columns.get("units") or []
    ]
    return sorted(found, key=lambda unit: (unit[0], unit[1]["unit"]))


def _unit(join: str, numbers: dict[str, Any]) -> UnitProgress:
    return UnitProgress(
        join=join,
        unit=numbers["unit"],
        matches=numbers["pairs"],
        unmatched=numbers.get("unmatched", 0),
        late_rows=numbers.get("late_rows", 0),
        null_times=numbers.get("null_times", 0),
        window_left=numbers.get("window_left", 0),
        window_right=numbers.get("window_right", 0),
        segments=numbers.get("segments", 0),
        index_bytes=numbers.get("index_bytes", 0),
        state_bytes=numbers.get("state_bytes", 0),
        origin=numbers.get("from", "state"),
        ms=numbers.get("ms", 0.0),
        received=numbers.get("received", 0),
        received_bytes=numbers.get("received_bytes", 0),
    )


def _source(given: dict[str, Any]) -> SourceProgress:
    return SourceProgress(
        description=given.get("description") or "",
        rows=given.get("numInputRows") or 0,
        rows_per_s=_rate(given.get("inputRowsPerSecond")),
    )


def _seconds(text: Any) -> float | None:
    """A time of Spark's as seconds since 1970, which is how it writes that there is none yet."""
    if not isinstance(text, str):
        return None
    return datetime.fromisoformat(text).timestamp() or None


def _rate(value: Any) -> float:
    """Spark reports no rate, or one that is not a number, for a batch without a predecessor."""
    return float(value) if isinstance(value, int | float) and value == value else 0.0


class ProgressListener(StreamingQueryListener):  # type: ignore[misc]
    """Calls back with a `JoinProgress` after each micro-batch of a query that joins.

    ```
    spark.streams.addListener(ProgressListener(print))
    ```

    When a query ends, `on_end` is called with its error, or None. Calls come from a thread of
    Spark's.
    """

    def __init__(
        self,
        on_progress: Callable[[JoinProgress], None],
        on_end: Callable[[str | None], None] | None = None,
    ) -> None:
        self._on_progress = on_progress
        self._on_end = on_end

    def onQueryStarted(self, event: Any) -> None:
        """Called by Spark before `start` returns."""

    def onQueryProgress(self, event: Any) -> None:
        """Called by Spark after each micro-batch."""
        progress = read_progress(event.progress)
        if progress.units:
            self._on_progress(progress)

    def onQueryIdle(self, event: Any) -> None:
        """Called by Spark when a trigger found nothing new."""

    def onQueryTerminated(self, event: Any) -> None:
        """Called by Spark when a query has stopped, or failed."""
        if self._on_end is not None:
            self._on_end(event.exception)
