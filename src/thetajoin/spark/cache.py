"""Built segments, kept where every Python worker of a host can map them.

The state store is the truth; this is a cache beside it. A layout file named by the state's token
lists the segments' files. A token that is not here (a retry, another host, a restart), or a file
that is not as it was written, means that the segments are built again from the state store.

Files are written when the task is over, while Spark commits and plans: whoever needs them before
waits for as long as the writer lives.

They lie in Spark's local directory and go with it. In a session that lives on, a new join removes
those of joins that have not written for a while. Such a join may only be idle: it then builds its
segments again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from thetajoin.engine.block import SUFFIX, Block, DamagedError, read_block, write_block
from thetajoin.engine.machine import may_be_alive
from thetajoin.engine.parts import SIDES
from thetajoin.engine.state import JoinState
from thetajoin.limits import limits

# Layouts kept for a unit: the newest, and the one before it, which a retry goes back to.
KEPT = 2
# Seconds for which another worker's files are waited for, and between looks.
PATIENCE_S, LOOK_S = 10.0, 0.005
PREFIX = "thetajoin-"
# Folders that could not be written: a process warns of each once, not in every micro-batch.
_TOLD: set[Path] = set()


def cache_root() -> Path:
    """Spark's local directory, where an executor's files are removed with it."""
    given = os.environ.get("SPARK_LOCAL_DIRS") or os.environ.get("SPARK_EXECUTOR_DIRS")
    return Path((given or tempfile.gettempdir()).split(",")[0])


def make_private(folder: Path) -> None:
    """A unit's folder and its join's, which nobody else may write to."""
    if not folder.parent.exists():
        _remove_idle(folder.parent.parent)
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    check_private(folder)


def _remove_idle(root: Path) -> None:
    """Remove the files of joins that have not written for a while: most have ended."""
    for join in root.glob(f"{PREFIX}*"):
        if not _is_own(join):
            continue
        newest = max(map(_read_time, [join, *join.glob("*")]))
        if time.time() - newest > limits.idle_seconds:
            shutil.rmtree(join, ignore_errors=True)


def _is_own(folder: Path) -> bool:
    """Whether a folder is a join's of this user's; others begin their names like that as well."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    mine = not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
    named = re.fullmatch(rf"{PREFIX}[0-9a-f]{{12}}", folder.name) is not None
    return mine and named and stat.S_ISDIR(found.st_mode)


def check_private(folder: Path) -> None:
    """An error where somebody else may have put files there for us to map."""
    for place in (folder.parent, folder):
        found = place.lstat()
        mine = not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
        open_to_others = os.name == "posix" and bool(found.st_mode & 0o022)
        if not mine or open_to_others or not stat.S_ISDIR(found.st_mode):
            raise PermissionError(f"{place} can be written to by others")


