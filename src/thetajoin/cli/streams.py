"""Jobs over streams, on a Spark of this machine."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rich.console import Console

from thetajoin.cli.interrupts import after_stopping
from thetajoin.cli.jobs import CONSOLE, TABLE, CheckedQuery, Job
from thetajoin.cli.live import LiveLine
from thetajoin.cli.one_job import only_job_on
from thetajoin.cli.outages import Outages
from thetajoin.cli.results import Writer
from thetajoin.cli.rows import show_rows
from thetajoin.cli.stream_sources import places, trigger_of, why
from thetajoin.cli.terminal import counted, say, screen
from thetajoin.cli.unreadable import Aside
from thetajoin.cli.watching import NOBODY, Watchers, Watching, watchers
from thetajoin.errors import OptionError, ThetaJoinError
from thetajoin.spark.connectors.specs import TopicSink, TopicSource

if TYPE_CHECKING:
    from thetajoin.spark.follow import Follower
    from thetajoin.spark.unit_spec import StreamSettings

SHOWN = 20  # rows of a micro-batch that a terminal is shown
LOOK_S = 0.2  # between two pictures of the totals; Ctrl-C is heard at once
_WRITE = {"csv": {"header": "true"}}


def run_stream(
    job: Job,
    compiled: Callable[[Job, StreamSettings], CheckedQuery],
    console: Console,
    watching: Watching = NOBODY,
) -> None:
    """Run a streaming job until its streams end or somebody stops it."""
    with only_job_on(job.checkpoint), watchers(watching, job) as told:
        call, found = _planned(job, compiled)
        told.draw(job, call)
        with _live(console, watching) as live:
            follower = _followed(job, found, console, live, told)
    if follower.error is not None:
        raise ThetaJoinError(f"the streaming query failed: {follower.error}")
    place = job.sink or job.into
    where = "" if place is None else f"; the result is in {place}"
    # Where rows are data, nothing else is to be on stdout.
    telling = console if job.shown == TABLE else screen(errors=True)
    say(telling, f"{live.totals.line()}{where}")


def _planned(
    job: Job, compiled: Callable[[Job, StreamSettings], CheckedQuery]
) -> tuple[CheckedQuery, Any]:
    """The job's query, and its result as a streaming DataFrame that nothing reads yet."""
    try:
        from thetajoin.spark.checkpoint import accepted
        from thetajoin.spark.failures import plain_errors
        from thetajoin.spark.unit_spec import StreamSettings
    except ImportError as error:
        raise OptionError("a streaming job needs Spark: pip install 'thetajoin[spark]'") from error
    accepts = () if job.checkpoint is None else accepted(str(job.checkpoint))
    settings = StreamSettings(job.late, accepts, job.routing)
    call = compiled(job, settings)
    with plain_errors("the streaming query could not start"):
        found = call.run()
    if job.late is not None and len(settings.planned) != 1:
        raise OptionError(
            f"late = {job.late!r} is for one join of two streams, and this query has "
            f"{len(settings.planned)}"
        )
    return call, found


def _live(console: Console, watching: Watching) -> LiveLine:
    if watching.full:
        from thetajoin.cli.watch_view import WatchView

        return WatchView(console)
    return LiveLine(console, silent=watching.log is not None)


def _followed(job: Job, found: Any, console: Console, live: LiveLine, told: Watchers) -> Follower:
    """Run the query to its end, and have everyone told."""
    from thetajoin.spark.failures import plain_errors
    from thetajoin.spark.follow import Follower

    closed = threading.Event()
    with plain_errors("the streaming query could not start"):
        query = _start(job, found, console, closed)
        aside = Aside(job, found.sparkSession)
    follower = Follower(query, live.add, why=lambda failure: why(failure, job, found.sparkSession))
    told.follow(follower)
    outages = _outages(job, query, found.sparkSession, lambda text: told.warn(text, live.tell))
    try:
        with follower:
            while not follower.wait(LOOK_S):
                live.refresh()
                outages.look(live.totals.batches)
                if closed.is_set():
                    raise BrokenPipeError
                aside.check()
        aside.finish()
    finally:
        after_stopping(_so_far(job, live))
        with suppress(Exception):  # of a Spark that is being stopped as well
            query.stop()
            aside.stop()
    return follower


def _outages(job: Job, query: Any, session: Any, tell: Callable[[str], None]) -> Outages:
    def there(place: TopicSource | TopicSink) -> bool:
        from thetajoin.spark.connectors.topics import answers

        return answers(session, place)

    return Outages(query, places(job), there, tell)


def _so_far(job: Job, live: LiveLine) -> str:
    goes_on = "; the same command goes on from here" if job.checkpoint is not None else ""
    return f"{live.totals.line()}{goes_on}"


def _start(job: Job, found: Any, console: Console, closed: threading.Event) -> Any:
    """Start the query; `closed` is set when nobody reads any more what it shows."""
    show = _show_batch if job.shown == TABLE else _Rows(job.shown).write

    def shown(df: Any, number: int) -> None:
        try:
            show(console, df, number)
        except BrokenPipeError:
            closed.set()

    if job.into is not None:
        return _triggered(job, _outside(job, found))
    if job.id is not None:
        from thetajoin.spark.match_ids import match_ids

        found = match_ids(found, job.id, keys=job.key)
    writer = found.writeStream
    if job.sink_format == CONSOLE:
        # Spark's own console sink writes where the JVM does, which is its log.
        writer = writer.foreachBatch(shown)
    else:
        writer = writer.format(job.sink_format).options(**_WRITE.get(job.sink_format, {}))
    if job.sink is not None:
        writer = writer.option("path", str(job.sink))
    return _triggered(job, writer)


def _outside(job: Job, found: Any) -> Any:
    """A writer to a system that is no folder of files, which has to answer."""
    from thetajoin.spark.connectors.sinks import check_sink, stream_writer

    assert job.into is not None
    assert job.checkpoint is not None
    try:
        check_sink(found.sparkSession, job.into)
    except ThetaJoinError as error:
        raise ThetaJoinError(f"sink: {error}") from error
    return stream_writer(found, job.into, name=job.id, keys=job.key, checkpoint=job.checkpoint)


def _triggered(job: Job, writer: Any) -> Any:
    if job.checkpoint is not None:
        writer = writer.option("checkpointLocation", str(job.checkpoint))
    return writer.outputMode(job.mode).trigger(**trigger_of(job)).start()


def _show_batch(console: Console, df: Any, number: int) -> None:
    from thetajoin.spark.console import first_rows

    table, total = first_rows(df, SHOWN)
    say(console, f"micro-batch {number}: {counted(total, 'row')}")
    if total:
        more = f"{counted(total, 'row')}, the first {table.num_rows:,} shown"
        show_rows(console, table, more if total > table.num_rows else "")


class _Rows:
    """All rows of all micro-batches on stdout, as lines of JSON or CSV."""

    def __init__(self, form: str) -> None:
        self._form = form
        self._writer: Writer | None = None

    def write(self, _console: Console, df: Any, _number: int) -> None:
        table = df.toArrow()
        if self._writer is None:
            self._writer = Writer(table.schema, sys.stdout.buffer, self._form)
        for batch in table.to_batches():
            self._writer.write(batch)
        sys.stdout.flush()
