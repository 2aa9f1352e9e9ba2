"""What a job says about sources and sinks that are not files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

# Options may hold passwords, so no representation shows them.
Options = tuple[tuple[str, str], ...]
METADATA = ("key", "topic", "partition", "offset", "timestamp")
FORMATS = ("json", "avro", "csv", "raw")
TABLES = ("delta", "iceberg")
LATEST = "latest"


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
class TableSource:
    """A table of Delta (a folder or URI) or Iceberg (``catalog.namespace.table``)."""

    kind: str
    place: str
    options: Options = field(default=(), repr=False)

    def __str__(self) -> str:
        return f"the {self.kind.title()} table {self.place}"


@dataclass(frozen=True)
class TableStream:
    """A table of Delta or Iceberg that is read as a stream of the rows added to it.

    starting: None for all rows of the table and then what is added; a version (of Iceberg, a
    snapshot's id) for what that one and later ones add; ``latest`` for what is added from now on.
    most: data files in a micro-batch. skip_changes: leave out versions that remove or rewrite rows,
    which otherwise are an error.
    """

    kind: str
    place: str
    starting: int | str | None = None
    most: int | None = None
    skip_changes: bool = False
    options: Options = field(default=(), repr=False)

    def __str__(self) -> str:
        return f"the {self.kind.title()} table {self.place}"


@dataclass(frozen=True)
class TopicSink:
    """A Kafka topic that matches are written to, as JSON."""

    servers: str
    topic: str
    options: Options = field(default=(), repr=False)

    def __str__(self) -> str:
        return f"topic {self.topic!r} at {self.servers}"


@dataclass(frozen=True)
class TableSink:
    """A table of Delta or Iceberg that matches are appended to, each micro-batch once."""

    kind: str
    place: str
    options: Options = field(default=(), repr=False)

    def __str__(self) -> str:
        return f"the {self.kind.title()} table {self.place}"


@dataclass(frozen=True)
class DatabaseSink:
    """A table of a database, by JDBC, that matches are appended to."""

    url: str = field(repr=False)
    table: str
    options: Options = field(default=(), repr=False)

    def __str__(self) -> str:
        return f"the database's table {self.table}"


Sink = TopicSink | TableSink | DatabaseSink
