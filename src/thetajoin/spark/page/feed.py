"""What the page is told: everything when it opens, then each micro-batch as it ends."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from thetajoin.secrets import hide_passwords, redact
from thetajoin.spark.listener import JoinProgress
from thetajoin.spark.page.history import History, Point, load, save
from thetajoin.spark.page.picture import Picture

KEPT = 100  # messages for who was too slow to get them at once
SAVE_S = 10.0  # between two writes of the history's file
STARTING, RUNNING, ENDED, FAILED = "starting", "running", "ended", "failed"
_FIELDS = tuple(field.name for field in fields(Point))

_log = logging.getLogger(__name__)


class Feed:
    """A query's history as messages; may be used from any thread.

    keep: a file for the history, which is read at the start and written now and then.
    """

    def __init__(self, picture: Picture | None = None, keep: Path | None = None) -> None:
        self.changed: Callable[[], None] = lambda: None
        self.picture = picture or Picture()
        self._keep = keep
        self._history = History() if keep is None else load(keep)
        self._lock = threading.Lock()
        self._messages: deque[tuple[int, bytes]] = deque(maxlen=KEPT)
        self._number = 0
        self._status = STARTING
        self._error: str | None = None
        self._batch: dict[str, Any] | None = None
        self._whole: tuple[int, bytes] | None = None
        self._saved = time.monotonic()

    def add(self, progress: JoinProgress) -> None:
        """Take in a micro-batch, and have it told."""
        with self._lock:
            thinned = self._history.thinned
            point = self._history.add(progress)
            # A micro-batch that only moves the watermark has no units: the picture keeps the last.
            units = [] if self._batch is None else self._batch["units"]
            self._batch = _batch(progress)
            self._batch["units"] = self._batch["units"] or units
            self._status = RUNNING
            self._tell(point, whole=thinned != self._history.thinned)
        if time.monotonic() - self._saved > SAVE_S:
            self.save()

    def end(self, error: str | None) -> None:
        """Take in that the query has ended."""
        with self._lock:
            self._status, self._error = (ENDED if error is None else FAILED), error
            if error is not None:
                self._history.errors.append((round(time.time(), 3), error))
            self._tell(None)
        self.save()

    def _tell(self, point: Point | None, *, whole: bool = False) -> None:
        self._number += 1
        if whole:  # those who have the former points are to get all of them again
            self._messages.clear()
        else:
            step = self._now() | {"point": None if point is None else _values(point)}
            self._messages.append((self._number, _encoded(step)))
        self.changed()

    def after(self, number: int) -> tuple[int, bytes, bool]:
        """What is new since message `number`, and whether that is everything, for a new start.

        Nothing new is no bytes. Each message is a line of JSON.
        """
        with self._lock:
            if number == self._number:
                return number, b"", False
            missing = [text for at, text in self._messages if at > number]
            if number >= 0 and len(missing) == self._number - number:
                return self._number, b"\n".join(missing), False
            return self._number, self._everything(), True

    def everything(self) -> bytes:
        """All that is known, as a line of JSON."""
        with self._lock:
            return self._everything()

    def _everything(self) -> bytes:
        if self._whole is None or self._whole[0] != self._number:
            whole = self._now() | {
                "picture": asdict(self.picture),
                "fields": _FIELDS,
                "points": [_values(point) for point in self._history.points],
            }
            self._whole = self._number, _encoded(whole)
        return self._whole[1]

    def _now(self) -> dict[str, Any]:
        return {
            "number": self._number,
            "status": self._status,
            "error": self._error,
            "errors": list(self._history.errors),
            "totals": asdict(self._history.totals),
            "percentiles": self._history.percentiles(),
            "batch": self._batch,
        }

    def save(self) -> None:
        """Write the history's file, if there is to be one."""
        if self._keep is None:
            return
        self._saved = time.monotonic()
        with self._lock:
            text = self._history.to_json()
        try:
            save(text, self._keep)
        except OSError as error:
            _log.warning("thetajoin: cannot keep the page's history: %s", error)


def _values(point: Point) -> list[Any]:
    return [getattr(point, name) for name in _FIELDS]


def _encoded(message: dict[str, Any]) -> bytes:
    """A message as a line of JSON; addresses in it are without the password they may have.

    >>> _encoded({"sink": "jdbc://me:secret@host/db"})
    b'{"sink":"jdbc://me:[hidden]@host/db"}'
    """
    return redact(hide_passwords(json.dumps(message, separators=(",", ":")))).encode()


def _batch(p: JoinProgress) -> dict[str, Any]:
    """The newest micro-batch, for the picture of the plan."""
    return {
        "number": p.batch,
        "ms": p.batch_ms,
        "rows": p.input_rows,
        "watermark": p.watermark,
        "hits": p.cache_hits,
        "misses": p.cache_misses,
        "sent": sum(unit.received_bytes for unit in p.units),
        "sink": p.sink,
        "out": p.output_rows if p.output_rows is not None else p.matches + p.unmatched,
        "sources": [{"what": s.description, "rows": s.rows} for s in p.sources],
        "units": [
            {
                "join": unit.join,
                "unit": unit.unit,
                "received": unit.received,
                "matches": unit.matches,
                "stored": unit.window_left + unit.window_right,
                "segments": unit.segments,
                "state": unit.state_bytes,
                "late": unit.late_rows,
                "from": unit.origin,
                "ms": unit.ms,
            }
            for unit in p.units
        ],
    }
