"""A job's sources: DataFrames of a Spark session on this machine, or tables in this process."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from thetajoin.batch.files import find_files, read_lake
from thetajoin.engine.machine import available_cores
from thetajoin.errors import OptionError, ThetaJoinError
from thetajoin.jobs.files import read_table
from thetajoin.jobs.job_file import CheckedQuery, Job, SourceSpec, spark_format, spark_length
from thetajoin.jobs.systems import Table, TableSource, TableStream, TopicSink, TopicSource
from thetajoin.predicate.render import backquote
from thetajoin.query.run import compile_query
from thetajoin.secrets import redact
from thetajoin.window.windows import length_in

if TYPE_CHECKING:
    from thetajoin.spark.unit_spec import StreamSettings

Say = Callable[[str], None]
# Without these, Spark would read a CSV file's header as a row and every column as text.
_READ = {"csv": {"header": "true", "inferSchema": "true"}}
# Columns found in a sample of a topic's messages, in this process.
_SAMPLED: dict[TopicSource, str] = {}


def ignore(_text: str) -> None:
    """Say nothing."""


def compile_job(
    job: Job,
    settings: StreamSettings | None = None,
    *,
    tell: Say = ignore,
    note: Say = ignore,
) -> CheckedQuery:
    """The job's query over its sources, checked; nothing has run yet.

    tell: called with what is being done. note: called with what a user should know of a source.
    """
    if job.streaming:
        frames = open_frames(job, tell, note)
        return compile_query(job.query, frames, job.window, settings=settings)
    tables = read_tables(job.sources, tell)
    return compile_query(job.query, tables, job.window, files=job.named_files)


def read_tables(sources: dict[str, SourceSpec], tell: Say) -> dict[str, pa.Table]:
    """The tables by name; a source with two names is read once."""
    read: dict[SourceSpec, pa.Table] = {}
    for source in sources.values():
        if source not in read:
            tell(f"reading {source.path}")
            table = source.outside
            if isinstance(table, TableSource):
                read[source] = read_lake(table.kind, table.place, dict(table.options))
            else:
                read[source] = read_table(source.path, source.format)
    return {name: read[source] for name, source in sources.items()}


def open_frames(job: Job, tell: Say, note: Say) -> dict[str, Any]:
    """The job's sources as DataFrames of a new session."""
    session = _start_session(job, tell)
    from thetajoin.spark.failures import plain_errors

    frames = {}
    for name, source in job.sources.items():
        tell(f"looking at {source.path}")
        try:
            with plain_errors(f"source {name!r}"):
                frames[name] = _open_frame(session, job, name, source, note)
        except ThetaJoinError as error:
            if str(error).startswith(f"source {name!r}"):
                raise
            raise type(error)(f"source {name!r}: {error}") from error
    return frames


def list_connectors(job: Job) -> list[str]:
    """The connectors that Spark needs for a job."""
    topics = [s.outside for s in job.sources.values() if isinstance(s.outside, TopicSource)]
    found = ["kafka"] if topics or isinstance(job.into, TopicSink) else []
    found += ["avro"] if any(topic.format == "avro" for topic in topics) else []
    found += sorted({table.kind for table in _list_tables(job)})
    at_s3 = [table.place for table in _list_tables(job)] + [s.path for s in job.sources.values()]
    return found + (["s3"] if any(re.match("s3a?://", place) for place in at_s3) else [])


def list_topics(job: Job) -> list[TopicSource | TopicSink]:
    """The topics of a job."""
    places = [*(source.outside for source in job.sources.values()), job.into]
    return [place for place in places if isinstance(place, TopicSource | TopicSink)]


def _list_tables(job: Job) -> list[Any]:
    """The Delta and Iceberg tables of a job."""
    places = [*(source.outside for source in job.sources.values()), job.into]
    return [place for place in places if isinstance(place, Table)]


def _start_session(job: Job, tell: Say) -> Any:
    try:
        from thetajoin.jobs.jars import jar_settings
        from thetajoin.jobs.lakes import store_settings, table_settings
        from thetajoin.spark.session import local_session
        from thetajoin.spark.versions import read_spark_version
    except ImportError as error:
        raise OptionError("a streaming job needs Spark: pip install 'thetajoin[spark]'") from error
    names = list_connectors(job)
    if names:
        tell(f"fetching what Spark needs for {', '.join(names)}, the first time only")
    settings = jar_settings(names, read_spark_version(), folder=job.jars, packages=job.packages)
    if "s3" in names:
        settings |= store_settings(os.environ)
    settings |= table_settings(_list_tables(job))
    tell("starting Spark")
    cores = available_cores()
    return local_session(cores, shuffle_partitions=cores, settings=settings)


def _open_frame(session: Any, job: Job, name: str, source: SourceSpec, note: Say) -> Any:
    if isinstance(source.outside, TableSource):
        from thetajoin.jobs.lakes import read_table_now

        rows, version = read_table_now(session, source.outside)
        note(f"{name}: {version}, read once: later changes are not seen")
        return rows
    if isinstance(source.outside, TopicSource):
        table = _open_topic(session, job, name, source.outside, note)
    elif isinstance(source.outside, TableStream):
        table = _open_table_stream(session, job, name, source.outside, note)
    else:
        form = spark_format(source)
        options = _READ.get(form, {})
        table = session.read.format(form).options(**options).load(source.path)
        if source.stream:
            reader = session.readStream.format(form).options(**options)
            table = reader.schema(table.schema).load(source.path)
    if source.watermark is not None:
        column, delay = source.watermark
        table = table.withWatermark(column, spark_length(delay))
    return table


