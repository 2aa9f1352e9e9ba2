"""Jobs over streams, on a Spark of this machine."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rich.console import Console

from thetajoin.cli.interrupts import after_stopping
from thetajoin.cli.jobs import CONSOLE, NOW, TABLE, CheckedQuery, Job, spark_format
from thetajoin.cli.live import LiveLine
from thetajoin.cli.results import Writer
from thetajoin.cli.rows import show_rows
from thetajoin.cli.terminal import counted, say, screen
from thetajoin.engine.machine import available_cores
from thetajoin.errors import OptionError, ThetaJoinError

SHOWN = 20  # rows of a micro-batch that a terminal is shown
LOOK_S = 0.2  # between looks whether a query has ended; Ctrl-C is heard at once
LAST_NUMBERS_S = 5  # the last report comes a moment after the end
# Spark itself would take a CSV file's names for a row, and all its columns for texts.
_READ = {"csv": {"header": "true", "inferSchema": "true"}}
_WRITE = {"csv": {"header": "true"}}


def open_frames(job: Job, tell: Callable[[str], None]) -> dict[str, Any]:
    """The job's sources as DataFrames of a new session."""
    try:
        from thetajoin.spark.failures import plain_errors
        from thetajoin.spark.session import local_session
    except ImportError as error:
        raise OptionError("a streaming job needs Spark: pip install 'thetajoin[spark]'") from error
    tell("starting Spark")
    cores = available_cores()
    session = local_session(cores, shuffle_partitions=cores)
    frames = {}
    for name, source in job.sources.items():
        tell(f"looking at {source.path}")
        form = spark_format(source)
        options = _READ.get(form, {})
        with plain_errors(f"source {name!r}"):
            table = session.read.format(form).options(**options).load(source.path)
            if source.stream:
                reader = session.readStream.format(form).options(**options)
                table = reader.schema(table.schema).load(source.path)
            if source.watermark is not None:
                table = table.withWatermark(*source.watermark)
        frames[name] = table
    return frames


def run_stream(job: Job, compiled: Callable[[Job], CheckedQuery], console: Console) -> None:
    """Run a streaming job until its streams end or somebody stops it."""
    found = _planned(job, compiled)
    from thetajoin.spark.failures import plain_errors, reason

    closed = threading.Event()
    with LiveLine(console) as live:
        with plain_errors("the streaming query could not start"):
            found.sparkSession.streams.addListener(live.listener())
            query = _start(job, found, console, closed)
        try:
            while query.isActive:
                live.wait(LOOK_S)
                if closed.is_set():
                    raise BrokenPipeError
            live.wait(LAST_NUMBERS_S)
        finally:
            after_stopping(_so_far(job, live))
            with suppress(Exception):  # of a Spark that is being stopped as well
                query.stop()
    failure = query.exception()
    if failure is not None:
        raise ThetaJoinError(f"the streaming query failed: {reason(failure)}")
    where = "" if job.sink is None else f"; the result is in {job.sink}"
    # Where rows are data, nothing else is to be on stdout.
    telling = console if job.shown == TABLE else screen(errors=True)
    say(telling, f"{live.totals.line()}{where}")


def _planned(job: Job, compiled: Callable[[Job], CheckedQuery]) -> Any:
    """The job's result as a streaming DataFrame, which nothing reads yet."""
    try:
        from thetajoin.spark.checkpoint import accepted
        from thetajoin.spark.failures import plain_errors
        from thetajoin.spark.planned import planning
    except ImportError as error:
        raise OptionError("a streaming job needs Spark: pip install 'thetajoin[spark]'") from error
    accepts = () if job.checkpoint is None else accepted(str(job.checkpoint))
    with planning(late=job.late, accepts=accepts) as plan:
        call = compiled(job)
        with plain_errors("the streaming query could not start"):
            found = call.run()
    if job.late is not None and len(plan.specs) != 1:
        raise OptionError(
            f"late = {job.late!r} is for one join of two streams, and this query has "
            f"{len(plan.specs)}"
        )
    return found


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

    writer = found.writeStream.outputMode(job.mode)
    if job.sink_format == CONSOLE:
        # Spark's own console sink writes where the JVM does, which is its log.
        writer = writer.foreachBatch(shown)
    else:
        writer = writer.format(job.sink_format).options(**_WRITE.get(job.sink_format, {}))
    if job.sink is not None:
        writer = writer.option("path", str(job.sink))
    if job.checkpoint is not None:
        writer = writer.option("checkpointLocation", str(job.checkpoint))
    trigger = {"availableNow": True} if job.trigger == NOW else {"processingTime": job.trigger}
    return writer.trigger(**trigger).start()


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
