"""One call of the API that a query comes down to: a join, a nearest match, or their totals."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
from sqlglot import exp

from thetajoin.api import explain, is_spark, open_join
from thetajoin.batch.dtypes import mark_of
from thetajoin.batch.tables import to_batch
from thetajoin.dispatch import more_pairs_than, run_call
from thetajoin.engine.machine import Size, check_room
from thetajoin.engine.rows import take_in
from thetajoin.engine.spec import JoinSpec
from thetajoin.errors import ConditionError, OptionError, ThetaJoinError, enough_memory
from thetajoin.predicate.bind import MOST_LEVELS, TOO_DEEP, Binder
from thetajoin.predicate.condition import Scope, column_of
from thetajoin.predicate.evaluate import evaluate
from thetajoin.predicate.nodes import Expr
from thetajoin.predicate.parse import Source, parse
from thetajoin.predicate.render import backquote
from thetajoin.predicate.types import BOOL, NULL, type_name
from thetajoin.query.frames import At, Key, at_of
from thetajoin.query.text import keywords

SMALLER = (
    "add a LIMIT, aggregate the rows, or have them written as they are found with "
    "thetajoin run QUERY --out FILE"
)
# Rows of a result, and of inputs, that one thread is done with before others could be started.
_FEW = 4096
_SMALL = 1 << 18
Batches = Generator[pa.RecordBatch, None, None]


@dataclass(frozen=True)
class Relation:
    """Rows of what stands at one or more places in FROM.

    names: the column of each (place, name). words: what the query calls the table at a place.
    """

    table: Any
    names: dict[Key, str]
    words: Mapping[int, str]

    @cached_property
    def schema(self) -> pa.Schema:
        """The rows' columns."""
        return schema_of(self.table)

    def with_column(self, name: str, text: str) -> Relation:
        """The same rows with an expression over their columns as one more column."""
        if is_spark(self.table):
            from thetajoin.spark.failures import plain_errors

            with plain_errors("in the query"):
                table = self.table.selectExpr("*", f"{text} AS {backquote(name)}")
            return replace(self, table=table)
        batch = to_batch(self.table, "joined")
        source = Source(text, "in the query: ")
        bound = Binder(source, Scope(batch.schema, pa.schema([]))).bind(parse(source))
        values = evaluate(bound, left=batch)
        return replace(self, table=pa.table(batch).append_column(name, values))


