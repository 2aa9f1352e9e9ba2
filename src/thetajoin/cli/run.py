"""Running a job, or a query over files, and showing what comes of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from thetajoin.cli.command import after_stopping
from thetajoin.cli.display import LiveLine, WatchView, show_rows
from thetajoin.cli.terminal import format_count, say, screen, show_work
from thetajoin.errors import OptionError, ThetaJoinError
from thetajoin.jobs.checks import check_streams
from thetajoin.jobs.files import output_format, place
from thetajoin.jobs.job_file import (
    TABLE,
    CheckedQuery,
    Job,
    SourceSpec,
    add_named_files,
    check_places,
    make_file_source,
    read_job,
    read_text,
)
from thetajoin.jobs.results import BINARY, Writer, take_first, write_result
from thetajoin.jobs.sources import compile_job, measure_job
from thetajoin.jobs.stream import RunningJob, only_job_on, plan_stream
from thetajoin.jobs.watchers import NOBODY, Watching, open_watchers

if TYPE_CHECKING:
    from thetajoin.spark.unit_spec import StreamSettings

SHOWN = 20  # rows of a result, or of a micro-batch, that a terminal is shown
SHOWN_OF_STREAMS = (TABLE, "csv", "json")


def job_of(
    what: str,
    tables: Sequence[str] = (),
    out: Path | None = None,
    *,
    form: str | None = None,
    limit: int | None = None,
    overwrite: bool = False,
    named_files: bool = True,
) -> Job:
    """A job from a file, or from a query with its tables on the command line."""
    out = None if out == Path("-") else out
    path = Path(what)
    if path.suffix == ".toml":
        if tables or out is not None:
            raise OptionError(
                "a job file has its own sources and sink: leave out --table and --out"
            )
        if not named_files:
            raise OptionError("--no-files is for queries: a job file must be trusted")
        return _add_options(read_job(path), form, limit, overwrite)
    if out is None and overwrite:
        raise OptionError("--overwrite is for a file: name it with --out FILE")
    if out is not None and form == TABLE:
        raise OptionError(
            "--format table is for the terminal: a file is parquet, csv, json or arrow"
        )
    if os.path.isfile(what) and path.suffix != ".sql":
        raise OptionError(
            f"{path} is neither a job (.toml) nor a query (.sql): to query it, write "
            f"\"SELECT ... FROM '{path}' a JOIN ...\""
        )
    in_file = path.suffix == ".sql" or what == "-"
    query = read_text(path, "query") if in_file else what
    given = _read_tables(tables)
    return Job(
        query,
        add_named_files(query, given, Path()) if named_files else given,
        sink=out,
        sink_format=form or ("parquet" if out is None else output_format(out)),
        overwrite=overwrite,
        file=path if in_file else None,
        shown=form or TABLE,
        limit=limit,
        named_files=named_files,
    )


def _add_options(job: Job, form: str | None, limit: int | None, overwrite: bool) -> Job:
    """A job file's job with what the command line adds."""
    if overwrite and job.streaming:
        raise OptionError("a stream adds to what is there: leave --overwrite out")
    if limit is not None and job.streaming:
        raise OptionError("--limit is for tables: this job's streams have no end")
    if form is not None and (job.sink or job.into) is not None:
        raise OptionError(f"the job writes {job.sink or job.into}: leave --format out")
    if form is not None and job.streaming and form not in SHOWN_OF_STREAMS:
        raise OptionError(f"a stream is shown as {', '.join(SHOWN_OF_STREAMS)}, not as {form}")
    return replace(job, overwrite=job.overwrite or overwrite, shown=form or job.shown, limit=limit)


def _read_tables(tables: Sequence[str]) -> dict[str, SourceSpec]:
    sources: dict[str, SourceSpec] = {}
    for given in tables:
        name, equals, file = given.partition("=")
        if not (name and equals and file):
            raise OptionError(f"--table {given!r}: write NAME=FILE")
        if name in sources:
            raise OptionError(f"--table {given!r}: there is a table {name!r} already")
        sources[name] = make_file_source(place(file, Path()))
    return sources


def compile_query(job: Job, settings: StreamSettings | None = None) -> CheckedQuery:
    """The job's query over its sources, checked; nothing has run yet."""
    if job.streaming and settings is None:  # else it was checked before Spark was loaded
        check_streams(job)
    with show_work("reading") as tell:
        return compile_job(job, settings, tell=tell, note=tell_user)


