"""SQL queries over tables given by name."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
from sqlglot import exp

from thetajoin.api import is_spark
from thetajoin.batch.tables import kind_of, to_batch
from thetajoin.engine.intake import storage_schema, stored
from thetajoin.errors import SchemaError, WindowError, nearest
from thetajoin.query.call import LastCall
from thetajoin.query.columns import schema_of
from thetajoin.query.compile import Compiler
from thetajoin.query.text import Parsed, no_table, not_too_deep, parse_query
from thetajoin.query.tree import TableRef, read_query, refuse_on_stream


def sql(query: str, /, **tables: Any) -> Any:
    """Run a query over tables given by name; the result is of the first table's kind.

    Spark's SQL, and the papers' clauses: ``WITHIN 10 minutes``, ``SELECT ONLINE``,
    ``WINDOW AS (SLIDE INTERVAL '100' ON COUNT '1000')``. Costs what `join` and `join_agg` cost.

    >>> import thetajoin as tj, pyarrow as pa
    >>> dc1 = pa.table({"rack": ["a", "b"], "rp": [10, 30]})
    >>> dc2 = pa.table({"rack": ["x", "y"], "rp": [20, 40]})
    >>> query = "SELECT dc1.rack, count(*) AS n FROM dc1, dc2 WHERE dc1.rp < dc2.rp GROUP BY 1"
    >>> tj.sql(query, dc1=dc1, dc2=dc2).to_pydict()
    {'rack': ['a', 'b'], 'n': [2, 1]}
    """
    return compile_query(query, tables).run()


def compile_query(query: str, tables: dict[str, Any], window: Any = None) -> LastCall:
    """Check a query against its tables; `window` comes from a job file, as (window, order_by).

    Queries in FROM are carried out here.
    """
    parsed = parse_query(query)
    if window is not None and parsed.window is not None:
        raise WindowError("the query and the job file both have a window: leave one out")
    given = _Tables(parsed, tables, window)
    with not_too_deep():
        return given.compiler(parsed.tree).call()


class _Tables:
    """The tables that a query may name, and what its own queries in FROM give."""

    def __init__(self, parsed: Parsed, tables: dict[str, Any], window: Any) -> None:
        self.parsed, self.window = parsed, window
        self.known = tables
        self._read: dict[int, pa.Table] = {}
        self._nested: dict[int, tuple[Any, Any]] = {}

    def compiler(self, tree: exp.Expr) -> Compiler:
        """What carries out the query itself."""
        return self._compiler(tree, 2, self.parsed.window, self.window)

    def _compiler(self, tree: exp.Expr, least: int, clause: Any, window: Any) -> Compiler:
        read = read_query(self.parsed.source, tree, self._columns, least=least)
        tables = [self._of(ref)[0] for ref in read.tables]
        if any(is_streaming(table) for table in tables):
            refuse_on_stream(read, tree)
        return Compiler(read, tables, self._of(read.tables[0])[1], clause, window)

    def _columns(self, ref: TableRef) -> list[str]:
        """A table's columns."""
        return list(schema_of(self._of(ref)[0]).names)

    def _of(self, ref: TableRef) -> tuple[Any, Any]:
        """A table, in Arrow unless it is Spark's, and the kind that it was given as."""
        if ref.query is not None:
            if id(ref.query) not in self._nested:
                self._nested[id(ref.query)] = self._run(ref.query)
            return self._nested[id(ref.query)]
        name = self._name(ref)
        table = self.known[name]
        if is_spark(table):
            return table, None
        # The same reader may be given under two names, and can be read once.
        if id(table) not in self._read:
            batch = to_batch(table, repr(name), as_kind=kind_of(table))
            twins = [column for column, n in Counter(batch.schema.names).items() if n > 1]
            if twins:
                raise SchemaError(f"the table {name!r} has two columns {twins[0]!r}: rename one")
            # WHERE, ORDER BY and DISTINCT pick rows, which Arrow cannot do in its view types.
            self._read[id(table)] = pa.table(stored(batch, storage_schema(batch.schema)))
        return self._read[id(table)], kind_of(table)

    def _name(self, ref: TableRef) -> str:
        """The name that a table was given under: exactly, or but for case if that is clear."""
        if ref.name in self.known:
            return ref.name
        close = [name for name in self.known if name.lower() == ref.name.lower()]
        if len(close) != 1:
            raise no_table(ref.name, nearest(ref.name, self.known))
        return close[0]

    def _run(self, tree: exp.Select) -> tuple[Any, Any]:
        """A query in FROM: of one table a filter and a projection, of more a join."""
        compiler = self._compiler(tree, 1, None, None)
        if len(compiler.tables) == 1:
            return compiler.rows(), compiler.kind
        if self.parsed.window is not None or self.window is not None:
            raise WindowError(
                "the query has a window and joins in FROM as well, so that it is not clear which "
                "join it is for: give the inner one's result as a table"
            )
        return compiler.call().table(), compiler.kind


def is_streaming(table: Any) -> bool:
    """Whether a table grows."""
    return is_spark(table) and bool(table.isStreaming)