@dataclass(frozen=True)
class Join:
    """A call of the API; its rows are found when they are asked for.

    columns: what it gives out, by new names. offset, limit: which of its rows. settings: a job's,
    of joins of streams.
    """

    left: Relation
    right: Relation
    spec: JoinSpec
    columns: dict[str, str]
    settings: Any = None
    offset: int = 0
    limit: int | None = None

    @property
    def is_spark(self) -> bool:
        """Whether its rows are a DataFrame's."""
        return is_spark(self.left.table) or is_spark(self.right.table)

    @property
    def totals(self) -> bool:
        """Whether it gives totals of its matches, by group."""
        return self.spec.aggs is not None

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns that it gives out, of tables in this process."""
        return self.open()[0]

    def table(self, copies: int = 1) -> Any:
        """All rows, as Arrow or a Spark DataFrame; an error if memory has no room for `copies`."""
        if self.is_spark:
            return select_columns(self._called(), self.columns)
        schema, batches = self.open()
        every = self.limit is None and self.spec.nearest is None and not self.totals

        def too_large(most: float) -> Size | None:
            tables = self.left.table, self.right.table
            return more_pairs_than(*tables, self.spec, most) if every else None

        found = check_room(batches, SMALLER, copies=copies, too_large=too_large)
        return pa.Table.from_batches(found, schema=schema)

    def open(self, most: int | None = None) -> tuple[pa.Schema, Batches]:
        """The columns, and the rows as they are found, `most` of them."""
        room = min((n for n in (most, self.limit) if n is not None), default=None)
        found: Iterator[pa.RecordBatch]
        if self.totals:
            rows = to_batch(self._called(), "query's")
            schema, found = rows.schema, iter([rows])
        else:
            tables = self.left.table, self.right.table
            few = room is not None and self.offset + room <= _FEW
            small = sum(table.num_rows for table in tables) <= _SMALL
            options = {"threads": 1, "chunk_rows": _FEW} if few and small else {}
            with users_words(self.left, self.right):
                schema, found = open_join(*tables, replace(self.spec, options=options))
        fields = [(new, schema.field(old)) for new, old in self.columns.items()]
        shown = pa.schema([pa.field(new, f.type, metadata=mark_of(f)) for new, f in fields])

        def batches() -> Batches:
            with users_words(self.left, self.right):
                for batch in cut(found, self.offset, room):
                    arrays = [batch.column(old) for old in self.columns.values()]
                    yield pa.RecordBatch.from_arrays(arrays, schema=shown)

        return shown, batches()

    def explain(self) -> Any:
        """The plan of the call."""
        if self.spec.nearest is not None:
            raise OptionError(
                "an ASOF JOIN has no plan to choose from: both sides are sorted by the key, and "
                "each left row is looked up"
            )
        spec = self.spec
        more = {"group_by": spec.group_by, "aggs": spec.aggs} if self.totals else {}
        tables = self.left.table, self.right.table
        plan = explain(
            *tables, spec.on, how=spec.how, window=spec.window, order_by=spec.order_by, **more
        )
        return _reword(plan, _users_word(self.left, self.right))

    def _called(self) -> Any:
        tables = self.left.table, self.right.table
        spec = replace(self.spec, options=stream_options(self.settings, *tables))
        with enough_memory("join fewer rows at a time"), users_words(self.left, self.right):
            return run_call(*tables, spec)


def plain_rows(tree: exp.Expr, joins: Mapping[str, Join]) -> Join | None:
    """The join whose rows a query gives, if it does no more than name columns and count rows."""
    said = {key for key, value in tree.args.items() if value}
    if not isinstance(tree, exp.Select) or said - {"expressions", "from_", "limit", "offset"}:
        return None
    join = joins.get(tree.args["from_"].this.name) if "from_" in said else None
    counts = read_counts(tree)
    if join is None or counts is None or (join.is_spark and counts != (0, None)):
        return None
    columns = {}
    for item in tree.expressions:
        column = item.unalias()
        plain = isinstance(column, exp.Column) and len(column.parts) < 3
        if not plain or column.name not in join.columns or item.alias_or_name in columns:
            return None
        columns[item.alias_or_name] = join.columns[column.name]
    return replace(join, columns=columns, offset=counts[0], limit=counts[1])


def read_counts(tree: exp.Expr) -> tuple[int, int | None] | None:
    """A query's OFFSET and LIMIT, if they are written as numbers."""
    counts: list[int | None] = []
    for key in ("offset", "limit"):
        clause = tree.args.get(key)
        number = clause.expression if clause is not None else None
        if clause is not None and not (isinstance(number, exp.Literal) and number.name.isdigit()):
            return None
        counts.append(None if number is None else int(number.name))
    return counts[0] or 0, counts[1]


def cut(batches: Iterator[pa.RecordBatch], skip: int, room: int | None) -> Iterator[pa.RecordBatch]:
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


class NotOursError(ConditionError):
    """An expression that conditions cannot have, but an engine may."""


class _Binder(Binder):
    """What binds an expression in the query's own words."""

    def _bind(self, node: exp.Expr) -> Expr:
        column, more = node, []
        while isinstance(column, exp.Dot):
            more.append(column.expression.name)
            column = column.this
        at = at_of(column)
        if at is None:
            return super()._bind(node)
        relation: Relation
        for relation in self.scope.relations:  # type: ignore[attr-defined]
            name = relation.names.get((at.item, at.name))
            if name is not None:
                parts = [name, *at.fields, *reversed(more)]
                word = relation.words[at.item]
                return column_of(word, relation.schema, parts, repr(word))
        raise NotOursError(f"{at.name!r} is of neither side of the join")

    def refuse_syntax(self, node: exp.Expr) -> ConditionError:
        problem = super().refuse_syntax(node)
        return NotOursError(str(problem))


@dataclass(frozen=True)
class _Relations:
    relations: tuple[Relation, ...]


