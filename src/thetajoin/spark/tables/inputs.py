"""The tables of a batch join as its tasks see them: columns by position, and hidden ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.parts import Side
from thetajoin.engine.spec import JoinSpec
from thetajoin.predicate import condition_text
from thetajoin.spark.tables.counted import numbered
from thetajoin.spark.tables.table import Table
from thetajoin.window.many_inputs import carried, hidden, sees
from thetajoin.window.windows import CountWindow, FullHistory


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

    def shown(self, compiled: CompiledJoin) -> tuple[int, ...] | None:
        """Positions of the output columns that are the user's."""
        names = compiled.layout.schema.names
        shown = tuple(at for at, name in enumerate(names) if name not in self.added)
        return None if len(shown) == len(names) else shown

    def apart(self, compiled: CompiledJoin) -> tuple[int, int] | None:
        """Positions of the row numbers in which the rows of a pair must differ."""
        if not self.is_self_join:
            return None
        names = compiled.layout.schema.names
        return names.index(hidden("l", "row")), names.index(hidden("r", "row"))


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
        made = numbered(frames, order, window)  # type: ignore[arg-type]
        tables = {side: Table(df) for side, df in made.items()}  # type: ignore[misc]
        numbers = {"l": carried(0, 2), "r": carried(1, 2)}
        if self_join:
            numbers["l"] = numbers["r"] = [*numbers["l"], *numbers["r"]]
        x, y = (f"{side}.{hidden(side, '{}')}" for side in schemas)
        on = f"({on}) AND {sees(x, y, (0, 1))}"
        window = FullHistory()
    added = set()
    for side, names in numbers.items():
        for name in [*names, "row"] if self_join else names:
            schemas[side] = schemas[side].append(pa.field(hidden(side, name), pa.int64()))
            added.add(hidden(side, name))
    if self_join:
        tables["r"] = tables["l"]
    changed = replace(spec, on=on, window=window, order_by=None, self_join=False)
    return Inputs(tables, changed, schemas, self_join, frozenset(added))
