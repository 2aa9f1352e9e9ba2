"""What Spark's driver and workers do with a table's stream, in this process and without Spark.

A micro-batch's end is written down before its rows are read, and it is run again if nothing says
that it was done: that is when a stream must give the same rows once more.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.serializers import CPickleSerializer
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable

from thetajoin.spark.connectors.specs import TableStream
from thetajoin.spark.connectors.table_streams import TableReader, table_columns


@dataclass
class Driver:
    """A query over one table: its checkpoint is `ends`, and `rows` is what it gave."""

    source: TableStream
    columns: Any = None
    ends: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    reader: Any = None

    def restart(self) -> TableReader:
        """A new process, as after a kill."""
        if self.columns is None:
            self.columns = table_columns(self.source)
        reader = TableReader(self.source, self.columns)
        self.reader = sent(reader)
        return reader

    def batch(self, *, limited: bool = True) -> list[dict[str, Any]] | None:
        """The rows of the next micro-batch; None if there is nothing new."""
        reader = self.reader or self.restart()
        start = json.loads(self.ends[-1]) if self.ends else reader.initialOffset()
        limit = reader.getDefaultReadLimit() if limited else ReadAllAvailable()
        end = reader.latestOffset(start, limit)
        if end == start and self.ends:
            return None  # the first one is run in any case, and written down
        self.ends.append(json.dumps(end))
        rows = self.again()
        self.rows += rows
        return rows

    def again(self) -> list[dict[str, Any]]:
        """The rows of the last micro-batch, as whoever runs it again would read them."""
        start = json.loads(self.ends[-2]) if len(self.ends) > 1 else self.reader.initialOffset()
        parts = self.reader.partitions(start, json.loads(self.ends[-1]))
        schema = to_arrow_schema(self.columns, timezone="UTC")
        rows: list[dict[str, Any]] = []
        for part in parts:
            worker = TableReader(self.source, self.columns)
            for batch in worker.read(sent(part)):
                assert batch.schema.equals(schema)
                rows += batch.to_pylist()
        return rows

    def run(self, *, limited: bool = True) -> list[list[dict[str, Any]]]:
        """All micro-batches that there are rows for now."""
        found = []
        while (rows := self.batch(limited=limited)) is not None:
            found.append(rows)
        return found


def sent(thing: Any) -> Any:
    """What arrives in another process."""
    packer = CPickleSerializer()
    return packer.loads(packer.dumps(thing))


def keys(rows: list[dict[str, Any]]) -> list[int]:
    """The rows by their number, in order."""
    return sorted(row["k"] for row in rows)


def table(*numbers: int, **more: Any) -> pa.Table:
    """Rows with these numbers, each of which is in the partition `number % 2`."""
    columns = {"k": list(numbers), "p": [n % 2 for n in numbers], **more}
    return pa.table(columns)
