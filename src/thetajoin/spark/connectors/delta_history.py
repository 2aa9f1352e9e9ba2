"""The history of a Delta table: the package deltalake, and the log's commits, which are JSON.

A commit names the files that it adds and removes. Those of a compaction say that they change no
data; they are passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StructType

from thetajoin.errors import DataError, SchemaError
from thetajoin.spark.connectors.delta_files import DeltaFile, file_rows, partition_value
from thetajoin.spark.connectors.history import (
    NONE,
    DataFile,
    Step,
    change_refused,
    changed_columns,
    columns_refused,
    gone,
    nullable,
)
from thetajoin.spark.connectors.specs import TableStream

# What a table may ask of its readers; mapped columns and deletion vectors are refused where used.
FEATURES = {
    "timestampNtz",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "deletionVectors",
    "columnMapping",
}
_INSTEAD = "leave stream = true out, or copy its rows into another table"
_LOG = "_delta_log"
_ELSEWHERE = re.compile(r"/|[A-Za-z][\w+.-]*:")


class DeltaHistory:
    """The versions of a Delta table. `wanted`: the columns to read, once they are known."""

    def __init__(self, source: TableStream, wanted: StructType | None = None) -> None:
        self._source = source
        self._wanted = wanted
        self._newest: int | None = None
        self._steps: dict[tuple[int, bool], Step] = {}

    def table(self) -> str:
        """The table's id, which its first version gives it."""
        return str(self._loaded.metadata().id)

    def columns(self) -> StructType:
        """The table's columns as they are now; refuses a table that cannot be read as a stream."""
        table = self._open(None)
        columns = _columns(table.schema().to_json())
        refused = self._features_refused(table) or self._partitions_refused(table, columns)
        if refused:
            raise SchemaError(refused)
        return columns

    def newest(self) -> int:
        """The newest version: costs two small reads where there is nothing new."""
        if self._newest is None:
            self._newest = int(self._loaded.version())
        # Commits are removed behind a checkpoint, so a stream that is far behind is told by it.
        self._newest = max(self._newest, self._checkpointed())
        while self._has(self._newest + 1):
            self._newest += 1
        return self._newest

    def before(self, version: int) -> int:
        """The version before another one, which has to be there."""
        newest = self.newest()
        if not 0 <= version <= newest + 1:
            raise DataError(f"{self._source} has no version {version}: the newest is {newest}")
        if version <= newest and not self._has(version):
            raise self._gone(version)
        return version - 1

    def whole(self, version: int) -> Step:
        """All files of the table at a version, in the order in which they were added."""
        if version == NONE:
            return Step(version)
        if (version, True) not in self._steps:
            self._steps[version, True] = self._whole(version)
        return self._steps[version, True]

    def _whole(self, version: int) -> Step:
        from deltalake.exceptions import DeltaError

        try:
            table = self._open(version)
        except DeltaError as error:
            raise self._gone(version) from error
        refused = self._features_refused(table)
        features = table.protocol().reader_features or ()
        if "deletionVectors" in features and pa.table(table.deletion_vectors()).num_rows:
            refused = (
                f"version {version} of {self._source} has deletion vectors, which cannot be read "
                "here: rewrite its files (REORG TABLE ... APPLY (PURGE)), or give a "
                "starting_version"
            )
        refused = refused or self._columns_refused(version, _columns(table.schema().to_json()))
        if refused:
            return Step(version, refused=refused)
        actions = pa.table(table.get_add_actions(flatten=False)).to_pylist()
        actions.sort(key=lambda action: (action["modification_time"], action["path"]))
        files = []
        for action in actions:
            values = tuple((action.get("partition") or {}).items())
            file = DeltaFile(self._relative(action["path"]), version, values)
            files.append(DataFile(file, action["size_bytes"]))
        return Step(version, tuple(files))

    def one(self, version: int) -> Step:
        """The files that a version added."""
        if (version, False) not in self._steps:
            self._steps[version, False] = self._commit(version)
        return self._steps[version, False]

    def after(self, version: int, last: int) -> Iterator[Step]:
        """What was added after a version, up to and with another, one by one."""
        self._steps = {key: step for key, step in self._steps.items() if key[0] >= version}
        for number in range(version + 1, last + 1):
            yield self.one(number)

    def context(self) -> None:
        """A worker needs nothing more."""

    def rows(self, context: None, files: Sequence[DataFile]) -> Iterator[pa.RecordBatch]:
        """The rows of files, with the stream's columns."""
        assert self._wanted is not None
        schema = to_arrow_schema(self._wanted, timezone="UTC")
        for file in files:
            try:
                yield from file_rows(self._files, file.what, schema)
            except FileNotFoundError as error:
                what = f"{file.what.path}, a file of version {file.what.version}"
                raise gone(self._source, what, "vacuumed") from error

    @cached_property
    def _loaded(self) -> Any:
        return self._open(None)

    def _open(self, version: int | None) -> Any:
        from deltalake import DeltaTable

        storage = dict(self._source.options) or None
        return DeltaTable(self._source.place, version=version, storage_options=storage)

    @cached_property
    def _files(self) -> Any:
        import pyarrow.fs
        from deltalake.fs import DeltaStorageHandler

        options = dict(self._source.options) or None
        return pyarrow.fs.PyFileSystem(DeltaStorageHandler(self._source.place, options))

    def _has(self, version: int) -> bool:
        return bool(self._files.get_file_info(_commit_file(version)).is_file)

    def _text(self, path: str) -> str | None:
        try:
            with self._files.open_input_file(path) as handle:
                return bytes(handle.read()).decode()
        except FileNotFoundError:
            return None

    def _checkpointed(self) -> int:
        told = self._text(f"{_LOG}/_last_checkpoint")
        return NONE if told is None else int(json.loads(told)["version"])

    def _commit(self, version: int) -> Step:
        told = self._text(_commit_file(version))
        if told is None:
            raise self._gone(version)
        by_kind: dict[str, list[Any]] = {}
        for line in told.split("\n"):
            for kind, body in json.loads(line).items() if line.strip() else ():
                by_kind.setdefault(kind, []).append(body)
        refused = ""
        for body in by_kind.get("protocol", ()):
            refused = refused or self._unread(body.get("readerFeatures"), {})
        for body in by_kind.get("metaData", ()):
            refused = refused or self._unread((), body.get("configuration"))
            columns = _columns(body["schemaString"])
            refused = refused or self._columns_refused(version, columns)
        added = [body for body in by_kind.get("add", ()) if body.get("dataChange", True)]
        how = _change(by_kind, added)
        if how and not refused:
            if self._source.skip_changes:
                return Step(version)
            refused = change_refused(self._source, f"version {version}", how)
        files = () if refused else tuple(self._added(body, version) for body in added)
        return Step(version, files, refused)

    def _added(self, body: dict[str, Any], version: int) -> DataFile:
        types = {} if self._wanted is None else dict(_arrow_types(self._wanted))
        values = tuple(
            (name, partition_value(text, types[name]))
            for name, text in (body.get("partitionValues") or {}).items()
            if name in types
        )
        return DataFile(DeltaFile(self._relative(body["path"]), version, values), body["size"])

    def _relative(self, path: str) -> str:
        if _ELSEWHERE.match(path):
            raise DataError(
                f"{self._source} is a shallow clone: its file {path} is in another table, which "
                "cannot be read as a stream"
            )
        return unquote(path)

    def _columns_refused(self, version: int, found: StructType) -> str:
        how = "" if self._wanted is None else changed_columns(self._wanted, found)
        return columns_refused(self._source, f"version {version}", how) if how else ""

    def _features_refused(self, table: Any) -> str:
        features = table.protocol().reader_features
        return self._unread(features, table.metadata().configuration)

    def _unread(self, features: Sequence[str] | None, settings: dict[str, str] | None) -> str:
        mapped = (settings or {}).get("delta.columnMapping.mode", "none") != "none"
        unknown = sorted(set(features or ()) - FEATURES)
        if not mapped and not unknown:
            return ""
        what = "column mapping" if mapped else ", ".join(unknown)
        return f"{self._source} has {what}, which cannot be read as a stream here: {_INSTEAD}"

    def _partitions_refused(self, table: Any, columns: StructType) -> str:
        # Writers spell bytes in different ways.
        for name in table.metadata().partition_columns:
            if isinstance(columns[name].dataType, BinaryType):
                return f"{self._source} is partitioned by {name!r}, which is binary: {_INSTEAD}"
        return ""

    def _gone(self, version: int) -> DataError:
        return gone(self._source, f"version {version}", "its log has been cleaned up")


def _commit_file(version: int) -> str:
    return f"{_LOG}/{version:020d}.json"


def _columns(text: str) -> StructType:
    found: StructType = nullable(StructType.fromJson(json.loads(text)))
    return found


def _arrow_types(columns: StructType) -> Iterator[tuple[str, pa.DataType]]:
    for field in to_arrow_schema(columns, timezone="UTC"):
        yield field.name, field.type


def _change(by_kind: dict[str, list[Any]], added: list[Any]) -> str:
    """How a commit takes back rows or gives them again, in its own word; empty if it does not."""
    infos = by_kind.get("commitInfo", ())
    operation = str(next((info.get("operation") for info in infos), None) or "a change")
    removed = any(body.get("dataChange", True) for body in by_kind.get("remove", ()))
    marked = any(body.get("deletionVector") for body in added)
    # One that only adds files gives rows again that a version before has removed.
    restored = operation == "RESTORE" and bool(added)
    return operation if removed or marked or restored else ""
