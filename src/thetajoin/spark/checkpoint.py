"""What is in a Spark checkpoint of a streaming join, read with Spark's own state data source.

Nothing here writes. `spark.checkpoint_check` says whether all of it is sound, and `spark.migrate`
makes a changed copy.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyarrow import fs

from thetajoin.errors import SnapshotError
from thetajoin.secrets import hide_passwords
from thetajoin.spark.failures import reason
from thetajoin.spark.unit_keys import UNIT_OF
from thetajoin.spark.unit_rows import Entry, read_description

# What the units of a join keep, by which their operator is known among others.
VARIABLES = {"description", "rows", "marks"}
NUMBER = "number of units"
# In a migrated checkpoint: the identities of joins that its state is of.
RECORD = "thetajoin-migrated.json"


@dataclass(frozen=True)
class UnitState:
    """What one unit of a join holds."""

    unit: int
    partition: int
    entries: list[Entry]
    description: dict[str, Any]

    def rows(self, side: str) -> int:
        """Rows of one side."""
        return sum(entry.rows for entry in self.entries if entry.side == side)

    @property
    def size(self) -> int:
        """Bytes of its rows."""
        return sum(entry.size for entry in self.entries)


@dataclass(frozen=True)
class JoinState:
    """A join's state: which operator of the query it is, and its units."""

    operator: int
    partitions: int
    units: list[UnitState]

    @property
    def identity(self) -> dict[str, Any]:
        """What the join is; all units have the same, but for those that wait for their rows."""
        found: dict[str, Any] = self.units[0].description["identity"]
        return found

    @property
    def watermark(self) -> int | None:
        """Event time in microseconds: no older row is taken in by any unit."""
        known = [unit.description["watermark"] for unit in self.units]
        return min((mark for mark in known if mark is not None), default=None)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint: how far the query has come, and its joins."""

    path: str
    first_batch: int
    last_batch: int
    committed: int
    committed_at: datetime | None
    watermark_ms: int | None
    joins: list[JoinState]


def filesystem(path: str) -> tuple[fs.FileSystem, str]:
    """Where a path or a URI leads to; Hadoop's name for S3 is taken as S3's."""
    try:
        if path.startswith("file:/") and not path.startswith("file://"):  # as Hadoop writes it
            path = path.removeprefix("file:")
        if "://" in path:
            found = fs.FileSystem.from_uri(path.replace("s3a://", "s3://", 1))
            return found[0], found[1]
        return fs.LocalFileSystem(), os.path.abspath(path)
    except (pa.ArrowInvalid, OSError, NotImplementedError) as error:
        raise SnapshotError(f"cannot read {hide_passwords(path)}: {error}") from error


def _numbers(files: fs.FileSystem, folder: str) -> dict[int, fs.FileInfo]:
    """The files of a log of Spark's, by their numbers."""
    found = files.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return {int(info.base_name): info for info in found if info.base_name.isdigit()}


def read_log(path: str) -> tuple[list[int], list[int], datetime | None, int | None]:
    """Micro-batches begun and committed, when the last was committed, and the watermark then."""
    files, root = filesystem(path)
    if files.get_file_info(root).type != fs.FileType.Directory:
        raise SnapshotError(f"there is no checkpoint {path}: it is not a folder")
    begun, done = _numbers(files, f"{root}/offsets"), _numbers(files, f"{root}/commits")
    if not begun and not done:
        raise SnapshotError(
            f"{path} is not a checkpoint of a streaming query: it has no micro-batches"
        )
    if not done:
        raise SnapshotError(f"{path} has no committed micro-batch: there is no state to look at")
    last = done[max(done)]
    try:
        with files.open_input_stream(last.path) as file:
            lines = file.read().decode().splitlines()
        mark = json.loads(lines[1]).get("nextBatchWatermarkMs")
    except (OSError, ValueError, IndexError) as error:
        raise SnapshotError(f"{path} is damaged: {last.path} cannot be read ({error})") from error
    return sorted(begun), sorted(done), last.mtime, mark or None


