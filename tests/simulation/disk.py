"""The disk below a folder: it may be full at any write, and files on it may be damaged.

A damaged file is a new one under the old name: what a process has mapped stays as it was.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

DAMAGES = ("truncated", "zeroed", "bit flipped", "gone", "swapped", "longer")

_open, _replace, _unlink, _mkdir = io.open, os.replace, os.unlink, os.mkdir


class Killed(BaseException):
    """The process is gone; nothing it would still have done happens."""


class Disk:
    """Watches what is done to files below `root`; `step` is called before, and may raise."""

    def __init__(self, root: Path, step: Callable[[str], None]) -> None:
        self._root = str(root)
        self._step = step
        self._written: list[str] = []
        # Writes until the disk of a folder is full; a folder that is not here has room.
        self.room: dict[str, int] = {}
        self.full = 0

    def install(self) -> None:
        """Take the place of the functions that change files."""
        builtins.open = io.open = self._opened  # type: ignore[assignment]
        os.replace, os.unlink, os.mkdir = self._replaced, self._unlinked, self._made  # type: ignore

    def uninstall(self) -> None:
        """Put the functions back."""
        builtins.open = io.open = _open
        os.replace, os.unlink, os.mkdir = _replace, _unlink, _mkdir

    def take_written(self) -> list[str]:
        """Files written since this was last asked."""
        written, self._written = self._written, []
        return written

    def _mine(self, path: Any) -> bool:
        return not isinstance(path, int) and os.fspath(path).startswith(self._root)

    def _opened(self, file: Any, mode: str = "r", *args: Any, **more: Any) -> Any:
        if not self._mine(file):
            return _open(file, mode, *args, **more)
        if mode.startswith("r"):
            self._step("read")
            return _open(file, mode, *args, **more)
        path = os.fspath(file)
        self._step("open")
        self._use(path)
        self._written.append(path)
        return Written(self, path, _open(file, mode, *args, **more))

    def _replaced(self, old: Any, new: Any, **more: Any) -> None:
        if self._mine(new):
            self._step("rename")
            self._written.append(os.fspath(new))
        _replace(old, new, **more)

    def _unlinked(self, path: Any, **more: Any) -> None:
        if self._mine(path):
            self._step("remove")
        _unlink(path, **more)

    def _made(self, path: Any, *args: Any, **more: Any) -> None:
        if self._mine(path):
            self._step("make a folder")
            self._use(os.fspath(path))
        _mkdir(path, *args, **more)

    def write(self, path: str, file: Any, data: Any) -> int:
        """A write that may stop in the middle."""
        try:
            self._step("write")
            self._use(path)
        except BaseException:
            file.write(data[: len(data) // 2] if isinstance(data, str | bytes) else data[:0])
            raise
        return int(file.write(data))

    def _use(self, path: str) -> None:
        for folder, room in self.room.items():
            if path.startswith(folder):
                self.room[folder] = room - 1
                if room <= 0:
                    self.full += 1
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


class Written:
    """A file that is being written."""

    def __init__(self, disk: Disk, path: str, file: Any) -> None:
        self._disk, self._path, self._file = disk, path, file

    def write(self, data: Any) -> int:
        return self._disk.write(self._path, self._file, data)

    def __enter__(self) -> Written:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def files_below(folder: Path) -> list[str]:
    """Segment and layout files, always in the same order."""
    found = []
    for parent, _, names in os.walk(folder):
        found += [f"{parent}/{name}" for name in names if name.endswith((".segment", ".json"))]
    return sorted(found)


def damage(rng: Random, path: str, others: list[str]) -> str:
    """Damage a file; says how."""
    how = rng.choice(DAMAGES)
    with _open(path, "rb") as file:
        content = bytearray(file.read())
    if how == "gone" or not content:
        _unlink(path)
        return "gone"
    if how == "truncated":
        content = content[: rng.randrange(len(content))]
    elif how == "zeroed":
        start, end = sorted(rng.randrange(len(content) + 1) for _ in range(2))
        content[start:end] = bytes(end - start)
    elif how == "bit flipped":
        # A file's beginning says how to read the rest, so it is hit as often as all of that.
        size = len(content) if rng.random() < 0.5 else min(64, len(content))
        content[rng.randrange(size)] ^= 1 << rng.randrange(8)
    elif how == "longer":
        content += bytes(rng.randrange(1, 100))
    else:
        other = rng.choice(others)
        with _open(other, "rb") as file:
            theirs = file.read()
        _put(other, bytes(content))
        content = bytearray(theirs)
    _put(path, bytes(content))
    return how


def _put(path: str, content: bytes) -> None:
    stat = os.stat(path)
    with _open(path + ".new", "wb") as file:
        file.write(content)
    _replace(path + ".new", path)
    os.utime(path, (stat.st_mtime, stat.st_mtime))
