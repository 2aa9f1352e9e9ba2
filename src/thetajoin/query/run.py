"""SQL queries over tables given by name."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from sqlglot import exp

from thetajoin.api import is_spark
from thetajoin.errors import WindowError, enough_memory
from thetajoin.predicate.parse import Source
from thetajoin.query.beyond import BeyondError, beyond
from thetajoin.query.call import SMALLER, LastCall
from thetajoin.query.columns import schema_of
from thetajoin.query.compile import Compiler
from thetajoin.query.tables import Tables, is_streaming
from thetajoin.query.text import Parsed, not_too_deep, parse_query
from thetajoin.query.tree import TableRef, read_query, refuse_on_stream
from thetajoin.query.wide import Call, wide_call

# Functions of DuckDB's that read files or settings, take addresses, or run text as a query. Files
# named in FROM are opened by us.
_CLOSED = re.compile(
    r"read_\w+|glob|sniff_csv|parquet_\w+|\w+_scan(_\w+)?|st_read\w*|duckdb_\w+|pragma_\w+"
    r"|current_setting|getvariable|getenv|which_secret|query|query_table|python_map_function",
    re.IGNORECASE,
)
# Functions of Spark's that call any Java method.
_CALLS_JAVA = re.compile(r"reflect|try_reflect|java_method", re.IGNORECASE)


@enough_memory(SMALLER)
def sql(query: str, /, *, files: Any = True, **tables: Any) -> Any:
    """Run a query over tables given by name; the result is of the first table's kind.

    Spark's SQL, and the papers' clauses: ``WITHIN 10 minutes``, ``SELECT ONLINE``,
    ``WINDOW AS (SLIDE INTERVAL '100' ON COUNT '1000')``. Costs what `join` and `join_agg` cost.

    >>> import thetajoin as tj, pyarrow as pa
    >>> dc1 = pa.table({"rack": ["a", "b"], "rp": [10, 30]})
    >>> dc2 = pa.table({"rack": ["x", "y"], "rp": [20, 40]})
    >>> query = "SELECT dc1.rack, count(*) AS n FROM dc1, dc2 WHERE dc1.rp < dc2.rp GROUP BY 1"
    >>> tj.sql(query, dc1=dc1, dc2=dc2).to_pydict()
    {'rack': ['a', 'b'], 'n': [2, 1]}

    Args:
        query: the query. It reads the tables that are given, and files that it names in FROM.
        files: False refuses files, so that a query of anybody's may be run.
        **tables: the tables by the names that the query has for them.
    """
    if not isinstance(files, bool):  # a table of that name
        tables, files = {"files": files, **tables}, True
    return compile_query(query, tables, files=files).run()


def compile_query(
    query: str,
    tables: dict[str, Any],
    window: Any = None,
    *,
    files: bool = True,
    settings: Any = None,
) -> Call:
    """Check a query against its tables; `window` comes from a job file, as (window, order_by).

    settings: a job's `StreamSettings`, which all joins of streams get as an option.

    Joins of queries in FROM are carried out here, and all joins of a chain but the last.
    """
    parsed = parse_query(query)
    if window is not None and parsed.window is not None:
        raise WindowError("the query and the job file both have a window: leave one out")
    if not isinstance(parsed.tree, exp.Query):
        raise parsed.source.error(f"a query begins with SELECT, not {parsed.tree.key.upper()}")
    if not parsed.tree.selects:
        raise parsed.source.error("the query has no FROM, or selects nothing")
    _refuse_change_feeds(query, tables)
    _refuse_closed(parsed.source, parsed.tree, files=files)
    given = Tables(tables, files=files, settings=settings)
    with not_too_deep():
        missing = beyond(parsed.source, parsed.tree)
        if missing is None:
            try:
                return _Small(parsed, given, window).call()
            except BeyondError as found:
                missing = found
        return wide_call(parsed, given, window, missing)


def _refuse_closed(source: Source, tree: exp.Expr, *, files: bool) -> None:
    """Refuse what reaches beyond the tables a query is given."""
    for call in tree.find_all(exp.Func):
        name = call.name if isinstance(call, exp.Anonymous) else call.sql_name()
        if _CLOSED.fullmatch(name) or (not files and _CALLS_JAVA.fullmatch(name)):
            raise source.error_at(
                rf"(?<!\w){re.escape(name)}(?!\w)",
                f"{name.lower()} reaches beyond the tables that the query is given",
                "a file is named in FROM, as in FROM 'trades.parquet'",
            )
    for table in tree.find_all(exp.Table):
        if table.db and not files:  # Spark reads csv.`file`, and tables of its catalog
            raise source.error(
                f"the query names {table.sql(dialect='spark')}, and files are switched off: it may "
                "name only the tables that are given",
                table,
            )


def _refuse_change_feeds(query: str, tables: dict[str, Any]) -> None:
    """Refuse streams of updates and deletes, but where the query names the column that tells."""
    for name, table in tables.items():
        if is_spark(table):
            from thetajoin.spark.stream import refuse_change_feed

            refuse_change_feed(table, f"the table {name!r}", query)


class _Small:
    """A query that needs no engine, and what its own queries in FROM give."""

    def __init__(self, parsed: Parsed, tables: Tables, window: Any) -> None:
        self.parsed, self.tables, self.window = parsed, tables, window
        self._nested: dict[int, tuple[Any, Any]] = {}

    def call(self) -> LastCall:
        """The last call that the query comes down to."""
        return self._call(self.parsed.tree, self.parsed.window, self.window)

    def _call(self, tree: exp.Select, clause: Any, window: Any) -> LastCall:
        start = tree.args["from_"].this
        if tree.args.get("joins") or not isinstance(start, exp.Subquery):
            return self._compiler(tree, clause, window).call()
        # One query over another: rows go from one to the other as they are found.
        inner = self._call(start.this, clause, window)
        if is_spark(inner.left.table):
            rows, inner_rows = inner.table(), None
        else:
            rows, inner_rows = inner.open()[0].empty_table(), inner
        self._nested[id(start.this)] = rows, inner.kind
        return replace(self._compiler(tree, None, None).call(), inner=inner_rows)

    def _compiler(self, tree: exp.Select, clause: Any, window: Any) -> Compiler:
        read = read_query(self.parsed.source, tree, self._columns)
        tables = [self._of(ref)[0] for ref in read.tables]
        if any(is_streaming(table) for table in tables):
            refuse_on_stream(read, tree)
        kind = self._of(read.tables[0])[1]
        return Compiler(read, tables, kind, clause, window, self.tables.settings)

    def _columns(self, ref: TableRef) -> list[str]:
        return list(schema_of(self._of(ref)[0]).names)

    def _of(self, ref: TableRef) -> tuple[Any, Any]:
        """A table, in Arrow unless it is Spark's, and the kind that it was given as."""
        if ref.query is None:
            return self.tables.of(ref.name)
        if id(ref.query) not in self._nested:
            self._nested[id(ref.query)] = self._run(ref.query)
        return self._nested[id(ref.query)]

    def _run(self, tree: exp.Select) -> tuple[Any, Any]:
        compiler = self._compiler(tree, None, None)
        windowed = self.parsed.window is not None or self.window is not None
        if windowed and len(compiler.tables) > 1:
            raise WindowError(
                "the query has a window and joins in FROM as well, so that it is not clear which "
                "join it is for: give the inner one's result as a table"
            )
        return compiler.call().table(), compiler.kind
