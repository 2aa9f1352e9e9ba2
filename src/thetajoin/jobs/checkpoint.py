"""What is in a Spark checkpoint of a streaming join, and whether it is sound.

It is read with Spark's own state data source. Nothing here writes. `jobs.migrate` makes a
changed copy.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyarrow import fs
from pyspark.sql import functions as F

from thetajoin.errors import SnapshotError, ThetaJoinError
from thetajoin.planner.routing import Routing
from thetajoin.spark.failures import reason
from thetajoin.spark.late import filesystem
from thetajoin.spark.unit_keys import UNIT_OF
from thetajoin.spark.unit_rows import BlobInfo, Entry, read_description
from thetajoin.spark.unit_spec import UnitSpec

# What the units of a join keep, by which their operator is known among others.
VARIABLES = {"description", "rows", "marks"}
NUMBER = "number of units"
# A blob's key and the fields of a `BlobInfo`.
LOOKED = "unit int, id string, size long, check long, rows long, columns boolean"


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
class SavedJoin:
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
    joins: list[SavedJoin]


def _list_numbered(files: fs.FileSystem, folder: str) -> dict[int, fs.FileInfo]:
    """The files of a log of Spark's, by their numbers."""
    found = files.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return {int(info.base_name): info for info in found if info.base_name.isdigit()}


def read_log(path: str) -> tuple[list[int], list[int], datetime | None, int | None]:
    """Micro-batches begun and committed, when the last was committed, and the watermark then."""
    files, root = filesystem(path)
    if files.get_file_info(root).type != fs.FileType.Directory:
        raise SnapshotError(f"there is no checkpoint {path}: it is not a folder")
    begun, done = _list_numbered(files, f"{root}/offsets"), _list_numbered(files, f"{root}/commits")
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


def _find_operators(session: Any, path: str) -> dict[int, int]:
    """The operators that are joins of ours, each with its number of partitions."""
    listed = session.read.format("state-metadata").load(path)
    found = {}
    for row in listed.collect():
        told = json.loads(row["operatorProperties"] or "{}").get("stateVariables", [])
        names = {variable["stateName"] for variable in told}
        if names >= VARIABLES:
            found[int(row["operatorId"])] = int(row["numPartitions"])
    return found


def read_state(session: Any, path: str, operator: int, variable: str) -> Any:
    """A variable of an operator's state, as a DataFrame of Spark's."""
    source = session.read.format("statestore").option("operatorId", operator)
    return source.option("stateVarName", variable).load(path)


def read_checkpoint(session: Any, path: str) -> Checkpoint:
    """A checkpoint's description of itself; the rows are not read."""
    begun, done, when, mark = read_log(path)
    try:
        joins = [
            SavedJoin(operator, partitions, _read_units(session, path, operator))
            for operator, partitions in sorted(_find_operators(session, path).items())
        ]
    except SnapshotError:
        raise
    except Exception as error:
        raise SnapshotError(_explain_unreadable(path, error)) from error
    if not any(join.units for join in joins):
        raise SnapshotError(f"{path} holds no state of a streaming join of thetajoin")
    joins = [join for join in joins if join.units]
    return Checkpoint(path, begun[0] if begun else 0, done[-1], len(done), when, mark, joins)


def _explain_unreadable(path: str, error: Exception) -> str:
    """Why a state cannot be read; of a copy, what to do about it."""
    root = filesystem(path)[1]
    for _, _, metadata in read_metadata(path):
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


def read_metadata(path: str) -> Iterator[tuple[fs.FileInfo, str, dict[str, Any]]]:
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


def _read_units(session: Any, path: str, operator: int) -> list[UnitState]:
    units = []
    for row in read_state(session, path, operator, "description").collect():
        unit = UNIT_OF[row["key"]["unit"]]
        description = read_description(row["value"]["json"], unit)
        entries = [Entry(*entry) for entry in description["entries"]]
        units.append(UnitState(unit, row["partition_id"], entries, description))
    return sorted(units, key=lambda state: state.unit)


def find_faults(session: Any, found: Checkpoint) -> list[str]:
    """What is wrong with the state of a checkpoint's joins, a line each; reads all rows held."""
    return [line for join in found.joins for line in _find_faults_of(session, found.path, join)]


def _find_faults_of(session: Any, path: str, join: SavedJoin) -> Iterator[str]:
    yield from _find_absent(join)
    try:
        blobs = _look_at_blobs(session, path, join.operator)
        marks = read_state(session, path, join.operator, "marks").collect()
    except Exception as error:
        yield f"the state in {path} cannot be read: {reason(error)}"
        return
    marked = {UNIT_OF[row["key"]["unit"]]: row["value"] for row in marks}
    for unit in join.units:
        mine = {key[1]: look for key, look in blobs.items() if key[0] == unit.unit}
        for entry in unit.entries:
            if fault := entry.fault(mine.pop(entry.key[0], None)):
                yield f"unit {unit.unit}: {fault}"
        for name in mine:
            yield f"unit {unit.unit}: the rows {name!r} are there and are not listed"
        yield from _check_marks(unit, marked.get(unit.unit))


def _find_absent(join: SavedJoin) -> Iterator[str]:
    """Units that have no state, though all are called in every micro-batch."""
    routing = Routing.from_value(join.identity.get("routing", "broadcast"))
    there = {unit.unit for unit in join.units}
    for unit in range(routing.all_places(join.identity[NUMBER])):
        if unit not in there:
            yield f"unit {unit}: it has no state"


def _look_at_blobs(session: Any, path: str, operator: int) -> dict[tuple[int, str], BlobInfo]:
    """A look at every blob, taken where Spark reads it."""

    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            looks = [BlobInfo.of(blob) for blob in batch.column("blob").to_pylist()]
            seen = zip(*looks, strict=True) if looks else ((), (), (), ())
            kinds = (pa.int64(), pa.int64(), pa.int64(), pa.bool_())
            made = [pa.array(values, kind) for values, kind in zip(seen, kinds, strict=True)]
            keys = batch.column("unit"), batch.column("id")
            names = ["unit", "id", *BlobInfo._fields]
            yield pa.RecordBatch.from_arrays([*keys, *made], names=names)

    rows = read_state(session, path, operator, "rows").select(
        F.col("key.unit"), F.col("user_map_key.id"), F.col("user_map_value.blob")
    )
    looked = rows.mapInArrow(look, LOOKED).collect()
    return {(UNIT_OF[row[0]], row[1]): BlobInfo(*row[2:]) for row in looked}


def _check_marks(unit: UnitState, marks: Any) -> Iterator[str]:
    """Check an outer join's marks, one for each row."""
    for side in "lr":
        packed = None if marks is None else marks[side]
        if packed is not None and len(packed) != (unit.rows(side) + 7) // 8:
            name = "left" if side == "l" else "right"
            yield f"unit {unit.unit}: the marks of {name} rows are not as many as the rows"


def check_goes_on(found: Checkpoint, specs: list[UnitSpec]) -> None:
    """Refuse joins that cannot go on with a checkpoint's state."""
    if len(specs) != len(found.joins):
        raise SnapshotError(
            f"the checkpoint has the state of {len(found.joins)} joins of streams, and the job has "
            f"{len(specs)}: it is another job's"
        )
    waiting = list(specs)
    for join in found.joins:
        refusals: list[ThetaJoinError] = []
        for spec in waiting:
            try:
                for unit in join.units:
                    spec.check_identity(unit.description["identity"])
            except ThetaJoinError as error:
                refusals.append(error)
            else:
                waiting.remove(spec)
                break
        else:
            raise refusals[0]
