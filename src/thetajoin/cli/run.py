"""Running a job, or a query over files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from thetajoin.cli.files import read_table
from thetajoin.cli.jobs import NOW, Job, SourceSpec, read_job
from thetajoin.errors import OptionError, SchemaError
from thetajoin.query.call import Call
from thetajoin.query.run import compile_query

SHOWN = 20  # rows of a result that a terminal is shown


def job_of(what: str, tables: list[str], out: Path | None) -> Job:
    """A job from a file, or from a query with its tables on the command line."""
    path = Path(what)
    if path.suffix == ".toml":
        if tables or out is not None:
            raise OptionError("a job file has its own sources and sink: leave --table and --out")
        return read_job(path)
    if path.suffix == ".sql" and not path.exists():
        raise OptionError(f"there is no {path}")
    query = path.read_text() if path.suffix == ".sql" else what
    sources = {}
    for given in tables:
        name, equals, file = given.partition("=")
        if not equals:
            raise OptionError(f"--table {given!r}: write NAME=FILE")
        sources[name] = SourceSpec(Path(file), Path(file).suffix.lstrip(".") or "parquet")
    form = (out.suffix.lstrip(".") if out else "") or "parquet"
    return Job(query, sources, sink=out, sink_format=form)


def compiled(job: Job) -> Call:
    """The job's query over its sources, checked; nothing has run yet."""
    if not job.streaming:
        tables: dict[str, Any] = {name: read_table(s.path) for name, s in job.sources.items()}
    else:
        tables = _frames(job)
    return compile_query(job.query, tables, job.window)


def _frames(job: Job) -> dict[str, Any]:
    try:
        from thetajoin.spark.session import local_session
    except ImportError as error:
        raise OptionError("a streaming job needs Spark: pip install 'thetajoin[spark]'") from error
    cores = len(os.sched_getaffinity(0))
    session = local_session(cores, shuffle_partitions=cores)
    frames = {}
    for name, source in job.sources.items():
        table = session.read.format(source.format).load(str(source.path))
        if source.stream:
            reader = session.readStream.format(source.format).schema(table.schema)
            table = reader.load(str(source.path))
        if source.watermark is not None:
            table = table.withWatermark(*source.watermark)
        frames[name] = table
    return frames


def run_job(job: Job, console: Console) -> None:
    """Carry a job out; without a sink the result is shown."""
    call = compiled(job)
    if job.streaming:
        _stream(job, call, console)
        return
    if job.sink is None:
        _show(call.first(SHOWN + 1), console)
        return
    table = call.run()
    write_table(table, job.sink, job.sink_format)
    console.print(f"{table.num_rows:,} rows in {job.sink}", markup=False)


def write_table(table: pa.Table, path: Path, form: str) -> None:
    """Write a result in one of the formats."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if form == "csv":
            from pyarrow import csv

            csv.write_csv(table, path)
        elif form == "arrow":
            from pyarrow import feather

            feather.write_feather(table, str(path), compression="uncompressed")
        else:
            from pyarrow import parquet

            parquet.write_table(table, path)
    except (pa.ArrowException, OSError) as error:
        raise SchemaError(f"cannot write {path}: {str(error).splitlines()[0]}") from error


def _stream(job: Job, call: Call, console: Console) -> None:
    df = call.run()
    writer = df.writeStream.format(job.sink_format).outputMode(job.mode)
    if job.sink is not None:
        writer = writer.option("path", str(job.sink))
    if job.checkpoint is not None:
        writer = writer.option("checkpointLocation", str(job.checkpoint))
    trigger = {"availableNow": True} if job.trigger == NOW else {"processingTime": job.trigger}
    query = writer.trigger(**trigger).start()
    query.awaitTermination()
    rows = sum(progress.numInputRows for progress in query.recentProgress)
    console.print(f"{rows:,} rows taken in", markup=False)


def _show(table: pa.Table, console: Console) -> None:
    shown = Table()
    for name in table.schema.names:
        shown.add_column(name)
    for row in table.slice(0, SHOWN).to_pylist():
        shown.add_row(*("NULL" if value is None else str(value) for value in row.values()))
    console.print(shown)
    if table.num_rows > SHOWN:
        console.print(f"the first {SHOWN} rows; --out FILE writes all of them", markup=False)