def tell_user(text: str) -> None:
    """Print a line beside what the command gives out."""
    say(screen(errors=True), text)


def run_job(job: Job, console: Console, watching: Watching = NOBODY) -> None:
    """Carry a job out; without a sink the result is shown."""
    watching.check(job)
    check_places(job)
    if job.sink is None and job.shown in BINARY and sys.stdout.isatty():
        raise OptionError(f"{job.shown} is not for a terminal: add --out FILE, or pipe it")
    if job.streaming:
        _run_stream(job, console, watching)
        return
    if job.sink is not None and (job.file is None or job.file.suffix == ".sql"):
        _ask_for_folder(job.sink.absolute().parent)
    query = compile_query(job)
    if job.sink is None and job.shown == TABLE:
        _show(query, job.limit, console)
        return
    schema, batches = query.open()
    if job.limit is not None:
        batches = take_first(batches, job.limit)
    form = job.shown if job.sink is None else job.sink_format
    # On a terminal, the rows themselves show that it goes on.
    shown = job.sink is None and console.is_terminal
    with nullcontext(lambda _: None) if shown else show_work("joining") as tell:
        rows = write_result(
            schema,
            batches,
            job.sink,
            form,
            lambda n: tell(f"joining: {format_count(n, 'row')} written"),
        )
    if job.sink is not None:
        say(console, f"{format_count(rows, 'row')} in {job.sink}")


def _ask_for_folder(folder: Path) -> None:
    """Ask before a folder is made that may be a slip of the finger; a script is not asked."""
    if folder.exists() or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    if not typer.confirm(f"there is no folder {folder}: make it?", default=True, err=True):
        raise OptionError("nothing was written: name a file in a folder that is there with --out")


def _show(query: CheckedQuery, limit: int | None, console: Console) -> None:
    """Show the first rows; no more than one further row is computed to know whether there is."""
    most = SHOWN if limit is None else limit
    with show_work("joining"):
        table = query.first(most + 1)
    if table.num_rows <= most:
        footer = format_count(table.num_rows, "row")
    else:
        footer = f"the first {format_count(most, 'row')}; --limit N shows N, --out FILE writes all"
    show_rows(console, table.slice(0, most), footer)


def _run_stream(job: Job, console: Console, watching: Watching) -> None:
    """Run a streaming job until its streams end or somebody stops it."""
    check_streams(job)
    with only_job_on(job.checkpoint), open_watchers(watching, job, tell_user) as watchers:
        query, found = plan_stream(job, compile_query)
        watchers.draw(job, query)
        silent = watching.log is not None
        with WatchView(console) if watching.full else LiveLine(console, silent=silent) as view:
            running = RunningJob(job, found, print_batches(job, console))
            try:
                follower = running.follow(view, watchers)
            finally:
                goes_on = "" if job.checkpoint is None else "; the same command goes on from here"
                after_stopping(f"{view.totals.line()}{goes_on}")
    if follower.error is not None:
        raise ThetaJoinError(f"the streaming query failed: {follower.error}")
    sink = job.sink or job.into
    # Where rows are data, nothing else is to be on stdout.
    out = console if job.shown == TABLE else screen(errors=True)
    say(out, f"{view.totals.line()}{'' if sink is None else f'; the result is in {sink}'}")


def print_batches(job: Job, console: Console) -> Callable[[Any, int], None]:
    """A function that shows a micro-batch: its first rows as a table, or all as lines."""
    writers: list[Writer] = []

    def show_table(df: Any, number: int) -> None:
        from thetajoin.jobs.sinks import first_rows

        table, total = first_rows(df, SHOWN)
        say(console, f"micro-batch {number}: {format_count(total, 'row')}")
        if total:
            more = f"{format_count(total, 'row')}, the first {table.num_rows:,} shown"
            show_rows(console, table, more if total > table.num_rows else "")

    def write_lines(df: Any, _number: int) -> None:
        table = df.toArrow()
        if not writers:
            writers.append(Writer(table.schema, sys.stdout.buffer, job.shown))
        for batch in table.to_batches():
            writers[0].write(batch)
        sys.stdout.flush()

    return show_table if job.shown == TABLE else write_lines


def explain_size(job: Job, rate: str) -> None:
    """Print the plan of a job's join, and what it needs at a rate; Spark is not started."""
    with show_work("reading a sample") as tell:
        plan, size = measure_job(job, rate, tell)
    for found in (plan, size):
        for line in [] if found is None else str(found).splitlines():
            say(screen(), line)