def _open_table_stream(session: Any, job: Job, name: str, source: TableStream, note: Say) -> Any:
    """A table as a stream, with the columns and the start that the job began with."""
    from thetajoin.jobs import lakes

    kept, began_at = _read_kept(job), f"{name}, starting"
    now = lakes.read_columns(session, source)
    if name in kept:
        began, start = lakes.parse_columns(kept[name]), kept.get(began_at)
        new = lakes.check_columns(source, began, now)
        if new:
            note(f"{name}: not read, as the job began without it: {', '.join(new)}")
    else:
        began, start = now, lakes.find_start(session, source)
        _keep(job, name, now.toDDL())
        if start is not None:
            _keep(job, began_at, start)
    stream = lakes.read_table_stream(session, source, start)
    return stream.select(*map(backquote, began.names))


def _open_topic(session: Any, job: Job, name: str, source: TopicSource, note: Say) -> Any:
    from thetajoin.jobs.kafka import check_broker, kafka_errors, read_topic

    check_broker(session, source)
    with kafka_errors(f"source {name!r}", source):
        return read_topic(session, name, source, find_columns(session, job, name, source, note))


def find_columns(
    session: Any, job: Job, name: str, source: TopicSource, note: Say = ignore
) -> str | None:
    """A topic's columns: as given, as an earlier run of the job found them, or from a sample."""
    if source.format in ("raw", "avro") or source.schema is not None:
        return source.schema
    if source not in _SAMPLED:
        _SAMPLED[source] = _read_kept(job).get(name) or _sample(session, job, name, source, note)
    return _SAMPLED[source]


def _sample(session: Any, job: Job, name: str, source: TopicSource, note: Say) -> str:
    from thetajoin.jobs.kafka import sample_schema

    schema, messages = sample_schema(session, source)
    number = "1 message" if messages == 1 else f"{messages:,} messages"
    note(f"source {name!r}: from {number}, schema = {json.dumps(schema)}")
    _keep(job, name, schema)
    return schema


def _keep(job: Job, name: str, schema: str) -> None:
    """Write down the columns of a source for later runs of the job."""
    if job.checkpoint is None:
        return
    file = _schema_file(job.checkpoint)
    file.parent.mkdir(parents=True, exist_ok=True)
    there = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**there, name: schema}, indent=2) + "\n")


def _read_kept(job: Job) -> dict[str, str]:
    """The columns that this job's checkpoint began with; nothing while that is new.

    A job goes on with those, whatever a topic's first messages or a table's columns are by then.
    """
    if job.checkpoint is None or not (job.checkpoint / "metadata").exists():
        return {}
    file = _schema_file(job.checkpoint)
    return dict(json.loads(file.read_text())) if file.exists() else {}


def _schema_file(checkpoint: Path) -> Path:
    return checkpoint.with_name(f"{checkpoint.name}.schemas.json")


def explain_failure(failure: BaseException, job: Job, session: Any) -> str:
    """Why a query has failed, in one line, without secrets."""
    from thetajoin.jobs.kafka import about, find_missing, kafka_reason, no_topic
    from thetajoin.spark.failures import reason

    streams = [table for table in _list_tables(job) if isinstance(table, TableStream)]
    if streams:
        from thetajoin.jobs.lakes import explain_change

        found = explain_change(failure, streams)
        if found is not None:
            return redact(found)
    named = list_topics(job)
    if not named:
        return redact(reason(failure))
    if not no_topic(failure):
        return redact(kafka_reason(failure, about(failure, named)))
    gone = find_missing(session, named)
    if gone is None:  # it was made anew meanwhile, or the broker is gone too
        names = ", ".join(repr(topic.topic) for topic in named)
        return redact(f"one of the topics {names} is not there, or was not for a while")
    return redact(kafka_reason(failure, gone))


def measure_job(job: Job, rate: str, tell: Say) -> tuple[Any, Any]:
    """The plan of a job's join and what it needs at a rate, from the first rows of its sources.

    Spark is not started. An as-of join has no plan.
    """
    from thetajoin.engine.compiled import CompiledJoin
    from thetajoin.planner.routing import DEFAULT_UNITS
    from thetajoin.planner.sizing import SAMPLE, parse_rate, size_join

    rows_a_second = parse_rate(rate)
    tables = {name: _read_sample(source, SAMPLE) for name, source in job.sources.items()}
    call = compile_query(job.query, tables, job.window).only_join
    if call is None:
        raise OptionError("--rate is for a query that is one join of two tables")
    tell("measuring")
    plan = call.explain() if call.spec.nearest is None else None
    left, right = call.left.table, call.right.table
    join = CompiledJoin(call.spec.for_stream(), left.schema, right.schema)
    marks = [source.watermark for source in job.sources.values() if source.watermark is not None]
    delays = [length_in(delay, "us", "the watermark's delay") / 1e6 for _, delay in marks]
    delay = max(delays, default=0.0)
    size = size_join(join, left, right, rows_a_second, units=DEFAULT_UNITS, delay=delay)
    return None if plan is None else plan.with_share(size.found.share), size


def _read_sample(source: SourceSpec, rows: int) -> pa.Table:
    """Up to `rows` rows of a source's first files."""
    if source.path == "-":
        return read_table(source.path, source.format).slice(0, rows)
    found = find_files(source.path, repr(source.path), source.format)
    taken = 1
    while True:
        table = replace(found, paths=found.paths[:taken]).read()
        if table.num_rows >= rows or taken >= len(found.paths):
            return table.slice(0, rows)
        taken *= 4
