"""The call that a query comes down to, and what is done with its result."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from thetajoin.api import (
    explain,
    is_spark,
    join,
    join_agg,
    open_join,
    self_join,
    self_join_agg,
)
from thetajoin.batch.dtypes import unmarked
from thetajoin.batch.tables import Kind, from_table, to_batch
from thetajoin.dispatch import more_pairs_than, run_call
from thetajoin.engine.machine import Size, fitting
from thetajoin.engine.spec import JoinSpec
from thetajoin.errors import OptionError
from thetajoin.query.after import After, cut, filtered, grouped
from thetajoin.query.columns import users_words
from thetajoin.query.tables import stream_options
from thetajoin.query.text import not_too_deep

SMALLER = (
    "add a LIMIT, aggregate the rows, or have them written as they are found with "
    "thetajoin run QUERY --out FILE"
)
# Rows of a result, and of inputs, that one thread is done with before others could be started.
_FEW = 4096
_SMALL = 1 << 18


def in_kind(table_of: Callable[[int], Any], kind: Kind) -> Any:
    """A whole result as the kind of table that was given.

    table_of: makes it, told how often it will be in memory.
    """
    # Another library's table is made while Arrow's is still there.
    table = table_of(1 if kind == "arrow" else 2)
    if is_spark(table):
        return table
    return from_table(table if kind == "pandas" else unmarked(table), kind)


@dataclass(frozen=True)
class Relation:
    """Rows of one or more of the query's tables; `names` has the column of each (alias, name)."""

    table: Any
    names: dict[tuple[str, str], str]


@dataclass(frozen=True)
class Grouping:
    """Aggregates over an as-of join's rows, of which there are no more than are listed anyway.

    where: which of the rows are there at all.
    """

    where: str | None
    group_by: dict[str, str]
    aggs: dict[str, str]

    def of(self, found: Any) -> Any:
        """The totals of rows."""
        kept = found if self.where is None else filtered(found, self.where)
        return grouped(kept, self.group_by, self.aggs)


@dataclass(frozen=True)
class LastCall:
    """The last call a query comes down to, and what is done with its result.

    right: None for a query of one table, which is a call of nothing; if that table is a join's
    result, the join is `inner`, and `left` has none of its rows. aggregated: the call gives totals
    by group, or, if there is a grouping, that does. settings: a job's, of joins of streams.
    """

    left: Relation
    right: Relation | None
    arguments: dict[str, Any]
    aggregated: bool
    after: After
    kind: Any
    self_join: bool = False
    grouping: Grouping | None = None
    inner: LastCall | None = None
    settings: Any = None

    def run(self) -> Any:
        """The whole result, of the first table's kind."""
        return in_kind(self.table, self.kind)

    def table(self, copies: int = 1) -> Any:
        """The whole result, as Arrow or a Spark DataFrame; an error if memory has no room for it.

        copies: how often it will be in memory.
        """
        if is_spark(self.left.table) or (self.right is not None and is_spark(self.right.table)):
            with not_too_deep():
                return self.after.on_spark(self._called())
        schema, batches = self.open()
        found = fitting(batches, SMALLER, copies=copies, too_large=self._too_large)
        return pa.Table.from_batches(found, schema=schema)

    def _too_large(self, most: float) -> Size | None:
        """How many rows the result has, if that is more than `most` and easily told."""
        if self.right is None or self.aggregated or not self.after.keeps_all:
            return None
        spec = JoinSpec.of(**self.arguments, self_join=self.self_join)
        return more_pairs_than(self.left.table, self.right.table, spec, most)

    def _called(self) -> Any:
        """What the call itself gives."""
        if self.right is None:
            return self.left.table
        with users_words(self.left.names, self.right.names):
            return self._join(self.left.table, self.right.table)

    def _join(self, left: Any, right: Any) -> Any:
        arguments, options = self.arguments, stream_options(self.settings, left, right)
        if "nearest" in arguments:
            found = run_call(left, right, JoinSpec.of(**arguments, options=options))
            return found if self.grouping is None else self.grouping.of(found)
        if not self.self_join:
            return (join_agg if self.aggregated else join)(left, right, **arguments, **options)
        if self.aggregated:
            return self_join_agg(left, **arguments, **options)
        arguments = {name: given for name, given in arguments.items() if name != "how"}
        return self_join(left, **arguments, **options)

    def open(
        self, most: int | None = None
    ) -> tuple[pa.Schema, Generator[pa.RecordBatch, None, None]]:
        """The result's columns, and its rows as they are found: for tables in this process.

        Only what is taken is computed, but for what aggregates, ORDER BY and DISTINCT need, so a
        LIMIT or a look at the first rows costs little however many there are. most: how many will
        be taken, if that is known.
        """
        most = self.after.needed(most)
        found: Iterator[pa.RecordBatch]
        with not_too_deep():
            if self.inner is not None:
                schema, found = self.inner.open(most)
            elif self.aggregated or self.right is None:
                rows = to_batch(self._called(), "query's")
                schema, found = rows.schema, iter([rows])
            else:
                tables = self.left.table, self.right.table
                options = self._options(most, *tables)
                spec = JoinSpec.of(**self.arguments, self_join=self.self_join, options=options)
                with users_words(self.left.names, self.right.names):
                    schema, found = open_join(*tables, spec)
            return self.after.schema(schema), self.after.batches(found, schema)

    def _options(self, most: int | None, left: Any, right: Any) -> dict[str, Any]:
        """How a join is run of which few rows are taken."""
        few = most is not None and most <= _FEW and self.after.where is None
        small = left.num_rows + right.num_rows <= _SMALL
        return {"threads": 1, "chunk_rows": _FEW} if few and small else {}

    def first(self, rows: int) -> pa.Table:
        """The first rows of the result, in Arrow: for tables in this process."""
        schema, batches = self.open(rows)
        return pa.Table.from_batches(cut(batches, 0, rows), schema=schema)

    def explain(self) -> Any:
        """The plan of that call."""
        if "nearest" in self.arguments:
            raise OptionError(
                "an ASOF JOIN has no plan to choose from: both sides are sorted by the key, and "
                "each left row is looked up"
            )
        if self.right is None:
            raise OptionError("a query of one table has no plan: nothing is joined")
        return explain(self.left.table, self.right.table, **self.arguments)
