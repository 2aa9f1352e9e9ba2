"""Jobs over streams, on a Spark of this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rich.console import Console

from thetajoin.cli.jobs import CONSOLE, NOW, Job
from thetajoin.cli.rows import show_rows
from thetajoin.cli.terminal import say
from thetajoin.engine.machine import available_cores
from thetajoin.errors import OptionError, ThetaJoinError
from thetajoin.query.wide import Call

SHOWN = 20  # rows of a micro-batch that a terminal is shown
LOOK_S = 0.2  # between looks whether a query has ended; Ctrl-C is heard at once
# Spark itself would take a CSV file's names for a row, and all its columns for texts.
_READ = {"csv": {"header": "true", "inferSchema": "true"}}
_WRITE = {"csv": {"header": "true"}}


def open_frames(job: Job) -> dict[str, Any]:
    """The job's sources as DataFrames of a new session."""
    try:
        from thetajoin.spark.failures import plain_errors
        from thetajoin.spark.session import local_session
    except ImportError as error:
        raise OptionError("a streaming job needs Spark: pip install 'thetajoin[spark]'") from error
    cores = available_cores()
    session = local_session(cores, shuffle_partitions=cores)
    frames = {}
    for name, source in job.sources.items():
        options = _READ.get(source.format, {})
        with plain_errors(f"source {name!r}"):
            table = session.read.format(source.format).options(**options).load(str(source.path))
            if source.stream:
                reader = session.readStream.format(source.format).options(**options)
                table = reader.schema(table.schema).load(str(source.path))
            if source.watermark is not None:
                table = table.withWatermark(*source.watermark)
        frames[name] = table
    return frames


def run_stream(job: Job, compiled: Callable[[Job], Call], console: Console) -> None:
    """Run a streaming job until its streams end or somebody stops it."""
    call = compiled(job)
    from thetajoin.spark.failures import plain_errors, reason

    with plain_errors("the streaming query could not start"):
        query = _start(job, call, console)
    try:
        while query.isActive:
            time.sleep(LOOK_S)
    finally:
        with suppress(Exception):  # of a Spark that is being stopped as well
            query.stop()
    failure = query.exception()
    if failure is not None:
        raise ThetaJoinError(f"the streaming query failed: {reason(failure)}")
    rows = sum(progress.numInputRows for progress in query.recentProgress)
    say(console, f"{rows:,} rows taken in")


def _start(job: Job, call: Call, console: Console) -> Any:
    writer = call.run().writeStream.outputMode(job.mode)
    if job.sink_format == CONSOLE:
        # Spark's own console sink writes where the JVM does, which is its log.
        writer = writer.foreachBatch(lambda df, number: _show_batch(console, df, number))
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
    say(console, f"micro-batch {number}: {total:,} rows")
    if total:
        show_rows(console, table, total)
