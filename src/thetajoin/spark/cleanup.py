"""Removing a query's segment files when it ends.

On a cluster the files lie in the executors' own directories, which Spark removes with them; in
local mode, and where the driver shares a host with executors, a listener does it with the query.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from thetajoin.spark.listener import ReportListener, unit_numbers

TRIES = 10
_registered: WeakKeyDictionary[Any, Cleaner] = WeakKeyDictionary()


class Cleaner(ReportListener):
    """Notes where each query's units keep their segments; called by Spark."""

    def __init__(self) -> None:
        self._folders: dict[str, set[str]] = {}

    def onQueryStarted(self, event: Any) -> None:
        """Nothing is known yet."""

    def onQueryProgress(self, event: Any) -> None:
        """Read the folders from the units' numbers."""
        folders = self._folders.setdefault(str(event.progress.runId), set())
        folders.update(numbers["folder"] for _, numbers in unit_numbers(event.progress))

    def onQueryIdle(self, event: Any) -> None:
        """Nothing to do."""

    def onQueryTerminated(self, event: Any) -> None:
        """The files were a cache of this run; a restart builds its own."""
        for folder in self._folders.pop(str(event.runId), ()):
            if Path(folder).name.startswith("thetajoin-"):
                _remove(Path(folder))


def _remove(folder: Path) -> None:
    """A worker may still be writing its last segment: what it adds meanwhile goes too."""
    for _ in range(TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)


def clean_up_after(session: Any) -> None:
    """Have a session's ended queries leave no segment files; once for each session."""
    if session not in _registered:
        cleaner = Cleaner()
        session.streams.addListener(cleaner)
        _registered[session] = cleaner
