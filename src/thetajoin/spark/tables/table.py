"""A table on Spark as its tasks see it, and looking at two: what a plan needs to know of them.

A look is a few rows that Spark draws, or one pass over all: zones, and a sample.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, ByteType, LongType

from thetajoin.batch.keys import Int64
from thetajoin.engine.block import concat_batches, empty_batch
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.parts import OTHER, SIDES, Side
from thetajoin.engine.rows import make_batch
from thetajoin.engine.spec import JoinSpec
from thetajoin.ipc import from_ipc, to_ipc
from thetajoin.limits import limits
from thetajoin.planner.zones import ProbingRows, Zones, sights_of, summarise
from thetajoin.predicate import condition_text
from thetajoin.spark.exchange import as_batch, chunks, row_bytes, sample_rows
from thetajoin.spark.row_order import number_rows
from thetajoin.spark.stream import arrow_schema
from thetajoin.spark.tasks import Task, make_schema, map_batches, name_by_position
from thetajoin.spark.unit_spec import UnitSpec, get_compiled
from thetajoin.spark.whole import Sent, collect, send_whole, sendable_bytes
from thetajoin.window.many_inputs import hide_name, list_numbers, sees
from thetajoin.window.windows import CountWindow, FullHistory

# What Spark adds to the widths of a row's columns.
ROW_BYTES = 8
_UNITS = {
    name: 1024**power for power, name in enumerate(["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}
_SIZE = re.compile(r"Statistics\(sizeInBytes=([\d.]+) (\w+)")
_PLAN = "== Optimized Logical Plan ==\n"
DRAWN = 4096
# First rows cost more each than drawn ones, which come in an Arrow table.
FIRST = 2048
# Of Spark's increasing numbers, the part that counts the rows of a partition.
_PLACE = (1 << 33) - 1
# Drawn alike each time, so that a join is the same each time. Spark adds a partition's number.
_SEEDS: dict[Side, int] = {"l": 0, "r": 1 << 40}
SUMMARY = make_schema(side=ByteType(), total=LongType(), zones=BinaryType(), sample=BinaryType())
SUMMARY_ROWS = 1 << 20
# Sampled rows that each task sends, and rows of a side that estimates are made from.
TASK_SAMPLE = 1024
SAMPLE = 4096
# If a smaller share of the rows lies where they can match, it pays to leave the others out.
WORTH_ALL = 0.8


class Table:
    """A DataFrame that does not stream."""

    def __init__(self, df: Any) -> None:
        """A user's DataFrame, or one with added columns."""
        self.session = df.sparkSession
        self.given = df

    @cached_property
    def frame(self) -> Any:
        """Columns ``c0, c1, ...``, because a name with a dot would be taken for a path."""
        return name_by_position(self.given)

    @cached_property
    def bytes(self) -> float:
        """How large Spark thinks it is; infinite where it has no idea."""
        return estimate_bytes(self.frame)[0]

    @property
    def believed_rows(self) -> float:
        """How many rows that is, if columns are as wide as Spark assumes."""
        width = row_bytes(arrow_schema(self.frame))[0] + ROW_BYTES
        return self.bytes / width

    @staticmethod
    def look_up_bytes(*tables: Table) -> None:
        """Ask Spark for the sizes of several tables at once, which costs about what one does."""
        sizes = estimate_bytes(*(table.frame for table in tables))
        for table, size in zip(tables, sizes, strict=True):
            table.__dict__["bytes"] = size

    def whole(self, schema: pa.Schema) -> Sent | None:
        """All rows, sent to every task; None if they take too much."""
        rows = collect(self.frame, sendable_bytes(self.session, limits.whole_bytes))
        return None if rows is None else send_whole(self.session, as_batch(rows, schema))

    def map(self, task: Task, schema: Any, columns: Sequence[int] | None = None) -> Any:
        """Its batches through a task, or those of the columns at some positions."""
        frame = self.frame
        if columns is not None:
            frame = frame.select(*[f"c{at}" for at in columns])
        return map_batches(frame, task, schema)


def estimate_bytes(*frames: Any) -> list[float]:
    """How large Spark expects DataFrames to be; infinite where it does not know.

    Only `EXPLAIN COST` says so publicly, in a text for people. Two frames are explained as the
    sides of a join that never runs.
    """
    if len(frames) == 1:
        told = _explain("SELECT * FROM {df}", df=frames[0])
        return [_bytes(told[0])]
    one, two = frames
    told = _explain("SELECT * FROM {one} CROSS JOIN {two}", one=one, two=two)
    sides = [line for line in told[1:] if line.startswith((":- ", "+- "))]
    if len(sides) != 2:  # not planned as a join, as of a table known to be empty
        return [size for frame in frames for size in estimate_bytes(frame)]
    return [_bytes(line) for line in sides]


