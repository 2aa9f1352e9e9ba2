"""The call that a query comes down to, and what is done with its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from thetajoin.aggregate.groups import group_rows
from thetajoin.api import explain, is_spark, join, join_agg
from thetajoin.batch.tables import from_table, to_batch
from thetajoin.predicate.bind import Binder
from thetajoin.predicate.evaluate import evaluate
from thetajoin.predicate.names import Scope
from thetajoin.predicate.parse import Source, parse


@dataclass(frozen=True)
class Relation:
    """Rows of one or more of the query's tables; `names` has the column of each (alias, name)."""

    table: Any
    names: dict[tuple[str, str], str]


@dataclass(frozen=True)
class Call:
    """The last call a query comes down to, and what is done with its result."""

    left: Relation
    right: Relation
    arguments: dict[str, Any]
    aggregated: bool
    outputs: list[tuple[str, str]]
    distinct: bool
    kind: Any

    def run(self) -> Any:
        """Call `join` or `join_agg`, then project."""
        call = join_agg if self.aggregated else join
        found = call(self.left.table, self.right.table, **self.arguments)
        if is_spark(found):
            shown = found.selectExpr(*[f"{text} AS {quoted(name)}" for name, text in self.outputs])
            return shown.distinct() if self.distinct else shown
        batch = to_batch(found, "joined")
        return from_table(_project(batch, self.outputs, self.distinct), self.kind)

    def explain(self) -> Any:
        """The plan of that call."""
        return explain(self.left.table, self.right.table, **self.arguments)


def _project(batch: pa.RecordBatch, outputs: list[tuple[str, str]], distinct: bool) -> pa.Table:
    scope = Scope(batch.schema, pa.schema([]))
    arrays, fields = [], []
    for name, text in outputs:
        source = Source(text, "in the query: ")
        expr = Binder(source, scope).bind(parse(source))
        array = evaluate(expr, left=batch)
        own = (
            batch.schema.field(text.strip("`")).type
            if text.strip("`") in batch.schema.names
            else None
        )
        if own is not None and own != array.type:
            array = array.cast(own)
        arrays.append(array)
        fields.append(pa.field(name, array.type))
    table = pa.table(arrays, schema=pa.schema(fields))
    if distinct:
        keys = group_rows(
            [column.combine_chunks() for column in table.columns], table.num_rows
        ).keys
        table = pa.table(keys, schema=table.schema)
    return table


def quoted(name: str) -> str:
    """A name as Spark's SQL takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"
