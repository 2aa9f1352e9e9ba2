"""What is in a Spark checkpoint of a streaming join, and whether it is sound.

It is read with Spark's own state data source, which cannot write. So what changes in a migrated
copy, for another number of state partitions, window or condition, is not the rows: Spark itself
moves them to other partitions, and a record beside them names the joins that the copy was made
from. A join that is told of the record goes on with their state.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs
from pyspark.sql import functions as F

from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.parts import SIDES, Side
from thetajoin.engine.step import Share
from thetajoin.errors import OptionError, SnapshotError, ThetaJoinError
from thetajoin.planner.routing import Routing
from thetajoin.planner.routing_keys import equalities, names_of
from thetajoin.spark.failures import reason
from thetajoin.spark.late import filesystem
from thetajoin.spark.stream import RECORD, read_accepted
from thetajoin.spark.unit_keys import UNIT_OF
from thetajoin.spark.unit_spec import BlobInfo, Entry, UnitSpec, read_description
from thetajoin.spark.versions import state_mover
from thetajoin.window.windows import CountWindow, TimeWindow, window_from_dict

# What the units of a join keep, by which their operator is known among others.
VARIABLES = {"description", "rows", "marks"}
NUMBER = "number of units"
# A blob's key and the fields of a `BlobInfo`.
LOOKED = "unit int, id string, size long, check long, rows long, columns boolean"
NOT_REJOINED = (
    "the past is not joined again: rows that are held meet later ones by the new {what}, and what "
    "they gave before stays as it was"
)
KEYED = ("hash", "contrand", "cells", "ranges")


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
        stores = metadata.get("stateStoreInfo", [])
        for named in (name for store in stores for name in store.get("stateSchemaFilePaths", [])):
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


@dataclass(frozen=True)
class Migrated:
    """What a migration has done, and what a user should know about it."""

    done: list[str]
    notes: list[str]


def migrate(
    session: Any,
    old: str,
    new: str,
    *,
    partitions: int | None = None,
    specs: list[UnitSpec] | None = None,
) -> Migrated:
    """Copy a checkpoint, changed; `specs` are the joins that are to go on with it.

    The query must not run. The old checkpoint is only read, and a new one that could not be
    finished is removed.
    """
    if partitions is not None and partitions < 1:
        raise OptionError(f"{partitions} partitions: there must be at least 1")
    if partitions is not None:
        state_mover(session)  # says so before anything is copied, where Spark has none
    _copy(old, new)
    try:
        return _change(session, old, new, partitions, specs)
    except BaseException:
        _remove(new)
        raise


def _change(
    session: Any, old: str, new: str, partitions: int | None, specs: list[UnitSpec] | None
) -> Migrated:
    """Check a copy and change it."""
    found = read_checkpoint(session, new)
    wrong = find_faults(session, found)
    if wrong:
        raise SnapshotError(f"{old} is damaged and is not migrated: {wrong[0]}")
    changes = _find_changes(found, specs)
    changed = sorted({what for _, whats in changes for what in whats})
    if partitions is not None and all(join.partitions == partitions for join in found.joins):
        raise OptionError(f"the state of {old} is in {partitions} partitions already")
    _check_settled(old, moved=partitions is not None or bool(changed))
    done = [f"{new} is a copy of {old} that stands alone"]
    notes = []
    if partitions is not None:
        _repartition(session, new, partitions)
        done.append(f"its state is in {partitions} partitions")
        notes.append(
            "moving the state took a micro-batch number that a file sink never sees, and Spark "
            "would not read its folder any more: write to a new folder from here on"
        )
    if changed:
        _record(new, [identity for identity, _ in changes])
        done.append(f"its join has another {' and '.join(changed)}")
        notes.append(NOT_REJOINED.format(what=" and ".join(changed)))
    return Migrated(done, notes)


def _check_settled(path: str, *, moved: bool) -> None:
    begun, done, _, _ = read_log(path)
    if moved and begun and begun[-1] > done[-1]:
        raise SnapshotError(
            f"micro-batch {begun[-1]} of {path} was begun and is not committed: run the query once "
            "more, with trigger(availableNow=True), and migrate when it has ended"
        )


def _copy(old: str, new: str) -> None:
    """Copy all files; the copy's metadata then names its own files, not the old ones."""
    source, target = filesystem(old), filesystem(new)
    there = target[0].get_file_info(target[1])
    inside = fs.FileSelector(target[1], allow_not_found=True)
    if there.type == fs.FileType.File or target[0].get_file_info(inside):
        raise OptionError(f"{new} exists: choose a new folder for the migrated checkpoint")
    roots = [root.rstrip("/") + "/" for _, root in (source, target)]
    if source[0] == target[0] and (roots[0].startswith(roots[1]) or roots[1].startswith(roots[0])):
        raise OptionError(f"one of {new} and {old} is inside the other: choose another folder")
    before = read_log(old)
    try:
        fs.copy_files(
            source[1], target[1], source_filesystem=source[0], destination_filesystem=target[0]
        )
        if read_log(old) != before:
            raise SnapshotError(f"{old} changed while it was copied: stop its query first")
        relocate(new)
    except BaseException as error:
        _remove(new)
        if isinstance(error, OSError):
            raise SnapshotError(f"{old} could not be copied to {new}: {error}") from error
        raise


