"""A stream's numbers: on one line while it runs, and when it has ended."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from thetajoin.cli.terminal import counted, megabytes, say, screen

if TYPE_CHECKING:
    from thetajoin.spark.listener import JoinProgress


@dataclass
class Totals:
    """What a stream has done so far."""

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
        parts = [counted(self.batches, "batch"), f"{counted(self.rows, 'row')} in"]
        newest = self.newest
        if newest is not None and newest.rows_per_s:
            parts[1] += f" ({newest.rows_per_s:,.0f}/s)"
        if self.late_known and newest is not None:
            parts.append(counted(self.matches, "match"))
            parts.append(f"state {megabytes(newest.state_bytes)}")
            parts.append(f"{self.late:,} late")
        if self.unreadable:
            parts.append(f"{counted(self.unreadable, 'message')} unreadable")
        return "; ".join(parts)


class LiveLine:
    """The totals on a terminal's last line; nothing in a pipe."""

    def __init__(self, out: Console, *, silent: bool = False) -> None:
        self.totals = Totals()
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def add(self, progress: JoinProgress) -> None:
        """Take in a micro-batch; it is shown with the next refresh."""
        self.totals.add(progress)

    def tell(self, text: str) -> None:
        """Say something beside the totals."""
        say(screen(errors=True) if self._live is None else self._live.console, text)

    def refresh(self) -> None:
        """Show the totals as they are."""
        if self._live is not None:
            self._live.update(self.drawn(), refresh=True)

    def drawn(self) -> RenderableType:
        """What is shown."""
        seconds = time.monotonic() - self._begun
        line = self.totals.line()
        if not self.totals.batches:
            line = "first micro-batch: Python workers start, kernels are compiled"
        return Text(f"{line}; {seconds:,.0f} s", style="dim", no_wrap=True, overflow="ellipsis")
