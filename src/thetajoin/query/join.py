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
from thetajoin.engine.machine import Size, fitting
from thetajoin.engine.spec import JoinSpec
from thetajoin.errors import ConditionError, OptionError, ThetaJoinError, enough_memory
from thetajoin.predicate.bind import MOST_LEVELS, TOO_DEEP, Binder
from thetajoin.predicate.condition import Scope, column_of
from thetajoin.predicate.evaluate import evaluate
from thetajoin.predicate.nodes import Expr
from thetajoin.predicate.parse import Source, parse
from thetajoin.predicate.render import backquoted
from thetajoin.predicate.types import BOOL, NULL, type_name
from thetajoin.query.frames import At, at_of
from thetajoin.query.tables import schema_of, select_columns, stream_options
from thetajoin.query.text import keywords

SMALLER = (
    "add a LIMIT, aggregate the rows, or have them written as they are found with "
    "thetajoin run QUERY --out FILE"
)
# Rows of a result, and of inputs, that one thread is done with before others could be started.
_FEW = 4096
_SMALL = 1 << 18
Key = tuple[int, str]  # a place in FROM, and the name of a column there


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
                table = self.table.selectExpr("*", f"{text} AS {backquoted(name)}")
            return replace(self, table=table)
        batch = to_batch(self.table, "joined")
        source = Source(text, "in the query: ")
        bound = Binder(source, Scope(batch.schema, pa.schema([]))).bind(parse(source))
        values = evaluate(bound, left=batch)
        return replace(self, table=pa.table(batch).append_column(name, values))


@dataclass(frozen=True)
class Join:
    """A call of the API; its rows are found when they are asked for.

    columns: what it gives out, by new names. settings: a job's, of joins of streams.
    """

    left: Relation
    right: Relation
    spec: JoinSpec
    columns: dict[str, str]
    settings: Any = None

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
        if self.is_spark or self.totals:
            return self._selected(self._called())
        schema, batches = self.open()
        found = fitting(batches, SMALLER, copies=copies, too_large=self.too_large)
        return pa.Table.from_batches(found, schema=schema)

    def too_large(self, most: float) -> Size | None:
        """How many rows there are, if that is more than `most` and easily told."""
        if self.spec.nearest is not None:
            return None
        return more_pairs_than(self.left.table, self.right.table, self.spec, most)

    def open(
        self, most: int | None = None
    ) -> tuple[pa.Schema, Generator[pa.RecordBatch, None, None]]:
        """The columns, and the rows as they are found; `most` of them are taken, if known."""
        found: Iterator[pa.RecordBatch]
        if self.totals:
            rows = to_batch(self._called(), "query's")
            schema, found = rows.schema, iter([rows])
        else:
            tables = self.left.table, self.right.table
            few = most is not None and most <= _FEW
            small = sum(table.num_rows for table in tables) <= _SMALL
            options = {"threads": 1, "chunk_rows": _FEW} if few and small else {}
            with users_words(self.left, self.right):
                schema, found = open_join(*tables, replace(self.spec, options=options))
        shown = pa.schema([schema.field(old).with_name(new) for new, old in self.columns.items()])

        def batches() -> Generator[pa.RecordBatch, None, None]:
            with users_words(self.left, self.right):
                for batch in found:
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

    def _selected(self, found: Any) -> Any:
        if list(self.columns) == list(self.columns.values()) == list(schema_of(found).names):
            return found
        return select_columns(found, {old: new for new, old in self.columns.items()})


@dataclass(frozen=True)
class PlainRows:
    """Columns of a join's rows, and how many of the rows: what takes no engine.

    columns: of the join, by the names that they get.
    """

    join: Join
    columns: dict[str, str]
    offset: int = 0
    limit: int | None = None

    def table(self, copies: int = 1) -> Any:
        """All rows, as Arrow or a Spark DataFrame; an error if memory has no room for `copies`."""
        if self.join.is_spark:
            shown = {old: new for new, old in self.columns.items()}
            if len(shown) == len(self.columns):
                return select_columns(self.join.table(), shown)
            texts = [f"{backquoted(o)} AS {backquoted(n)}" for n, o in self.columns.items()]
            return self.join.table().selectExpr(*texts)
        schema, batches = self.open()

        def large(most: float) -> Size | None:
            every = self.limit is None and not self.join.totals
            return self.join.too_large(most) if every else None

        found = fitting(batches, SMALLER, copies=copies, too_large=large)
        return pa.Table.from_batches(found, schema=schema)

    def open(
        self, most: int | None = None
    ) -> tuple[pa.Schema, Generator[pa.RecordBatch, None, None]]:
        """The columns, and the rows as they are found, `most` of them."""
        room = min((n for n in (most, self.limit) if n is not None), default=None)
        schema, found = self.join.open(None if room is None else self.offset + room)
        fields = [schema.field(old).with_name(new) for new, old in self.columns.items()]
        fields = [pa.field(field.name, field.type, metadata=mark_of(field)) for field in fields]
        shown = pa.schema(fields)
        batches = (
            pa.RecordBatch.from_arrays(
                [batch.column(old) for old in self.columns.values()], schema=shown
            )
            for batch in cut(found, self.offset, room)
        )
        return shown, batches


def plain_rows(tree: exp.Expr, joins: Mapping[str, Join]) -> PlainRows | None:
    """The rows that a query gives, if it does nothing but name columns of a join's."""
    while isinstance(tree, exp.Subquery) and not tree.args.get("joins"):
        tree = tree.this
    said = {key for key, value in tree.args.items() if value}
    if not isinstance(tree, exp.Select) or said - {"expressions", "from_", "limit", "offset"}:
        return None
    start = tree.args["from_"].this if "from_" in said else None
    if isinstance(start, exp.Table) and start.name in joins and not start.args.get("joins"):
        join = joins[start.name]
        below = PlainRows(join, {name: name for name in join.columns})
    elif isinstance(start, exp.Subquery):
        found = plain_rows(start, joins)
        if found is None:
            return None
        below = found
    else:
        return None
    columns = {}
    for item in tree.expressions:
        column = item.unalias()
        if not isinstance(column, exp.Column) or column.name not in below.columns:
            return None
        if len(column.parts) > 2 or not item.alias_or_name:
            return None
        columns[item.alias_or_name] = below.columns[column.name]
    counts = []
    for key in ("offset", "limit"):
        node = tree.args.get(key)
        number = node.expression if node is not None else None
        if number is not None and not (
            isinstance(number, exp.Literal) and number.name.isdigit() and not number.is_string
        ):
            return None
        counts.append(None if number is None else int(number.name))
    offset, limit = counts[0] or 0, counts[1]
    if len(columns) < len(tree.expressions):
        return None
    if below.limit is not None:
        left = max(0, below.limit - offset)
        limit = left if limit is None else min(limit, left)
    return PlainRows(below.join, columns, below.offset + offset, limit)


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
        return super()._bind(node)

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
