"""A table on Spark as its tasks see it: columns by position, its size, and what is added to it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.parts import Side
from thetajoin.engine.spec import JoinSpec
from thetajoin.limits import limits
from thetajoin.predicate import condition_text
from thetajoin.spark.exchange import as_batch, row_bytes
from thetajoin.spark.row_order import number_rows
from thetajoin.spark.stream import arrow_schema
from thetajoin.spark.tasks import Task, map_batches, name_by_position
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
