"""What is done with a query's rows once they are there: filter, project, order, cut."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from thetajoin.aggregate.groups import group_rows
from thetajoin.api import is_spark
from thetajoin.batch.dtypes import mark_of
from thetajoin.batch.keys import BytesKey, Int64, encode
from thetajoin.batch.tables import to_batch
from thetajoin.predicate import Expr
from thetajoin.predicate.bind import Binder
from thetajoin.predicate.evaluate import evaluate
from thetajoin.predicate.names import Scope
from thetajoin.predicate.parse import Source, parse
from thetajoin.predicate.render import backquoted


@dataclass(frozen=True)
class Order:
    """One item of ORDER BY, over the same columns as the outputs."""

    text: str
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class After:
    """Outputs by name, and the clauses around them, as texts over the rows' own columns."""

    outputs: list[tuple[str, str]]
    where: str | None = None
    distinct: bool = False
    order: list[Order] = field(default_factory=list)
    limit: int | None = None
    offset: int = 0

    def apply(self, found: Any) -> Any:
        """A Spark DataFrame of a Spark one, an Arrow table of anything else."""
        return self._spark(found) if is_spark(found) else self._arrow(to_batch(found, "joined"))

    def _spark(self, found: Any) -> Any:
        if self.where is not None:
            found = found.where(self.where)
        texts = [f"{text} AS {backquoted(name)}" for name, text in self.outputs]
        if self.distinct:
            # Whatever such a query is ordered by is an output: see `ordered_by`.
            found = found.selectExpr(*texts).distinct()
            texts = [backquoted(name) for name, _ in self.outputs]
        hidden: list[str] = []
        rising: list[bool] = []
        for at, item in enumerate(self.order):
            texts.append(f"({item.text}) IS NULL AS {backquoted(f'_null {at}')}")
            texts.append(f"{item.text} AS {backquoted(f'_order {at}')}")
            hidden += [f"_null {at}", f"_order {at}"]
            rising += [not item.nulls_first, not item.descending]
        shown = found.selectExpr(*texts)
        if hidden:
            shown = shown.orderBy(*map(backquoted, hidden), ascending=rising)
        if self.offset:
            shown = shown.offset(self.offset)
        if self.limit is not None:
            shown = shown.limit(self.limit)
        return shown.drop(*hidden) if hidden else shown

    def _arrow(self, batch: pa.RecordBatch) -> pa.Table:
        if self.where is not None:
            batch = batch.filter(_evaluated(self.where, batch).fill_null(False))
        arrays = [_shown(text, batch) for _, text in self.outputs]
        shown = pa.schema(
            [
                _field(name, text, array.type, batch.schema)
                for (name, text), array in zip(self.outputs, arrays, strict=True)
            ]
        )
        table = pa.RecordBatch.from_arrays(arrays, schema=shown)
        if self.distinct:
            keys = group_rows(arrays, table.num_rows).keys
            table = batch = pa.RecordBatch.from_arrays(keys, schema=shown)
        if self.order:
            ranks = [_ranks(_evaluated(item.text, batch), item) for item in self.order]
            table = table.take(pa.array(np.lexsort(ranks[::-1])))
        end = None if self.limit is None else self.offset + self.limit
        return pa.table(table)[self.offset : end]


def _evaluated(text: str, batch: pa.RecordBatch) -> pa.Array:
    """An expression over the rows."""
    source = Source(text, "in the query: ")
    expr: Expr = Binder(source, Scope(batch.schema, pa.schema([]))).bind(parse(source))
    return evaluate(expr, left=batch)


def _shown(text: str, batch: pa.RecordBatch) -> pa.Array:
    """An output: a plain column as it is, or an expression over the rows."""
    name = text.strip("`")
    return batch.column(name) if name in batch.schema.names else _evaluated(text, batch)


def _field(name: str, text: str, type_: pa.DataType, schema: pa.Schema) -> pa.Field:
    """An output's field; that of a plain column says what type its values came in."""
    plain = text.strip("`")
    mark = mark_of(schema.field(plain)) if plain in schema.names else None
    return pa.field(name, type_, metadata=mark)


def _ranks(array: pa.Array, item: Order) -> Int64:
    """Integers in the order of an item: NaN above all numbers, NULL where the item wants it."""
    there = array.is_valid().to_numpy(zero_copy_only=False)
    keys = encode(array.drop_null())
    if isinstance(keys, BytesKey):
        keys = keys.dictionary()[1]
    _, rank = np.unique(keys, return_inverse=True)
    ranks = np.full(len(array), -1 if item.nulls_first else len(array), np.int64)
    ranks[there] = len(array) - 1 - rank if item.descending else rank
    return ranks
