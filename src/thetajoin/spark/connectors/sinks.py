"""Writing a stream's matches to Kafka, Delta, Iceberg or a database."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from thetajoin.spark.connectors.specs import DatabaseSink, Sink, TableSink, TopicSink
from thetajoin.spark.connectors.tables import append_batch, check_table
from thetajoin.spark.connectors.topics import check_broker
from thetajoin.spark.match_ids import match_ids

# Spark's own format has milliseconds only.
_JSON = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
Batch = Callable[[Any, int], None]


def check_sink(session: Any, sink: Sink) -> None:
    """Refuse a broker or a catalog that does not answer, before anything runs.

    There is no query that every database takes, so these are told with the first micro-batch.
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
        return messages(found, name).writeStream.format("kafka").options(**_kafka(sink))

    def write(df: Any, number: int) -> None:
        rows = match_ids(df, name, batch=number) if counted and name is not None else df
        _write_batch(rows, sink, name, number, checkpoint)

    return found.writeStream.foreachBatch(write)


def messages(rows: Any, name: str | None) -> Any:
    """Rows as Kafka messages: all columns as JSON, and the id as the key."""
    value = F.to_json(F.struct("*"), _JSON).alias("value")
    key = [] if name is None else [F.col(f"`{name}`").alias("key")]
    return rows.select(*key, value)


def _write_batch(rows: Any, sink: Sink, name: str | None, number: int, checkpoint: Path) -> None:
    if isinstance(sink, TopicSink):
        messages(rows, name).write.format("kafka").options(**_kafka(sink)).save()
    elif isinstance(sink, DatabaseSink):
        rows.write.format("jdbc").options(**_database(sink)).mode("append").save()
    else:
        append_batch(rows, sink, query_id(checkpoint), number)


def query_id(checkpoint: Path) -> str:
    """What a query is called for its whole life, restarts included: its checkpoint says it."""
    return str(json.loads((checkpoint / "metadata").read_text())["id"])


def _kafka(sink: TopicSink) -> dict[str, str]:
    return {"kafka.bootstrap.servers": sink.servers, "topic": sink.topic, **dict(sink.options)}


def _database(sink: DatabaseSink) -> dict[str, str]:
    return {"url": sink.url, "dbtable": sink.table, **dict(sink.options)}
