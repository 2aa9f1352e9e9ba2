"""Where compiled kernels are kept, so that only the first process on a machine compiles them.

numba keeps them in ``NUMBA_CACHE_DIR``, beside the package or in the user's home, and refuses to
make a kernel where it may write to none of these: in many containers, and for Spark's workers on
many clusters. There they go to a folder of this user's among the machine's temporary files, and
where not even that can be had, every process compiles its own.
"""

from __future__ import annotations

import os
import stat
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numba import config, njit

_UNWRITABLE = (RuntimeError, OSError)  # what numba raises where it finds no folder
_lock = threading.Lock()
# Numba's own choice first; a way that has failed for one kernel is not tried for the next.
_ways: list[str] = ["numba", "temporary", "none"]


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    """The function compiled at its first call, and kept on disk where some folder takes it."""
    while _ways[0] != "none":
        way = _ways[0]
        try:
            with _folder(way):
                return njit(cache=True, **options)(function)
        except _UNWRITABLE:
            _give_up(way)
    return njit(**options)(function)


def _give_up(way: str) -> None:
    with _lock:
        if way not in _ways:  # another thread has
            return
        _ways.remove(way)
        last = len(_ways) == 1
    if last:
        warnings.warn(
            "thetajoin: no folder for compiled kernels, so each process compiles them anew: "
            "set NUMBA_CACHE_DIR to one that can be written",
            stacklevel=4,
        )


@contextmanager
def _folder(way: str) -> Iterator[None]:
    """Have numba use the temporary folder for what is decorated meanwhile, and nothing else."""
    if way != "temporary":
        yield
        return
    with _lock:
        before = config.CACHE_DIR
        config.CACHE_DIR = str(private_folder())
        try:
            yield
        finally:
            config.CACHE_DIR = before


def private_folder() -> Path:
    """A folder of this user's alone, the same for all processes; OSError where there is none.

    What lies in it is run as code, so one that others may write to is not taken.
    """
    user = os.getuid() if hasattr(os, "getuid") else None
    folder = Path(tempfile.gettempdir()) / f"thetajoin-kernels-{'own' if user is None else user}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(f"{folder} is not a folder")
    if user is not None and (found.st_uid != user or found.st_mode & 0o022):
        raise PermissionError(f"{folder} is open to others")
    return folder
