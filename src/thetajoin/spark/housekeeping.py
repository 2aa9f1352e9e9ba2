"""What the driver does for a query beside Spark: tell of late rows, and tidy up when it ends.

On a cluster the segment files lie in the executors' own directories, which Spark removes with them;
in local mode, and where the driver shares a host with executors, a listener does it with the query.
"""

from __future__ import annotations

import logging
import shutil
import time
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql.streaming.listener import StreamingQueryListener

from thetajoin.spark.listener import unit_numbers

TRIES = 10
_log = logging.getLogger("thetajoin")
_registered: WeakKeyDictionary[Any, Housekeeper] = WeakKeyDictionary()


class Housekeeper(StreamingQueryListener):  # type: ignore[misc]
    """Notes where each query's units keep their segments, and what came late; called by Spark."""

    def __init__(self) -> None:
        self._folders: dict[str, set[str]] = {}
        self._told: set[str] = set()

    def onQueryStarted(self, event: Any) -> None:
        """Nothing is known yet."""

    def onQueryProgress(self, event: Any) -> None:
        """Read the folders and the late rows from the units' numbers."""
        numbers = [numbers for _, numbers in unit_numbers(event.progress)]
        run = str(event.progress.runId)
        self._folders.setdefault(run, set()).update(unit["folder"] for unit in numbers)
        late = sum(unit.get("late_rows", 0) for unit in numbers)
        if late and run not in self._told:
            self._told.add(run)
            name = event.progress.name or event.progress.id
            _log.warning(
                "thetajoin: query %s dropped %d rows of micro-batch %d, which came behind the "
                "watermark. A longer delay in withWatermark keeps such rows. This is said once a "
                "query; lastProgress.observedMetrics has late_rows for every micro-batch.",
                *(name, late, event.progress.batchId),
            )

    def onQueryIdle(self, event: Any) -> None:
        """Nothing to do."""

    def onQueryTerminated(self, event: Any) -> None:
        """The files were a cache of this run; a restart builds its own."""
        run = str(event.runId)
        self._told.discard(run)
        for folder in self._folders.pop(run, ()):
            if Path(folder).name.startswith("thetajoin-"):
                _remove(Path(folder))


def _remove(folder: Path) -> None:
    """A worker may still be writing its last segment: what it adds meanwhile goes too."""
    for _ in range(TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)


def look_after(session: Any) -> None:
    """Have a session's queries tell of late rows and leave no files; once for each session."""
    if session not in _registered:
        keeper = Housekeeper()
        session.streams.addListener(keeper)
        _registered[session] = keeper