def bound(source: Source, tree: exp.Expr, *relations: Relation) -> Expr:
    """An expression over relations' columns, bound; mistakes are told in the query's words."""
    found = _Binder(source, _Relations(relations)).bind(tree)  # type: ignore[arg-type]
    if found.depth() > MOST_LEVELS:
        raise source.error(TOO_DEEP)
    return found


def check_condition(source: Source, tree: exp.Expr, *relations: Relation) -> None:
    """Refuse a condition that is neither true nor false, or whose types do not fit."""
    check_truth(source, tree, bound(source, tree, *relations).type)


def check_truth(source: Source, tree: exp.Expr, found: pa.DataType) -> None:
    """Refuse a condition of a type that is neither true nor false."""
    if found not in (BOOL, NULL):
        problem = f"a condition must be true or false, not {type_name(found)}"
        raise source.error(problem, tree, "compare it with something")


def text(tree: exp.Expr, left: Relation, right: Relation | None = None) -> str:
    """An expression over relations' columns as the API takes it, with l and r if there are two."""

    def rename(node: exp.Expr) -> exp.Expr:
        at = at_of(node)
        if at is None:
            return node
        key = at.item, at.name
        if right is not None and key in right.names:
            return _named(right.names[key], "r", at)
        return _named(left.names[key], "l" if right is not None else None, at)

    return tree.copy().transform(rename, copy=False).sql(dialect="spark")


def _named(name: str, side: str | None, at: At) -> exp.Expr:
    """A column as sqlglot writes it: quoted where it must be."""
    parts = [exp.to_identifier(p, quoted=not _is_plain(p)) for p in (name, *at.fields)]
    if side is not None:
        parts = [exp.to_identifier(side), *parts]
    return exp.Dot.build(parts) if len(parts) > 2 else exp.column(*reversed(parts))


def _is_plain(name: str) -> bool:
    return name.isidentifier() and name.lower() not in keywords()


@contextmanager
def users_words(left: Relation, right: Relation) -> Iterator[None]:
    """Errors of a join about ``l.x`` and ``r.y`` as errors about the query's own columns."""
    worded = _users_word(left, right)
    try:
        yield
    except ThetaJoinError as error:
        told = worded(str(error))
        if told == str(error):
            raise
        # A position would be one in a text that the user has not seen.
        told = re.sub(r" at position \d+(?=: `)", "", told)
        raise type(error)(f"in the query: {told}") from error


def _users_word(left: Relation, right: Relation) -> Callable[[str], str]:
    """A function that writes the query's own columns for ``l.x`` and ``r.y`` in a text."""
    own = {
        (side, new): f"{relation.words[place]}.{name}"
        for side, relation in (("l", left), ("r", right))
        for (place, name), new in relation.names.items()
    }

    def word(found: re.Match[str]) -> str:
        return own.get((found[1], found[2].strip("`")), found[0])

    return lambda text: re.sub(r"\b([lr])\.(`[^`]+`|\w+)", word, text)


def is_streaming(table: Any) -> bool:
    """Whether a table grows."""
    return is_spark(table) and bool(table.isStreaming)


def schema_of(table: Any) -> pa.Schema:
    """A table's columns as Arrow has them."""
    if is_spark(table):
        from thetajoin.spark.stream import arrow_schema

        return arrow_schema(table)
    return take_in(table, "query's").schema


def select_columns(table: Any, names: Mapping[str, str]) -> Any:
    """The columns of a table by new names, each with the name that it has."""
    if is_spark(table):
        if list(names) == list(names.values()) == table.columns:
            return table
        return table.selectExpr(
            *[f"{backquote(old)} AS {backquote(new)}" for new, old in names.items()]
        )
    return table.select(list(names.values())).rename_columns(list(names))


def stream_options(settings: Any, *tables: Any) -> dict[str, Any]:
    """The options of a join by which a job's settings reach it, if it is one of streams."""
    given = settings is not None and any(map(is_streaming, tables))
    return {"settings": settings} if given else {}


def _reword(value: Any, worded: Callable[[str], str]) -> Any:
    """A plan with all of its texts changed."""
    if isinstance(value, str):
        return worded(value)
    if isinstance(value, tuple):
        return tuple(_reword(item, worded) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{f.name: _reword(getattr(value, f.name), worded) for f in fields(value)}
        )
    return value
