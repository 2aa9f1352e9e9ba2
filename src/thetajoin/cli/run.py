"""Running a job, or a query over files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

from thetajoin.cli.files import format_of, output_format, read_table, write_table
from thetajoin.cli.jobs import Job, SourceSpec, read_job, read_text
from thetajoin.cli.places import check_apart, check_new, check_stream_sink
from thetajoin.cli.rows import show_rows
from thetajoin.cli.streams import open_frames, run_stream
from thetajoin.cli.terminal import say
from thetajoin.errors import OptionError
from thetajoin.query.run import compile_query
from thetajoin.query.wide import Call

SHOWN = 20  # rows of a result that a terminal is shown


def job_of(what: str, tables: list[str], out: Path | None, *, overwrite: bool = False) -> Job:
    """A job from a file, or from a query with its tables on the command line."""
    path = Path(what)
    if path.suffix == ".toml":
        if tables or out is not None:
            raise OptionError("a job file has its own sources and sink: leave --table and --out")
        job = read_job(path)
        if overwrite and job.streaming:
            raise OptionError("a stream goes on with what is there: leave --overwrite out")
        return replace(job, overwrite=job.overwrite or overwrite)
    in_file = path.suffix == ".sql"
    return Job(
        read_text(path, "query") if in_file else what,
        _sources(tables),
        sink=out,
        sink_format="parquet" if out is None else output_format(out),
        overwrite=overwrite,
        file=path if in_file else None,
    )


def _sources(tables: list[str]) -> dict[str, SourceSpec]:
    sources: dict[str, SourceSpec] = {}
    for given in tables:
        name, equals, file = given.partition("=")
        if not (name and equals and file):
            raise OptionError(f"--table {given!r}: write NAME=FILE")
        if name in sources:
            raise OptionError(f"--table {given!r}: there is a table {name!r} already")
        sources[name] = SourceSpec(Path(file), format_of(Path(file)) or "parquet")
    return sources


def check_places(job: Job) -> None:
    """Refuse a sink that would harm what is there, before anything is read."""
    inputs = [source.path for source in job.sources.values()]
    inputs += [] if job.file is None else [job.file]
    if job.checkpoint is not None:
        check_apart(job.checkpoint, inputs, "the checkpoint")
    if job.sink is None:
        return
    check_apart(job.sink, inputs)
    if job.streaming:
        if job.checkpoint is not None:
            check_stream_sink(job.sink, job.checkpoint)
    else:
        check_new(job.sink, overwrite=job.overwrite)


def compiled(job: Job) -> Call:
    """The job's query over its sources, checked; nothing has run yet."""
    if job.streaming:
        tables: dict[str, Any] = open_frames(job)
    else:
        tables = {name: read_table(s.path, s.format) for name, s in job.sources.items()}
    return compile_query(job.query, tables, job.window)


def run_job(job: Job, console: Console) -> None:
    """Carry a job out; without a sink the result is shown."""
    check_places(job)
    if job.streaming:
        run_stream(job, compiled, console)
        return
    call = compiled(job)
    if job.sink is None:
        _show(call.first(SHOWN + 1), console)
        return
    table = call.run()
    write_table(table, job.sink, job.sink_format)
    say(console, f"{table.num_rows:,} rows in {job.sink}")


def _show(table: pa.Table, console: Console) -> None:
    """Show the first rows; `table` has one more than are shown, where there are more."""
    show_rows(console, table.slice(0, SHOWN))
    if table.num_rows > SHOWN:
        say(console, f"the first {SHOWN} rows; --out FILE writes all of them")
