"""Who is told of a stream's micro-batches beside the terminal: a page, metrics, a log."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from thetajoin.cli.jobs import CONSOLE, CheckedQuery, Job
from thetajoin.cli.terminal import complain, say, screen
from thetajoin.errors import OptionError, ThetaJoinError
from thetajoin.secrets import redact

if TYPE_CHECKING:
    from thetajoin.spark.follow import Follower, OnEnd, OnProgress
    from thetajoin.spark.listener import JoinProgress
    from thetajoin.spark.page.picture import Picture
    from thetajoin.spark.page.server import Page

_SECONDS = {"millisecond": 0.001, "second": 1, "minute": 60, "hour": 3600, "day": 86_400}


@dataclass(frozen=True)
class Watching:
    """What the command line asks for.

    port: the page's; None for the usual one. metrics: PORT or HOST:PORT. otlp: a collector's
    address. log: json, or nothing. full: more than one line on the terminal.
    """

    page: bool = False
    port: int | None = None
    metrics: str | None = None
    otlp: str | None = None
    log: str | None = None
    full: bool = False

    def check(self, job: Job) -> None:
        """Refuse what makes no sense, before anything starts."""
        if not job.streaming:
            asked = {
                "--page": self.page,
                "--metrics": self.metrics is not None,
                "--otlp": self.otlp is not None,
                "--log": self.log is not None,
                "--watch": self.full,
            }
            for option, given in asked.items():
                if given:
                    raise OptionError(f"{option} is for streams, and no source has stream = true")
        if self.log not in (None, "json"):
            raise OptionError(f"--log {self.log}: there is json")


NOBODY = Watching()


@dataclass
class Watchers:
    """All that is told, once it has been opened."""

    subscribers: list[tuple[OnProgress, OnEnd]] = field(default_factory=list)
    ended: bool = False
    page: Page | None = None
    metrics_address: str | None = None
    log: Callable[[str], None] | None = None

    def warn(self, text: str, say: Callable[[str], None]) -> None:
        """Have something told where lines are read: in the log if there is one."""
        (self.log or say)(redact(text))

    def draw(self, job: Job, query: CheckedQuery) -> None:
        """Have the page show a query's plan."""
        if self.page is not None:
            self.page.feed.picture = picture(job, query)

    def follow(self, follower: Follower) -> None:
        """Be told by a follower from now on."""
        for on_progress, _ in self.subscribers:
            follower.subscribe(on_progress)
        follower.subscribe(None, self.end)

    def end(self, error: str | None) -> None:
        """Have everyone told that it is over, once."""
        if not self.ended:
            self.ended = True
            for _, on_end in self.subscribers:
                on_end(error)


@contextmanager
def watchers(watching: Watching, job: Job) -> Iterator[Watchers]:
    """Open what was asked for; a port that cannot be had is an error before Spark starts."""
    watching.check(job)
    label = job.file.stem if job.file is not None else "query"
    opened = Watchers()
    with ExitStack() as stack:
        if watching.page:
            opened.page = _page(watching, job, opened, stack)
        if watching.metrics is not None:
            _metrics(watching.metrics, label, opened, stack)
        if watching.otlp is not None:
            _telemetry(watching.otlp, label, opened, stack)
        if watching.log is not None:
            opened.subscribers.append((_log_progress(label), _log_end(label)))
            opened.log = lambda text: _line("warning", "warning", label, message=text)
        try:
            yield opened
        except ThetaJoinError as error:
            opened.end(redact(str(error)))
            raise
        finally:
            opened.end(None)  # somebody has stopped it


def _needs(extra: str, what: str) -> OptionError:
    return OptionError(f"{what} needs a package more: pip install 'thetajoin[{extra}]'")


def _tell(text: str) -> None:
    say(screen(errors=True), text)


def _page(watching: Watching, job: Job, opened: Watchers, stack: ExitStack) -> Page:
    try:
        from thetajoin.spark.page.history import beside
        from thetajoin.spark.page.server import Page
    except ImportError as error:
        raise _needs("page", "--page") from error
    keep = None if job.checkpoint is None else beside(job.checkpoint)
    page = Page(port=watching.port, keep=keep).start()
    stack.callback(page.stop)
    opened.subscribers.append((page.feed.add, page.feed.end))
    _tell(f"the page is at {page.address}")
    return page


