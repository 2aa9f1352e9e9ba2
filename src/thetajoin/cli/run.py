"""Running a job, or a query over files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from rich.console import Console

from thetajoin.batch.files import read_lake
from thetajoin.cli.files import output_format, place, read_table
from thetajoin.cli.jobs import (
    TABLE,
    CheckedQuery,
    Job,
    SourceSpec,
    file_source,
    poison_folders,
    read_job,
    read_text,
    with_named_files,
)
from thetajoin.cli.places import check_apart, check_new, check_stream_sink
from thetajoin.cli.results import BINARY, first, write_result
from thetajoin.cli.rows import show_rows
from thetajoin.cli.stream_sources import open_frames
from thetajoin.cli.streams import run_stream
from thetajoin.cli.terminal import counted, say, working
from thetajoin.cli.unreadable import poison_checkpoint
from thetajoin.cli.watching import NOBODY, Watching
from thetajoin.errors import OptionError
from thetajoin.query.run import compile_query
from thetajoin.spark.connectors.specs import TableSource

if TYPE_CHECKING:
    from thetajoin.spark.unit_spec import StreamSettings

SHOWN = 20  # rows of a result that a terminal is shown
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
            raise OptionError("a job file has its own sources and sink: leave --table and --out")
        if not named_files:
            raise OptionError("--no-files is for queries: a job file must be trusted")
        return _with_options(read_job(path), form, limit, overwrite)
    if out is None and overwrite:
        raise OptionError("--overwrite is for a file: name it with --out FILE")
    if out is not None and form == TABLE:
        raise OptionError("--format table is for looking at: a file is parquet, csv, json or arrow")
    if os.path.isfile(what) and path.suffix != ".sql":
        raise OptionError(
            f"{path} is neither a job (.toml) nor a query (.sql): to query it, write "
            f"\"SELECT ... FROM '{path}' a JOIN ...\""
        )
    in_file = path.suffix == ".sql" or what == "-"
    query = read_text(path, "query") if in_file else what
    given = _sources(tables)
    return Job(
        query,
        with_named_files(query, given, Path()) if named_files else given,
        sink=out,
        sink_format=form or ("parquet" if out is None else output_format(out)),
        overwrite=overwrite,
        file=path if in_file else None,
        shown=form or TABLE,
        limit=limit,
        named_files=named_files,
    )


def _with_options(job: Job, form: str | None, limit: int | None, overwrite: bool) -> Job:
    """A job file's job with what the command line adds."""
    if overwrite and job.streaming:
        raise OptionError("a stream goes on with what is there: leave --overwrite out")
    if limit is not None and job.streaming:
        raise OptionError("--limit is for tables: this job's streams have no end")
    if form is not None and (job.sink or job.into) is not None:
        raise OptionError(f"the job writes {job.sink or job.into}: leave --format out")
    if form is not None and job.streaming and form not in SHOWN_OF_STREAMS:
        raise OptionError(f"a stream is shown as {', '.join(SHOWN_OF_STREAMS)}, not as {form}")
    return replace(job, overwrite=job.overwrite or overwrite, shown=form or job.shown, limit=limit)


def _sources(tables: Sequence[str]) -> dict[str, SourceSpec]:
    sources: dict[str, SourceSpec] = {}
    for given in tables:
        name, equals, file = given.partition("=")
        if not (name and equals and file):
            raise OptionError(f"--table {given!r}: write NAME=FILE")
        if name in sources:
            raise OptionError(f"--table {given!r}: there is a table {name!r} already")
        sources[name] = file_source(place(file, Path()))
    return sources


def check_places(job: Job) -> None:
    """Refuse a sink that would harm what is there, before anything is read."""
    inputs = job.files
    inputs += [] if job.file is None else [str(job.file)]
    if job.checkpoint is not None:
        check_apart(job.checkpoint, inputs, "the checkpoint")
    for name, folder in poison_folders(job).items():
        check_apart(folder, inputs, "what cannot be read")
        assert job.checkpoint is not None
        check_stream_sink(folder, poison_checkpoint(job.checkpoint, name))
    if job.sink is None:
        if job.shown in BINARY and sys.stdout.isatty():
            raise OptionError(f"{job.shown} is not for a terminal: add --out FILE, or pipe it")
        return
    check_apart(job.sink, inputs)
    if job.streaming:
        if job.checkpoint is not None:
            check_stream_sink(job.sink, job.checkpoint)
    else:
        check_new(job.sink, overwrite=job.overwrite)


def compiled(job: Job, settings: StreamSettings | None = None) -> CheckedQuery:
    """The job's query over its sources, checked; nothing has run yet."""
    with working("reading") as tell:
        if job.streaming:
            frames = open_frames(job, tell)
            return compile_query(job.query, frames, job.window, settings=settings)
        read = _read(job.sources, tell)
        return compile_query(job.query, read, job.window, files=job.named_files)


def _read(sources: dict[str, SourceSpec], tell: Callable[[str], None]) -> dict[str, Any]:
    """The tables by name; what has two names is read once."""
    read: dict[SourceSpec, pa.Table] = {}
    for source in sources.values():
        if source not in read:
            tell(f"reading {source.path}")
            if isinstance(source.outside, TableSource):
                table = source.outside
                read[source] = read_lake(table.kind, table.place, dict(table.options))
            else:
                read[source] = read_table(source.path, source.format)
    return {name: read[source] for name, source in sources.items()}


def run_job(job: Job, console: Console, watching: Watching = NOBODY) -> None:
    """Carry a job out; without a sink the result is shown."""
    watching.check(job)
    check_places(job)
    if job.streaming:
        run_stream(job, compiled, console, watching)
        return
    query = compiled(job)
    if job.sink is None and job.shown == TABLE:
        _show(query, job.limit, console)
        return
    schema, batches = query.open()
    if job.limit is not None:
        batches = first(batches, job.limit)
    form = job.shown if job.sink is None else job.sink_format
    if job.sink is None and console.is_terminal:
        write_result(schema, batches, None, form)  # the rows are what shows that it goes on
        return
    with working("joining") as tell:
        rows = write_result(
            schema, batches, job.sink, form, lambda n: tell(f"joining: {counted(n, 'row')} written")
        )
    if job.sink is not None:
        say(console, f"{counted(rows, 'row')} in {job.sink}")


def _show(query: CheckedQuery, limit: int | None, console: Console) -> None:
    """Show the first rows; no more than one further row is computed to know whether there is."""
    most = SHOWN if limit is None else limit
    with working("joining"):
        table = query.first(most + 1)
    if table.num_rows <= most:
        footer = counted(table.num_rows, "row")
    else:
        footer = f"the first {counted(most, 'row')}; --limit N shows N, --out FILE writes all"
    show_rows(console, table.slice(0, most), footer)