class SegmentCache:
    """The segment files of one unit of one join on this host."""

    def __init__(self, label: str, unit: int, before: SegmentCache | None = None) -> None:
        """`before`: what this worker had of the same unit; its segments need not be read again."""
        self.folder = cache_root() / f"{PREFIX}{label}" / str(unit)
        self._names: dict[object, tuple[Block, str]] = {}
        had = () if before is None else before._names.values()
        self._had = {name: block for block, name in had}
        self._broken = False
        self._writer: threading.Thread | None = None

    def save(self, token: str, state: JoinState) -> None:
        """Write the segments that have no file yet, then the layout; old files go.

        The state must be left alone until `settle`. A full disk costs speed only: other workers
        then build from the state store, as they do where the index changes with every batch and
        has no segments.
        """
        if not self._keeps(state):
            return
        try:
            make_private(self.folder)
            self._marker(token).write_text(str(os.getpid()))
        except OSError as error:
            self._give_up(error)
            return
        if os.environ.get("SPARK_REUSE_WORKER"):
            self._writer = threading.Thread(target=self._write, args=(token, state))
            self._writer.start()
        else:  # this process ends with its task
            self._write(token, state)

    def relieve(self, state: JoinState) -> None:
        """Put segments into files as a state is built, if they take much memory by now.

        So a state can be larger than memory. Those that are merged later leave files behind, which
        go when the state is saved.
        """
        if not self._keeps(state):
            return
        fresh = [block for s in SIDES for block in state.stores[s].segments if not self._has(block)]
        if sum(block.nbytes for block in fresh) < limits.segment_bytes:
            return
        try:
            make_private(self.folder)
            self._file_segments(state)
        except (OSError, DamagedError) as error:
            self._give_up(error)

    def _keeps(self, state: JoinState) -> bool:
        """Whether a state's segments can be kept in files."""
        return not self._broken and all(store.has_segments for store in state.stores.values())

    def settle(self) -> None:
        """Wait until what was saved last is written."""
        if self._writer is not None:
            self._writer.join()
            self._writer = None

    def _marker(self, token: str) -> Path:
        """Says that a layout is being written, and by which process."""
        return self.folder / f"{token}.pending"

    def _write(self, token: str, state: JoinState) -> None:
        try:
            self._write_layout(token, state)
        except FileNotFoundError:
            pass  # the query has ended, and its files with it
        except (OSError, DamagedError, MemoryError) as error:
            self._give_up(error)
        finally:
            with contextlib.suppress(OSError):
                self._marker(token).unlink(missing_ok=True)

    def _write_layout(self, token: str, state: JoinState) -> None:
        layout = {"token": token, **self._file_segments(state)}
        partial = self.folder / f"{token}.partial"
        partial.write_text(json.dumps(layout))
        os.replace(partial, self.folder / f"{token}.json")
        self._sweep()

    def _file_segments(self, state: JoinState) -> dict[str, list[str]]:
        """The files of each side's segments, which are on mapped memory from then on."""
        names: dict[str, list[str]] = {}
        for side in SIDES:
            segments = state.stores[side].segments
            names[side] = [self._file_of(block) for block in segments]
            for at, name in enumerate(names[side]):
                segments[at] = self._map_segment(name, segments[at], state, side)
        return names

    def _give_up(self, error: Exception) -> None:
        self._broken = True
        if self.folder in _TOLD:
            return
        _TOLD.add(self.folder)
        warnings.warn(
            f"thetajoin: segment files cannot be written to {self.folder} ({error}); "
            "workers will rebuild segments from the state store",
            stacklevel=3,
        )

    def _file_of(self, block: Block) -> str:
        """The block's file, written if it has none, or if it was taken for an idle join's."""
        if self._has(block) and (self.folder / self._names[block.identity][1]).exists():
            return self._names[block.identity][1]
        return write_block(self.folder, block)

    def _has(self, block: Block) -> bool:
        """Whether a block was written to a file, and is on mapped memory."""
        return block.identity in self._names

    def _map_segment(self, name: str, block: Block, state: JoinState, side: Any) -> Block:
        """The block on mapped memory, so that all workers of the host share its pages."""
        if self._has(block) and self._names[block.identity][1] == name:
            return block
        mapped = self._read(name, state, side).with_marks(block.settled)
        mapped.derived = block.derived
        return mapped

    def _read(self, name: str, state: JoinState, side: Any) -> Block:
        store = state.stores[side]
        block = self._had.pop(name, None)
        if block is None:
            preserved = store.config.preserved
            block = read_block(self.folder / name, store.shapes, preserved=preserved)
        elif block.settled is not None:
            block = block.with_marks(np.zeros(block.rows, np.bool_))
        self._names[block.identity] = block, name
        return block

    def load(self, token: str, state: JoinState) -> bool:
        """Map the segments of a layout into an empty state; False if they are not here."""
        try:
            check_private(self.folder)
            self._await(token)
            layout = json.loads((self.folder / f"{token}.json").read_text())
            if layout["token"] != token:
                return False
            found = {side: [self._read(n, state, side) for n in layout[side]] for side in SIDES}
        except (OSError, DamagedError, ValueError, LookupError, TypeError):
            return False
        finally:
            self._had = {}
        # Both sides or none: segments left in the state would come again from the state store.
        for side in SIDES:
            state.stores[side].segments = found[side]
        return True

    def _await(self, token: str) -> None:
        """Wait for a layout that another worker is writing."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and not (self.folder / f"{token}.json").exists():
            try:
                writer = int(self._marker(token).read_text() or 0)
            except (OSError, ValueError):
                return
            if writer and not may_be_alive(writer):
                return
            time.sleep(LOOK_S)

    def first_to_tell(self, what: str) -> bool:
        """Whether no worker of this host has said a thing about this join yet."""
        told = self.folder.parent / what
        if told.exists():
            return False
        with contextlib.suppress(OSError):  # told too often is better than never
            make_private(self.folder)
            told.touch()
        return True

    def _sweep(self) -> None:
        """Remove layouts but the newest few, and segments that none of them names.

        Two attempts of one unit may sweep at once; a segment that is still young may belong to a
        layout that is not written yet.
        """
        ages = {path: _read_time(path) for path in self.folder.glob("*.json")}
        layouts = sorted(ages, key=lambda path: ages[path])
        for old in layouts[:-KEPT]:
            old.unlink(missing_ok=True)
        named: set[str] = set()
        for layout in layouts[-KEPT:]:
            # A layout that cannot be read names nothing that anybody could map.
            with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
                listed = json.loads(layout.read_text())
                named.update(*(listed[side] for side in SIDES))
        for file in [*self.folder.glob(f"*{SUFFIX}*"), *self.folder.glob("*.pending")]:
            if file.name not in named and time.time() - _read_time(file) > limits.young_seconds:
                file.unlink(missing_ok=True)
        self._names = {k: v for k, v in self._names.items() if v[1] in named}


def _read_time(path: Path) -> float:
    """When a file was written; long ago if it is gone."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