def _metrics(where: str, label: str, opened: Watchers, stack: ExitStack) -> None:
    try:
        from thetajoin.spark import metrics
    except ImportError as error:
        raise _needs("metrics", "--metrics") from error
    host, _, port = where.rpartition(":")
    if not port.isdecimal():
        raise OptionError(f"--metrics {where}: write PORT, or HOST:PORT for other machines to see")
    served = metrics.endpoint(int(port), host or metrics.HOST)
    stack.callback(served.stop)
    served.metrics.begin(label)
    _subscribe(opened, label, served.metrics)
    opened.metrics_address = served.address
    _tell(f"metrics are at {served.address}")


def _telemetry(address: str, label: str, opened: Watchers, stack: ExitStack) -> None:
    try:
        from thetajoin.spark.telemetry import Telemetry, otlp, provider
    except ImportError as error:
        raise _needs("otlp", "--otlp") from error
    if not re.match(r"https?://[^/]", address):
        raise OptionError(f"--otlp {address}: write an address such as http://localhost:4318")
    meters = provider(otlp(address))
    stack.enter_context(_told_once("opentelemetry", "the OpenTelemetry collector gets nothing"))
    stack.callback(meters.shutdown)
    told = Telemetry(meters.get_meter("thetajoin"))
    told.begin(label)
    _subscribe(opened, label, told)


class _Once(logging.Handler):
    """Says that something does not work, the first time only, and without what was logged.

    That may hold an address with a password in it.
    """

    def __init__(self, what: str) -> None:
        super().__init__(logging.WARNING)
        self._what: str | None = what

    def emit(self, record: logging.LogRecord) -> None:
        what, self._what = self._what, None
        if what is not None:
            kind = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else ""
            complain(f"warning: {what}{f' ({kind})' if kind else ''}: is it there?")


@contextmanager
def _told_once(logger: str, what: str) -> Iterator[None]:
    handler = _Once(what)
    logging.getLogger(logger).addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger(logger).removeHandler(handler)


def _subscribe(opened: Watchers, label: str, to: Any) -> None:
    opened.subscribers.append((lambda p: to.add(label, p), lambda error: to.end(label, error)))


# Structured logs: an object a line, on stderr.


def _line(level: str, event: str, label: str, **more: Any) -> None:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    line = {"time": now, "level": level, "event": event, "query": label, **more}
    with suppress(BrokenPipeError):
        print(json.dumps(line), file=sys.stderr, flush=True)


def _log_progress(label: str) -> Callable[[JoinProgress], None]:
    from thetajoin.spark.measures import MEASURES

    def log(p: JoinProgress) -> None:
        numbers = {m.name: m.of(p) for m in MEASURES if m.name != "batches"}
        late = bool(p.late_rows or p.null_times)
        _line("warning" if late else "info", "batch", label, batch=p.batch, run=p.run, **numbers)

    return log


def _log_end(label: str) -> Callable[[str | None], None]:
    def log(error: str | None) -> None:
        _line("info" if error is None else "error", "end", label, error=error)

    return log


# The plan as the page draws it.


def picture(job: Job, query: CheckedQuery) -> Picture:
    """A job's plan as a picture."""
    from thetajoin.spark.page.picture import Drawn, Picture, picture_of

    known: dict[str, Any] = {
        "title": job.file.name if job.file is not None else "query",
        "query": job.query,
        "sources": tuple(Drawn(n, redact(s.path), s.stream) for n, s in job.sources.items()),
        "sink": _sink(job),
        "interval": interval(job.trigger),
    }
    try:
        return picture_of(query.explain(), **known)
    except ThetaJoinError as error:  # of queries without one plan, such as several joins
        return Picture(text=str(error), **known)


def _sink(job: Job) -> str:
    if job.into is not None:
        return redact(str(job.into))
    return CONSOLE if job.sink is None else f"{job.sink_format} {job.sink}"


def interval(trigger: str) -> float | None:
    """The seconds of a trigger such as "10 seconds"; None if it is not that simple.

    >>> interval("10 seconds"), interval("1 minute"), interval("available-now")
    (10.0, 60.0, None)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s+([a-z]+?)s?\s*", trigger)
    if found is None or found[2] not in _SECONDS:
        return None
    return float(found[1]) * _SECONDS[found[2]]
