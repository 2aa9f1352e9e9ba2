"""A stream's numbers: on one line while it runs, and when it has ended."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from thetajoin.cli.terminal import counted, megabytes, screen

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

    def __init__(self, out: Console) -> None:
        self.totals = Totals()
        self._ended = threading.Event()
        self._followed: str | None = None
        self._begun = time.monotonic()
        # Rows that are printed to the same terminal go above the line.
        console = out if out.is_terminal else screen(errors=True)
        able = console.is_terminal and not console.is_dumb_terminal
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

    def listener(self) -> Any:
        """What Spark tells of each micro-batch; it calls from a thread of its own."""
        from thetajoin.spark.connectors.topics import POISON, poison_counts
        from thetajoin.spark.listener import ProgressListener, read_progress

        totals, live = self.totals, self

        class Listener(ProgressListener):
            def onQueryProgress(self, event: Any) -> None:
                if (event.progress.name or "").startswith(POISON):
                    return  # keeps messages aside, which the other query counts
                report = event.progress.json
                totals.add(read_progress(report))
                totals.unreadable += sum(poison_counts(report).values())

            def onQueryTerminated(self, event: Any) -> None:
                live.has_ended(str(event.id))

        return Listener(lambda _: None)

    def follow(self, query: Any) -> None:
        """Wait for this query's end, and for no other's."""
        self._followed = str(query.id)

    def has_ended(self, query: str) -> None:
        """Take notice of a query's end."""
        if self._followed in (None, query):
            self._ended.set()

    def wait(self, seconds: float) -> None:
        """Wait for the end, but no longer than that."""
        self._ended.wait(seconds)
        self.refresh()

    def refresh(self) -> None:
        """Show the totals as they are."""
        if self._live is None:
            return
        seconds = time.monotonic() - self._begun
        line = self.totals.line()
        if not self.totals.batches:
            line = "first micro-batch: Python workers start, kernels are compiled"
        text = Text(f"{line}; {seconds:,.0f} s", style="dim", no_wrap=True, overflow="ellipsis")
        self._live.update(text, refresh=True)
