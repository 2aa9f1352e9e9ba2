"""The demo with Kafka: its streams are two topics, and its matches go into a third."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from thetajoin.spark.connectors.specs import TopicSink, TopicSource

PAIRS = ("id", "id_right")


@contextmanager
def broker(servers: str | None, folder: Path) -> Iterator[str]:
    """A broker that was given, or one of this demo's own while it runs."""
    if servers is not None:
        yield servers
        return
    from thetajoin.spark.connectors.broker import Broker

    with Broker(folder / "kafka", partitions=1) as own:
        yield own.servers


class Topics:
    """The demo's topics at a broker, with names that no other demo has."""

    def __init__(self, servers: str, schema: str, most: int) -> None:
        self.servers = servers
        self._schema = schema
        self._most = most
        self._name = f"thetajoin-demo-{uuid.uuid4().hex[:8]}"

    @property
    def matches(self) -> str:
        """The topic of the result."""
        return f"{self._name}-matches"

    def publish(self, spark: Any, folders: list[Path]) -> None:
        """Send each stream's rows to its topic, in their order.

        All go to one partition, so that a micro-batch has the same rows as with files, which the
        window by count depends on.
        """
        from thetajoin.spark.connectors.topics import check_broker

        check_broker(spark, TopicSink(self.servers, self.matches), topic=False)
        for folder in folders:
            rows = spark.createDataFrame(parquet.read_table(folder).sort_by("ts")).coalesce(1)
            times = "map('timestampFormat', 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSSXXX')"
            messages = rows.selectExpr("0 AS partition", f"to_json(struct(*), {times}) AS value")
            options = {"kafka.bootstrap.servers": self.servers, "topic": self._topic(folder)}
            messages.write.format("kafka").options(**options).save()

    def streams(self, spark: Any, folders: list[Path]) -> list[Any]:
        """The topics as streams."""
        from thetajoin.spark.connectors.topics import topic_rows

        found = []
        for folder in folders:
            source = TopicSource(
                self.servers, self._topic(folder), schema=self._schema, most=self._most
            )
            found.append(topic_rows(spark, folder.name, source, source.schema))
        return found

    def writer(self, found: Any, checkpoint: Path) -> Any:
        """A writer of the matches, each with an id as its key."""
        from thetajoin.spark.connectors.sinks import stream_writer

        sink = TopicSink(self.servers, self.matches)
        return stream_writer(found, sink, name="match_id", keys=PAIRS, checkpoint=checkpoint)

    def keep(self, spark: Any, folder: Path) -> None:
        """Write the matches to a file of the results folder, as Kafka gives them back."""
        options = {"kafka.bootstrap.servers": self.servers, "subscribe": self.matches}
        found = spark.read.format("kafka").options(**options).load()
        value = "from_json(CAST(value AS STRING), 'id BIGINT, id_right BIGINT') AS v"
        found = found.selectExpr("CAST(key AS STRING) AS match_id", value)
        rows: pa.Table = found.selectExpr("match_id", "v.id", "v.id_right").toArrow()
        folder.mkdir(parents=True)
        parquet.write_table(rows, folder / "matches.parquet")

    def _topic(self, folder: Path) -> str:
        return f"{self._name}-{folder.name}"
