"""Queries that take a SQL engine: it runs them, over the rows of their inequality joins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from sqlglot import exp

from thetajoin.api import is_spark
from thetajoin.batch.dtypes import mark_of
from thetajoin.errors import OptionError
from thetajoin.query.beyond import BeyondError
from thetajoin.query.call import LastCall, in_kind
from thetajoin.query.columns import schema_of
from thetajoin.query.rewrite import Rewriter
from thetajoin.query.tables import Tables
from thetajoin.query.text import Parsed
from thetajoin.query.tree import is_star, unique


class Engine(Protocol):
    """What runs SQL over tables and joins that it is given by name."""

    def add(self, name: str, rows: Any) -> None:
        """Let queries name a table, or the rows of a `LastCall`."""

    def columns(self, tree: exp.Query) -> list[str]:
        """The names of a query's columns; nothing runs."""

    def table(self, tree: exp.Query, copies: int = 1, /) -> Any:
        """A query's whole result, as Arrow or a Spark DataFrame.

        copies: how often it will be in this process' memory.
        """

    def open(
        self, tree: exp.Query, most: int | None = None
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """A query's columns, and its rows as they are found, `most` of them: not on Spark."""


@dataclass(frozen=True)
class WideCall:
    """A query as an engine is to run it; joins are made when it asks for their rows.

    fields: of the result's columns, where they are a table's own.
    """

    engine: Engine
    tree: exp.Query
    kind: Any
    fields: list[pa.Field | None]
    joins: list[LastCall]

    def run(self) -> Any:
        """The whole result, of the first table's kind."""
        return in_kind(self.table, self.kind)

    def table(self, copies: int = 1) -> Any:
        """The whole result, as Arrow or a Spark DataFrame; an error if memory has no room for it.

        copies: how often it will be in memory.
        """
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
        return self.joins[0].explain()

    def _open(self, most: int | None) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        found, batches = self.engine.open(self.tree, most)
        schema = self._schema(found)
        return schema, (
            pa.RecordBatch.from_arrays(
                [_as(c, field.type) for c, field in zip(batch.columns, schema, strict=True)],
                schema=schema,
            )
            for batch in batches
        )

    def _schema(self, found: pa.Schema) -> pa.Schema:
        """The result's columns: those that are a table's own in the type they have there."""
        names = [name for name, _ in unique([(name, exp.Null()) for name in found.names])]
        known = self.fields if len(self.fields) == len(names) else [None] * len(names)
        fields = []
        for name, field, own in zip(names, found, known, strict=True):
            type_ = field.type if own is None or not _fits(field.type, own.type) else own.type
            fields.append(pa.field(name, type_, metadata=None if own is None else mark_of(own)))
        return pa.schema(fields)


Call = LastCall | WideCall


def wide_call(parsed: Parsed, tables: Tables, window: Any, missing: BeyondError) -> WideCall:
    """A query as an engine is to run it: Spark where its tables are Spark's, else DuckDB.

    missing: what to say where there is no engine.
    """
    tree = parsed.tree.copy()
    names = _given(tree)
    frames = [tables.of(name)[0] for name in names if tables.is_spark(name)]
    engine: Engine
    if frames:
        from thetajoin.query.on_spark import Spark

        engine = Spark(frames[0].sparkSession)
    else:
        from thetajoin.query.on_duckdb import DuckDB

        engine = DuckDB(parsed.source, missing)
    kind = tables.of(names[0])[1] if names else "arrow"
    fields = _fields(tree, tables)
    _name(tree)
    rewriter = Rewriter(parsed, tables, engine, window)
    rewriter.rewrite(tree)
    return WideCall(engine, tree, kind, fields, rewriter.joins)


def _given(tree: exp.Query) -> list[str]:
    """The names of the tables that a query reads, in its order."""
    made = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    found = []
    for node in tree.find_all(exp.Table, bfs=False):
        name = ".".join(part.name for part in node.parts)
        if isinstance(node.this, exp.Identifier) and name.lower() not in made:
            found.append(name)
    return found


def _first_select(tree: exp.Expr) -> exp.Select | None:
    """The SELECT that names a query's columns."""
    while isinstance(tree, exp.SetOperation | exp.Subquery):
        tree = tree.this
    return tree if isinstance(tree, exp.Select) else None


def _name(tree: exp.Query) -> None:
    """Name a query's outputs as they would be without an engine."""
    select = _first_select(tree)
    if select is None:
        return
    for item in list(select.expressions):
        if isinstance(item, exp.Alias) or is_star(item):
            continue
        name = item.output_name or item.sql(dialect="spark")
        item.replace(exp.alias_(item.copy(), name, quoted=True))


def _fields(tree: exp.Query, tables: Tables) -> list[pa.Field | None]:
    """The fields of outputs that are columns of tables that were given."""
    if not isinstance(tree, exp.Select) or tree.args.get("with_"):
        return []
    start = tree.args.get("from_")
    items = [] if start is None else [start.this]
    items += [join.this for join in tree.args.get("joins") or []]
    if any(not isinstance(i, exp.Table) or not isinstance(i.this, exp.Identifier) for i in items):
        return []
    schemas = {}
    for item in items:
        name = ".".join(part.name for part in item.parts)
        schemas[(item.alias or item.name).lower()] = schema_of(tables.of(name)[0])
    fields: list[pa.Field | None] = []
    for item in tree.expressions:
        inner = item.unalias()
        if is_star(inner):
            if len(schemas) > 1 or any((inner.find(exp.Star) or inner).args.values()):
                return []
            fields += [field for schema in schemas.values() for field in schema]
            continue
        fields.append(_field(inner, schemas))
    return fields


def _field(node: exp.Expr, schemas: dict[str, pa.Schema]) -> pa.Field | None:
    if not isinstance(node, exp.Column):
        return None
    parts = [part.name.lower() for part in node.parts]
    looked = [schemas[parts[0]]] if len(parts) == 2 and parts[0] in schemas else []
    if len(parts) == 1:
        looked = list(schemas.values())
    found = [field for schema in looked for field in schema if field.name.lower() == parts[-1]]
    return found[0] if len(found) == 1 else None


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
