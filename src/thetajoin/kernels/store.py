"""Where compiled kernels are kept, so that only the first process on a machine compiles them.

Kernels are looked for in a folder that this process may write to, then beside the package (where
whoever installed it may have compiled them), then among those that came with the wheel. They are
run as code, so a folder is used only if nobody else can write to it (`check_private`), and an entry
only if its digest is right and nothing that went into it has changed: the sources of all kernels,
Python, numba and LLVM, the processor and the types (`stamp`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path

# Packages whose files all go into the stamp: a kernel has pieces of others compiled into it.
SOURCES = ("thetajoin.kernels", "thetajoin.papers.kernels")
PACKAGE = Path(__file__).parent
READY = PACKAGE / "ready"
WINDOWS = os.name == "nt"
UNUSED_DAYS = 30
# How long to wait for another process that compiles the same kernel, in seconds.
LONGEST_WAIT = 60.0
_DIGEST = 32
_ENDING = ".kernel"
KERNELS = f"*{_ENDING}"
# Folders are not open to the group, whatever the umask.
_MODE = 0o755
# Folders that have been checked: only we can write to them.
_private: set[Path] = set()


@cache
def stamp(*versions: str) -> str:
    """A name for all that compiled code depends on besides the processor and the types."""
    digest = hashlib.blake2b(digest_size=10)
    python = (sys.implementation.cache_tag or sys.version, getattr(sys, "abiflags", ""))
    for word in (*python, sys.platform, str(sys.maxsize), *versions):
        digest.update(word.encode() + b"\0")
    for package in SOURCES:
        for source in sorted(files(package).iterdir(), key=lambda entry: entry.name):
            if source.name.endswith(".py"):
                digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()


def entry_name(function: str, *key: str) -> str:
    """The file for a function compiled for a processor and types."""
    digest = hashlib.blake2b("\0".join((function, *key)).encode(), digest_size=16)
    return f"{function.removeprefix('thetajoin.').replace('<', '').replace('>', '')}-" + (
        digest.hexdigest() + _ENDING
    )


def read(folder: Path, name: str) -> bytes | None:
    """An entry's content; None if there is none, or it is damaged or may be somebody else's."""
    if not is_private(folder):
        return None
    try:
        content = (folder / name).read_bytes()
    except OSError:
        return None
    held = content[_DIGEST:]
    return held if _digest(held) == content[:_DIGEST] else None


def write(folder: Path, name: str, held: bytes) -> None:
    """Write an entry atomically; a full disk is not an error."""
    temporary = folder / f"{uuid.uuid4().hex}.tmp"
    try:
        folder.mkdir(mode=_MODE, parents=True, exist_ok=True)
        try:
            temporary.write_bytes(_digest(held) + held)
            temporary.replace(folder / name)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError:  # the next process compiles it again
        return


def _digest(held: bytes) -> bytes:
    return hashlib.blake2b(held, digest_size=_DIGEST).digest()


@contextlib.contextmanager
def take_turn(folder: Path | None, name: str) -> Iterator[None]:
    """Wait while another process of this host compiles the same entry."""
    lock = None if folder is None else _take_lock(folder / f"{name}.lock")
    try:
        yield
    finally:
        if lock is not None:
            with contextlib.suppress(OSError):
                lock.unlink()


def _take_lock(lock: Path) -> Path | None:
    """The lock, once we hold it; None if we cannot, which costs one compilation at most."""
    end = time.monotonic() + LONGEST_WAIT
    while True:
        try:
            lock.parent.mkdir(mode=_MODE, parents=True, exist_ok=True)
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            return lock
        except FileExistsError:
            try:
                # Left behind by a process that was ended.
                if time.time() - lock.stat().st_mtime > LONGEST_WAIT:
                    lock.unlink(missing_ok=True)
            except OSError:
                pass
        except OSError:
            return None
        if time.monotonic() > end:
            return None
        time.sleep(0.02)


@cache
def find_writable() -> Path | None:
    """The folder for kernels compiled here; None if there is none that we can write to."""
    for folder in _candidates():
        try:
            of_temporary = folder.parent == Path(tempfile.gettempdir())
            folder.mkdir(mode=0o700 if of_temporary else _MODE, parents=True, exist_ok=True)
            check_private(folder)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:
            continue
        _sweep(folder)
        return folder
    return None


def find_readable() -> list[Path]:
    """The folders with kernels compiled for the processor of whoever wrote them."""
    own = find_writable()
    # A folder that the user names is the only one.
    others = [] if os.environ.get("NUMBA_CACHE_DIR") else [_beside()]
    return list(dict.fromkeys([*([] if own is None else [own]), *others]))


def _candidates() -> Iterator[Path]:
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        yield Path(given) / "thetajoin"
    yield _beside()
    with contextlib.suppress(RuntimeError):  # a user without a home
        yield _of_user() / "thetajoin"
    user = os.getuid() if hasattr(os, "getuid") else None
    yield Path(tempfile.gettempdir()) / f"thetajoin-kernels-{'own' if user is None else user}"


def _beside() -> Path:
    return PACKAGE / "__pycache__" / "compiled"


def _of_user() -> Path:
    if WINDOWS:
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def check_private(folder: Path) -> None:
    """PermissionError where somebody else could put something into a folder, to be run as code.

    We, root, and the owner of this very package may: their code is run anyway. The folders that it
    lies in count too, since who can write there can put another folder in its place, unless they
    are like /tmp, where everyone can remove only what is theirs.
    """
    if not hasattr(os, "getuid"):
        return
    trusted = {0, os.geteuid(), Path(__file__).stat().st_uid}
    place = folder.resolve()
    for at in (place, *place.parents):
        found = at.stat()
        if found.st_uid not in trusted:
            raise PermissionError(f"{at} belongs to somebody else")
        shared = found.st_mode & stat.S_ISVTX and at != place
        open_to_group = found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid)
        if not shared and (found.st_mode & stat.S_IWOTH or open_to_group):
            raise PermissionError(f"{at} can be written to by others")


def _is_own_group(group: int) -> bool:
    """Whether nobody else is in a group, as where every user has one of their own."""
    import grp
    import pwd

    try:
        user = pwd.getpwuid(os.geteuid())
        others = set(grp.getgrgid(group).gr_mem) - {user.pw_name}
    except KeyError:
        return False
    return group in (0, user.pw_gid) and not others


def is_private(folder: Path) -> bool:
    """Whether only people whose code is run anyway can write to a folder."""
    if folder not in _private:
        try:
            check_private(folder)
        except OSError:  # it is not, or is not there yet
            return False
        _private.add(folder)
    return True


def explain_unwritable() -> str:
    """Why the folder that kernels would be kept in cannot be used."""
    for folder in _candidates():
        try:
            check_private(folder)
        except OSError as error:
            return str(error)
    return "none can be written"


def _sweep(folder: Path) -> None:
    """Remove the kernels of versions that have been unused for long."""
    oldest = time.time() - UNUSED_DAYS * 24 * 3600
    with contextlib.suppress(OSError):
        for stamped in folder.iterdir():
            if stamped.is_dir() and stamped.stat().st_mtime < oldest:
                shutil.rmtree(stamped, ignore_errors=True)
