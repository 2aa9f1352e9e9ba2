"""Where a result may go: never over what it is made from, nor over anything else unasked."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from thetajoin.cli.files import real
from thetajoin.errors import OptionError

_Identity = tuple[int, int]


def check_apart(out: Path, sources: Iterable[str], what: str = "the result") -> None:
    """Refuse a place that is, holds or lies in one of the sources, by whatever name."""
    own = _identity(out)
    above_out = _above(out)
    for source in map(_local, sources):
        if _matches(out, source):
            raise OptionError(f"{what} would be one of the inputs {source}: choose another place")
        for file in _found(source):
            theirs = _identity(file)
            if theirs is not None and theirs == own:
                raise OptionError(f"{what} would replace its input {file}: choose another place")
            if theirs in above_out:
                raise OptionError(f"{what} would go into its input {file}: choose another place")
            if own is not None and own in _above(file):
                raise OptionError(
                    f"{what} would go to {out}, where its input {file} is: choose another place"
                )


def _local(source: str) -> Path:
    """Where a source is on this machine; a remote one is nowhere here."""
    if not source.startswith("file://"):
        return Path(source)
    return Path(unquote(urlsplit(source).path))


def _found(path: Path) -> list[Path]:
    """The file or folder of that name, or what a pattern with `*`, `?` or `[]` names."""
    if path.exists() or not glob.has_magic(str(path)):
        return [path] if path.exists() else []
    return [Path(name) for name in sorted(glob.glob(str(path), recursive=True))]


def _identity(path: Path) -> _Identity | None:
    """What a path leads to, through links and in any spelling; None if there is nothing."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _above(path: Path) -> set[_Identity | None]:
    """The folders that what a path leads to, or would, lies in."""
    return {_identity(folder) for folder in real(path).parents} - {None}


def _matches(out: Path, pattern: Path) -> bool:
    """Whether a pattern of inputs would take in the output too, once it is there."""
    if pattern.exists() or not glob.has_magic(str(pattern)):
        return False
    parts = pattern.parts
    fixed = next(at for at, part in enumerate(parts) if glob.has_magic(part))
    base = glob.escape(str(real(Path(*parts[:fixed]))))
    return fnmatch.fnmatch(str(real(out)), os.path.join(base, *parts[fixed:]))


def check_new(out: Path, *, overwrite: bool) -> None:
    """Refuse a file that cannot be written, or that is there already."""
    # A path has one slash of a URI's two.
    if re.fullmatch(r"[A-Za-z]\w+:", out.parts[0]) and not Path(out.parts[0]).exists():
        raise OptionError(f"{out} is a URI: write a file of this machine, and copy it there")
    if out.is_dir():
        raise OptionError(f"{out} is a folder: name a file in it")
    if out.is_file() and not overwrite:
        raise OptionError(f"{out} exists: choose another place, or add --overwrite")
    check_writable(real(out).parent, out)


def check_writable(folder: Path, what: Path) -> None:
    """Refuse a folder that neither is there nor could be made."""
    nearest = next(place for place in (folder, *folder.parents) if place.exists())
    if not nearest.is_dir():
        raise OptionError(f"cannot write {what}: {nearest} is not a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise OptionError(f"cannot write {what}: {nearest} may not be written to")


def check_stream_sink(out: Path, checkpoint: Path) -> None:
    """Refuse a folder whose files are not those of the checkpoint.

    Spark leaves a list beside what a stream has written, by which it passes over micro-batches that
    are in it already: with another checkpoint these would be lost, and files that are not in the
    list are not read again.
    """
    if out.exists() and not out.is_dir():
        raise OptionError(f"{out} is a file: a stream writes a folder of files")
    check_writable(real(out), out)
    check_writable(real(checkpoint), checkpoint)
    if _identity(checkpoint) is not None and _identity(checkpoint) == _identity(out):
        raise OptionError(f"the checkpoint and the sink are the same folder {out}")
    if not out.is_dir() or not any(out.iterdir()):
        return
    if not (out / "_spark_metadata").exists():
        raise OptionError(f"{out} has files that no stream has written: choose another place")
    if not checkpoint.is_dir() or not any(checkpoint.iterdir()):
        raise OptionError(
            f"{out} is what another checkpoint's stream has written, and {checkpoint} is new: "
            "go on with the old checkpoint, or choose another place"
        )
