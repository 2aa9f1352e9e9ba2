"""Tables in files: which format a name's ending means, and reading them."""

from __future__ import annotations

import difflib
import glob
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from thetajoin.errors import OptionError, SchemaError, one_line

ENDINGS = {
    "parquet": ("parquet", "pq"),
    "csv": ("csv",),
    "json": ("json", "ndjson", "jsonl"),
    "arrow": ("arrow", "feather", "ipc"),
}
FORMATS = tuple(ENDINGS)
STDIN = Path("-")
_FORMAT_OF = {ending: form for form, endings in ENDINGS.items() for ending in endings}
_PACKED = (".gz", ".bz2", ".zst", ".lz4")  # what pyarrow unpacks as it reads, by the name
_TEXTS = ("csv", "json")
# How the bytes of a format begin; an Arrow stream, unlike a file, begins with a marker of its own.
_BEGINNINGS = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\xff\xff\xff\xff": "arrow"}


def format_of(path: Path) -> str | None:
    """The format that a name's ending means, Parquet where it has none; None if it is unknown.

    >>> format_of(Path("a.feather")), format_of(Path("folder")), format_of(Path("a.xls"))
    ('arrow', 'parquet', None)
    """
    ending = path.suffix.lstrip(".").lower()
    return _FORMAT_OF.get(ending) if ending else "parquet"


def input_format(path: Path) -> str:
    """The format of a file to be read; an ending that means none is an error.

    >>> input_format(Path("a.csv.gz")), input_format(Path("logs/*.json"))
    ('csv', 'json')
    """
    packed = path.suffix.lower() in _PACKED
    form = format_of(path.with_suffix("")) if packed else format_of(path)
    if form is None or (packed and form not in _TEXTS):
        raise SchemaError(f"cannot read {path}: {_unknown(path)}")
    return form


def output_format(path: Path) -> str:
    """The format of a file to be written; an ending that means none is an error."""
    form = format_of(path)
    if form is None:
        raise OptionError(f"cannot write {path}: {_unknown(path)}")
    return form


def _unknown(path: Path) -> str:
    known = ", ".join(f".{ending}" for ending in _FORMAT_OF)
    return f"no format has the ending {path.suffix!r}: use one of {known}"


def found(path: Path) -> list[Path]:
    """The file or folder of that name, or the files that a pattern with `*`, `?` or `[]` names."""
    if path.exists() or not glob.has_magic(str(path)):
        return [path] if path.exists() else []
    return [Path(name) for name in sorted(glob.glob(str(path), recursive=True))]


def real(path: Path) -> Path:
    """Where a path leads, through links; unlike `Path.resolve` it takes links in a circle."""
    return Path(os.path.realpath(path))


def read_table(path: Path, form: str | None = None) -> pa.Table:
    """A Parquet, CSV, JSON or Arrow file, or all files of a folder or a pattern.

    `form` is the format where the name's ending is not to decide. ``-`` is what is piped in; its
    format, and that of any other pipe, is told from its first bytes.
    """
    if path == STDIN:
        return _piped_in(form)
    files = files_of(path)
    tables = [_read(file, form) for file in files]
    if len(tables) == 1:
        return tables[0]
    try:
        return pa.concat_tables(tables)
    except pa.ArrowException as error:
        raise SchemaError(f"the files of {path} do not have the same columns: {error}") from error


def files_of(path: Path) -> list[Path]:
    """The files of a table; a folder stands for itself if its files are all Parquet.

    The names of folders may be columns of Parquet files (`year=2026`), which their reader adds.
    """
    there = found(path)
    if not there:
        raise SchemaError(missing(path))
    return [file for one in there for file in (_inside(one) if one.is_dir() else [one])]


def _inside(folder: Path) -> list[Path]:
    inside = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    # Spark and others mark with these what are no rows.
    files = [f for f in inside if not any(p[0] in "._" for p in f.relative_to(folder).parts)]
    if not files:
        raise SchemaError(f"there are no files in the folder {folder}")
    return [folder] if all(format_of(file) == "parquet" for file in files) else files


def missing(path: Path) -> str:
    """That there is no such file, and which one may be meant.

    >>> missing(Path("/nowhere/a.csv"))
    'no such file: /nowhere/a.csv'
    """
    try:
        there = [entry.name for entry in path.parent.iterdir()]
    except (OSError, ValueError):
        there = []
    near = difflib.get_close_matches(path.name, there, 1, cutoff=0.75)
    hint = f": did you mean {str(path.with_name(near[0]))!r}?" if near else ""
    return f"no such file: {path}{hint}"


def read_stdin(what: str) -> bytes:
    """All that is piped in."""
    if sys.stdin is None or sys.stdin.isatty():
        raise OptionError(f"'-' reads {what} from a pipe, and nothing is piped in")
    return sys.stdin.buffer.read()


def _piped_in(form: str | None) -> pa.Table:
    return _parsed(read_stdin("a table"), form, "what is piped in")


def _read(path: Path, form: str | None) -> pa.Table:
    if path.exists() and not path.is_file() and not path.is_dir():  # a pipe, say
        return _parsed(path.read_bytes(), form, str(path))
    form = form or ("parquet" if path.is_dir() else input_format(path))
    return _as_table(path, form, str(path))


def _parsed(content: bytes, form: str | None, name: str) -> pa.Table:
    """A table from bytes that have no name whose ending would tell their format."""
    begins = next((f for first, f in _BEGINNINGS.items() if content.startswith(first)), None)
    text = "json" if content.lstrip()[:1] == b"{" else "csv"
    if not content.strip():
        raise SchemaError(f"cannot read {name} as a table: it is empty")
    return _as_table(pa.BufferReader(content), form or begins or text, name)


def _as_table(source: Any, form: str, name: str) -> pa.Table:
    try:
        if form == "csv":
            from pyarrow import csv

            return csv.read_csv(source)
        if form == "json":
            from pyarrow import json as arrow_json

            return arrow_json.read_json(source)
        if form == "arrow":
            return _read_arrow(source)
        from pyarrow import parquet

        return parquet.read_table(source)
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise SchemaError(f"cannot read {name} as a table: {one_line(str(error))}") from error


def _read_arrow(source: Any) -> pa.Table:
    """Arrow's file format, or its stream."""
    from pyarrow import feather

    with source if isinstance(source, pa.NativeFile) else pa.OSFile(str(source)) as opened:
        streamed = opened.read(4) == b"\xff\xff\xff\xff"
        opened.seek(0)
        return pa.ipc.open_stream(opened).read_all() if streamed else feather.read_table(opened)
