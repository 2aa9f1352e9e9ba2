"""Kafka messages as rows, and which of them cannot be read.

Spark's parsers pass over some of what is wrong: whatever follows a JSON object or an Avro record,
bytes that are no text, an empty line of CSV. A message is all of it or none of it here.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from thetajoin.spark.connectors.specs import TopicSource

BAD, VALUE = "__thetajoin_bad", "__thetajoin_value"
_TEXT = "__thetajoin_text"
_BLANK = " \t\r\n"
# Read after an Avro message, it is still itself if the message ends where its schema says.
_MARK = b"thetajoin"


def read_messages(raw: Any, source: TopicSource, schema: str | None) -> Any:
    """Messages with their value as a struct, and whether it could not be read."""
    if source.format == "avro":
        assert source.avro is not None
        return _avro(raw, source.avro)
    with_bad = StructType.fromDDL(schema).add(BAD, "string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BAD}
    text = F.col(_TEXT)
    csv = source.format == "csv"
    value = (
        F.from_csv(text, with_bad.toDDL(), options) if csv else F.from_json(text, with_bad, options)
    )
    unread = F.col(VALUE).isNull() | F.col(VALUE).getField(BAD).isNotNull()
    more = F.length(F.rtrim(text, F.lit(_BLANK))) == 0 if csv else ~_one_object(text)
    read = raw.select("*", F.col("value").cast("string").alias(_TEXT))
    read = read.select("*", value.alias(VALUE))
    bad = F.coalesce(unread | ~F.is_valid_utf8(text) | more, F.lit(True))
    return read.select("*", bad.alias(BAD)).drop(_TEXT)


def fields_of(read: Any) -> list[str]:
    """The columns of the messages."""
    return [name for name in read.schema[VALUE].dataType.names if name != BAD]


def _one_object(text: Any) -> Any:
    """Whether nothing follows the JSON object that a message begins with.

    Where the first brace that closes is at the end, nothing does. Only other messages, those with
    objects in them, are parsed a second time: as the one element of a list, with a field after it.
    """
    flat = F.instr(text, "}") == F.length(text)
    wrapped = F.concat(F.lit('{"one": ['), text, F.lit('], "end": 1}'))
    parsed = F.from_json(wrapped, "one ARRAY<STRING>, end INT")
    alone = (F.size(parsed.getField("one")) == 1) & parsed.getField("end").isNotNull()
    return F.when(flat, F.lit(True)).otherwise(F.coalesce(alone, F.lit(False)))


def _avro(raw: Any, schema: str) -> Any:
    from pyspark.sql.avro.functions import from_avro

    record = json.loads(schema)
    mark = {"type": "fixed", "name": "__thetajoin_mark", "size": len(_MARK)}
    marked = record | {"fields": [*record["fields"], {"name": BAD, "type": mark}]}
    message = F.concat(F.col("value"), F.lit(_MARK))
    value = from_avro(message, json.dumps(marked), {"mode": "PERMISSIVE"})
    whole = F.col(VALUE).getField(BAD).eqNullSafe(F.lit(_MARK))
    return raw.select("*", value.alias(VALUE)).select("*", (~whole).alias(BAD))
