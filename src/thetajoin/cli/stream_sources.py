"""The sources of a streaming job as DataFrames of a Spark session on this machine."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from thetajoin.cli.jobs import NOW, Job, SourceSpec, spark_format
from thetajoin.cli.terminal import counted, say, screen
from thetajoin.engine.machine import available_cores
from thetajoin.errors import OptionError, SchemaError, ThetaJoinError
from thetajoin.secrets import redact
from thetajoin.spark.connectors.specs import (
    TableSink,
    TableSource,
    TableStream,
    TopicSink,
    TopicSource,
)

# Spark itself would take a CSV file's names for a row, and all its columns for texts.
_READ = {"csv": {"header": "true", "inferSchema": "true"}}
# Columns that a sample has told, in this process.
_TOLD: dict[TopicSource, str] = {}


def open_frames(job: Job, tell: Callable[[str], None]) -> dict[str, Any]:
    """The job's sources as DataFrames of a new session."""
    session = _session(job, tell)
    from thetajoin.spark.failures import plain_errors

    frames = {}
    for name, source in job.sources.items():
        tell(f"looking at {source.path}")
        try:
            with plain_errors(f"source {name!r}"):
                frames[name] = _frame(session, job, name, source)
        except ThetaJoinError as error:
            if str(error).startswith(f"source {name!r}"):
                raise
            raise type(error)(f"source {name!r}: {error}") from error
    return frames


def trigger_of(job: Job) -> dict[str, Any]:
    """A job's trigger as Spark takes it."""
    return {"availableNow": True} if job.trigger == NOW else {"processingTime": job.trigger}


def connectors(job: Job) -> list[str]:
    """The connectors that Spark needs for a job."""
    topics = [s.outside for s in job.sources.values() if isinstance(s.outside, TopicSource)]
    found = ["kafka"] if topics or isinstance(job.into, TopicSink) else []
    found += ["avro"] if any(topic.format == "avro" for topic in topics) else []
    found += sorted({table.kind for table in _tables(job)})
    at_s3 = [table.place for table in _tables(job)] + [s.path for s in job.sources.values()]
    return found + (["s3"] if any(re.match("s3a?://", place) for place in at_s3) else [])


def _tables(job: Job) -> list[TableSource | TableStream | TableSink]:
    """The Delta and Iceberg tables of a job."""
    kinds = TableSource | TableStream | TableSink
    places = [*(source.outside for source in job.sources.values()), job.into]
    return [place for place in places if isinstance(place, kinds)]


def _session(job: Job, tell: Callable[[str], None]) -> Any:
    try:
        from thetajoin.spark.connectors.jars import jar_settings
        from thetajoin.spark.connectors.tables import store_settings, table_settings
        from thetajoin.spark.session import local_session
        from thetajoin.spark.versions import installed_spark
    except ImportError as error:
        raise OptionError("a streaming job needs Spark: pip install 'thetajoin[spark]'") from error
    names = connectors(job)
    if names:
        tell(f"fetching what Spark needs for {', '.join(names)}, the first time only")
    settings = jar_settings(names, installed_spark(), folder=job.jars, packages=job.packages)
    if "s3" in names:
        settings |= store_settings(os.environ)
    settings |= table_settings(_tables(job))
    tell("starting Spark")
    cores = available_cores()
    return local_session(cores, shuffle_partitions=cores, settings=settings)


def _frame(session: Any, job: Job, name: str, source: SourceSpec) -> Any:
    if isinstance(source.outside, TableSource):
        from thetajoin.spark.connectors.tables import table_rows

        rows, version = table_rows(session, source.outside)
        say(screen(errors=True), f"{name}: {version}, read once: later changes are not seen")
        return rows
    if isinstance(source.outside, TopicSource):
        table = _topic(session, job, name, source.outside)
    elif isinstance(source.outside, TableStream):
        table = _table_stream(session, job, name, source.outside)
    else:
        form = spark_format(source)
        options = _READ.get(form, {})
        table = session.read.format(form).options(**options).load(source.path)
        if source.stream:
            reader = session.readStream.format(form).options(**options)
            table = reader.schema(table.schema).load(source.path)
    if source.watermark is not None:
        table = table.withWatermark(*source.watermark)
    return table


