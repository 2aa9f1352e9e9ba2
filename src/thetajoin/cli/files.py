"""Files as the command takes them: places in a job, pipes, and the formats of results."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from thetajoin.batch.files import find_files, format_of, format_of_bytes, known_endings, read_open
from thetajoin.errors import OptionError, SchemaError

WRITTEN = ("parquet", "csv", "json", "arrow")
STDIN = "-"


def named_format(path: Path) -> str:
    """The format of a result by its name: its ending's, Parquet where it has none.

    An ending that means no format is given back itself, to be refused by that name.

    >>> [named_format(Path(name)) for name in ("o.feather", "o", "o.csv.gz")]
    ['arrow', 'parquet', 'gz']
    """
    if not path.suffix or path.is_dir():
        return "parquet"
    return format_of(f"x{path.suffix}") or path.suffix.removeprefix(".")


def output_format(path: Path) -> str:
    """The format of a file to be written; an ending that means none is an error."""
    form = named_format(path)
    if form not in WRITTEN:
        known = known_endings(*WRITTEN)
        raise OptionError(
            f"cannot write {path}: no format has the ending {path.suffix!r}: use one of {known}"
        )
    return form


def place(text: str, base: Path) -> str:
    """A path beside a job's file; what is piped in and URIs are where they are.

    >>> place("a.csv", Path("jobs")), place("s3://bucket/a.csv", Path("jobs"))
    ('jobs/a.csv', 's3://bucket/a.csv')
    """
    return text if text == STDIN or "://" in text else str(base / os.path.expanduser(text))


def folder(data: dict[str, Any], key: str, where: str, base: Path) -> Path | None:
    """What a job writes to beside its file, if it says so; a URI would be a folder of that name."""
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
    """The format of what is to be read; None for a pipe, whose bytes are still to tell it."""
    return form if _is_pipe(path) else find_files(path, repr(path), form).form


def read_table(path: str, form: str | None = None) -> pa.Table:
    """The files that a path, a folder, a pattern or a URI names, or what a pipe has.

    `form` is the format where names are not to decide. ``-`` is what is piped in; its format, and
    that of any other pipe, is told from its first bytes.
    """
    if path == STDIN:
        return _parsed(read_stdin("a table"), form, "what is piped in")
    if _is_pipe(path):
        return _parsed(Path(path).read_bytes(), form, repr(path))
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


def _parsed(content: bytes, form: str | None, name: str) -> pa.Table:
    if not content.strip():
        raise SchemaError(f"{name} cannot be read: it is empty")
    text = "json" if content.lstrip()[:1] == b"{" else "csv"
    try:
        return read_open(pa.BufferReader(content), form or format_of_bytes(content) or text)
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise SchemaError(f"{name} cannot be read: {error}") from error
