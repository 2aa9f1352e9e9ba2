"""What a query has done so far, in bounded memory.

The newest micro-batches are kept one by one. Older ones are added up in points that cover ever more
micro-batches as the run gets longer, so that months take no more room than an hour.
"""

from __future__ import annotations

import json
import math
import os
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from thetajoin.jobs.progress import JoinProgress

NEWEST = 300  # micro-batches kept one by one
OLDER = 600  # points before these
TIMES = 1000  # micro-batches whose times make the percentiles
ERRORS = 20
FORMAT = 1


@dataclass(frozen=True)
class Point:
    """What happened in some micro-batches that follow each other.

    at: when the last of them ended, in seconds since 1970. span: the seconds they cover, pauses
    between them included. Numbers of things are sums; `ms`, `busiest` and `capacity` are means, and
    what the query keeps is as after the last of them.
    """

    at: float
    span: float
    run: int
    batches: int
    rows: int
    out: int
    late: int
    ms: float
    slowest: float
    capacity: float
    busiest: float | None
    lag: float | None  # of the watermark behind the newest event
    age: float | None  # of the watermark behind the clock
    state: int
    index: int
    segments: int
    stored: int

    def plus(self, later: Point) -> Point:
        """Both as one."""
        batches = self.batches + later.batches

        def mean(one: float, two: float) -> float:
            return (one * self.batches + two * later.batches) / batches

        busiest = [value for value in (self.busiest, later.busiest) if value is not None]
        return replace(
            later,
            span=self.span + later.span,
            batches=batches,
            rows=self.rows + later.rows,
            out=self.out + later.out,
            late=self.late + later.late,
            ms=mean(self.ms, later.ms),
            slowest=max(self.slowest, later.slowest),
            capacity=mean(self.capacity, later.capacity),
            busiest=mean(busiest[0], busiest[-1]) if busiest else None,
        )


@dataclass
class Totals:
    """Sums over all micro-batches, those before a restart included."""

    batches: int = 0
    rows: int = 0
    out: int = 0
    matches: int = 0
    late: int = 0
    missed: int = 0
    since: float = 0.0
    runs: int = 0


class History:
    """The points, totals, recent times and errors of a query; not safe for threads by itself."""

    def __init__(self) -> None:
        self.totals = Totals()
        self.times: deque[int] = deque(maxlen=TIMES)
        self.errors: deque[tuple[float, str]] = deque(maxlen=ERRORS)
        self.thinned = 0  # how often older points have become fewer
        self._newest: deque[Point] = deque()
        self._older: list[Point] = []
        self._stride = 1  # micro-batches in a point of `_older`
        self._run = ""
        self._event: float | None = None

    @property
    def points(self) -> list[Point]:
        """All that is kept, from the oldest on."""
        return [*self._older, *self._newest]

    def add(self, progress: JoinProgress) -> Point:
        """Take in a micro-batch."""
        if progress.run != self._run:
            self._run, self._event = progress.run, None
            self.totals.runs += 1
        self.totals.since = self.totals.since or progress.began
        point = self._make_point(progress)
        self.totals.batches += 1
        self.totals.rows += point.rows
        self.totals.out += point.out
        self.totals.matches += progress.matches
        self.totals.late += point.late
        self.times.append(progress.batch_ms)
        self._newest.append(point)
        if len(self._newest) > NEWEST:
            self._move_to_older(self._newest.popleft())
        return point

    def _make_point(self, p: JoinProgress) -> Point:
        ended = p.began + p.batch_ms / 1000
        before = self._newest[-1] if self._newest else None
        first = before is None or before.run != self.totals.runs
        span = p.batch_ms / 1000 if first or before is None else ended - before.at
        if p.newest_event is not None:
            self._event = max(p.newest_event, self._event or p.newest_event)
        mark, event = p.watermark, self._event
        return Point(
            at=round(ended, 3),
            span=round(max(span, 0.001), 3),
            run=self.totals.runs,
            batches=1,
            rows=p.input_rows,
            out=p.matches + p.unmatched if p.output_rows is None else p.output_rows,
            late=p.late_rows + p.null_times,
            ms=p.batch_ms,
            slowest=p.batch_ms,
            capacity=round(p.rows_per_s, 1),
            busiest=None if p.imbalance is None else round(p.imbalance, 3),
            lag=None if mark is None or event is None else round(max(0.0, event - mark), 3),
            age=None if mark is None else round(ended - mark, 3),
            state=p.state_bytes,
            index=p.index_bytes,
            segments=p.segments,
            stored=p.window_rows,
        )

    def _move_to_older(self, point: Point) -> None:
        """Move a micro-batch to the older points; the last of them takes in a stride of them."""
        last = self._older[-1] if self._older else None
        if last is not None and last.run == point.run and last.batches < self._stride:
            self._older[-1] = last.plus(point)
            return
        if len(self._older) >= OLDER:
            self._older = _halve(self._older)
            self._stride *= 2
            self.thinned += 1
        self._older.append(point)

    def percentiles(self) -> dict[str, int | None]:
        """The milliseconds that half of the recent micro-batches took at most, 95 and 99 %."""
        ordered = sorted(self.times)
        return {
            f"p{share}": ordered[math.ceil(len(ordered) * share / 100) - 1] if ordered else None
            for share in (50, 95, 99)
        }

    def to_json(self) -> str:
        """Everything, to be read by `from_json`."""
        return json.dumps(
            {
                "format": FORMAT,
                "fields": [field.name for field in fields(Point)],
                "older": [list(asdict(point).values()) for point in self._older],
                "newest": [list(asdict(point).values()) for point in self._newest],
                "stride": self._stride,
                "totals": asdict(self.totals),
                "times": list(self.times),
                "errors": list(self.errors),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> History:
        """A history as it was; ValueError for anything else."""
        made = cls()
        try:
            given = json.loads(text)
            if given["format"] != FORMAT:
                raise ValueError(f"format {given['format']}")
            made._older = _read_points(given["fields"], given["older"])
            made._newest.extend(_read_points(given["fields"], given["newest"]))
            made._stride = int(given["stride"])
            made.totals = Totals(**given["totals"])
            made.times.extend(int(ms) for ms in given["times"])
            made.errors.extend((float(at), str(what)) for at, what in given["errors"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a history: {error}") from error
        return made


def _read_points(names: Iterable[str], rows: Iterable[Iterable[Any]]) -> list[Point]:
    return [Point(**dict(zip(names, row, strict=True))) for row in rows]


def _halve(points: list[Point]) -> list[Point]:
    """Neighbours of one run added up, two at a time."""
    made: list[Point] = []
    alone = False  # whether the last one made is a single one
    for point in points:
        if alone and made[-1].run == point.run:
            made[-1], alone = made[-1].plus(point), False
        else:
            made.append(point)
            alone = True
    # A query that restarts all the time has nothing to add up: the oldest go.
    return made[-OLDER // 2 :] if len(made) > OLDER * 3 // 4 else made


def history_file(checkpoint: Path) -> Path:
    """Where the history of a checkpoint's query is kept; Spark passes over names with a dot."""
    return checkpoint.with_name(f".{checkpoint.name}.history.json")


def load(path: Path) -> History:
    """A history from a file; a new one where there is none, or where it is damaged."""
    try:
        return History.from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return History()


def save(history_json: str, path: Path) -> None:
    """Write a history to a file, which is complete at any time; OSError where it cannot be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.write_text(history_json, encoding="utf-8")
    os.replace(new, path)
