"""What is done with a query's rows once they are there: filter, project, order, cut."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from thetajoin.aggregate.columns import group_rows
from thetajoin.aggregate.rows import row_totals
from thetajoin.aggregate.spec import parse_aggregates
from thetajoin.aggregate.state import result
from thetajoin.api import is_spark
from thetajoin.batch.dtypes import mark_of
from thetajoin.batch.keys import BytesKey, Int64, encode
from thetajoin.batch.tables import contiguous, to_batch
from thetajoin.engine.block import empty_batch
from thetajoin.engine.machine import fitting
from thetajoin.limits import limits
from thetajoin.predicate import Expr
from thetajoin.predicate.bind import Binder, bind
from thetajoin.predicate.condition import Scope
from thetajoin.predicate.evaluate import evaluate
from thetajoin.predicate.parse import Source, parse
from thetajoin.predicate.render import backquoted

_UNSORTED = "add a LIMIT, or leave ORDER BY out"
Fold = Callable[[pa.RecordBatch], pa.RecordBatch]


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

    def on_spark(self, found: Any) -> Any:
        """The result of a Spark DataFrame's rows, as a DataFrame."""
        from thetajoin.spark.failures import plain_errors

        with plain_errors("in the query"):
            shown = self._on_spark(found)
            _ = shown.schema  # Spark Connect looks at expressions only when it is asked
        return shown

    def _on_spark(self, found: Any) -> Any:
        if self.where is not None:
            found = found.where(self.where)
        texts = [f"{text} AS {backquoted(name)}" for name, text in self.outputs]
        if self.distinct:
            # Whatever such a query is ordered by is an output: the compiler sees to that.
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

    def schema(self, rows: pa.Schema) -> pa.Schema:
        """The result's columns, for rows of these; mistakes in expressions are found here."""
        none = empty_batch(rows)
        values = Values(rows)
        self._filtered(none, values)
        result = self._projected(none, values)
        over = Values(result.schema) if self.distinct else values
        for item in self.order:
            over.of(item.text, result if self.distinct else none)
        return result.schema

    def batches(
        self, found: Iterable[pa.RecordBatch], rows: pa.Schema
    ) -> Generator[pa.RecordBatch, None, None]:
        """The result's rows, from batches of rows that are taken only as long as they are needed.

        Without ORDER BY and DISTINCT, what comes in goes out. With them, memory holds what may
        still be in the result: with LIMIT that is not much.
        """
        values = Values(rows)
        found = (self._filtered(batch, values) for batch in found)
        if self.order and not self.distinct:
            if self.limit is None:  # all rows are held, and once more in their order
                found = fitting(found, _UNSORTED, copies=2)
            found = _folded(found, rows, lambda kept: self._first(kept, values))
        made: Iterable[pa.RecordBatch] = (self._projected(batch, values) for batch in found)
        if self.distinct:
            schema = self.schema(rows)
            most = None if self.order else self._most
            made = _folded(made, schema, distinct, most)
            if self.order:
                over = Values(schema)
                made = (self._first(batch, over) for batch in made)
        yield from cut(made, self.offset, self.limit)

    @property
    def keeps_all(self) -> bool:
        """Whether there is a row in the result for every one that comes in."""
        return self.where is None and not self.distinct and self.limit is None

    def needed(self, most: int | None) -> int | None:
        """How many rows must come in for so many to go out, as a guess; None for all of them."""
        if self.order or self.distinct:
            return None
        known = [rows for rows in (most, self.limit) if rows is not None]
        return self.offset + min(known) if known else None

    @property
    def _most(self) -> int | None:
        """How many rows matter, those that OFFSET skips among them."""
        return None if self.limit is None else self.offset + self.limit

    def _filtered(self, batch: pa.RecordBatch, values: Values) -> pa.RecordBatch:
        if self.where is None:
            return batch
        return values.where(self.where, batch)

    def _projected(self, batch: pa.RecordBatch, values: Values) -> pa.RecordBatch:
        arrays = [values.shown(text, batch) for _, text in self.outputs]
        fields = [
            pa.field(name, array.type, metadata=values.mark(text))
            for (name, text), array in zip(self.outputs, arrays, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _first(self, batch: pa.RecordBatch, values: Values) -> pa.RecordBatch:
        """The rows in order, those behind the last one that matters left out."""
        ranks = [_ranks(values.of(item.text, batch), item) for item in self.order]
        return batch.take(pa.array(np.lexsort(ranks[::-1])[: self._most]))


def cut(batches: Iterable[pa.RecordBatch], skip: int, room: int | None) -> Iterator[pa.RecordBatch]:
    """The rows behind the first `skip`, and of those `room`; no batch is taken in vain."""
    if room == 0:
        return
    for batch in batches:
        part = batch.slice(skip, room)
        skip -= min(skip, batch.num_rows)
        if part.num_rows:
            yield part
        if room is not None:
            room -= part.num_rows
            if not room:
                return


class Values:
    """Expressions over rows of a schema, each bound once."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._bound: dict[str, Expr] = {}
        self._conditions: dict[str, Expr] = {}

    def of(self, text: str, batch: pa.RecordBatch) -> pa.Array:
        """An expression's values."""
        if text not in self._bound:
            source = Source(text, "in the query: ")
            binder = Binder(source, Scope(self._schema, pa.schema([])))
            self._bound[text] = binder.bind(parse(source))
        return evaluate(self._bound[text], left=batch)

    def where(self, text: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows for which a condition is true."""
        if text not in self._conditions:
            source = Source(text, "in the query: ")
            self._conditions[text] = bind(source, Scope(self._schema, pa.schema([])))
        return batch.filter(evaluate(self._conditions[text], left=batch).fill_null(False))

    def shown(self, text: str, batch: pa.RecordBatch) -> pa.Array:
        """An output's values: a plain column as it is, or an expression's."""
        name = self._plain(text)
        return self.of(text, batch) if name is None else batch.column(name)

    def mark(self, text: str) -> Any:
        """What a plain column's field says of the type that its values came in."""
        name = self._plain(text)
        return None if name is None else mark_of(self._schema.field(name))

    def _plain(self, text: str) -> str | None:
        name = text.strip("`")
        return name if name in self._schema.names else None


def filtered(table: Any, where: str) -> Any:
    """The rows of a table, or of a Spark DataFrame, for which a condition on its columns holds."""
    if is_spark(table):
        from thetajoin.spark.failures import plain_errors

        with plain_errors("in the query"):
            return table.where(where)
    batch = to_batch(table, "joined")
    return pa.table(Values(batch.schema).where(where, batch))


def with_column(table: Any, name: str, text: str) -> Any:
    """A table, or a Spark DataFrame, with an expression over its columns as one more column."""
    if is_spark(table):
        from thetajoin.spark.failures import plain_errors

        with plain_errors("in the query"):
            return table.selectExpr("*", f"{text} AS {backquoted(name)}")
    batch = to_batch(table, "joined")
    return pa.table(batch).append_column(name, Values(batch.schema).of(text, batch))


def grouped(table: Any, group_by: Mapping[str, str], aggs: Mapping[str, str]) -> Any:
    """Aggregates over the rows of a table, or of a Spark DataFrame, by group."""
    if is_spark(table):
        from thetajoin.spark.totals import add_up_rows

        return add_up_rows(table, group_by, aggs)
    batch = to_batch(table, "joined")
    return result(row_totals(batch, parse_aggregates(group_by, aggs, batch.schema, pa.schema([]))))


def distinct(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows without those that are there already."""
    keys = group_rows(batch.columns, batch.num_rows).keys
    return pa.RecordBatch.from_arrays(keys, schema=batch.schema)


def _folded(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, fold: Fold, most: int | None = None
) -> Iterator[pa.RecordBatch]:
    """One batch: what `fold` leaves of all rows, until it has left `most`."""
    kept = empty_batch(schema)
    waiting: list[pa.RecordBatch] = []
    rows = 0

    def settled() -> pa.RecordBatch:
        # A batch without rows has no categories, and would not go with those that have some.
        filled = [batch for batch in (kept, *waiting) if batch.num_rows]
        return fold(contiguous(pa.Table.from_batches(filled or [kept], schema), "query's"))

    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        # Folding costs what is kept as well: it is worth it once that much has come.
        if rows >= max(kept.num_rows, limits.waiting_rows if most is None else 1):
            kept, waiting, rows = settled(), [], 0
            if most is not None and kept.num_rows >= most:
                break
    yield settled() if waiting else kept


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
