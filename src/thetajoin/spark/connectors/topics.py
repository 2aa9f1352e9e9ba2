"""Kafka topics as streams of rows; messages that cannot be read are counted and kept aside."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from thetajoin.errors import SchemaError, ThetaJoinError
from thetajoin.spark.connectors.specs import TopicSink, TopicSource
from thetajoin.spark.failures import reason
from thetajoin.spark.listener import POISON

SAMPLE = 1000  # messages
_BAD, _VALUE = "__thetajoin_bad", "__thetajoin_value"
# A broker that is not there is told within seconds; Kafka's own limit is a minute.
_PATIENCE = {"kafka.default.api.timeout.ms": "15000", "kafka.request.timeout.ms": "10000"}
# Kafka's words, and ours.
_NO_TOPIC = ("UnknownTopicOrPartition",)
_NO_BROKER = (
    "Timed out waiting for a node assignment",
    "Failed to create new KafkaAdminClient",
)


@contextmanager
def kafka_errors(what: str, place: TopicSource | TopicSink) -> Iterator[None]:
    """Errors of Spark's and Kafka's as one line of ours.

    Those of Kafka's own come as errors of the bridge to the JVM, which is no part of PySpark's API.
    """
    try:
        yield
    except ThetaJoinError:
        raise
    except Exception as error:
        raise ThetaJoinError(f"{what}: {kafka_reason(error, place)}") from error


def kafka_reason(error: BaseException, place: TopicSource | TopicSink) -> str:
    """Why Kafka could not be read, in one line."""
    text = str(error)
    if any(words in text for words in _NO_TOPIC):
        return f"there is no topic {place.topic!r} at {place.servers}"
    if any(words in text for words in _NO_BROKER):
        return f"no Kafka broker answers at {place.servers}"
    return reason(error)


def check_broker(session: Any, place: TopicSource | TopicSink, *, topic: bool = True) -> None:
    """Refuse a broker that does not answer, or one without the topic."""
    try:
        _messages(session, place).limit(1).collect()
    except Exception as error:
        if topic or not any(words in str(error) for words in _NO_TOPIC):
            raise ThetaJoinError(kafka_reason(error, place)) from error


def sampled_schema(session: Any, source: TopicSource) -> tuple[str, int]:
    """The columns of a topic's first messages as SQL types, and how many messages were read."""
    rows = _messages(session, source).limit(SAMPLE).select("value").collect()
    lines = [bytes(row.value).decode("utf-8", "replace") for row in rows if row.value is not None]
    if not lines:
        raise SchemaError(
            f"topic {source.topic!r} has no messages to tell the columns from: write "
            "schema = 'id BIGINT, ...'"
        )
    with tempfile.TemporaryDirectory(prefix="thetajoin-sample-") as folder:
        file = Path(folder, "sample.json")
        # A message is one line, whatever it holds.
        file.write_text("".join(" ".join(line.split("\n")) + "\n" for line in lines))
        options = {"inferTimestamp": "true", "columnNameOfCorruptRecord": _BAD}
        found = session.read.options(**options).json(str(file)).schema
    fields = [field for field in found.fields if field.name != _BAD]
    if not fields:
        raise SchemaError(
            f"the first {len(lines)} messages of topic {source.topic!r} are no JSON objects: "
            "give another format"
        )
    return str(StructType(fields).toDDL()), len(lines)


def topic_rows(session: Any, name: str, source: TopicSource, schema: str | None) -> Any:
    """A topic as a stream of rows, without the messages that cannot be read."""
    raw = _stream(session, source)
    if source.format == "raw":
        return raw.drop("timestampType", "headers")
    read = _read(raw, source, schema)
    if source.fail_on_poison:
        told = F.concat(
            F.lit(f"topic {source.topic} has a message that cannot be read: partition "),
            F.col("partition"),
            F.lit(", offset "),
            F.col("offset"),
        )
        good = F.when(F.col(_BAD), F.raise_error(told).cast("boolean")).otherwise(F.lit(True))
    else:
        read = read.observe(f"{POISON}{name}", F.count_if(F.col(_BAD)).alias("messages"))
        good = ~F.col(_BAD)
    kept = [F.col(column).alias(f"kafka_{column}") for column in source.metadata]
    fields = _fields(read)
    clash = {f"kafka_{column}" for column in source.metadata} & set(fields)
    if clash:
        raise SchemaError(f"the messages have a column {min(clash)!r} of their own")
    values = [F.col(_VALUE).getField(field).alias(field) for field in fields]
    return read.where(good).select(*values, *kept)


def poison_rows(session: Any, source: TopicSource, schema: str | None) -> Any:
    """The messages of a topic that cannot be read, as they are, with where they were."""
    read = _read(_stream(session, source), source, schema)
    return read.where(F.col(_BAD)).select(
        "topic", "partition", "offset", "timestamp", "key", "value"
    )


def _common(place: TopicSource | TopicSink) -> dict[str, str]:
    return {"kafka.bootstrap.servers": place.servers, **dict(place.options)}


def _messages(session: Any, place: TopicSource | TopicSink) -> Any:
    """The messages that a topic has now."""
    options = {**_PATIENCE, **_common(place), "subscribe": place.topic}
    options |= {"startingOffsets": "earliest", "endingOffsets": "latest"}
    return session.read.format("kafka").options(**options).load()


def _stream(session: Any, source: TopicSource) -> Any:
    options = {**_common(source), "subscribe": source.topic, "startingOffsets": source.starting}
    if source.most is not None:
        options["maxOffsetsPerTrigger"] = str(source.most)
    return session.readStream.format("kafka").options(**options).load()


def _read(raw: Any, source: TopicSource, schema: str | None) -> Any:
    """Messages with their value as a struct, and whether it could not be read."""
    if source.format == "avro":
        from pyspark.sql.avro.functions import from_avro

        assert source.avro is not None
        options = {"mode": "PERMISSIVE", "avroSchema": _marked(source.avro)}
        value = from_avro("value", source.avro, options)
        unread = F.col(_VALUE).getField(_BAD).isNull()
        return raw.select("*", value.alias(_VALUE)).select("*", unread.alias(_BAD))
    columns = StructType.fromDDL(schema)
    with_bad = columns.add(_BAD, "string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD}
    text = F.col("value").cast("string")
    ddl = with_bad.toDDL()
    value = (
        F.from_csv(text, ddl, options)
        if source.format == "csv"
        else F.from_json(text, with_bad, options)
    )
    bad = F.col(_VALUE).isNull() | F.col(_VALUE).getField(_BAD).isNotNull()
    return raw.select("*", value.alias(_VALUE)).select("*", bad.alias(_BAD))


def _marked(schema: str) -> str:
    """An Avro schema with one more field, which has a value in every message that can be read.

    Spark gives a row of NULLs for one that cannot, and a message may hold nothing but NULLs itself.
    """
    record = json.loads(schema)
    mark = {"name": _BAD, "type": "boolean", "default": True}
    return json.dumps(record | {"fields": [*record["fields"], mark]})


def _fields(read: Any) -> list[str]:
    return [name for name in read.schema[_VALUE].dataType.names if name != _BAD]
