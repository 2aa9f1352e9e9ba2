"""Results as files, or on stdout: written as they are found, and shown only when complete."""

from __future__ import annotations

import base64
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from thetajoin.engine.block import concat_batches
from thetajoin.errors import SchemaError, one_line
from thetajoin.jobs.files import real

BINARY = ("parquet", "arrow")
_TOGETHER = 1 << 17  # rows: a row group of a Parquet file
_AT_ONCE = 1 << 14  # rows made into JSON before they are written


class Writer:
    """Rows in one of the formats, into a file that is open for bytes.

    On stdout, Arrow is its stream format, which a reader can take as it comes.
    """

    def __init__(self, schema: pa.Schema, file: Any, form: str, *, stream: bool = False) -> None:
        self._file = file
        self._rows: Any = None
        if form == "csv":
            from pyarrow import csv

            self._rows = csv.CSVWriter(file, schema)
        elif form == "arrow":
            self._rows = (pa.ipc.new_stream if stream else pa.ipc.new_file)(file, schema)
        elif form == "parquet":
            from pyarrow import parquet

            self._rows = parquet.ParquetWriter(file, schema)
        else:
            names = schema.names
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise SchemaError(f"JSON cannot have two columns called {twice[0]!r}: rename one")

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows."""
        if self._rows is not None:
            self._rows.write_batch(batch)
            return
        for start in range(0, batch.num_rows, _AT_ONCE):
            self._file.write(_json_lines(batch.slice(start, _AT_ONCE)))

    def close(self) -> None:
        """Write what a format has at its end."""
        if self._rows is not None:
            self._rows.close()


def write_result(
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    path: Path | None,
    form: str,
    count: Callable[[int], None] = lambda rows: None,
) -> int:
    """Write rows as they come to a file, or to stdout; gives how many there were.

    A file of that name is replaced when all is written, and kept if anything goes wrong before.
    """
    total = 0
    with _open_stdout() if path is None else _open_whole_file(path) as file:
        name = "the result" if path is None else str(path)
        with _explain_errors(name):
            writer = Writer(schema, file, form, stream=path is None)
        for batch in regroup(batches):
            with _explain_errors(name):
                writer.write(batch)
            total += batch.num_rows
            count(total)
        with _explain_errors(name):
            writer.close()
    return total


def regroup(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that are not small, but for the last."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            rows += batch.num_rows
        if rows >= _TOGETHER:
            yield concat_batches(held)
            held, rows = [], 0
    if held:
        yield concat_batches(held)


def take_first(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The first rows; what comes after them is not asked for."""
    if rows <= 0:
        return
    for batch in batches:
        yield batch.slice(0, rows)
        rows -= batch.num_rows
        if rows <= 0:
            return


@contextmanager
def _open_whole_file(path: Path) -> Iterator[Any]:
    """A file that takes a name, or another file's place, once all is in it."""
    target = real(path)
    in_place = target.exists() and not target.is_file()  # a pipe, say
    partial = target if in_place else target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with _explain_errors(str(path)):
            target.parent.mkdir(parents=True, exist_ok=True)
            file = partial.open("wb")
        with file:
            yield file
        if not in_place:
            with _explain_errors(str(path)):
                os.replace(partial, target)
    finally:
        if not in_place:
            partial.unlink(missing_ok=True)


class _Kept:
    """A file that those who are given it do not close."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.closed = False

    def write(self, data: Any) -> int:
        return int(self._file.write(data))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self.flush()


@contextmanager
def _open_stdout() -> Iterator[Any]:
    file = _Kept(sys.stdout.buffer)
    with _explain_errors("the result"):
        sys.stdout.flush()
    yield file
    with _explain_errors("the result"):
        file.flush()


@contextmanager
def _explain_errors(name: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        # With its number typer would take it for its own to handle, and exit with 1.
        raise BrokenPipeError from None
    except (pa.ArrowException, OSError) as error:
        raise SchemaError(f"cannot write {name}: {one_line(str(error))}") from error


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """A column's values as Python's; times as texts, because Python has no nanoseconds."""
    kind = column.type
    if pa.types.is_duration(kind):
        return [None if n is None else f"{n} {kind.unit}" for n in _counts(column).to_pylist()]
    if not pa.types.is_temporal(kind) or pa.types.is_interval(kind):
        return list(column.to_pylist())
    try:
        return list(column.cast(pa.string()).to_pylist())
    except pa.ArrowException:  # a time zone that this machine has no table of
        return list(_counts(column).cast(pa.timestamp(kind.unit)).cast(pa.string()).to_pylist())


def _counts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.int64())


def _json_lines(batch: pa.RecordBatch) -> bytes:
    """One object a line, as Spark, DuckDB, Polars and pyarrow read it."""
    names = batch.schema.names
    lines = [
        json.dumps(
            {name: _to_json(value) for name, value in zip(names, row, strict=True)},
            ensure_ascii=False,
            default=str,
        )
        for row in zip(*(values_of(pa.chunked_array([c])) for c in batch.columns), strict=True)
    ]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")


def _to_json(value: Any) -> Any:
    """A value as JSON has it; what it has no form for as Spark writes it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return str(value)  # a number of JSON's would be read as a double
    if isinstance(value, dict):
        return {str(key): _to_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(inner) for inner in value]
    return value
