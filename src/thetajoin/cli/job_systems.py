"""The parts of a job file about Kafka, Delta, Iceberg and databases, checked.

```toml
[sources.orders]
kafka = "localhost:9092"
topic = "orders"
format = "json"                        # or avro, csv, raw
schema = "id BIGINT, ts TIMESTAMP"     # or told by a sample; for avro a file: "order.avsc"
starting_offsets = "earliest"          # or "latest", or Spark's JSON
max_offsets_per_trigger = 100000
metadata = ["offset", "partition"]     # columns kafka_offset, kafka_partition
poison = "bad-orders"                  # a folder for messages that cannot be read
on_poison = "skip"                     # or "fail"
watermark = "ts 10 seconds"

[sources.orders.options]
kafka.security.protocol = "SASL_SSL"
kafka.sasl.jaas.config = "... password='${KAFKA_PASSWORD}';"

[sources.readings]
delta = "tables/readings"              # or iceberg = "catalog.namespace.table"
stream = true                          # the rows that are added; without it, the table, read once
starting_version = 12                  # or "latest"; without it, all rows, then what is added
max_files_per_trigger = 100
on_change = "fail"                     # or "skip" versions that remove or rewrite rows
watermark = "ts 10 seconds"

[sink]
kafka = "localhost:9092"
topic = "pairs"
id = "match_id"
key = ["id", "id_right"]
```
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from thetajoin.cli.files import folder, place
from thetajoin.cli.secrets import filled
from thetajoin.errors import OptionError, suggest
from thetajoin.spark.connectors.specs import (
    FORMATS,
    LATEST,
    METADATA,
    TABLES,
    DatabaseSink,
    Options,
    Sink,
    TableSink,
    TableSource,
    TableStream,
    TopicSink,
    TopicSource,
)

KAFKA, JDBC = "kafka", "jdbc"
SOURCES = (KAFKA, *TABLES)
SINKS = (KAFKA, *TABLES, JDBC)
SOURCE_KEYS: dict[str, dict[str, type]] = {
    KAFKA: {
        "kafka": str,
        "topic": str,
        "format": str,
        "schema": str,
        "starting_offsets": str,
        "max_offsets_per_trigger": int,
        "metadata": list,
        "poison": str,
        "on_poison": str,
        "watermark": str,
        "stream": bool,
        "options": dict,
    },
    **{
        kind: {
            kind: str,
            "stream": bool,
            "starting_version": object,
            "max_files_per_trigger": int,
            "on_change": str,
            "watermark": str,
            "options": dict,
        }
        for kind in TABLES
    },
}
_STREAM_KEYS = ("starting_version", "max_files_per_trigger", "on_change", "watermark")
_WITH_ID: dict[str, type] = {"id": str, "key": list, "options": dict, "mode": str}
SINK_KEYS: dict[str, dict[str, type]] = {
    KAFKA: {"kafka": str, "topic": str, **_WITH_ID},
    JDBC: {"jdbc": str, "table": str, **_WITH_ID},
    **{kind: {kind: str, **_WITH_ID} for kind in TABLES},
}
# What a job says in keys of its own, by what Spark calls it.
_OWN = {
    "kafka.bootstrap.servers": "kafka",
    "subscribe": "topic",
    "subscribepattern": "topic",
    "assign": "topic",
    "topic": "topic",
    "startingoffsets": "starting_offsets",
    "maxoffsetspertrigger": "max_offsets_per_trigger",
    "checkpointlocation": "checkpoint",
    "url": "jdbc",
    "dbtable": "table",
}


def kind_of(data: Any, kinds: tuple[str, ...]) -> str | None:
    """Which system a table of a job names; None if it names files."""
    found = [kind for kind in kinds if isinstance(data, dict) and kind in data]
    return found[0] if found else None


def topic_source(data: dict[str, Any], where: str, base: Path) -> TopicSource:
    """A checked Kafka source."""
    _needs(data, "topic", where)
    if data.get("stream") is False:
        raise OptionError(f"{where}: a topic is read as a stream: leave stream = false out")
    form = _choice(data.get("format", "json"), FORMATS, "format", where)
    for name in data.get("metadata", ()):
        _choice(name, METADATA, "metadata", where)
    most = data.get("max_offsets_per_trigger")
    if most is not None and most < 1:
        raise OptionError(f"{where}: max_offsets_per_trigger = {most} must be at least 1")
    if form == "raw":
        wrong = next((k for k in ("schema", "poison", "on_poison", "metadata") if k in data), None)
        if wrong:
            raise OptionError(f"{where}: {wrong} has no use with format = 'raw', which reads bytes")
    elif form != "json" and "schema" not in data:
        what = "schema = 'FILE.avsc'" if form == "avro" else "schema = 'id BIGINT, ...'"
        raise OptionError(f"{where}: format = {form!r} needs its columns: write {what}")
    on_poison = _choice(data.get("on_poison", "skip"), ("skip", "fail"), "on_poison", where)
    if "poison" in data and on_poison == "fail":
        raise OptionError(f"{where}: on_poison = 'fail' keeps nothing aside: leave poison out")
    avro = _avro_schema(base / data["schema"], where) if form == "avro" else None
    return TopicSource(
        servers=filled(data["kafka"], where),
        topic=data["topic"],
        format=form,
        schema=None if avro is not None else data.get("schema"),
        avro=avro,
        starting=_offsets(data.get("starting_offsets", "earliest"), where),
        most=most,
        metadata=tuple(data.get("metadata", ())),
        poison=folder(data, "poison", where, base),
        fail_on_poison=on_poison == "fail",
        options=_options(data, where),
    )


def table_source(
    data: dict[str, Any], kind: str, where: str, base: Path
) -> TableSource | TableStream:
    """A checked Delta or Iceberg source, as a table or as a stream of what is added to it."""
    found = _table(data[kind], kind, where, base)
    options = _options(data, where)
    if not data.get("stream"):
        wrong = next((key for key in _STREAM_KEYS if key in data), None)
        if wrong:
            raise OptionError(f"{where}: {wrong} is for streams: add stream = true")
        return TableSource(kind, found, options)
    most = data.get("max_files_per_trigger")
    if most is not None and most < 1:
        raise OptionError(f"{where}: max_files_per_trigger = {most} must be at least 1")
    on_change = _choice(data.get("on_change", "fail"), ("fail", "skip"), "on_change", where)
    return TableStream(
        kind=kind,
        place=found,
        starting=_version(data.get("starting_version"), kind, where),
        most=most,
        skip_changes=on_change == "skip",
        options=options,
    )


def _version(value: Any, kind: str, where: str) -> int | str | None:
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if value is None or whole or value == LATEST:
        found: int | str | None = value
        return found
    what = "a version" if kind == "delta" else "a snapshot's id"
    raise OptionError(f"{where}: starting_version = {value!r}: write {what}, or 'latest'")


def outside_sink(data: dict[str, Any], kind: str, where: str, base: Path) -> Sink:
    """A checked sink that is no folder of files."""
    options = _options(data, where)
    if kind == KAFKA:
        _needs(data, "topic", where)
        return TopicSink(filled(data["kafka"], where), data["topic"], options)
    if kind == JDBC:
        _needs(data, "table", where)
        url = filled(data["jdbc"], where)
        if not url.startswith("jdbc:"):
            raise OptionError(f"{where}: jdbc must be a URL that begins with 'jdbc:'")
        return DatabaseSink(url, data["table"], options)
    return TableSink(kind, _table(data[kind], kind, where, base), options)


def _table(text: str, kind: str, where: str, base: Path) -> str:
    """Where a table is: a folder beside the job or a URI, or a name in a catalog."""
    if kind == "delta":
        return place(text, base)
    if text.count(".") < 2:
        raise OptionError(f"{where}: iceberg = {text!r}: write 'catalog.namespace.table'")
    return text


def _needs(data: dict[str, Any], key: str, where: str) -> None:
    if not data.get(key):
        raise OptionError(f"{where} has no {key!r}")


def _choice(value: Any, known: tuple[str, ...], key: str, where: str) -> str:
    if value not in known:
        raise OptionError(f"{where}: {key} = {value!r}: {suggest(str(value), known)}")
    return str(value)


def _offsets(text: str, where: str) -> str:
    if text in ("earliest", "latest"):
        return text
    try:
        if isinstance(json.loads(text), dict):
            return text
    except ValueError:
        pass
    raise OptionError(
        f"{where}: starting_offsets = {text!r}: write 'earliest', 'latest' or Spark's JSON, "
        '\'{"topic": {"0": 23, "1": -2}}\''
    )


def _avro_schema(file: Path, where: str) -> str:
    try:
        text = file.read_text(encoding="utf-8")
        found = json.loads(text)
    except (OSError, ValueError) as error:
        raise OptionError(f"{where}: {file} is not an Avro schema (JSON): {error}") from error
    if not isinstance(found, dict) or found.get("type") != "record" or not found.get("fields"):
        raise OptionError(f"{where}: {file} is not an Avro schema of a record with fields")
    return text


def _options(data: dict[str, Any], where: str) -> Options:
    """Options as Spark takes them; TOML reads the dots of their names as tables in tables."""
    found = []
    for name, value in _flat(data.get("options", {}), ""):
        if name.lower() in _OWN:
            raise OptionError(f"{where}, options: {name} is the job's key {_OWN[name.lower()]!r}")
        if isinstance(value, list | dict):
            raise OptionError(f"{where}, options: {name} must be a text, a number or true or false")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        found.append((name, filled(text, f"{where}, options, {name}")))
    return tuple(found)


def _flat(table: dict[str, Any], above: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in table.items():
        if isinstance(value, dict) and value:
            found += _flat(value, f"{above}{name}.")
        else:
            found.append((f"{above}{name}", value))
    return found
