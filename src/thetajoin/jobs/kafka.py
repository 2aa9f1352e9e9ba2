"""Kafka topics as streams of rows; messages that cannot be read are counted and kept aside.

Spark's parsers pass over some of what is wrong: whatever follows a JSON object or an Avro record,
bytes that are no text, an empty line of CSV. Here a message counts only as a whole.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from thetajoin.errors import SchemaError, ThetaJoinError
from thetajoin.jobs.kafka_failures import (
    Place,
    kafka_options,
    kafka_reason,
    mismatch,
    no_broker,
    no_topic,
)
from thetajoin.jobs.progress import POISON
from thetajoin.jobs.systems import TopicSink, TopicSource

SAMPLE = 1000  # messages
# A missing broker is reported within seconds; Kafka's own limit is a minute, and Spark asks
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
BAD, VALUE = "__thetajoin_bad", "__thetajoin_value"
_TEXT = "__thetajoin_text"
_BLANK = " \t\r\n"
# Read after an Avro message, it is still itself if the message ends where its schema says.
_MARK = b"thetajoin"


def check_broker(session: Any, place: Place, *, topic: bool = True) -> None:
    """Refuse a broker that does not answer, or one without the topic.

    A message of a source is read as well, which a user may have no right to. A sink's topic is
    looked at only: who may write need not have the right to read.
    """
    more = {} if isinstance(place, TopicSource) else _NOTHING
    try:
        _read_now(session, place, more).limit(1).collect()
    except Exception as error:
        if topic or not no_topic(error):
            silent = _explain_silence(session, place) if no_broker(error) else None
            raise ThetaJoinError(silent or kafka_reason(error, place)) from error


def _explain_silence(session: Any, place: Place) -> str | None:
    """What a broker that has not answered may have expected instead."""

    def understands(options: Mapping[str, str]) -> bool:
        other = TopicSink(place.servers, place.topic, options=tuple(options.items()))
        return does_answer(session, other, _AT_ONCE)

    return mismatch(place.servers, kafka_options(place), understands)


def does_answer(session: Any, place: Place, patience: Mapping[str, str] = _BRIEF) -> bool:
    """Whether a broker is there, asked for ten seconds; whatever it says is an answer."""
    try:
        _read_now(session, place, {**_NOTHING, **patience}).limit(1).collect()
    except Exception as error:
        return not no_broker(error)
    return True


def find_missing(session: Any, places: list[Place]) -> Place | None:
    """The first topic that is not there."""
    for place in places:
        try:
            _read_now(session, place, _NOTHING).limit(1).collect()
        except Exception as error:
            if no_topic(error):
                return place
    return None


def sample_schema(session: Any, source: TopicSource) -> tuple[str, int]:
    """The columns of a topic's first messages as SQL types, and how many messages were read."""
    rows = _read_now(session, source).limit(SAMPLE).select("value").collect()
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


def read_topic(session: Any, name: str, source: TopicSource, schema: str | None) -> Any:
    """A topic as a stream of rows, without the messages that cannot be read."""
    raw = _read_stream(session, source)
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


def read_poison(session: Any, source: TopicSource, schema: str | None) -> Any:
    """The messages of a topic that cannot be read, as they are, with where they were."""
    read = read_messages(_read_stream(session, source), source, schema)
    return read.where(F.col(BAD)).select(
        "topic", "partition", "offset", "timestamp", "key", "value"
    )


def _connection_options(place: Place) -> dict[str, str]:
    return {"kafka.bootstrap.servers": place.servers, **dict(place.options)}


def _read_now(session: Any, place: Place, more: dict[str, str] | None = None) -> Any:
    """The messages that a topic has now."""
    options = {**_PATIENCE, **_connection_options(place), "subscribe": place.topic}
    options |= {"startingOffsets": "earliest", "endingOffsets": "latest", **(more or {})}
    return session.read.format("kafka").options(**options).load()


def _read_stream(session: Any, source: TopicSource) -> Any:
    options = {
        **_connection_options(source),
        "subscribe": source.topic,
        "startingOffsets": source.starting,
    }
    if source.most is not None:
        options["maxOffsetsPerTrigger"] = str(source.most)
    return session.readStream.format("kafka").options(**options).load()


def read_messages(raw: Any, source: TopicSource, schema: str | None) -> Any:
    """Messages with their value as a struct, and whether it could not be read."""
    if source.format == "avro":
        assert source.avro is not None
        return _read_avro(raw, source.avro)
    with_bad = StructType.fromDDL(schema).add(BAD, "string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BAD}
    text = F.col(_TEXT)
    csv = source.format == "csv"
    value = (
        F.from_csv(text, with_bad.toDDL(), options) if csv else F.from_json(text, with_bad, options)
    )
    unread = F.col(VALUE).isNull() | F.col(VALUE).getField(BAD).isNotNull()
    more = F.length(F.rtrim(text, F.lit(_BLANK))) == 0 if csv else ~_is_one_object(text)
    read = raw.select("*", F.col("value").cast("string").alias(_TEXT))
    read = read.select("*", value.alias(VALUE))
    bad = F.coalesce(unread | ~F.is_valid_utf8(text) | more, F.lit(True))
    return read.select("*", bad.alias(BAD)).drop(_TEXT)


def fields_of(read: Any) -> list[str]:
    """The columns of the messages."""
    return [name for name in read.schema[VALUE].dataType.names if name != BAD]


def _is_one_object(text: Any) -> Any:
    """Whether nothing follows the JSON object that a message begins with.

    Where the first brace that closes is at the end, nothing does. Only other messages, those with
    objects in them, are parsed a second time: as the one element of a list, with a field after it.
    """
    flat = F.instr(text, "}") == F.length(text)
    wrapped = F.concat(F.lit('{"one": ['), text, F.lit('], "end": 1}'))
    parsed = F.from_json(wrapped, "one ARRAY<STRING>, end INT")
    alone = (F.size(parsed.getField("one")) == 1) & parsed.getField("end").isNotNull()
    return F.when(flat, F.lit(True)).otherwise(F.coalesce(alone, F.lit(False)))


def _read_avro(raw: Any, schema: str) -> Any:
    from pyspark.sql.avro.functions import from_avro

    record = json.loads(schema)
    mark = {"type": "fixed", "name": "__thetajoin_mark", "size": len(_MARK)}
    marked = record | {"fields": [*record["fields"], {"name": BAD, "type": mark}]}
    message = F.concat(F.col("value"), F.lit(_MARK))
    value = from_avro(message, json.dumps(marked), {"mode": "PERMISSIVE"})
    whole = F.col(VALUE).getField(BAD).eqNullSafe(F.lit(_MARK))
    return raw.select("*", value.alias(VALUE)).select("*", (~whole).alias(BAD))
