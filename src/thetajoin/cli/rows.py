"""Rows of a table as texts, and as many of its columns as a terminal has room for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from rich.cells import cell_len, set_cell_size
from rich.console import Console

from thetajoin.cli.terminal import grid, literal, say, write

_NARROWEST = 8  # a column is cut down to so many letters before others are left out
_DRAWN = 200  # rows
_AROUND = 3  # letters that a column takes beside its text: a line, and a blank on either side


def show_rows(console: Console, table: pa.Table, footer: str = "") -> None:
    """Show the rows of a table, with a line below them.

    On a terminal every row is one line: long cells are cut, and columns in the middle left out.
    """
    dots = "..." if console.options.ascii_only else "…"
    names = [_shown(console, name) for name in table.schema.names]
    columns = [[_shown(console, text) for text in _texts(column)] for column in table.columns]
    wanted = [
        max(map(cell_len, (name, *texts))) for name, texts in zip(names, columns, strict=True)
    ]
    widths, kept = wanted, list(range(len(names)))
    if console.is_terminal:
        widths, kept = fit(wanted, console.width)
    listed = [_column(names[at], columns[at], widths[at], dots) for at in kept]
    right = [_is_number(table.schema.field(at).type) for at in kept]
    if len(kept) < len(names):
        gap = (len(kept) + 1) // 2
        listed.insert(gap, [dots] * (table.num_rows + 1))
        right.insert(gap, False)
        footer += f"{'; ' if footer else ''}{len(kept)} of {len(names)} columns fit here"
    _print_grid(console, listed, right)
    if footer:
        say(console, footer)


def _print_grid(console: Console, columns: list[list[str]], right: list[bool]) -> None:
    """Print columns of texts, of which the first is the name.

    rich draws the first rows, and takes 0.1 ms a cell for that; the others look like the last one.
    """
    widths = [max(map(cell_len, texts)) for texts in columns]
    names, *rows = zip(*columns, strict=True)
    with console.capture() as drawn:
        console.print(grid(names, rows[:_DRAWN], right, widths))
    *lines, end = drawn.get().splitlines(keepends=True)
    write(console, "".join(lines))
    for start in range(_DRAWN, len(rows), _DRAWN):
        edge, more = lines[-1][0], rows[start : start + _DRAWN]
        write(console, "".join(_line(row, widths, right, edge) for row in more))
    write(console, end)


def _line(row: Sequence[str], widths: list[int], right: list[bool], edge: str) -> str:
    cells = []
    for text, width, to_the_right in zip(row, widths, right, strict=True):
        blanks = " " * (width - cell_len(text))
        cells.append(blanks + text if to_the_right else text + blanks)
    return f"{edge} {f' {edge} '.join(cells)} {edge}\n"


def fit(wanted: Sequence[int], room: int) -> tuple[list[int], list[int]]:
    """The width of each column, and those that are shown, so that a row takes one line.

    >>> fit([3, 50, 4], 40)
    ([3, 23, 4], [0, 1, 2])
    >>> fit([20, 20, 20, 20, 20], 40)
    ([8, 8, 8, 8, 8], [0, 1, 4])
    """
    widest = max(wanted, default=0)
    while widest > _NARROWEST and _room(wanted, widest) > room:
        widest -= 1
    widths = [min(width, widest) for width in wanted]
    kept = list(range(len(wanted)))
    while len(kept) > 1 and _room([widths[at] for at in kept], widest) > room:
        kept.pop(len(kept) // 2)
        if len(kept) == len(wanted) - 1:
            room -= _AROUND + len("...")
    return widths, kept


def _room(widths: Sequence[int], widest: int) -> int:
    return sum(min(width, widest) + _AROUND for width in widths) + 1


def _column(name: str, texts: list[str], width: int, dots: str) -> list[str]:
    """A name and its texts, cut to a width."""
    return [
        text if cell_len(text) <= width else set_cell_size(text, max(0, width - len(dots))) + dots
        for text in (name, *texts)
    ]


def _shown(console: Console, text: str) -> str:
    """A text in the letters that a terminal has."""
    return literal(text).encode(console.encoding, "backslashreplace").decode(console.encoding)


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


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
