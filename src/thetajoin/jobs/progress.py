"""The numbers of a streaming join, micro-batch by micro-batch.

A joined DataFrame carries an observed metric with a line of JSON from each unit. `read_progress`
turns Spark's progress report into a `JoinProgress`. `Follower` reports every micro-batch of one
query; `ProgressListener` does so for all queries of a session, and costs more.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, Self

from pyspark.sql.streaming.listener import StreamingQueryListener

from thetajoin.spark.failures import reason

METRIC = "thetajoin_"
OPERATOR = "transformWithState"
# Of the observed metric that counts a topic's unreadable messages; the source's name follows.
POISON = "thetajoin-poison-"
EVERY_S = 0.5
TRIES = 3  # looks that may fail before a query is given up
_log = logging.getLogger(__name__)
OnEnd = Callable[[str | None], None]


@dataclass(frozen=True)
class UnitProgress:
    """What one unit of a join did in one micro-batch."""

    join: str
    unit: int
    matches: int
    unmatched: int = 0
    late_rows: int = 0
    null_times: int = 0
    window_left: int = 0
    window_right: int = 0
    segments: int = 0
    index_bytes: int = 0
    state_bytes: int = 0
    origin: str = "state"
    ms: float = 0.0
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
    units = tuple(_read_unit(join, numbers) for join, numbers in unit_numbers(progress))
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
        input_rows_per_s=_read_rate(given.get("inputRowsPerSecond")),
        rows_per_s=_read_rate(given.get("processedRowsPerSecond")),
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
        unreadable=_count_unreadable(given),
        units=units,
        query=given.get("name") or given.get("id", ""),
        run=given.get("runId", ""),
        began=_read_time(given.get("timestamp")) or 0.0,
        watermark=_read_time(times.get("watermark")),
        newest_event=_read_time(times.get("max")),
        output_rows=written if isinstance(written, int) and written >= 0 else None,
        sources=tuple(_read_source(source) for source in given.get("sources") or []),
        sink=sink.get("description") or "",
        segments=sum(unit.segments for unit in units),
        imbalance=imbalance(units, len(units)),
    )


def imbalance(units: tuple[UnitProgress, ...], number: int) -> float | None:
    """The busiest unit's time over the mean of `number` units, those without work included."""
    total = sum(unit.ms for unit in units)
    return max(unit.ms for unit in units) * number / total if total > 0 else None


def _count_unreadable(given: dict[str, Any]) -> int:
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


def _read_unit(join: str, numbers: dict[str, Any]) -> UnitProgress:
    same = {field.name for field in fields(UnitProgress)} & set(numbers)
    return UnitProgress(
        join=join,
        matches=numbers["pairs"],
        origin=numbers.get("from", "state"),
        **{name: numbers[name] for name in same},
    )


def _read_source(given: dict[str, Any]) -> SourceProgress:
    return SourceProgress(
        description=given.get("description") or "",
        rows=given.get("numInputRows") or 0,
        rows_per_s=_read_rate(given.get("inputRowsPerSecond")),
    )


def _read_time(text: Any) -> float | None:
    """A time of Spark's as seconds since 1970, which is how it writes that there is none yet."""
    if not isinstance(text, str):
        return None
    return datetime.fromisoformat(text).timestamp() or None


def _read_rate(value: Any) -> float:
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


OnProgress = Callable[[JoinProgress], None]


class Kept:
    """What each unit of a query has stored when it was last heard of."""

    def __init__(self) -> None:
        self._run = ""
        self._units: dict[tuple[str, int], UnitProgress] = {}

    def complete(self, progress: JoinProgress) -> JoinProgress:
        """The progress with what all units store, also those that had nothing to do."""
        if progress.run != self._run:
            self._run, self._units = progress.run, {}
        self._units |= {(unit.join, unit.unit): unit for unit in progress.units}
        units = self._units.values()
        if not units:
            return progress
        return replace(
            progress,
            window_rows=sum(unit.window_left + unit.window_right for unit in units),
            state_bytes=sum(unit.state_bytes for unit in units),
            index_bytes=sum(unit.index_bytes for unit in units),
            segments=sum(unit.segments for unit in units),
            imbalance=imbalance(progress.units, len(units)),
        )