def _remove(path: str) -> None:
    files, root = filesystem(path)
    files.delete_dir_contents(root, missing_dir_ok=True)
    if files.get_file_info(root).type == fs.FileType.Directory:
        files.delete_dir(root)


def relocate(path: str) -> None:
    """Have a copied checkpoint name its own files.

    Spark writes into an operator's metadata where the schema of its state lies, as a whole path:
    a copy would go on reading the old checkpoint's.
    """
    files, _ = filesystem(path)
    for info, version, metadata in list(read_metadata(path)):
        for store in metadata.get("stateStoreInfo", []):
            named = store.get("stateSchemaFilePaths", [])
            store["stateSchemaFilePaths"] = [_rename_schema_file(name, path) for name in named]
        with files.open_output_stream(info.path) as file:
            file.write(f"{version}\n{json.dumps(metadata, separators=(',', ':'))}".encode())
        # Hadoop keeps a checksum beside each local file, which is of what was there before.
        folder, _, name = info.path.rpartition("/")
        beside = f"{folder}/.{name}.crc"
        if files.get_file_info(beside).type == fs.FileType.File:
            files.delete_file(beside)


def _rename_schema_file(name: str, path: str) -> str:
    """The place of a state's schema file under another checkpoint."""
    _, _, inside = name.rpartition("/state/")
    files, root = filesystem(path)
    local = isinstance(files, fs.LocalFileSystem)
    base = f"file:{Path(root).absolute()}" if local else path.rstrip("/")
    return f"{base}/state/{inside}"


def _repartition(session: Any, path: str, partitions: int) -> None:
    """Spark's own repartitioning of a stopped query's state."""
    mover = state_mover(session)
    try:
        mover.repartition(path, partitions)
    except Exception as error:
        raise SnapshotError(f"Spark could not move the state: {reason(error)}") from error


def _record(path: str, identities: list[dict[str, Any]]) -> None:
    kept = [*read_accepted(path)]
    kept += [identity for identity in identities if identity not in kept]
    files, root = filesystem(path)
    with files.open_output_stream(f"{root}/{RECORD}") as file:
        file.write(json.dumps({"accepts": kept}).encode())


def _find_changes(
    found: Checkpoint, specs: list[UnitSpec] | None
) -> list[tuple[dict[str, Any], list[str]]]:
    """The identities of units whose join changes, and what changes; refuses what cannot."""
    if specs is None:
        return []
    if len(specs) != len(found.joins):
        raise SnapshotError(
            f"the checkpoint has the state of {len(found.joins)} joins of streams, and the job has "
            f"{len(specs)}: it is another job's"
        )
    changes: list[tuple[dict[str, Any], list[str]]] = []
    waiting = list(specs)
    for join in found.joins:
        spec = min(waiting, key=lambda spec: len(spec.differences(join.identity)))
        waiting.remove(spec)
        known = spec.accepts
        for identity in (unit.description["identity"] for unit in join.units):
            different = [] if identity in known else spec.differences(identity)
            if different and identity not in (seen for seen, _ in changes):
                _check_change(join, identity, spec, different)
                changes.append((identity, different))
    return changes


