"""Where a streaming job's matches go: files, Kafka, Delta, Iceberg, a database or a terminal."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from thetajoin.errors import ThetaJoinError
from thetajoin.jobs.job_file import CONSOLE, Job
from thetajoin.jobs.kafka import check_broker
from thetajoin.jobs.lakes import append_batch, check_table
from thetajoin.jobs.systems import DatabaseSink, Sink, TableSink, TopicSink
from thetajoin.predicate.render import backquote
from thetajoin.spark.match_ids import match_ids
from thetajoin.spark.tasks import map_batches, name_by_position

_CSV = {"header": "true"}
# Spark's own format has milliseconds only.
_JSON = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


def start_query(
    job: Job, found: Any, show: Callable[[Any, int], None], closed: threading.Event
) -> Any:
    """Start the query that writes a job's result.

    show: takes each micro-batch where the job has no sink; `closed` is set when nobody reads that
    any more.
    """
    if job.into is not None:
        writer = _check_writer(job, found, job.into)
    else:
        writer = _file_writer(job, found, show, closed)
    if job.checkpoint is not None:
        writer = writer.option("checkpointLocation", str(job.checkpoint))
    return writer.outputMode(job.mode).trigger(**job.spark_trigger).start()


def _file_writer(
    job: Job, found: Any, show: Callable[[Any, int], None], closed: threading.Event
) -> Any:
    """A writer of a folder of files, or to the terminal."""
    if job.id is not None:
        found = match_ids(found, job.id, keys=job.key)
    if job.sink_format != CONSOLE:
        options = _CSV if job.sink_format == "csv" else {}
        writer = found.writeStream.format(job.sink_format).options(**options)
        return writer if job.sink is None else writer.option("path", str(job.sink))

    def show_batch(df: Any, number: int) -> None:
        try:
            show(df, number)
        except BrokenPipeError:
            closed.set()

    # Spark's own console sink writes where the JVM does, which is its log.
    return found.writeStream.foreachBatch(show_batch)


def _check_writer(job: Job, found: Any, sink: Sink) -> Any:
    """A writer to a system that is no folder of files, which has to answer."""
    assert job.checkpoint is not None
    try:
        check_sink(found.sparkSession, sink)
    except ThetaJoinError as error:
        raise ThetaJoinError(f"sink: {error}") from error
    return stream_writer(found, sink, name=job.id, keys=job.key, checkpoint=job.checkpoint)


def check_sink(session: Any, sink: Sink) -> None:
    """Refuse a broker or a catalog that does not answer, before anything runs.

    No query works in every database, so errors of databases come with the first micro-batch.
    """
    if isinstance(sink, TopicSink):
        check_broker(session, sink, topic=False)
    elif isinstance(sink, TableSink):
        check_table(session, sink)


def stream_writer(
    found: Any, sink: Sink, *, name: str | None, keys: tuple[str, ...], checkpoint: Path
) -> Any:
    """A writer of a streaming DataFrame, to be given its trigger and started.

    name: the column for an id of each match, which also is the key of a Kafka message; it is made
    from the columns `keys`, or from whole rows (`match_ids`).
    """
    if name is not None and keys:
        found = match_ids(found, name, keys=keys)
    counted = name is not None and not keys
    if isinstance(sink, TopicSink) and not counted:
        return messages(found, name).writeStream.format("kafka").options(**_kafka_options(sink))

    def write(df: Any, number: int) -> None:
        rows = match_ids(df, name, batch=number) if counted and name is not None else df
        _write_batch(rows, sink, name, number, checkpoint)

    return found.writeStream.foreachBatch(write)


def messages(rows: Any, name: str | None) -> Any:
    """Rows as Kafka messages: all columns as JSON, and the id as the key."""
    value = F.to_json(F.struct("*"), _JSON).alias("value")
    key = [] if name is None else [F.col(backquote(name)).alias("key")]
    return rows.select(*key, value)


def _write_batch(rows: Any, sink: Sink, name: str | None, number: int, checkpoint: Path) -> None:
    if isinstance(sink, TopicSink):
        messages(rows, name).write.format("kafka").options(**_kafka_options(sink)).save()
    elif isinstance(sink, DatabaseSink):
        options = {"url": sink.url, "dbtable": sink.table, **dict(sink.options)}
        rows.write.format("jdbc").options(**options).mode("append").save()
    else:
        append_batch(rows, sink, query_id(checkpoint), number)


def query_id(checkpoint: Path) -> str:
    """The id that a query keeps through all restarts, as its checkpoint has it."""
    return str(json.loads((checkpoint / "metadata").read_text())["id"])


def _kafka_options(sink: TopicSink) -> dict[str, str]:
    return {"kafka.bootstrap.servers": sink.servers, "topic": sink.topic, **dict(sink.options)}


def first_rows(df: Any, most: int) -> tuple[pa.Table, int]:
    """Up to `most` rows of a micro-batch, and how many it has.

    Every partition is computed, and once: a limit would leave some out, and the state that they
    should have written with them.
    """
    frame, width, count = name_by_position(df), len(df.columns), "rows"

    def add_counts(part: pa.RecordBatch, counts: list[int | None]) -> pa.RecordBatch:
        return part.append_column(count, pa.array(counts, pa.int64()))

    def take_first(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows, schema = 0, None
        for batch in batches:
            part, schema = batch.slice(0, max(0, most - rows)), batch.schema
            rows += batch.num_rows
            yield add_counts(part, [None] * part.num_rows)
        if schema is not None:
            nothing = [pa.nulls(1, field.type) for field in schema]
            yield add_counts(pa.RecordBatch.from_arrays(nothing, names=schema.names), [rows])

    fields = [StructField(field.name, field.dataType, True) for field in frame.schema.fields]
    output = StructType([*fields, StructField(count, LongType())])
    found = map_batches(frame, take_first, output).toArrow()
    counts = found.column(width)
    rows = found.filter(counts.is_null()).select(range(width)).slice(0, most)
    total = sum(n for n in counts.to_pylist() if n is not None)
    return rows.rename_columns(df.columns), total
