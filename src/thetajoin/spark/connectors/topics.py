"""Kafka topics as streams of rows; messages that cannot be read are counted and kept aside."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from thetajoin.errors import SchemaError, ThetaJoinError
from thetajoin.spark.connectors.kafka_failures import (
    Place,
    kafka_options,
    kafka_reason,
    no_broker,
    no_topic,
)
from thetajoin.spark.connectors.messages import BAD, VALUE, fields_of, read_messages
from thetajoin.spark.connectors.specs import TopicSink, TopicSource
from thetajoin.spark.connectors.tls_mismatch import mismatch
from thetajoin.spark.listener import POISON

SAMPLE = 1000  # messages
# A broker that is not there is told within seconds; Kafka's own limit is a minute, and Spark asks
# three times.
_PATIENCE = {
    "kafka.default.api.timeout.ms": "15000",
    "kafka.request.timeout.ms": "10000",
    "fetchOffset.numRetries": "1",
}
# While a job runs, on a machine that may be busy with it: no false alarm, yet soon enough.
_BRIEF = {"kafka.default.api.timeout.ms": "10000", "kafka.request.timeout.ms": "8000"}
# A broker that understands the question refuses it within a round trip or two.
_AT_ONCE = {"kafka.default.api.timeout.ms": "4000", "kafka.request.timeout.ms": "3000"}
# A range without a message, from the end to the end, which Spark has no shorter word for.
_NOTHING = {
    "startingTimestamp": "253402300799999",
    "startingOffsetsByTimestampStrategy": "latest",
}


def check_broker(session: Any, place: Place, *, topic: bool = True) -> None:
    """Refuse a broker that does not answer, or one without the topic.

    A message of a source is read as well, which a user may have no right to. A sink's topic is
    looked at only: who may write need not have the right to read.
    """
    more = {} if isinstance(place, TopicSource) else _NOTHING
    try:
        _messages(session, place, more).limit(1).collect()
    except Exception as error:
        if topic or not no_topic(error):
            silent = _silent(session, place) if no_broker(error) else None
            raise ThetaJoinError(silent or kafka_reason(error, place)) from error


def _silent(session: Any, place: Place) -> str | None:
    """What a broker that has not answered may have expected instead."""

    def understands(options: Mapping[str, str]) -> bool:
        other = TopicSink(place.servers, place.topic, options=tuple(options.items()))
        return answers(session, other, _AT_ONCE)

    return mismatch(place.servers, kafka_options(place), understands)


def answers(session: Any, place: Place, patience: Mapping[str, str] = _BRIEF) -> bool:
    """Whether a broker is there, asked for ten seconds; whatever it says is an answer."""
    try:
        _messages(session, place, {**_NOTHING, **patience}).limit(1).collect()
    except Exception as error:
        return not no_broker(error)
    return True


def missing(session: Any, places: list[Place]) -> Place | None:
    """The first topic that is not there."""
    for place in places:
        try:
            _messages(session, place, _NOTHING).limit(1).collect()
        except Exception as error:
            if no_topic(error):
                return place
    return None


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
        options = {"inferTimestamp": "true", "columnNameOfCorruptRecord": BAD}
        found = session.read.options(**options).json(str(file)).schema
    fields = [field for field in found.fields if field.name != BAD]
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
    read = read_messages(raw, source, schema)
    if source.fail_on_poison:
        told = F.concat(
            F.lit(f"topic {source.topic} has a message that cannot be read: partition "),
            F.col("partition"),
            F.lit(", offset "),
            F.col("offset"),
        )
        good = F.when(F.col(BAD), F.raise_error(told).cast("boolean")).otherwise(F.lit(True))
    else:
        read = read.observe(f"{POISON}{name}", F.count_if(F.col(BAD)).alias("messages"))
        good = ~F.col(BAD)
    kept = [F.col(column).alias(f"kafka_{column}") for column in source.metadata]
    fields = fields_of(read)
    clash = {f"kafka_{column}" for column in source.metadata} & set(fields)
    if clash:
        raise SchemaError(f"the messages have a column {min(clash)!r} of their own")
    values = [F.col(VALUE).getField(field).alias(field) for field in fields]
    return read.where(good).select(*values, *kept)


def poison_rows(session: Any, source: TopicSource, schema: str | None) -> Any:
    """The messages of a topic that cannot be read, as they are, with where they were."""
    read = read_messages(_stream(session, source), source, schema)
    return read.where(F.col(BAD)).select(
        "topic", "partition", "offset", "timestamp", "key", "value"
    )


def _common(place: Place) -> dict[str, str]:
    return {"kafka.bootstrap.servers": place.servers, **dict(place.options)}


def _messages(session: Any, place: Place, more: dict[str, str] | None = None) -> Any:
    """The messages that a topic has now."""
    options = {**_PATIENCE, **_common(place), "subscribe": place.topic}
    options |= {"startingOffsets": "earliest", "endingOffsets": "latest", **(more or {})}
    return session.read.format("kafka").options(**options).load()


def _stream(session: Any, source: TopicSource) -> Any:
    options = {**_common(source), "subscribe": source.topic, "startingOffsets": source.starting}
    if source.most is not None:
        options["maxOffsetsPerTrigger"] = str(source.most)
    return session.readStream.format("kafka").options(**options).load()
