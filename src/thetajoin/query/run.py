"""SQL queries over tables given by name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa
from sqlglot import exp

from thetajoin.aggregate.columns import group_rows
from thetajoin.api import is_spark
from thetajoin.batch.dtypes import drop_marks, mark_of
from thetajoin.batch.tables import Frame as TableFrame
from thetajoin.batch.tables import Input, contiguous, from_table, kind_of, to_batch
from thetajoin.edge import public
from thetajoin.engine.rows import cast_for_storage, storage_schema
from thetajoin.errors import OptionError, SchemaError, WindowError, suggest
from thetajoin.predicate.parse import Source
from thetajoin.query.frames import Frame, at_of, is_aggregate, is_star
from thetajoin.query.join import SMALLER, Join, cut, is_streaming, plain_rows, read_counts
from thetajoin.query.names import Resolver
from thetajoin.query.on_duckdb import DuckDB, check_installed, is_foreign
from thetajoin.query.rewrite import Rewriter, stem_of
from thetajoin.query.text import Parsed, is_path, not_too_deep, parse_query

if TYPE_CHECKING:
    from thetajoin.query.on_spark import Spark

# Functions of DuckDB's that read files or settings, take addresses, or run text as a query. Files
# named in FROM are opened by us.
_CLOSED = re.compile(
    r"read_\w+|glob|sniff_csv|parquet_\w+|\w+_scan(_\w+)?|st_read\w*|duckdb_\w+|pragma_\w+"
    r"|current_setting|getvariable|getenv|which_secret|query|query_table|python_map_function",
    re.IGNORECASE,
)
# Functions of Spark's that call any Java method.
_CALLS_JAVA = re.compile(r"reflect|try_reflect|java_method", re.IGNORECASE)


@overload
def sql(query: str, /, *, files: bool = True, **tables: TableFrame) -> TableFrame: ...


@overload
def sql(query: str, /, *, files: bool = True, **tables: Input) -> Any: ...


@public(SMALLER)
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
) -> Query:
    """Check a query against its tables; `window` comes from a job file, as (window, order_by).

    settings: a job's `StreamSettings`, which all joins of streams get as an option.

    Queries whose rows a join takes are carried out here, and all joins of a chain but the last.
    """
    parsed = parse_query(query)
    source, tree = parsed.source, parsed.tree
    if window is not None and parsed.window is not None:
        raise WindowError("the query and the job file both have a window: leave one out")
    if not isinstance(tree, exp.Query):
        raise source.error(f"a query begins with SELECT, not {tree.key.upper()}")
    if not tree.selects:
        raise source.error("the query has no FROM, or selects nothing")
    _refuse_change_feeds(query, tables)
    _refuse_closed(source, tree, files=files)
    with not_too_deep():
        return _compile(parsed, Tables(tables, files=files, settings=settings), window)


def _compile(parsed: Parsed, tables: Tables, window: Any) -> Query:
    source, tree, stem = parsed.source, parsed.tree, stem_of(parsed.source.text)
    resolver = Resolver(source, tables, stem)
    resolver.query(tree)
    nodes = tree.find_all(exp.Table, bfs=False)
    given = [tables.of(node.meta["given"]) for node in nodes if "given" in node.meta]
    frames = [table for table, _ in given if is_spark(table)]
    engine: DuckDB | Spark
    if frames:
        from thetajoin.query.on_spark import Spark

        engine = Spark(frames[0].sparkSession)
        if any(map(is_streaming, frames)):
            refuse_on_stream(source, tree)
    else:
        check_installed(source)
        said = {key for key, value in tree.args.items() if value}
        engine = DuckDB(source, stem, few="limit" in said and not said & {"order", "group"})
    fields = _fields(tree, resolver.frames)
    rewriter = Rewriter(parsed, tables, engine, window, resolver.frames)
    rewriter.rewrite(tree)
    return Query(engine, tree, given[0][1] if given else "arrow", fields, rewriter.joins)


@dataclass(frozen=True)
class Query:
    """A query as an engine is to run it; joins are made when it asks for their rows.

    fields: of the result's columns, where they are a table's own.
    """

    engine: DuckDB | Spark
    tree: exp.Query
    kind: Any
    fields: list[pa.Field | None]
    joins: dict[str, Join]

    def run(self) -> Any:
        """The whole result, of the first table's kind."""
        # Another library's table is made while Arrow's is still there.
        table = self.table(1 if self.kind == "arrow" else 2)
        if is_spark(table):
            return table
        return from_table(table if self.kind == "pandas" else drop_marks(table), self.kind)

    def table(self, copies: int = 1) -> Any:
        """The whole result, as Arrow or a Spark DataFrame; an error if memory has no room for it.

        copies: how often it will be in memory.
        """
        if self.only_join is not None:
            return self.only_join.table(copies)
        if self._takes_distinct:
            schema, batches = self.open()
            return pa.Table.from_batches(batches, schema=schema)
        table = self.engine.table(self.tree, copies)
        return table if is_spark(table) else table.cast(self._schema(table.schema))

    def open(self, most: int | None = None) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The columns, and the rows as they are found, `most` of them; not on Spark."""
        if self.only_join is not None:
            return self.only_join.open(most)
        counts = read_counts(self.tree)
        if self._takes_distinct and counts is not None:
            tree = self.tree.copy()
            for key in ("distinct", "limit", "offset"):
                tree.set(key, None)
            found, every = self.engine.open(tree)
            offset, limit = counts
            if limit is not None and not any(pa.types.is_nested(field.type) for field in found):
                room = limit if most is None else min(most, limit)
                return self._shown(found, cut(_distinct(every, found, offset + room), offset, room))
            del every  # the connection has one result at a time
        return self._shown(*self.engine.open(self.tree, most))

    def first(self, rows: int) -> pa.Table:
        """The first rows of the result, in Arrow: for tables in this process."""
        schema, batches = self.open(rows)
        return pa.Table.from_batches(batches, schema=schema)

    def explain(self) -> Any:
        """The plan of the query's only join."""
        if len(self.joins) != 1:
            raise OptionError(
                f"the query has {len(self.joins) or 'no'} inequality joins, and a plan shows one"
            )
        (join,) = self.joins.values()
        return join.explain()

    @cached_property
    def only_join(self) -> Join | None:
        """The join that the query is, if it does nothing with its rows but name columns."""
        return plain_rows(self.tree, self.joins)

    @property
    def _takes_distinct(self) -> bool:
        """Whether this is a plain SELECT DISTINCT ... LIMIT of a join's rows in this process.

        An engine would look at all rows of the join before it gives out the first.
        """
        tree = self.tree
        said = {key for key, value in tree.args.items() if value}
        plain = {"expressions", "from_", "distinct", "limit", "offset", "where"}
        if not isinstance(tree, exp.Select) or said - plain or not said >= {"distinct", "limit"}:
            return False
        join = self.joins.get(tree.args["from_"].this.name) if "from_" in said else None
        if join is None or join.is_spark or tree.args["distinct"].args.get("on"):
            return False
        if any(map(is_foreign, join.schema)):
            return False
        grouped = tree.find(exp.Window, exp.AggFunc) or any(map(is_aggregate, tree.walk()))
        return not grouped and read_counts(tree) is not None

    def _shown(
        self, found: pa.Schema, batches: Iterator[pa.RecordBatch]
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        schema = self._schema(found)
        return schema, (batch.cast(schema) for batch in batches)

    def _schema(self, found: pa.Schema) -> pa.Schema:
        """The result's columns: those that are a table's own in the type they have there."""
        known = self.fields if len(self.fields) == len(found) else [None] * len(found)
        fields = []
        for field, own in zip(found, known, strict=True):
            type_, mark = field.type, None
            if own is not None:
                mark = mark_of(own)
                with suppress(pa.ArrowException):
                    type_ = pa.array([], type_).cast(own.type).type
            fields.append(pa.field(field.name, type_, metadata=mark))
        return pa.schema(fields)


class Tables:
    """Tables by name, as they were given or as a part of the query has made them."""

    def __init__(self, given: dict[str, Any], *, files: bool = True, settings: Any = None) -> None:
        """`files`: whether a query may name some. settings: of the joins of streams among them."""
        self._known, self._files, self.settings = dict(given), files, settings
        self._read: dict[int, pa.Table] = {}

    def of(self, name: str) -> tuple[Any, Any]:
        """A table, in Arrow unless it is Spark's, and the kind that it was given as."""
        known = self.name(name)
        table = self._known[known]
        if is_spark(table):
            return table, None
        # The same reader may be given under two names, and can be read once.
        if id(table) not in self._read:
            self._read[id(table)] = _read(table, known)
        return self._read[id(table)], kind_of(table) or "arrow"

    def name(self, name: str) -> str:
        """The name that a table was given under: exactly, or but for case if that is clear.

        What looks like a path, and is no table's name, is one: ``FROM 'trades/*.parquet'``.
        """
        if name in self._known:
            return name
        close = [known for known in self._known if known.lower() == name.lower()]
        if len(close) == 1:
            return close[0]
        if not is_path(name):
            known = suggest(name, self._known)
            raise OptionError(f"the query names the table {name!r}, which was not given: {known}")
        if not self._files:
            raise OptionError(
                f"the query names the file {name!r}, and files are switched off: it may name only "
                f"the tables that are given ({', '.join(self._known) or 'none'})"
            )
        self._known[name] = name
        return name

    def is_spark(self, name: str) -> bool:
        """Whether a table is Spark's; it is not read for that."""
        return is_spark(self._known[self.name(name)])


def _read(table: Any, name: str) -> pa.Table:
    what = "query's" if table is name else repr(name)  # a path says itself what it is
    batch = to_batch(table, what, as_kind=kind_of(table))
    twins = [column for column, n in Counter(batch.schema.names).items() if n > 1]
    if twins:
        raise SchemaError(f"the table {name!r} has two columns {twins[0]!r}: rename one")
    # WHERE, ORDER BY and DISTINCT pick rows, which Arrow cannot do in its view types.
    return pa.table(cast_for_storage(batch, storage_schema(batch.schema)))


def _distinct(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, most: int
) -> Iterator[pa.RecordBatch]:
    """The first `most` rows that differ; no batch is taken in vain."""
    kept = pa.Table.from_batches([], schema=schema)
    for batch in batches:
        both = pa.concat_tables([kept, pa.Table.from_batches([batch])])
        rows = contiguous(both, "query's")
        kept = pa.Table.from_arrays(group_rows(rows.columns, rows.num_rows).keys, schema=schema)
        if kept.num_rows >= most:
            break
    yield from kept.to_batches()


def _fields(tree: exp.Expr, frames: list[Frame]) -> list[pa.Field | None]:
    """The fields of outputs that are columns of tables that were given."""
    if not isinstance(tree, exp.Select):
        return []
    frame = frames[tree.meta["frame"]]
    fields: list[pa.Field | None] = []
    for item in tree.expressions:
        if is_star(item):
            if len(frame.items) != 1 or frame.items[0].schema is None:
                return []
            fields += list(frame.items[0].schema)
            continue
        at = at_of(item.unalias())
        schema = None if at is None or at.fields else frame.items[at.item].schema
        fields.append(schema.field(at.name) if at is not None and schema is not None else None)
    return fields


def refuse_on_stream(source: Source, tree: exp.Expr) -> None:
    """ORDER BY, LIMIT and OFFSET need an end, which a stream has not."""
    for key, name in (("order", "ORDER BY"), ("limit", "LIMIT"), ("offset", "OFFSET")):
        clause = tree.args.get(key)
        if clause is not None:
            said = clause.sql(dialect="spark").strip()
            raise source.error_at(
                name.replace(" ", r"\s+"),
                f"{name} on a stream, which has no end is not supported: {said}",
            )


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
