"""Tables in files: which format a name's ending means, reading and writing."""

from __future__ import annotations

import base64
import glob
import json
import math
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from thetajoin.cli.rows import values_of
from thetajoin.errors import OptionError, SchemaError, one_line

ENDINGS = {
    "parquet": ("parquet", "pq"),
    "csv": ("csv",),
    "json": ("json", "ndjson", "jsonl"),
    "arrow": ("arrow", "feather", "ipc"),
}
FORMATS = tuple(ENDINGS)
_FORMAT_OF = {ending: form for form, endings in ENDINGS.items() for ending in endings}
_WRITTEN_AT_ONCE = 1 << 14  # rows


def format_of(path: Path) -> str | None:
    """The format that a name's ending means, Parquet where it has none; None if it is unknown.

    >>> format_of(Path("a.feather")), format_of(Path("folder")), format_of(Path("a.xls"))
    ('arrow', 'parquet', None)
    """
    ending = path.suffix.lstrip(".").lower()
    return _FORMAT_OF.get(ending) if ending else "parquet"


def output_format(path: Path) -> str:
    """The format of a file to be written; an ending that means none is an error."""
    form = format_of(path)
    if form is None:
        known = ", ".join(f".{ending}" for ending in _FORMAT_OF)
        raise OptionError(f"cannot write {path}: no format has the ending {path.suffix!r}: {known}")
    return form


def found(path: Path) -> list[Path]:
    """The file or folder of that name, or the files that a pattern with `*`, `?` or `[]` names."""
    if path.exists() or not glob.has_magic(str(path)):
        return [path] if path.exists() else []
    return [Path(name) for name in sorted(glob.glob(str(path), recursive=True))]


def real(path: Path) -> Path:
    """Where a path leads, through links; unlike `Path.resolve` it takes links in a circle."""
    return Path(os.path.realpath(path))


def read_table(path: Path, form: str | None = None) -> pa.Table:
    """A Parquet, CSV, JSON or Arrow file, a folder of Parquet files, or all files of a pattern.

    `form` is the format where the name's ending is not to decide.
    """
    files = found(path)
    if not files:
        raise SchemaError(f"no such file: {path}")
    tables = [_read(file, form or format_of(file) or "parquet") for file in files]
    if len(tables) == 1:
        return tables[0]
    try:
        return pa.concat_tables(tables)
    except pa.ArrowException as error:
        raise SchemaError(f"the files of {path} do not have the same columns: {error}") from error


def _read(path: Path, form: str) -> pa.Table:
    if path.is_dir():
        if form != "parquet":
            raise SchemaError(f"{path} is a folder: only Parquet files are read as one")
        if not any(entry.is_file() for entry in path.rglob("*")):
            raise SchemaError(f"there are no files in the folder {path}")
    try:
        if form == "csv":
            from pyarrow import csv

            return csv.read_csv(path)
        if form == "json":
            from pyarrow import json as arrow_json

            return arrow_json.read_json(path)
        if form == "arrow":
            from pyarrow import feather

            return feather.read_table(path)
        from pyarrow import parquet

        return parquet.read_table(path)
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise SchemaError(f"cannot read {path} as a table: {one_line(str(error))}") from error


def write_table(table: pa.Table, path: Path, form: str) -> None:
    """Write a result in one of the formats; a file that is there goes when all is written."""
    target = real(path)
    in_place = target.exists() and not target.is_file()  # a pipe, say
    partial = target if in_place else target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            _write(table, partial, form)
            if not in_place:
                os.replace(partial, target)
        finally:
            if not in_place:
                partial.unlink(missing_ok=True)
    except (pa.ArrowException, OSError) as error:
        raise SchemaError(f"cannot write {path}: {one_line(str(error))}") from error


def _write(table: pa.Table, path: Path, form: str) -> None:
    if form == "csv":
        from pyarrow import csv

        csv.write_csv(table, path)
    elif form == "json":
        _write_json(table, path)
    elif form == "arrow":
        from pyarrow import feather

        feather.write_feather(table, str(path), compression="uncompressed")
    else:
        from pyarrow import parquet

        parquet.write_table(table, path)


def _write_json(table: pa.Table, path: Path) -> None:
    """One object a line, as Spark, DuckDB, Polars and pyarrow read it."""
    names = table.schema.names
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise SchemaError(f"cannot write {path}: two columns are called {sorted(twice)[0]!r}")
    with path.open("w", encoding="utf-8") as file:
        for start in range(0, table.num_rows, _WRITTEN_AT_ONCE):
            part = table.slice(start, _WRITTEN_AT_ONCE)
            for row in zip(*(values_of(column) for column in part.columns), strict=True):
                plain = {name: _plain(value) for name, value in zip(names, row, strict=True)}
                file.write(json.dumps(plain, ensure_ascii=False, default=str) + "\n")


def _plain(value: Any) -> Any:
    """A value as JSON has it; what it has no form for as Spark writes it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return str(value)  # a number of JSON's would be read as a double
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
