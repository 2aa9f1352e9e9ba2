"""`--watch`: a stream's numbers on a terminal, with what they have been lately."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from thetajoin.cli.live import LiveLine
from thetajoin.cli.terminal import counted, grid, megabytes

if TYPE_CHECKING:
    from thetajoin.spark.listener import JoinProgress
    from thetajoin.spark.page.history import Point

BARS = "▁▂▃▄▅▆▇█"
PLAIN = " .:-=+*#"
WIDTH = 40  # points that are drawn
UNITS = 12  # that are listed


def sparkline(values: Sequence[float | None], bars: str = BARS) -> str:
    """Numbers as a row of bars, from 0 to the largest.

    >>> sparkline([0, 1, None, 7])
    '▁▂ █'
    """
    largest = max((value for value in values if value is not None), default=0) or 1
    top = len(bars) - 1
    return "".join(" " if v is None else bars[round(max(0, v) / largest * top)] for v in values)


def seconds(value: float | None) -> str:
    """A time that a person can read.

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
        from thetajoin.spark.page.history import History

        super().__init__(out)
        self._history = History()
        self._bars = PLAIN if out.options.ascii_only else BARS

    def add(self, progress: JoinProgress) -> None:
        """Take in a micro-batch."""
        super().add(progress)
        self._history.add(progress)

    def drawn(self) -> RenderableType:
        """All of it."""
        newest, points = self.totals.newest, self._history.points[-WIDTH:]
        line = super().drawn()
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
            ("watermark lag", _lag(last), [p.lag for p in points]),
            ("late rows", f"{self.totals.late:,}", [p.late for p in points]),
            ("state", _state(last), [p.state for p in points]),
            ("busiest unit", _busiest(last, newest), [p.busiest for p in points]),
        ]
        for name, value, values in rows:
            table.add_row(name, value, Text(sparkline(values, self._bars), style="cyan"))
        return Group(table, _units(newest), line)


def _lag(point: Point) -> str:
    if point.age is None:
        return "no watermark yet"
    return f"{seconds(point.lag)} to the newest row, {seconds(point.age)} to the clock"


def _state(point: Point) -> str:
    parts = counted(point.stored, "row"), counted(point.segments, "segment")
    return f"{megabytes(point.state)}, {', '.join(parts)}"


def _busiest(point: Point, progress: JoinProgress) -> str:
    if point.busiest is None:
        return "-"
    return f"{point.busiest:.2f} x the mean of {counted(len(progress.units), 'unit')}"


def _units(progress: JoinProgress) -> RenderableType:
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