def _explain(query: str, **frames: Any) -> list[str]:
    """The lines of a query's plan, the whole first, each with what Spark knows of its size."""
    session = next(iter(frames.values())).sparkSession
    text: str = session.sql(f"EXPLAIN COST {query}", **frames).collect()[0][0]
    return text.partition(_PLAN)[2].partition("\n\n")[0].splitlines() or [""]


def _bytes(line: str) -> float:
    found = _SIZE.search(line)
    if found is None or found[2] not in _UNITS:
        return float("inf")
    return float(float(found[1]) * _UNITS[found[2]])


@dataclass(frozen=True)
class Inputs:
    """Both tables and the join they take part in, its count window made a condition.

    is_self_join: the one table is read once and its rows take both parts; each row is numbered by
    the task that reads it, and pairs of a row with itself are left out. added: names of columns
    that only serve this join.
    """

    tables: dict[Side, Table]
    spec: JoinSpec
    schemas: dict[Side, pa.Schema]
    is_self_join: bool
    added: frozenset[str]

    def find_shown(self, compiled: CompiledJoin) -> tuple[int, ...] | None:
        """Positions of the output columns that are the user's."""
        names = compiled.layout.schema.names
        shown = tuple(at for at, name in enumerate(names) if name not in self.added)
        return None if len(shown) == len(names) else shown

    def apart(self, compiled: CompiledJoin) -> tuple[int, int] | None:
        """Positions of the row numbers in which the rows of a pair must differ."""
        if not self.is_self_join:
            return None
        names = compiled.layout.schema.names
        return names.index(hide_name("l", "row")), names.index(hide_name("r", "row"))


def prepare(given: Mapping[Side, Table], compiled: CompiledJoin) -> Inputs:
    """The inputs of a join that has been checked; a self-join's are one."""
    spec, window = compiled.spec, compiled.window
    self_join, on = spec.self_join, None if spec.on is None else condition_text(spec.on)
    tables: dict[Side, Table] = {"l": given["l"]} if self_join else dict(given)
    schemas = dict(compiled.given)
    numbers: dict[Side, list[str]] = {"l": [], "r": []}
    if isinstance(window, CountWindow):
        assert spec.order_by is not None
        order = [
            schemas[side].names.index(name)
            for side, name in zip(schemas, spec.order_by, strict=True)
        ]
        frames = {side: table.given for side, table in tables.items()}
        made = number_rows(frames, order, window)  # type: ignore[arg-type]
        tables = {side: Table(df) for side, df in made.items()}  # type: ignore[misc]
        numbers = {"l": list_numbers(0, 2), "r": list_numbers(1, 2)}
        if self_join:
            numbers["l"] = numbers["r"] = [*numbers["l"], *numbers["r"]]
        x, y = (f"{side}.{hide_name(side, '{}')}" for side in schemas)
        on = f"({on}) AND {sees(x, y, (0, 1))}"
        window = FullHistory()
    added = set()
    for side, names in numbers.items():
        for name in [*names, "row"] if self_join else names:
            schemas[side] = schemas[side].append(pa.field(hide_name(side, name), pa.int64()))
            added.add(hide_name(side, name))
    if self_join:
        tables["r"] = tables["l"]
    changed = replace(spec, on=on, window=window, order_by=None, self_join=False)
    return Inputs(tables, changed, schemas, self_join, frozenset(added))


@dataclass(frozen=True)
class Drawn:
    """Rows of both sides, each as likely as any other of its side, and how many there are."""

    samples: dict[Side, pa.RecordBatch]
    rows: dict[Side, float]


def draw_both(tables: Mapping[Side, Table], compiled: CompiledJoin) -> Drawn:
    """Some rows of both tables, with the columns that decide which rows match."""
    drawn = Drawn({}, {})
    for side, table in tables.items():
        schema = compiled.schemas[side]
        names = compiled.list_needed(side)
        positions = [schema.names.index(name) for name in names]
        columns = pa.schema([schema.field(name) for name in names])
        found = draw(table, positions, columns, _SEEDS[side])
        drawn.samples[side], drawn.rows[side] = found
    return drawn


def draw(
    table: Table, positions: Sequence[int], schema: pa.Schema, seed: int, most: int = DRAWN
) -> tuple[pa.RecordBatch, float]:
    """Rows of the columns at some positions, each as likely as any other; and how many there are.

    Every row draws a number below 1, and the rows with the least are kept. The largest of these
    tells how many rows there are, within a few percent; if fewer came than may, they are all.
    A row far down in its partition needs a small number to be among the least, so that few rows
    are sorted: of a place `n` and a number `u`, the least have ``n * u`` below about `most`. Two
    tables need seeds that lie far apart, or rows at the same places would be drawn of both.
    """
    place = F.monotonically_increasing_id().bitwiseAND(F.lit(_PLACE))
    columns = [f"c{at}" for at in positions]
    drawn = table.frame.select(*columns, F.rand(seed).alias("u"), place.alias("place"))
    near = drawn.where(F.col("u") * F.col("place") < 2 * most).drop("place")
    found = near.orderBy("u").limit(most).toArrow()
    if not found.num_rows:
        return empty_batch(schema), 0.0
    numbers = found["u"].to_numpy()
    rows = float(len(numbers)) if len(numbers) < most else (most - 1) / float(numbers.max())
    return as_batch(found.drop_columns(["u"]), schema), rows


