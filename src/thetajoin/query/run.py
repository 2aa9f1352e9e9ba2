"""SQL queries over tables given by name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, overload

import pyarrow as pa
from sqlglot import exp

from thetajoin.aggregate.columns import group_rows
from thetajoin.api import is_spark
from thetajoin.batch.dtypes import mark_of, unmarked
from thetajoin.batch.tables import Frame as TableFrame
from thetajoin.batch.tables import Input, contiguous, from_table
from thetajoin.edge import public
from thetajoin.errors import OptionError, WindowError
from thetajoin.predicate.parse import Source
from thetajoin.query.frames import Frame, at_of, is_aggregate, is_star
from thetajoin.query.join import SMALLER, Join, cut, plain_rows
from thetajoin.query.names import Resolver
from thetajoin.query.on_duckdb import DuckDB, Engine, check_installed
from thetajoin.query.rewrite import Rewriter, stem_of
from thetajoin.query.tables import Tables, is_streaming
from thetajoin.query.text import Parsed, not_too_deep, parse_query

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
    names = _given(tree)
    frames = [tables.of(name)[0] for name in names if tables.is_spark(name)]
    engine: Engine
    if frames:
        from thetajoin.query.on_spark import Spark

        engine = Spark(frames[0].sparkSession)
        if any(map(is_streaming, frames)):
            refuse_on_stream(source, tree)
    else:
        check_installed(source)
        said = {key for key, value in tree.args.items() if value}
        engine = DuckDB(source, stem, few="limit" in said and not said & {"order", "group"})
    kind = tables.of(names[0])[1] if names else "arrow"
    resolver = Resolver(source, tables, stem)
    resolver.query(tree)
    fields = _fields(tree, resolver.frames)
    rewriter = Rewriter(parsed, tables, engine, window, resolver.frames)
    rewriter.rewrite(tree)
    return Query(engine, tree, kind, fields, rewriter.joins)


@dataclass(frozen=True)
class Query:
    """A query as an engine is to run it; joins are made when it asks for their rows.

    fields: of the result's columns, where they are a table's own.
    """

    engine: Engine
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
        return from_table(table if self.kind == "pandas" else unmarked(table), self.kind)

    def table(self, copies: int = 1) -> Any:
        """The whole result, as Arrow or a Spark DataFrame; an error if memory has no room for it.

        copies: how often it will be in memory.
        """
        plain = plain_rows(self.tree, self.joins)
        cut_short = plain is not None and (plain.limit is not None or plain.offset > 0)
        if plain is not None and not (plain.join.is_spark and cut_short):
            return plain.table(copies)
        if self._most_distinct is not None:
            schema, batches = self._open(None)
            return pa.Table.from_batches(batches, schema=schema)
        table = self.engine.table(self.tree, copies)
        if is_spark(table):
            return table
        schema = self._schema(table.schema)
        return pa.Table.from_arrays(
            [_as(column, field.type) for column, field in zip(table.columns, schema, strict=True)],
            schema=schema,
        )

    def open(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The result's columns, and its rows as they are found: for tables in this process."""
        return self._open(None)

    def first(self, rows: int) -> pa.Table:
        """The first rows of the result, in Arrow: for tables in this process."""
        schema, batches = self._open(rows)
        return pa.Table.from_batches(batches, schema=schema)

    def explain(self) -> Any:
        """The plan of the query's only join."""
        if len(self.joins) != 1:
            raise OptionError(
                f"the query has {len(self.joins) or 'no'} inequality joins, and a plan is of one"
            )
        (join,) = self.joins.values()
        return join.explain()

    @property
    def only_join(self) -> Join | None:
        """The join that the query is, if it does nothing with its rows but name columns."""
        plain = plain_rows(self.tree, self.joins)
        return None if plain is None else plain.join

    def _open(self, most: int | None) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        plain = plain_rows(self.tree, self.joins)
        if plain is not None:
            return plain.open(most)
        rows = self._most_distinct
        if rows is not None:
            tree = self.tree.copy()
            for key in ("distinct", "limit", "offset"):
                tree.set(key, None)
            found, every = self.engine.open(tree)
            if not any(pa.types.is_nested(field.type) for field in found):
                kept = cut(_distinct(every, found, sum(rows)), *rows)
                return self._shown(found, kept if most is None else cut(kept, 0, most))
            del every  # the connection has one result at a time
        return self._shown(*self.engine.open(self.tree, most))

    def _shown(
        self, found: pa.Schema, batches: Iterator[pa.RecordBatch]
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Rows with the types that a table's own columns have."""
        schema = self._schema(found)
        return schema, (
            pa.RecordBatch.from_arrays(
                [_as(c, field.type) for c, field in zip(batch.columns, schema, strict=True)],
                schema=schema,
            )
            for batch in batches
        )

    @property
    def _most_distinct(self) -> tuple[int, int] | None:
        """OFFSET and LIMIT of a plain SELECT DISTINCT of a join's rows in this process.

        An engine would look at all rows of the join before it gives out the first.
        """
        tree = self.tree
        said = {key for key, value in tree.args.items() if value}
        plain = {"expressions", "from_", "distinct", "limit", "offset", "where"}
        if not isinstance(tree, exp.Select) or said - plain or not {"distinct", "limit"} <= said:
            return None
        start = tree.args["from_"].this if "from_" in said else None
        if not isinstance(start, exp.Table) or start.name not in self.joins:
            return None
        if self.joins[start.name].is_spark or tree.args["distinct"].args.get("on"):
            return None
        if tree.find(exp.Window, exp.AggFunc) or any(map(is_aggregate, tree.find_all(exp.Func))):
            return None
        counts = [
            tree.args[k].expression if tree.args.get(k) else None for k in ("offset", "limit")
        ]
        if not all(n is None or (isinstance(n, exp.Literal) and n.name.isdigit()) for n in counts):
            return None
        offset, limit = (0 if node is None else int(node.name) for node in counts)
        return offset, limit

    def _schema(self, found: pa.Schema) -> pa.Schema:
        """The result's columns: those that are a table's own in the type they have there."""
        known = self.fields if len(self.fields) == len(found) else [None] * len(found)
        fields = []
        for field, own in zip(found, known, strict=True):
            type_ = field.type if own is None or not _fits(field.type, own.type) else own.type
            fields.append(
                pa.field(field.name, type_, metadata=None if own is None else mark_of(own))
            )
        return pa.schema(fields)


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


def _given(tree: exp.Query) -> list[str]:
    """The names of the tables that a query reads, in its order."""
    made = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    found = []
    for node in tree.find_all(exp.Table, bfs=False):
        name = ".".join(part.name for part in node.parts)
        if isinstance(node.this, exp.Identifier) and name.lower() not in made:
            found.append(name)
    return found


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
        schema = None if at is None or at.item < 0 else frame.items[at.item].schema
        own = schema is not None and at is not None and not at.fields
        fields.append(schema.field(at.name) if own and schema is not None and at else None)
    return fields


def _fits(found: pa.DataType, own: pa.DataType) -> bool:
    """Whether a type that an engine gives is the other one's, but for how Arrow keeps it."""
    if found == own:
        return False
    if isinstance(own, pa.DictionaryType):
        return _plain(found) == _plain(own.value_type)
    if pa.types.is_timestamp(own) and pa.types.is_timestamp(found):
        return (own.tz is None) == (found.tz is None)
    return _plain(found) == _plain(own)


def _plain(type_: pa.DataType) -> str:
    """What a type holds, however wide or narrow."""
    for what in ("string", "binary", "time", "decimal", "date"):
        test = getattr(pa.types, f"is_{what}")
        large = getattr(pa.types, f"is_large_{what}", None)
        if test(type_) or (large is not None and large(type_)):
            return what
    return "binary" if pa.types.is_fixed_size_binary(type_) else str(type_)


def _as(column: Any, type_: pa.DataType) -> Any:
    """A column in the type that its table has it in."""
    if column.type == type_:
        return column
    if isinstance(type_, pa.DictionaryType):
        column = column.dictionary_encode()
    return column.cast(type_)


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
