"""Following one running query: every micro-batch's numbers, once, at little cost.

A `StreamingQueryListener` costs the driver about 0.2 s of processor time a micro-batch, because
PySpark asks the JVM for every field of a report. `query.lastProgress` is one text. A `Follower`
asks for it twice a second, from a thread of its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from thetajoin.spark.failures import reason
from thetajoin.spark.listener import JoinProgress, UnitProgress, imbalance, read_progress

EVERY_S = 0.5
TRIES = 3  # looks that may fail before a query is given up

_log = logging.getLogger(__name__)
OnProgress = Callable[[JoinProgress], None]
OnEnd = Callable[[str | None], None]


class Kept:
    """What each unit of a query has stored when it was last heard of."""

    def __init__(self) -> None:
        self._run = ""
        self._units: dict[tuple[str, int], UnitProgress] = {}

    def completed(self, progress: JoinProgress) -> JoinProgress:
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
    """Tells subscribers of every micro-batch of a query, in order, and of its end.

    ```
    with Follower(query, print):
        query.awaitTermination()
    ```

    A report that was not looked at in time is taken from `query.recentProgress`, where Spark keeps
    the last hundred (`spark.sql.streaming.numRecentProgressUpdates`); `missed` counts those that
    were no longer there. Calls come from the follower's thread. What a subscriber raises is logged,
    and changes nothing for the query or for other subscribers.

    What the query stores (`window_rows`, `state_bytes`, `index_bytes`, `segments`) is that of all
    units, those that had nothing to do in a micro-batch included; `imbalance` counts them too.

    why: a query's failure in one line, for `error` and for those who are told of the end.
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
        self.missed = 0
        self.error: str | None = None
        self._query, self._every, self._why = query, every, why
        self._subscribers: list[tuple[OnProgress | None, OnEnd | None]] = []
        self._last: tuple[str, int, str] | None = None  # run, micro-batch, when it began
        self._kept = Kept()
        self._leave, self._ended = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._follow, name="thetajoin-follow", daemon=True)
        self.subscribe(on_progress, on_end)

    def subscribe(self, on_progress: OnProgress | None, on_end: OnEnd | None = None) -> None:
        """Have these called from now on: for each micro-batch, and at the end with an error."""
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        for report in [newest] if follows else self._recent(newest):
            self._last = _key(report)
            progress = self._kept.completed(read_progress(report))
            for on_progress, _ in self._subscribers:
                _call(on_progress, progress)

    def _recent(self, newest: Any) -> list[Any]:
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
                over = self._over()
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

    def _over(self) -> bool:
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


def _key(report: Any) -> tuple[str, int, str]:
    return str(report.runId), report.batchId, report.timestamp


def _call(function: Callable[..., None] | None, *given: Any) -> None:
    if function is None:
        return
    try:
        function(*given)
    except Exception:
        _log.exception("thetajoin: what follows a query has failed")