def _table_stream(session: Any, job: Job, name: str, source: TableStream) -> Any:
    """A table as a stream, with the columns and the start that the job began with."""
    from thetajoin.spark.connectors import tables

    kept, began_at = _kept(job), f"{name}, starting"
    now = tables.table_columns(session, source)
    if name in kept:
        began, start = tables.kept_columns(kept[name]), kept.get(began_at)
        new = tables.check_columns(source, began, now)
        if new:
            told = f"{name}: not read, as the job began without it: {', '.join(new)}"
            say(screen(errors=True), told)
    else:
        began, start = now, tables.start_of(session, source)
        _keep(job, name, now.toDDL())
        if start is not None:
            _keep(job, began_at, start)
    stream = tables.table_stream(session, source, start)
    return stream.select(*(f"`{column.replace('`', '``')}`" for column in began.names))


def _topic(session: Any, job: Job, name: str, source: TopicSource) -> Any:
    from thetajoin.spark.connectors.kafka_failures import kafka_errors
    from thetajoin.spark.connectors.topics import check_broker, topic_rows

    try:
        check_broker(session, source)
        with kafka_errors(f"source {name!r}", source):
            return topic_rows(session, name, source, columns_of(session, job, name, source))
    except SchemaError as error:
        raise SchemaError(f"source {name!r}: {error}") from error
    except ThetaJoinError as error:
        told = str(error).removeprefix(f"source {name!r}: ")
        raise ThetaJoinError(f"source {name!r}: {told}") from error


def columns_of(session: Any, job: Job, name: str, source: TopicSource) -> str | None:
    """A topic's columns: as given, as an earlier run of the job found them, or from a sample."""
    if source.format in ("raw", "avro") or source.schema is not None:
        return source.schema
    if source not in _TOLD:
        _TOLD[source] = _kept(job).get(name) or _sampled(session, job, name, source)
    return _TOLD[source]


def _sampled(session: Any, job: Job, name: str, source: TopicSource) -> str:
    from thetajoin.spark.connectors.topics import sampled_schema

    schema, messages = sampled_schema(session, source)
    told = f"source {name!r}: from {counted(messages, 'message')}, schema = {json.dumps(schema)}"
    say(screen(errors=True), told)
    _keep(job, name, schema)
    return schema


def _keep(job: Job, name: str, schema: str) -> None:
    """Write down the columns of a source for later runs of the job."""
    if job.checkpoint is None:
        return
    file = _schemas(job.checkpoint)
    file.parent.mkdir(parents=True, exist_ok=True)
    there = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**there, name: schema}, indent=2) + "\n")


def _kept(job: Job) -> dict[str, str]:
    """The columns that this job's checkpoint began with; nothing while that is new.

    A job goes on with those, whatever a topic's first messages or a table's columns are by then.
    """
    if job.checkpoint is None or not (job.checkpoint / "metadata").exists():
        return {}
    file = _schemas(job.checkpoint)
    return dict(json.loads(file.read_text())) if file.exists() else {}


def _schemas(checkpoint: Path) -> Path:
    return checkpoint.with_name(f"{checkpoint.name}.schemas.json")


def places(job: Job) -> list[TopicSource | TopicSink]:
    """The topics of a job."""
    found: list[TopicSource | TopicSink] = [
        s.outside for s in job.sources.values() if isinstance(s.outside, TopicSource)
    ]
    return [*found, job.into] if isinstance(job.into, TopicSink) else found


def why(failure: BaseException, job: Job, session: Any) -> str:
    """Why a query has failed, in one line, without secrets."""
    from thetajoin.spark.connectors.kafka_failures import about, kafka_reason, no_topic
    from thetajoin.spark.connectors.topics import missing
    from thetajoin.spark.failures import reason

    streams = [t for t in _tables(job) if isinstance(t, TableStream)]
    if streams:
        from thetajoin.spark.connectors.tables import table_reason

        told = table_reason(failure, streams)
        if told is not None:
            return redact(told)
    topics = places(job)
    if not topics:
        return redact(reason(failure))
    if not no_topic(failure):
        return redact(kafka_reason(failure, about(failure, topics)))
    gone = missing(session, topics)
    if gone is None:  # it was made anew meanwhile, or the broker is gone too
        names = ", ".join(repr(topic.topic) for topic in topics)
        return redact(f"one of the topics {names} is not there, or was not for a while")
    return redact(kafka_reason(failure, gone))