def accepted(path: str) -> tuple[dict[str, Any], ...]:
    """The identities of joins that a migrated checkpoint's state is of; none if it is not one."""
    files, root = filesystem(path)
    place = f"{root}/{RECORD}"
    if files.get_file_info(place).type != fs.FileType.File:
        return ()
    try:
        with files.open_input_stream(place) as file:
            record = json.loads(file.read())
        return tuple(dict(identity) for identity in record["accepts"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise SnapshotError(f"{place} is damaged: {error}") from error


def _operators(session: Any, path: str) -> dict[int, int]:
    """The operators that are joins of ours, each with its number of partitions."""
    listed = session.read.format("state-metadata").load(path)
    found = {}
    for row in listed.collect():
        told = json.loads(row["operatorProperties"] or "{}").get("stateVariables", [])
        names = {variable["stateName"] for variable in told}
        if names >= VARIABLES:
            found[int(row["operatorId"])] = int(row["numPartitions"])
    return found


def state_of(session: Any, path: str, operator: int, variable: str) -> Any:
    """A variable of an operator's state, as a DataFrame of Spark's."""
    source = session.read.format("statestore").option("operatorId", operator)
    return source.option("stateVarName", variable).load(path)


def read_checkpoint(session: Any, path: str) -> Checkpoint:
    """All that a checkpoint says of itself; the rows themselves are not read."""
    begun, done, when, mark = read_log(path)
    try:
        joins = [
            JoinState(operator, partitions, _units(session, path, operator))
            for operator, partitions in sorted(_operators(session, path).items())
        ]
    except SnapshotError:
        raise
    except Exception as error:
        raise SnapshotError(_unreadable(path, error)) from error
    if not any(join.units for join in joins):
        raise SnapshotError(f"{path} holds no state of a streaming join of thetajoin")
    joins = [join for join in joins if join.units]
    return Checkpoint(path, begun[0] if begun else 0, done[-1], len(done), when, mark, joins)


def _unreadable(path: str, error: Exception) -> str:
    """Why a state cannot be read; of a copy, what to do about it."""
    root = filesystem(path)[1]
    for _, _, metadata in operators_metadata(path):
        for named in schema_files(metadata):
            if named.rpartition("/state/")[0].removeprefix("file:") != root:
                there = filesystem(named)
                if there[0].get_file_info(there[1]).type != fs.FileType.File:
                    return (
                        f"{path} was copied or moved here, and Spark looks for a part of it in "
                        f"{named}: make a copy that stands alone, with `thetajoin checkpoint "
                        f"migrate {path} NEW`"
                    )
    return f"the state in {path} cannot be read: {reason(error)}"


def operators_metadata(path: str) -> Iterator[tuple[fs.FileInfo, str, dict[str, Any]]]:
    """What Spark has written of each stateful operator: the file, its version, and its content."""
    files, root = filesystem(path)
    inside = fs.FileSelector(f"{root}/state", recursive=True, allow_not_found=True)
    for info in files.get_file_info(inside):
        if "/_metadata/v2/" in info.path and info.base_name.isdigit():
            with files.open_input_stream(info.path) as file:
                version, _, text = file.read().decode().partition("\n")
            yield info, version, json.loads(text)


def schema_files(metadata: dict[str, Any]) -> list[str]:
    """Where the schemas of an operator's state are said to lie."""
    stores = metadata.get("stateStoreInfo", [])
    return [name for store in stores for name in store.get("stateSchemaFilePaths", [])]


def _units(session: Any, path: str, operator: int) -> list[UnitState]:
    units = []
    for row in state_of(session, path, operator, "description").collect():
        unit = UNIT_OF[row["key"]["unit"]]
        description = read_description(row["value"]["json"], unit)
        entries = [Entry(*entry) for entry in description["entries"]]
        units.append(UnitState(unit, row["partition_id"], entries, description))
    return sorted(units, key=lambda state: state.unit)