def first_keys(table: Table, side: Side, keys: Sequence[str]) -> Int64:
    """Hashes of the keys of a table's first rows that have all of them; little is read for them."""
    known = " AND ".join(f"({key}) IS NOT NULL" for key in keys)
    with_keys = table.frame.alias(side).where(known)
    hashes = with_keys.selectExpr(f"xxhash64({', '.join(keys)})").limit(FIRST)
    return np.array([row[0] for row in hashes.collect()], np.int64)


@dataclass(frozen=True)
class Summary:
    """What was seen of a side."""

    zones: Zones
    sample: pa.RecordBatch

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return self.zones.total


def look(tables: dict[Side, Table], compiled: CompiledJoin, spec: UnitSpec) -> dict[Side, Summary]:
    """Summarise the sides in one Spark job."""
    jobs = None
    for side, table in tables.items():
        positions = [
            compiled.schemas[side].names.index(name) for name in compiled.list_needed(side)
        ]
        job = table.map(_summarise(spec, side), SUMMARY, positions)
        jobs = job if jobs is None else jobs.union(job)
    assert jobs is not None
    found = jobs.collect()
    return {
        side: _merge([row for row in found if row.side == SIDES.index(side)], compiled, side)
        for side in tables
    }


def summarise_drawn(drawn: Drawn, compiled: CompiledJoin) -> dict[Side, Summary] | None:
    """What drawn rows show; None where so few can match that a look at all rows pays.

    Once all rows have been seen, those that lie where the other side has none stay where they are.
    """
    sights = sights_of(compiled)
    batches = {
        side: make_batch(rows, side, compiled.parts, []) for side, rows in drawn.samples.items()
    }
    found = {}
    for side, batch in batches.items():
        zones = summarise(sights, side, batch)
        scale = drawn.rows[side] / max(1, len(batch))
        zones = replace(zones, rows=np.rint(zones.rows * scale).astype(np.int64))
        found[side] = Summary(zones, drawn.samples[side])
    for side, batch in batches.items():
        if len(batch) and len(batches[OTHER[side]]):
            around = found[OTHER[side]].zones.boxes.all()
            able = len(ProbingRows(sights, side, batch).find_matching(around, 0))
            if able < WORTH_ALL * len(batch.parts[0]):
                return None
    return found


def _summarise(
    spec: UnitSpec, side: Side
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        compiled = get_compiled(spec)
        names = compiled.list_needed(side)
        schema = pa.schema([compiled.schemas[side].field(name) for name in names])
        for chunk in chunks(batches, schema, SUMMARY_ROWS):
            zones = summarise(
                sights_of(compiled), side, make_batch(chunk, side, compiled.parts, names)
            )
            sample = sample_rows(chunk, TASK_SAMPLE)
            columns = [
                pa.array([SIDES.index(side)], pa.int8()),
                pa.array([chunk.num_rows], pa.int64()),
                pa.array([zones.to_matrix().tobytes()], pa.binary()),
                pa.array([to_ipc(sample).to_pybytes()], pa.binary()),
            ]
            yield pa.RecordBatch.from_arrays(columns, ["side", "total", "zones", "sample"])

    return run


def _merge(rows: list[Any], compiled: CompiledJoin, side: Side) -> Summary:
    widths = [sight.width(side) for sight in sights_of(compiled)]
    height = 5 + 2 * sum(widths)
    matrices: list[Int64] = [np.zeros((height, 0), np.int64)]
    samples = []
    total = sum(row.total for row in rows)
    for row in rows:
        matrices.append(np.frombuffer(row.zones, np.int64).reshape(height, -1))
        sample = from_ipc(row.sample).combine_chunks().to_batches()[0]
        share = max(1, round(SAMPLE * row.total / total))
        kept = np.linspace(0, sample.num_rows - 1, min(share, sample.num_rows)).astype(np.int64)
        samples.append(sample.take(pa.array(kept)))
    names = compiled.list_needed(side)
    schema = pa.schema([compiled.schemas[side].field(name) for name in names])
    sample = concat_batches(samples) if samples else empty_batch(schema)
    return Summary(Zones.from_matrix(np.concatenate(matrices, axis=1), widths), sample)
