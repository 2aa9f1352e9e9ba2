"""Whether a checkpoint of a streaming join can be gone on with: all of it is there and readable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F

from thetajoin.errors import SnapshotError, ThetaJoinError
from thetajoin.planner.routing import Routing
from thetajoin.spark.checkpoint import NUMBER, Checkpoint, JoinState, UnitState, state_of
from thetajoin.spark.failures import reason
from thetajoin.spark.unit_keys import UNIT_OF
from thetajoin.spark.unit_rows import BlobInfo
from thetajoin.spark.unit_spec import UnitSpec

# A blob's key and the fields of a `BlobInfo`.
LOOKED = "unit int, id string, size long, check long, rows long, columns boolean"


def faults(session: Any, found: Checkpoint) -> list[str]:
    """What is wrong with the state of a checkpoint's joins, a line each; reads all rows held."""
    return [line for join in found.joins for line in _faults(session, found.path, join)]


def _faults(session: Any, path: str, join: JoinState) -> Iterator[str]:
    yield from _absent(join)
    try:
        blobs = _looked_at(session, path, join.operator)
        marks = state_of(session, path, join.operator, "marks").collect()
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
        yield from _unmarked(unit, marked.get(unit.unit))


def _absent(join: JoinState) -> Iterator[str]:
    """Units that have no state, though all are called in every micro-batch."""
    routing = Routing.from_value(join.identity.get("routing", "broadcast"))
    there = {unit.unit for unit in join.units}
    for unit in range(routing.all_places(join.identity[NUMBER])):
        if unit not in there:
            yield f"unit {unit}: it has no state"


def _looked_at(session: Any, path: str, operator: int) -> dict[tuple[int, str], BlobInfo]:
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

    rows = state_of(session, path, operator, "rows").select(
        F.col("key.unit"), F.col("user_map_key.id"), F.col("user_map_value.blob")
    )
    looked = rows.mapInArrow(look, LOOKED).collect()
    return {(UNIT_OF[row[0]], row[1]): BlobInfo(*row[2:]) for row in looked}


def _unmarked(unit: UnitState, marks: Any) -> Iterator[str]:
    """An outer join's marks, of which there is one for each row."""
    for side in "lr":
        packed = None if marks is None else marks[side]
        if packed is not None and len(packed) != (unit.rows(side) + 7) // 8:
            name = "left" if side == "l" else "right"
            yield f"unit {unit.unit}: the marks of {name} rows are not as many as the rows"


def check_goes_on(found: Checkpoint, specs: list[UnitSpec]) -> None:
    """Refuse joins that a checkpoint's state is not of."""
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
