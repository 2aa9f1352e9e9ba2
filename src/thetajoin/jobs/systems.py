"""The parts of a job file about Kafka, Delta, Iceberg and databases, checked.

```toml
[sources.orders]
kafka = "localhost:9092"
topic = "orders"
format = "json"                        # or avro, csv, raw
schema = "id BIGINT, ts TIMESTAMP"     # or found from a sample; for avro a file: "order.avsc"
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
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from thetajoin.errors import OptionError, suggest
from thetajoin.jobs.files import folder, place
from thetajoin.secrets import Secret, hide

# Options may hold passwords, so no representation shows them.
Options = tuple[tuple[str, str], ...]
METADATA = ("key", "topic", "partition", "offset", "timestamp")
FORMATS = ("json", "avro", "csv", "raw")
TABLES = ("delta", "iceberg")
LATEST = "latest"
KAFKA, JDBC = "kafka", "jdbc"
SOURCES = (KAFKA, *TABLES)
SINKS = (KAFKA, *TABLES, JDBC)
_KAFKA_KEYS: dict[str, type] = {
    **dict.fromkeys(("kafka", "topic", "format", "schema", "starting_offsets"), str),
    "max_offsets_per_trigger": int,
    "metadata": list,
    **dict.fromkeys(("poison", "on_poison", "watermark"), str),
    "stream": bool,
    "options": dict,
}
_TABLE_KEYS: dict[str, type] = {
    "stream": bool,
    "starting_version": object,
    "max_files_per_trigger": int,
    "on_change": str,
    "watermark": str,
    "options": dict,
}
SOURCE_KEYS = {KAFKA: _KAFKA_KEYS, **{kind: {kind: str, **_TABLE_KEYS} for kind in TABLES}}
_STREAM_KEYS = ("starting_version", "max_files_per_trigger", "on_change", "watermark")
_WITH_ID: dict[str, type] = {"id": str, "key": list, "options": dict, "mode": str}
SINK_KEYS: dict[str, dict[str, type]] = {
    KAFKA: {"kafka": str, "topic": str, **_WITH_ID},
    JDBC: {"jdbc": str, "table": str, **_WITH_ID},
    **{kind: {kind: str, **_WITH_ID} for kind in TABLES},
}
# Spark's options for which a job has keys of its own.
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
_NAMED = re.compile(r"\$\{([^}]*)\}")


@dataclass(frozen=True)
class TopicSource:
    """A Kafka topic that is read as a stream.

    schema: the columns, as SQL types; None if a sample is to tell them. avro: the text of an Avro
    schema. starting: ``earliest``, ``latest`` or Spark's JSON of offsets. most: messages in a
    micro-batch. metadata: what to keep of a message beside its value, as columns ``kafka_...``.
    poison: a folder for messages that cannot be read.
    """

    servers: str
    topic: str
    format: str = "json"
    schema: str | None = None
    avro: str | None = None
    starting: str = "earliest"
    most: int | None = None
    metadata: tuple[str, ...] = ()
    poison: Path | None = None
    fail_on_poison: bool = False
    options: Options = field(default=(), repr=False)


@dataclass(frozen=True)
class Table:
    """A table of Delta (a folder or URI) or Iceberg (``catalog.namespace.table``)."""

    kind: str
    place: str
    options: Options = field(default=(), repr=False)

    def __str__(self) -> str:
        return f"the {self.kind.title()} table {self.place}"


@dataclass(frozen=True)
class TableSource(Table):
    """A table of Delta or Iceberg that is read once, as it is now."""


@dataclass(frozen=True)
class TableStream(Table):
    """A table of Delta or Iceberg that is read as a stream of the rows added to it.

    starting: None for all rows of the table and then what is added; a version (of Iceberg, a
    snapshot's id) for what that one and later ones add; ``latest`` for what is added from now on.
    most: data files in a micro-batch. skip_changes: leave out versions that remove or rewrite rows,
    which otherwise are an error.
    """

    starting: int | str | None = None
    most: int | None = None
    skip_changes: bool = False


@dataclass(frozen=True)
class TopicSink:
    """A Kafka topic that matches are written to, as JSON."""

    servers: str
    topic: str
    options: Options = field(default=(), repr=False)

    def __str__(self) -> str:
        return f"topic {self.topic!r} at {self.servers}"


@dataclass(frozen=True)
class TableSink(Table):
    """A table of Delta or Iceberg that matches are appended to, each micro-batch once."""


@dataclass(frozen=True)
class DatabaseSink:
    """A table of a database, by JDBC, that matches are appended to."""

    url: str = field(repr=False)
    table: str
    options: Options = field(default=(), repr=False)

    def __str__(self) -> str:
        return f"the database's table {self.table}"


Sink = TopicSink | TableSink | DatabaseSink


def find_kind(data: Any, kinds: tuple[str, ...]) -> str | None:
    """Which system a table of a job names; None if it names files."""
    found = [kind for kind in kinds if isinstance(data, dict) and kind in data]
    return found[0] if found else None


def read_topic_source(data: dict[str, Any], where: str, base: Path) -> TopicSource:
    """A checked Kafka source."""
    _require(data, "topic", where)
    if data.get("stream") is False:
        raise OptionError(f"{where}: a topic is read as a stream: leave stream = false out")
    form = check_choice(data.get("format", "json"), FORMATS, "format", where)
    for name in data.get("metadata", ()):
        check_choice(name, METADATA, "metadata", where)
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
    on_poison = check_choice(data.get("on_poison", "skip"), ("skip", "fail"), "on_poison", where)
    if "poison" in data and on_poison == "fail":
        raise OptionError(f"{where}: on_poison = 'fail' keeps nothing aside: leave poison out")
    avro = _read_avro_schema(base / data["schema"], where) if form == "avro" else None
    return TopicSource(
        servers=fill_in(data["kafka"], where),
        topic=data["topic"],
        format=form,
        schema=None if avro is not None else data.get("schema"),
        avro=avro,
        starting=_check_offsets(data.get("starting_offsets", "earliest"), where),
        most=most,
        metadata=tuple(data.get("metadata", ())),
        poison=folder(data, "poison", where, base),
        fail_on_poison=on_poison == "fail",
        options=_read_options(data, where),
    )


def read_table_source(
    data: dict[str, Any], kind: str, where: str, base: Path
) -> TableSource | TableStream:
    """A checked Delta or Iceberg source, as a table or as a stream of what is added to it."""
    found = _read_table_place(data[kind], kind, where, base)
    options = _read_options(data, where)
    if not data.get("stream"):
        wrong = next((key for key in _STREAM_KEYS if key in data), None)
        if wrong:
            raise OptionError(f"{where}: {wrong} is for streams: add stream = true")
        return TableSource(kind, found, options)
    most = data.get("max_files_per_trigger")
    if most is not None and most < 1:
        raise OptionError(f"{where}: max_files_per_trigger = {most} must be at least 1")
    on_change = check_choice(data.get("on_change", "fail"), ("fail", "skip"), "on_change", where)
    return TableStream(
        kind=kind,
        place=found,
        starting=_check_version(data.get("starting_version"), kind, where),
        most=most,
        skip_changes=on_change == "skip",
        options=options,
    )


def _check_version(value: Any, kind: str, where: str) -> int | str | None:
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if value is None or whole or value == LATEST:
        found: int | str | None = value
        return found
    what = "a version" if kind == "delta" else "a snapshot's id"
    raise OptionError(f"{where}: starting_version = {value!r}: write {what}, or 'latest'")


def read_outside_sink(data: dict[str, Any], kind: str, where: str, base: Path) -> Sink:
    """A checked sink that is no folder of files."""
    options = _read_options(data, where)
    if kind == KAFKA:
        _require(data, "topic", where)
        return TopicSink(fill_in(data["kafka"], where), data["topic"], options)
    if kind == JDBC:
        _require(data, "table", where)
        url = fill_in(data["jdbc"], where)
        if not url.startswith("jdbc:"):
            raise OptionError(f"{where}: jdbc must be a URL that begins with 'jdbc:'")
        return DatabaseSink(url, data["table"], options)
    return TableSink(kind, _read_table_place(data[kind], kind, where, base), options)


def _read_table_place(text: str, kind: str, where: str, base: Path) -> str:
    """Where a table is: a folder beside the job or a URI, or a name in a catalog."""
    if kind == "delta":
        return place(text, base)
    if text.count(".") < 2:
        raise OptionError(f"{where}: iceberg = {text!r}: write 'catalog.namespace.table'")
    return text


def _require(data: dict[str, Any], key: str, where: str) -> None:
    if not data.get(key):
        raise OptionError(f"{where} has no {key!r}")


def check_choice(value: Any, known: tuple[str, ...], key: str, where: str) -> str:
    """A key's value, if it is one of those known."""
    if value not in known:
        raise OptionError(f"{where}: {key} = {value!r}: {suggest(str(value), known)}")
    return str(value)


def _check_offsets(text: str, where: str) -> str:
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


def _read_avro_schema(file: Path, where: str) -> str:
    try:
        text = file.read_text(encoding="utf-8")
        found = json.loads(text)
    except (OSError, ValueError) as error:
        raise OptionError(f"{where}: {file} is not an Avro schema (JSON): {error}") from error
    if not isinstance(found, dict) or found.get("type") != "record" or not found.get("fields"):
        raise OptionError(f"{where}: {file} is not an Avro schema of a record with fields")
    return text


def _read_options(data: dict[str, Any], where: str) -> Options:
    """Options as Spark takes them; TOML reads the dots of their names as tables in tables."""
    found = []
    for name, value in _flatten(data.get("options", {}), ""):
        if name.lower() in _OWN:
            raise OptionError(f"{where}, options: {name} is the job's key {_OWN[name.lower()]!r}")
        if isinstance(value, list | dict):
            raise OptionError(f"{where}, options: {name} must be a string, a number, true or false")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        found.append((name, fill_in(text, f"{where}, options, {name}")))
    return tuple(found)


def _flatten(table: dict[str, Any], above: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in table.items():
        if isinstance(value, dict) and value:
            found += _flatten(value, f"{above}{name}.")
        else:
            found.append((f"{above}{name}", value))
    return found


def fill_in(text: str, where: str) -> str:
    """A text with its ``${NAME}`` replaced; their values are hidden from now on.

    >>> os.environ["THETAJOIN_EXAMPLE"] = "pa55word"
    >>> fill_in("user:${THETAJOIN_EXAMPLE}", "job.toml")
    [hidden]
    >>> from thetajoin.secrets import forget, redact
    >>> redact("cannot log in with pa55word")
    'cannot log in with [hidden]'
    >>> forget(), os.environ.pop("THETAJOIN_EXAMPLE")
    (None, 'pa55word')
    """

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if not os.environ.get(name):
            raise OptionError(f"{where}: the environment has no {name}, which ${{{name}}} asks for")
        hide(os.environ[name])
        return os.environ[name]

    full = _NAMED.sub(value, text)
    return full if full == text else Secret(full)
