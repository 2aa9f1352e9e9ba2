"""Rows of a result, and the numbers of a running stream, on a terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import pyarrow as pa
from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from thetajoin.cli.terminal import format_count, grid, literal, megabytes, say, screen, write
from thetajoin.jobs.results import values_of

if TYPE_CHECKING:
    from thetajoin.jobs.history import Point
    from thetajoin.jobs.progress import JoinProgress


_NARROWEST = 8  # a column is cut down to this many letters before others are left out
_DRAWN = 200  # rows
_AROUND = 3  # letters that a column takes beside its text: a line, and a blank on either side
BARS = "▁▂▃▄▅▆▇█"
PLAIN = " .:-=+*#"
WIDTH = 40  # points that are drawn
UNITS = 12  # that are listed


def show_rows(console: Console, table: pa.Table, footer: str = "") -> None:
    """Show the rows of a table, with a line below them.

    On a terminal every row is one line: long cells are cut, and columns in the middle left out.
    """
    dots = "..." if console.options.ascii_only else "…"
    names = [_spell(console, name) for name in table.schema.names]
    columns = [
        [_spell(console, "NULL" if value is None else str(value)) for value in values_of(column)]
        for column in table.columns
    ]
    wanted = [
        max(map(cell_len, (name, *texts))) for name, texts in zip(names, columns, strict=True)
    ]
    widths, kept = wanted, list(range(len(names)))
    if console.is_terminal:
        widths, kept = fit(wanted, console.width)
    listed = [_cut(names[at], columns[at], widths[at], dots) for at in kept]
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
        write(console, "".join(_format_line(row, widths, right, edge) for row in more))
    write(console, end)


def _format_line(row: Sequence[str], widths: list[int], right: list[bool], edge: str) -> str:
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
    while widest > _NARROWEST and _measure(wanted, widest) > room:
        widest -= 1
    widths = [min(width, widest) for width in wanted]
    kept = list(range(len(wanted)))
    while len(kept) > 1 and _measure([widths[at] for at in kept], widest) > room:
        kept.pop(len(kept) // 2)
        if len(kept) == len(wanted) - 1:
            room -= _AROUND + len("...")
    return widths, kept


def _measure(widths: Sequence[int], widest: int) -> int:
    return sum(min(width, widest) + _AROUND for width in widths) + 1


def _cut(name: str, texts: list[str], width: int, dots: str) -> list[str]:
    """A name and its texts, cut to a width."""
    return [
        text if cell_len(text) <= width else set_cell_size(text, max(0, width - len(dots))) + dots
        for text in (name, *texts)
    ]


def _spell(console: Console, text: str) -> str:
    """A text in characters that a terminal can show."""
    return literal(text).encode(console.encoding, "backslashreplace").decode(console.encoding)


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


@dataclass
class RunTotals:
    """What a stream has done in this run."""

    batches: int = 0
    rows: int = 0
    matches: int = 0
    late: int = 0
    late_known: bool = False
    unreadable: int = 0
    newest: JoinProgress | None = field(default=None, repr=False)

    def add(self, progress: JoinProgress) -> None:
        """Take in a micro-batch's report; those of a query without state have no units."""
        self.batches += 1
        self.rows += progress.input_rows
        self.matches += progress.matches + progress.unmatched
        self.late += progress.late_rows + progress.null_times
        self.late_known = self.late_known or bool(progress.units)
        self.unreadable += progress.unreadable
        self.newest = progress

    def line(self) -> str:
        """All of it in one line, short enough for most terminals."""
        parts = [format_count(self.batches, "batch"), f"{format_count(self.rows, 'row')} in"]
        newest = self.newest
        if newest is not None and newest.rows_per_s:
            parts[1] += f" ({newest.rows_per_s:,.0f}/s)"
        if self.late_known and newest is not None:
            parts.append(format_count(self.matches, "match"))
            parts.append(f"state {megabytes(newest.state_bytes)}")
            parts.append(f"{self.late:,} late")
        if self.unreadable:
            parts.append(f"{format_count(self.unreadable, 'message')} unreadable")
        return "; ".join(parts)


class LiveLine:
    """The totals on a terminal's last line; nothing in a pipe."""

    def __init__(self, out: Console, *, silent: bool = False) -> None:
        self.totals = RunTotals()
        self._begun = time.monotonic()
        # Rows that are printed to the same terminal go above the line.
        console = out if out.is_terminal else screen(errors=True)
        able = console.is_terminal and not console.is_dumb_terminal and not silent
        self._live = Live(console=console, auto_refresh=False, transient=True) if able else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        self.refresh()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def add(self, progress: JoinProgress) -> None:
        """Take in a micro-batch; it is shown with the next refresh."""
        self.totals.add(progress)

    def tell(self, text: str) -> None:
        """Print a line above the totals."""
        say(screen(errors=True) if self._live is None else self._live.console, text)

    def refresh(self) -> None:
        """Show the totals as they are."""
        if self._live is not None:
            self._live.update(self.draw(), refresh=True)

    def draw(self) -> RenderableType:
        """What is shown."""
        seconds = time.monotonic() - self._begun
        line = self.totals.line()
        if not self.totals.batches:
            line = "first micro-batch: Python workers start, kernels are compiled"
        return Text(f"{line}; {seconds:,.0f} s", style="dim", no_wrap=True, overflow="ellipsis")