def _check_change(
    join: SavedJoin, saved: dict[str, Any], spec: UnitSpec, different: list[str]
) -> None:
    """Refuse a change after which the rows held would not be those the join needs."""
    fixed = [what for what in different if what not in ("condition", "window")]
    if fixed:
        what = fixed[0]
        raise SnapshotError(
            f"a migration cannot change the join's {what}, which was {saved.get(what)!r} and is "
            f"now {spec.identity[what]!r}: start the changed join with a new checkpoint"
        )
    if spec.join.nearest is not None:
        raise SnapshotError(
            f"a migration cannot change the {different[0]} of a nearest match: its left rows wait "
            "for what is nearest by the old one; start it with a new checkpoint"
        )
    before = replace(
        spec.join, on=saved["condition"] or None, window=window_from_dict(saved["window"])
    )
    was, now = replace(spec, join=before).compile(), spec.compile()
    if "window" in different:
        _check_window(join, saved, was, now)
    if "condition" in different:
        _check_condition(spec, was, now)


def _check_window(
    join: SavedJoin, saved: dict[str, Any], was: CompiledJoin, now: CompiledJoin
) -> None:
    old, new = window_from_dict(saved["window"]), now.window
    alike = type(old) is type(new)
    if isinstance(old, TimeWindow) and isinstance(new, TimeWindow):
        alike = old.time == new.time
    if not alike:
        raise SnapshotError(
            f"a migration cannot change the window's kind or columns, from {old} to {new}: start "
            "the changed join with a new checkpoint"
        )
    if isinstance(old, CountWindow) and isinstance(new, CountWindow):
        counts = [n for unit in join.units for n in unit.description["counts"].values()]
        there = all(new.first_visible(n) >= old.first_visible(n) for n in counts)
    else:
        assert was.clock is not None
        assert now.clock is not None
        reaches = was.clock.reach, now.clock.reach
        shorter = all(reaches[1][side] <= reaches[0][side] for side in SIDES)
        there = shorter or _holds_all(join, was)
    if not there:
        raise SnapshotError(
            f"the window cannot become longer, from {old} to {new}: rows that the new one would "
            "need are not held any more; start the changed join with a new checkpoint, and have "
            "it read the input again"
        )


def _holds_all(join: SavedJoin, was: CompiledJoin) -> bool:
    """Whether no row has left the window yet, matched or not."""
    if any(unit.description["counters"]["unmatched"] for unit in join.units):
        return False
    sides: tuple[Side, ...] = SIDES[:1] if was.spec.self_join else SIDES
    share = Share.of(was.keeps, 0, join.identity["number of units"])
    meets = join.identity.get("routing", "broadcast") != "broadcast"
    for side in sides:
        counts = [unit.description["counts"][side] for unit in join.units]
        rows = [unit.rows(side) for unit in join.units]
        apart = side in share.stored_in_part and not meets
        if sum(rows) != counts[0] if apart else rows != counts:
            return False
    return True


def _check_condition(spec: UnitSpec, was: CompiledJoin, now: CompiledJoin) -> None:
    for side in SIDES:
        lacking = set(now.list_kept(side)) - set(was.list_kept(side))
        if lacking:
            raise SnapshotError(
                f"the new condition needs {', '.join(sorted(lacking))} of the "
                f"{'left' if side == 'l' else 'right'} rows, and that is not held: start the "
                "changed join with a new checkpoint"
            )
    if spec.routing.kind in KEYED and _placement(spec, was) != _placement(spec, now):
        raise SnapshotError(
            f"rows lie in units by routing={spec.routing.kind!r}, and by the new condition some "
            "would lie elsewhere: only what is compared may change, not which columns are or "
            "which rows are left out; start the changed join with a new checkpoint"
        )


def _placement(spec: UnitSpec, join: CompiledJoin) -> Any:
    """All that decides to which unit a row is sent where its keys do."""
    equal = [
        [names_of(part, pair) for pair in pairs]
        for part, pairs in zip(join.parts, equalities(join), strict=True)
    ]
    sides = [(part, side) for part in join.parts for side in SIDES]
    keys = [[(key.expr.sql(), key.nan) for key in part.keys[side]] for part, side in sides]
    stored = [list(part.views[side].stored) for part, side in sides]
    filters = [part.filters[side] for part, side in sides]
    texts = ["" if expr is None else expr.sql() for expr in filters]
    return equal, keys, stored, texts, spec.routing.to_value()
