"""Delta and Iceberg tables as streaming DataFrames, by PySpark's Python data sources.

Spark's driver asks a reader in a Python process of its own how far the table has come and which
files a micro-batch is made of; workers read the files.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from thetajoin.spark.connectors.delta_history import DeltaHistory
from thetajoin.spark.connectors.history import (
    DataFile,
    History,
    Position,
    advanced,
    check_same,
    files_between,
    told_of,
)
from thetajoin.spark.connectors.iceberg_history import IcebergHistory
from thetajoin.spark.connectors.specs import TableStream
from thetajoin.spark.connectors.tables import check_package

# A task reads files up to this size together; a file costs as much as that many bytes at least.
TASK_BYTES, FILE_BYTES = 32 << 20, 4 << 20
_numbers = itertools.count()


class Files(InputPartition):  # type: ignore[misc]
    """The files of one task."""

    def __init__(self, files: list[DataFile], context: Any) -> None:
        self.files = files
        self.context = context


class TableReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """A table as Spark reads a stream; `Position` is its offset."""

    def __init__(self, source: TableStream, columns: StructType) -> None:
        self._source = source
        self._history = history(source, columns)
        self._target: int | None = None

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember where a query is to end."""
        with told_of(self._source):
            self._target = self._history.newest()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The files of a micro-batch."""
        most = self._source.most
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins."""
        starting = self._source.starting
        with told_of(self._source):
            if isinstance(starting, int):
                begin = self._history.before(starting)
            else:
                begin = self._newest()
            whole = starting is None
            return Position.start(self._history.table(), begin, whole=whole).offset()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends."""
        most = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        with told_of(self._source):
            at, newest = Position.of(self._source, start), self._newest()
            check_same(self._source, at, self._history)
            return advanced(at, self._history, newest, most).offset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The files of a micro-batch, in as many parts as tasks are to read them."""
        with told_of(self._source):
            begin, until = Position.of(self._source, start), Position.of(self._source, end)
            check_same(self._source, until, self._history)
            files = files_between(begin, until, self._history)
            context = self._history.context()
        return [Files(part, context) for part in packed(files)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part; runs on a worker."""
        assert isinstance(partition, Files)
        with told_of(self._source):
            yield from self._history.rows(partition.context, partition.files)

    def _newest(self) -> int:
        return self._history.newest() if self._target is None else self._target


class TableDataSource(DataSource):  # type: ignore[misc]
    """What Spark makes readers with; each table has a subclass of its own.

    So credentials are part of the class, which Spark keeps as bytes, and not among the options,
    which it shows in plans.
    """

    source: ClassVar[TableStream]

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader of the table."""
        return TableReader(self.source, schema)


def history(source: TableStream, columns: StructType | None = None) -> History:
    """A table's history. columns: those to read."""
    if source.kind == "delta":
        return DeltaHistory(source, columns)
    return IcebergHistory(source, columns)


def table_columns(source: TableStream) -> StructType:
    """The columns of a table as it is now; refuses one that cannot be read as a stream."""
    check_package(source.kind)
    with told_of(source):
        return history(source).columns()


def kept_columns(text: str) -> StructType:
    """Columns from the SQL types that `StructType.toDDL` has made of them."""
    found: StructType = StructType.fromDDL(text)
    return found


def table_stream(session: Any, source: TableStream, columns: StructType | None = None) -> Any:
    """A table as a streaming DataFrame; reads the table's columns, if they are not given."""
    check_package(source.kind)
    if source.kind == "delta" and "://" not in source.place:
        # The processes that read it may have another working directory.
        source = replace(source, place=os.path.abspath(source.place))
    chosen = table_columns(source) if columns is None else columns
    name = f"thetajoin_{source.kind}_{next(_numbers)}"
    made = type(name, (TableDataSource,), {"source": source})
    session.dataSource.register(made)
    return session.readStream.format(name).schema(chosen).load()


def packed(files: list[DataFile]) -> Iterator[list[DataFile]]:
    """Files in parts for tasks: one large one, or a few small ones."""
    part: list[DataFile] = []
    size = 0
    for file in files:
        cost = max(file.bytes, FILE_BYTES)
        if part and size + cost > TASK_BYTES:
            yield part
            part, size = [], 0
        part.append(file)
        size += cost
    if part:
        yield part
