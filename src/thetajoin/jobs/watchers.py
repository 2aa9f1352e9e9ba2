"""What follows a stream's micro-batches besides the terminal: the page, metrics, a log."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from thetajoin.errors import OptionError, ThetaJoinError
from thetajoin.jobs.job_file import CONSOLE, CheckedQuery, Job
from thetajoin.secrets import redact

if TYPE_CHECKING:
    from thetajoin.jobs.page import Page, Picture
    from thetajoin.jobs.progress import Follower, JoinProgress, OnEnd, OnProgress

Say = Callable[[str], None]
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
            raise OptionError(f"--log {self.log} is not known: the only format is json")


NOBODY = Watching()


class Watchers:
    """The page, metrics and log of a running job."""

    def __init__(self, job: Job, tell: Say, stack: ExitStack) -> None:
        self.subscribers: list[tuple[OnProgress, OnEnd]] = []
        self.ended = False
        self._label = job.file.stem if job.file is not None else "query"
        self._job, self._tell, self._stack = job, tell, stack
        self.page: Page | None = None
        self.metrics_address: str | None = None
        self._log = False

    def warn(self, text: str, say: Say) -> None:
        """Warn in the log if there is one, else by `say`."""
        if self._log:
            _write_line("warning", "warning", self._label, message=redact(text))
        else:
            say(redact(text))

    def draw(self, job: Job, query: CheckedQuery) -> None:
        """Have the page show a query's plan."""
        if self.page is not None:
            self.page.feed.picture = draw_picture(job, query)

    def follow(self, follower: Follower) -> None:
        """Receive a follower's reports from now on."""
        for on_progress, _ in self.subscribers:
            follower.subscribe(on_progress)
        follower.subscribe(None, self.end)

    def end(self, error: str | None) -> None:
        """Report the end of the job, once."""
        if not self.ended:
            self.ended = True
            for _, on_end in self.subscribers:
                on_end(error)

    def open_page(self, port: int | None) -> None:
        """Serve the live page."""
        with _require_extra("page", "--page"):
            from thetajoin.jobs.history import history_file
            from thetajoin.jobs.page import Page
        checkpoint = self._job.checkpoint
        page = Page(
            port=port, keep=None if checkpoint is None else history_file(checkpoint)
        ).start()
        self._stack.callback(page.stop)
        self.subscribers.append((page.feed.add, page.feed.end))
        self._tell(f"the page is at {page.address}")
        self.page = page

    def open_metrics(self, where: str) -> None:
        """Serve metrics for Prometheus."""
        from thetajoin.jobs import metrics

        host, _, port = where.rpartition(":")
        if not port.isdecimal():
            raise OptionError(
                f"--metrics {where}: write PORT, or HOST:PORT for other machines to see"
            )
        with _require_extra("metrics", "--metrics"):
            served = metrics.endpoint(int(port), host or metrics.HOST)
        self._stack.callback(served.stop)
        self._subscribe(served.metrics)
        self.metrics_address = served.address
        self._tell(f"metrics are at {served.address}")

    def open_telemetry(self, address: str) -> None:
        """Send metrics to an OpenTelemetry collector."""
        from thetajoin.jobs.metrics import Telemetry, otlp, provider

        if not re.match(r"https?://[^/]", address):
            raise OptionError(f"--otlp {address}: write an address such as http://localhost:4318")
        with _require_extra("otlp", "--otlp"):
            meters = provider(otlp(address))
        handler = _FirstFailure(self._tell)
        logger = logging.getLogger("opentelemetry")
        logger.addHandler(handler)
        self._stack.callback(logger.removeHandler, handler)
        self._stack.callback(meters.shutdown)
        self._subscribe(Telemetry(meters.get_meter("thetajoin")))

    def open_log(self) -> None:
        """Write structured logs: an object a line, on stderr."""
        from thetajoin.jobs.metrics import MEASURES

        def add(p: JoinProgress) -> None:
            numbers = {m.name: m.value(p) for m in MEASURES if m.name != "batches"}
            level = "warning" if p.late_rows or p.null_times else "info"
            _write_line(level, "batch", self._label, batch=p.batch, run=p.run, **numbers)

        def end(error: str | None) -> None:
            _write_line("info" if error is None else "error", "end", self._label, error=error)

        self.subscribers.append((add, end))
        self._log = True

    def _subscribe(self, to: Any) -> None:
        label = self._label
        to.begin(label)
        self.subscribers.append((lambda p: to.add(label, p), lambda error: to.end(label, error)))


@contextmanager
def open_watchers(watching: Watching, job: Job, tell: Say) -> Iterator[Watchers]:
    """Open what was asked for; a port that cannot be had is an error before Spark starts.

    tell: called with lines for whoever started the job.
    """
    watching.check(job)
    with ExitStack() as stack:
        opened = Watchers(job, tell, stack)
        if watching.page:
            opened.open_page(watching.port)
        if watching.metrics is not None:
            opened.open_metrics(watching.metrics)
        if watching.otlp is not None:
            opened.open_telemetry(watching.otlp)
        if watching.log is not None:
            opened.open_log()
        try:
            yield opened
        except ThetaJoinError as error:
            opened.end(redact(str(error)))
            raise
        finally:
            opened.end(None)  # somebody has stopped it


@contextmanager
def _require_extra(name: str, option: str) -> Iterator[None]:
    """If an import fails, say which extra of this package is missing."""
    try:
        yield
    except ImportError as error:
        raise OptionError(
            f"{option} needs another package: pip install 'thetajoin[{name}]'"
        ) from error


class _FirstFailure(logging.Handler):
    """Says the first time that a collector gets nothing, without what was logged.

    The log's text may contain an address with a password.
    """

    def __init__(self, tell: Say) -> None:
        super().__init__(logging.WARNING)
        self._tell: Say | None = tell

    def emit(self, record: logging.LogRecord) -> None:
        tell, self._tell = self._tell, None
        if tell is not None:
            kind = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else ""
            what = f"the OpenTelemetry collector gets nothing{f' ({kind})' if kind else ''}"
            tell(f"thetajoin: warning: {what}: is it there?")


def _write_line(level: str, event: str, label: str, **more: Any) -> None:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    line = {"time": now, "level": level, "event": event, "query": label, **more}
    with suppress(BrokenPipeError):
        sys.stderr.write(f"{json.dumps(line)}\n")
        sys.stderr.flush()


def draw_picture(job: Job, query: CheckedQuery) -> Picture:
    """A job's plan as a picture."""
    from thetajoin.jobs.page import Drawn, Picture, picture_of

    known: dict[str, Any] = {
        "title": job.file.name if job.file is not None else "query",
        "query": job.query,
        "sources": tuple(Drawn(n, redact(s.path), s.stream) for n, s in job.sources.items()),
        "sink": _describe_sink(job),
        "interval": parse_interval(job.trigger),
    }
    try:
        return picture_of(query.explain(), **known)
    except ThetaJoinError as error:  # of queries without one plan, such as several joins
        return Picture(text=str(error), **known)


def _describe_sink(job: Job) -> str:
    if job.into is not None:
        return redact(str(job.into))
    return CONSOLE if job.sink is None else f"{job.sink_format} {job.sink}"


def parse_interval(trigger: str) -> float | None:
    """The seconds of a trigger such as "10 seconds"; None if it is not that simple.

    >>> parse_interval("10 seconds"), parse_interval("1 minute"), parse_interval("available-now")
    (10.0, 60.0, None)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s+([a-z]+?)s?\s*", trigger)
    if found is None or found[2] not in _SECONDS:
        return None
    return float(found[1]) * _SECONDS[found[2]]