def sparkline(values: Sequence[float | None], bars: str = BARS) -> str:
    """Numbers as a row of bars, from 0 to the largest.

    >>> sparkline([0, 1, None, 7])
    '▁▂ █'
    """
    largest = max((value for value in values if value is not None), default=0) or 1
    top = len(bars) - 1
    return "".join(" " if v is None else bars[round(max(0, v) / largest * top)] for v in values)


def seconds(value: float | None) -> str:
    """A time as people write it.

    >>> seconds(None), seconds(0.25), seconds(75), seconds(7200), seconds(200_000)
    ('-', '250 ms', '75.0 s', '2.0 h', '2.3 days')
    """
    if value is None:
        return "-"
    if value < 1:
        return f"{value * 1000:,.0f} ms"
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if value >= 2 * size:
            return f"{value / size:,.1f} {unit}"
    return f"{value:,.1f} s"


class WatchView(LiveLine):
    """Rates, times, watermark, state and units, drawn anew with every micro-batch."""

    def __init__(self, out: Console) -> None:
        from thetajoin.jobs.history import History

        super().__init__(out)
        self._history = History()
        self._bars = PLAIN if out.options.ascii_only else BARS

    def add(self, progress: JoinProgress) -> None:
        """Take in a micro-batch."""
        super().add(progress)
        self._history.add(progress)

    def draw(self) -> RenderableType:
        """All of it."""
        newest, points = self.totals.newest, self._history.points[-WIDTH:]
        line = super().draw()
        if newest is None or not points:
            return line
        last = points[-1]
        shares = self._history.percentiles()
        p50, p95, p99 = (None if ms is None else ms / 1000 for ms in shares.values())
        table = Table.grid(padding=(0, 2))
        rows: list[tuple[str, str, list[float | None]]] = [
            ("rows in", f"{last.rows / last.span:,.0f}/s", [p.rows / p.span for p in points]),
            ("rows out", f"{last.out / last.span:,.0f}/s", [p.out / p.span for p in points]),
            ("micro-batch", seconds(last.ms / 1000), [p.ms for p in points]),
            ("", f"median {seconds(p50)}, 95% {seconds(p95)}, 99% {seconds(p99)}", []),
            ("watermark lag", _describe_lag(last), [p.lag for p in points]),
            ("late rows", f"{self.totals.late:,}", [p.late for p in points]),
            ("state", _describe_state(last), [p.state for p in points]),
            ("busiest unit", _describe_busiest(last, newest), [p.busiest for p in points]),
        ]
        for name, value, values in rows:
            table.add_row(name, value, Text(sparkline(values, self._bars), style="cyan"))
        return Group(table, units_table(newest), line)


def _describe_lag(point: Point) -> str:
    if point.age is None:
        return "no watermark yet"
    return f"{seconds(point.lag)} to the newest row, {seconds(point.age)} to the clock"


def _describe_state(point: Point) -> str:
    parts = format_count(point.stored, "row"), format_count(point.segments, "segment")
    return f"{megabytes(point.state)}, {', '.join(parts)}"


def _describe_busiest(point: Point, progress: JoinProgress) -> str:
    if point.busiest is None:
        return "-"
    return f"{point.busiest:.2f} x the mean of {format_count(len(progress.units), 'unit')}"


def units_table(progress: JoinProgress) -> RenderableType:
    """The units that took longest."""
    slowest = sorted(progress.units, key=lambda unit: -unit.ms)[:UNITS]
    if not slowest:
        return Text()
    names = ("unit", "rows", "matches", "stored rows", "segments", "state", "from", "time")
    rows = [
        (
            unit.unit,
            f"{unit.received:,}",
            f"{unit.matches:,}",
            f"{unit.window_left + unit.window_right:,}",
            unit.segments,
            megabytes(unit.state_bytes),
            unit.origin,
            seconds(unit.ms / 1000),
        )
        for unit in sorted(slowest, key=lambda unit: (unit.join, unit.unit))
    ]
    table = grid(names, rows, right=[True] * len(names))
    more = len(progress.units) - len(slowest)
    title = f"units in micro-batch {progress.batch}"
    table.title = f"{title}, the slowest {UNITS} of {len(progress.units)}" if more else title
    table.title_justify = "left"
    return table
