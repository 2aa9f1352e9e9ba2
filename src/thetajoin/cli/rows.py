"""Rows of a table as texts."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from rich.console import Console

from thetajoin.cli.terminal import grid, say


def show_rows(console: Console, table: pa.Table, total: int | None = None) -> None:
    """Show the rows of a table, and how many there are where these are only the first."""
    columns = [_texts(column) for column in table.columns]
    console.print(grid(table.schema.names, zip(*columns, strict=True)))
    if total is not None and total > table.num_rows:
        say(console, f"{total:,} rows, the first {table.num_rows:,} shown")


def _texts(column: pa.ChunkedArray) -> list[str]:
    return ["NULL" if value is None else str(value) for value in values_of(column)]


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