class Follower:
    """Reports every micro-batch of a query to subscribers, in order, and then its end.

    ```
    with Follower(query, print):
        query.awaitTermination()
    ```

    A report that was missed is taken from `query.recentProgress`, where Spark keeps
    the last hundred (`spark.sql.streaming.numRecentProgressUpdates`); `batches` counts those that
    came, `missed` those that were no longer there. Calls come from the follower's thread. What
    a subscriber raises is logged, and changes nothing for the query or for other subscribers.

    What the query stores (`window_rows`, `state_bytes`, `index_bytes`, `segments`) is that of all
    units, those that had nothing to do in a micro-batch included; `imbalance` counts them too.

    why: gives a query's failure in one line, for `error` and for subscribers.
    """

    def __init__(
        self,
        query: Any,
        on_progress: OnProgress | None = None,
        on_end: OnEnd | None = None,
        *,
        every: float = EVERY_S,
        why: Callable[[BaseException], str] = reason,
    ) -> None:
        self.batches = self.missed = 0
        self.error: str | None = None
        self._query, self._every, self._why = query, every, why
        self._subscribers: list[tuple[OnProgress | None, OnEnd | None]] = []
        self._last: tuple[str, int, str] | None = None  # run, micro-batch, when it began
        self._idle = False  # whether that one was without work
        self._kept = Kept()
        self._leave, self._ended = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._follow, name="thetajoin-follow", daemon=True)
        self.subscribe(on_progress, on_end)

    def subscribe(self, on_progress: OnProgress | None, on_end: OnEnd | None = None) -> None:
        """Call these from now on: for each micro-batch, and at the end with the error or None."""
        self._subscribers.append((on_progress, on_end))

    def start(self) -> Self:
        """Begin to follow."""
        self.thread.start()
        return self

    def stop(self) -> None:
        """Look a last time, and follow no longer; the query goes on."""
        self._leave.set()
        if self.thread.ident is not None:
            self.thread.join(timeout=5)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the query's end, but no longer than that; whether it has ended."""
        return self._ended.wait(seconds)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def look(self) -> None:
        """Take in what is new; done by the thread, twice a second."""
        newest = self._query.lastProgress
        if newest is None or _key(newest) == self._last:
            return
        run, batch, _ = _key(newest)
        before = None if self._last is None or self._last[0] != run else self._last[1]
        # A query may report one micro-batch twice, such as one that it has tried again.
        follows = batch == 0 if before is None else batch - before in (0, 1)
        # One without work has the number of the micro-batch that comes after it.
        follows = follows and not self._idle
        for report in [newest] if follows else self._read_recent(newest):
            self._last = _key(report)
            self._idle = is_idle(report)
            if self._idle:
                continue
            progress = self._kept.complete(read_progress(report))
            self.batches += 1
            for on_progress, _ in self._subscribers:
                _call(on_progress, progress)

    def _read_recent(self, newest: Any) -> list[Any]:
        """The reports since the last one that was seen, or all that Spark still has."""
        recent = self._query.recentProgress or [newest]
        keys = [_key(report) for report in recent]
        if self._last in keys:
            return list(recent[keys.index(self._last) + 1 :])
        if self._last is not None and self._last[0] == keys[0][0]:
            self.missed += max(0, keys[0][1] - self._last[1] - 1)
        return list(recent)

    def _follow(self) -> None:
        failed = 0
        while not self._ended.is_set() and not self._leave.is_set():
            try:
                over = self._wait()
                self.look()
                failed = 0
            except Exception as error:  # of a Spark that is stopped, or a connection that is gone
                failed += 1
                if failed < TRIES:
                    self._leave.wait(self._every)
                    continue
                over, self.error = True, self._why(error)
            if over:
                self._end()
        if not self._ended.is_set():
            _call(self.look)

    def _wait(self) -> bool:
        """Wait until the next look is due, or the query has ended."""
        try:
            return bool(self._query.awaitTermination(self._every))
        except Exception:
            if self._query.isActive:
                raise
            return True

    def _end(self) -> None:
        if self.error is None:
            try:
                failure = self._query.exception()
            except Exception as error:  # of a Spark that is stopped
                failure = error
            self.error = None if failure is None else self._why(failure)
        for _, on_end in self._subscribers:
            _call(on_end, self.error)
        self._ended.set()


def is_idle(report: Any) -> bool:
    """Whether Spark has only looked for new rows: it reports that now and then, and ran nothing."""
    took = json.loads(report.json).get("durationMs")
    return bool(took) and "addBatch" not in took


def _key(report: Any) -> tuple[str, int, str]:
    return str(report.runId), report.batchId, report.timestamp


def _call(function: Callable[..., None] | None, *given: Any) -> None:
    if function is None:
        return
    try:
        function(*given)
    except Exception:
        _log.exception("thetajoin: what follows a query has failed")
