"""Files of a job: what it reads, and where its result may go: never over what it is made from."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from thetajoin.batch.files import find_files, format_of, format_of_bytes, list_endings, read_open
from thetajoin.errors import OptionError, SchemaError

WRITTEN = ("parquet", "csv", "json", "arrow")
STDIN = "-"
_Identity = tuple[int, int]


def guess_format(path: Path) -> str:
    """The format of a result by its name: its ending's, Parquet where it has none.

    An unknown ending is returned as it is, for the error that refuses it.

    >>> [guess_format(Path(name)) for name in ("o.feather", "o", "o.csv.gz")]
    ['arrow', 'parquet', 'gz']
    """
    if not path.suffix or path.is_dir():
        return "parquet"
    return format_of(f"x{path.suffix}") or path.suffix.removeprefix(".")


def output_format(path: Path) -> str:
    """The format of a file to be written; an ending that means none is an error."""
    form = guess_format(path)
    if form not in WRITTEN:
        known = list_endings(*WRITTEN)
        raise OptionError(
            f"cannot write {path}: no format has the ending {path.suffix!r}: use one of {known}"
        )
    return form


def place(text: str, base: Path) -> str:
    """A path relative to a job's file; URIs and ``-`` stay as they are.

    >>> place("a.csv", Path("jobs")), place("s3://bucket/a.csv", Path("jobs"))
    ('jobs/a.csv', 's3://bucket/a.csv')
    """
    return text if text == STDIN or "://" in text else str(base / os.path.expanduser(text))


def folder(data: dict[str, Any], key: str, where: str, base: Path) -> Path | None:
    """A folder that a job writes to; a URI is refused, as it would become a folder of that name."""
    if key not in data:
        return None
    if "://" in data[key]:
        raise OptionError(
            f"{where}: {key} = {data[key]!r} must be on a disk of this machine: only tables "
            "(delta, iceberg) and late rows can be written to a URI"
        )
    return base / str(data[key])


def real(path: Path) -> Path:
    """Where a path leads, through links; unlike `Path.resolve` it takes links in a circle."""
    return Path(os.path.realpath(path))


def input_format(path: str, form: str | None = None) -> str | None:
    """The format of an input; None for a pipe, whose format is known once it is read."""
    return form if _is_pipe(path) else find_files(path, repr(path), form).form


def read_table(path: str, form: str | None = None) -> pa.Table:
    """The files that a path, a folder, a pattern or a URI names, or what a pipe has.

    form: the format, instead of what the names say. ``-`` is standard input. A pipe's format is
    recognised from its first bytes.
    """
    if path == STDIN:
        return _parse(read_stdin("a table"), form, "what is piped in")
    if _is_pipe(path):
        return _parse(Path(path).read_bytes(), form, repr(path))
    return find_files(path, repr(path), form).read()


def read_stdin(what: str) -> bytes:
    """All that is piped in."""
    if sys.stdin is None or sys.stdin.isatty():
        raise OptionError(f"'-' reads {what} from a pipe, and nothing is piped in")
    return sys.stdin.buffer.read()


def _is_pipe(path: str) -> bool:
    return path == STDIN or (
        os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)
    )


def _parse(content: bytes, form: str | None, name: str) -> pa.Table:
    if not content.strip():
        raise SchemaError(f"{name} cannot be read: it is empty")
    text = "json" if content.lstrip()[:1] == b"{" else "csv"
    try:
        return read_open(pa.BufferReader(content), form or format_of_bytes(content) or text)
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise SchemaError(f"{name} cannot be read: {error}") from error


def check_apart(out: Path, sources: Iterable[str], what: str = "the result") -> None:
    """Refuse a place that is, contains or lies in one of the sources, however it is spelled."""
    own = _identify(out)
    above_out = _find_parents(out)
    for source in map(_to_local, sources):
        if _matches(out, source):
            raise OptionError(f"{what} would be one of the inputs {source}: choose another place")
        for file in _find(source):
            theirs = _identify(file)
            if theirs is not None and theirs == own:
                raise OptionError(f"{what} would replace its input {file}: choose another place")
            if theirs in above_out:
                raise OptionError(f"{what} would go into its input {file}: choose another place")
            if own is not None and own in _find_parents(file):
                raise OptionError(
                    f"{what} would go to {out}, where its input {file} is: choose another place"
                )


def _to_local(source: str) -> Path:
    """Where a source is on this machine; a remote one is nowhere here."""
    if not source.startswith("file://"):
        return Path(source)
    return Path(unquote(urlsplit(source).path))


def _find(path: Path) -> list[Path]:
    """The file or folder of that name, or what a pattern with `*`, `?` or `[]` names."""
    if path.exists() or not glob.has_magic(str(path)):
        return [path] if path.exists() else []
    return [Path(name) for name in sorted(glob.glob(str(path), recursive=True))]


def _identify(path: Path) -> _Identity | None:
    """What a path leads to, through links and in any spelling; None if there is nothing."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _find_parents(path: Path) -> set[_Identity | None]:
    """The folders that what a path leads to, or would, lies in."""
    return {_identify(folder) for folder in real(path).parents} - {None}


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
    if _identify(checkpoint) is not None and _identify(checkpoint) == _identify(out):
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
