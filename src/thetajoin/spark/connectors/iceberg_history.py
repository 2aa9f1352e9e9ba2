"""The history of an Iceberg table: the line of snapshots behind its current one, by pyiceberg."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from thetajoin.errors import DataError
from thetajoin.spark.connectors.history import (
    NONE,
    ROWS,
    DataFile,
    Step,
    change_refused,
    changed_columns,
    columns_refused,
    gone,
    nullable,
)
from thetajoin.spark.connectors.specs import TableStream
from thetajoin.spark.connectors.tables import open_catalog


@dataclass(frozen=True)
class IcebergFile:
    """A data file as pyiceberg plans it, with the deletes that belong to it."""

    task: Any
    schema: int | None
    snapshot: int


@dataclass(frozen=True)
class Metadata:
    """What a worker opens a table with, without asking the catalog."""

    location: str
    properties: tuple[tuple[str, str], ...]


class IcebergHistory:
    """The snapshots of an Iceberg table. `wanted`: the columns to read, once they are known."""

    def __init__(self, source: TableStream, wanted: StructType | None = None) -> None:
        self._source = source
        self._wanted = wanted
        self._loaded: Any = None
        self._steps: dict[tuple[int, bool], Step] = {}

    def table(self) -> str:
        """The table's UUID."""
        return str(self._table.metadata.table_uuid)

    def columns(self) -> StructType:
        """The table's columns as they are now."""
        return _columns(self._refreshed().schema())

    def newest(self) -> int:
        """The id of the current snapshot; asks the catalog."""
        snapshot = self._refreshed().current_snapshot()
        return NONE if snapshot is None else int(snapshot.snapshot_id)

    def before(self, version: int) -> int:
        """The parent of a snapshot, which has to be in the line behind the current one."""
        self._refreshed()
        for snapshot in self._line(self._current()):
            if snapshot.snapshot_id == version:
                return _parent(snapshot)
        raise DataError(f"{self._source} has no snapshot {version} behind its current one")

    def whole(self, version: int) -> Step:
        """All files of the table at a snapshot, in the order in which they were added."""
        if version == NONE:
            return Step(version)
        if (version, True) not in self._steps:
            snapshot = self._snapshot(version)
            order = {
                entry.data_file.file_path: entry.sequence_number or 0
                for manifest in snapshot.manifests(self._table.io)
                for entry in manifest.fetch_manifest_entry(self._table.io)
            }
            tasks = self._table.scan(snapshot_id=version).plan_files()
            self._steps[version, True] = self._step(snapshot, tasks, order)
        return self._steps[version, True]

    def one(self, version: int) -> Step:
        """The files that a snapshot added."""
        if (version, False) not in self._steps:
            self._steps[version, False] = self._added(self._snapshot(version))
        return self._steps[version, False]

    def after(self, version: int, last: int) -> Iterator[Step]:
        """What was added after a snapshot, up to and with another, one by one."""
        if version == last:
            return
        found: list[int] = []
        for snapshot in self._line(last):
            found.append(snapshot.snapshot_id)
            if _parent(snapshot) == version:
                break
        else:
            raise gone(self._source, f"snapshot {version}", "expired, or rolled back")
        self._steps = {key: self._steps[key] for key in self._steps if key[0] in {version, *found}}
        for number in reversed(found):
            yield self.one(number)

    def context(self) -> Metadata:
        """Where the table's metadata is, and how to get at it and at the files."""
        location = self._table.metadata_location
        return Metadata(location, tuple(self._table.io.properties.items()))

    def rows(self, context: Metadata, files: Sequence[DataFile]) -> Iterator[pa.RecordBatch]:
        """The rows of files, with the stream's columns."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        assert self._wanted is not None
        table = _opened(context)
        wanted = to_arrow_schema(self._wanted, timezone="UTC")
        for file in files:
            schema = _schema(table.metadata, file.what.schema).select(*wanted.names)
            scan = ArrowScan(table.metadata, table.io, schema, AlwaysTrue())
            try:
                for batch in scan.to_record_batches([file.what.task]):
                    yield from _conformed(batch, wanted)
            except FileNotFoundError as error:
                what = f"{file.what.task.file.file_path}, a file of snapshot {file.what.snapshot}"
                raise gone(self._source, what, "removed with its snapshot") from error

    @property
    def _table(self) -> Any:
        return self._refreshed() if self._loaded is None else self._loaded

    @cached_property
    def _catalog(self) -> tuple[Any, str]:
        return open_catalog(self._source.place, self._source.options)

    def _refreshed(self) -> Any:
        catalog, name = self._catalog
        self._loaded = catalog.load_table(name)
        return self._loaded

    def _current(self) -> int:
        snapshot = self._table.current_snapshot()
        return NONE if snapshot is None else int(snapshot.snapshot_id)

    def _line(self, last: int) -> Iterator[Any]:
        """A snapshot and those behind it, the newest first, as far as they are kept."""
        snapshot = self._table.snapshot_by_id(last)
        while snapshot is not None:
            yield snapshot
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._table.snapshot_by_id(parent)

    def _snapshot(self, version: int) -> Any:
        snapshot = self._table.snapshot_by_id(version)
        if snapshot is None:
            raise gone(self._source, f"snapshot {version}", "expired")
        return snapshot

    def _added(self, snapshot: Any) -> Step:
        from pyiceberg.table.snapshots import Operation

        version = snapshot.snapshot_id
        operation = None if snapshot.summary is None else snapshot.summary.operation
        if operation == Operation.APPEND:
            scan = self._table.incremental_append_scan(
                from_snapshot_id_exclusive=snapshot.parent_snapshot_id,
                to_snapshot_id_inclusive=version,
            )
            return self._step(snapshot, scan.plan_files(), {})
        refused = self._columns_refused(snapshot)
        # A compaction replaces files by others with the same rows.
        if refused or operation == Operation.REPLACE or self._source.skip_changes:
            return Step(version, refused=refused)
        how = "a change" if operation is None else operation.value
        return Step(version, refused=change_refused(self._source, f"snapshot {version}", how))

    def _step(self, snapshot: Any, tasks: Any, order: dict[str, int]) -> Step:
        version = snapshot.snapshot_id
        found = sorted(tasks, key=lambda t: (order.get(t.file.file_path, 0), t.file.file_path))
        files = tuple(
            DataFile(IcebergFile(task, snapshot.schema_id, version), task.file.file_size_in_bytes)
            for task in found
        )
        return Step(version, files, self._columns_refused(snapshot))

    def _columns_refused(self, snapshot: Any) -> str:
        if self._wanted is None:
            return ""
        now = _columns(_schema(self._table.metadata, snapshot.schema_id))
        how = changed_columns(self._wanted, now)
        version = f"snapshot {snapshot.snapshot_id}"
        return columns_refused(self._source, version, how) if how else ""


def _parent(snapshot: Any) -> int:
    parent = snapshot.parent_snapshot_id
    return NONE if parent is None else int(parent)


def _schema(metadata: Any, number: int | None) -> Any:
    """The schema of a snapshot; old ones do not say which it is."""
    found = None if number is None else metadata.schema_by_id(number)
    return metadata.schema() if found is None else found


def _columns(schema: Any) -> StructType:
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    arrow = schema_to_pyarrow(schema, include_field_ids=False)
    found: StructType = nullable(from_arrow_schema(arrow))
    return found


@lru_cache(maxsize=4)
def _opened(context: Metadata) -> Any:
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(context.location, dict(context.properties))


def _conformed(batch: pa.RecordBatch, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    arrays = [batch.column(field.name).cast(field.type) for field in wanted]
    whole = pa.RecordBatch.from_arrays(arrays, schema=wanted)
    for at in range(0, whole.num_rows, ROWS):
        yield whole.slice(at, ROWS)
