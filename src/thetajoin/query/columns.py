"""Names of a query's columns: which table's they are, and what they are called in a join."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pyarrow as pa
from sqlglot import exp

from thetajoin.api import is_spark
from thetajoin.engine.rows import take_in
from thetajoin.errors import ThetaJoinError, suggest
from thetajoin.predicate.bind import bind_tree
from thetajoin.predicate.condition import column_of
from thetajoin.predicate.nodes import Column
from thetajoin.predicate.parse import Source
from thetajoin.predicate.types import BOOL, NULL, type_name

Names = dict[tuple[str, str], str]


@dataclass(frozen=True)
class Columns:
    """The columns of a query's tables, by alias; `hidden` tables may not be named, and why.

    merged: columns, in lower case, that a name without a table does not mean: USING made them one
    with those on their left.
    """

    source: Source
    every: dict[str, pa.Schema]
    hidden: dict[str, str] = field(default_factory=dict)
    merged: frozenset[tuple[str, str]] = frozenset()

    def hiding(self, hidden: dict[str, str]) -> Columns:
        """The same tables, of which some may not be named here."""
        return replace(self, hidden=hidden)

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        """The tables that may be named."""
        return {alias: s for alias, s in self.every.items() if alias not in self.hidden}

    def of(self, node: exp.Column) -> tuple[str, str]:
        """The table and column that a name means."""
        return self.resolved(node)[0]

    def resolved(self, node: exp.Column) -> tuple[tuple[str, str], list[str]]:
        """The same, and the fields of a struct that are named after it."""
        return self._meant([part.name for part in node.parts], node)

    def resolve(self, parts: list[str]) -> Column:
        """A column with its type, for what binds expressions in the query's own words."""
        (alias, name), fields = self._meant(parts, None)
        return column_of(alias, self.every[alias], [name, *fields], repr(alias))

    def _meant(self, parts: list[str], node: exp.Expr | None) -> tuple[tuple[str, str], list[str]]:
        source, schemas = self.source, self.schemas
        name = parts[0]
        if len(parts) > 1 and name.lower() in self.hidden:
            raise source.error(f"{name!r} {self.hidden[name.lower()]}", node)
        fields = parts[1:]
        if len(parts) > 1 and name.lower() in schemas:
            owners = [name.lower()]
            name, fields = parts[1], parts[2:]
        else:
            owners = [a for a, schema in schemas.items() if _find(schema.names, name)]
            owners = [a for a in owners if (a, name.lower()) not in self.merged]
            if len(parts) > 1 and not owners:
                known = suggest(name, schemas)
                raise source.error(f"unknown table {name!r} in the query", node, known)
        if len(owners) > 1:
            hint = " or ".join(f"{owner}.{name}" for owner in owners)
            raise source.error(f"column {name!r} is ambiguous", node, f"write {hint}")
        names = schemas[owners[0]].names if owners else []
        real = _find(names, name)
        if not owners or real is None:
            for alias, why in self.hidden.items():
                if not owners and _find(self.every[alias].names, name):
                    raise source.error(f"{alias!r} {why}", node)
            known_names = names or [n for s in schemas.values() for n in s.names]
            raise source.error(f"unknown column {name!r}", node, suggest(name, known_names))
        return (owners[0], real), fields

    def owns(self, node: exp.Column) -> bool:
        """Whether a name can only be one of these tables', right or wrong."""
        parts = [part.name for part in node.parts]
        if len(parts) > 1 and parts[0].lower() in self.every:
            return True
        return any(_find(schema.names, parts[0]) for schema in self.every.values())

    def plain(self, tree: exp.Expr) -> tuple[str, str] | None:
        """The table and column that an expression is, if it is nothing more than a column."""
        tree = tree.unnest()
        if not isinstance(tree, exp.Column):
            return None
        key, fields = self.resolved(tree)
        return None if fields else key

    def tables(self, tree: exp.Expr) -> set[str]:
        """The tables that an expression is about."""
        return {self.of(node)[0] for node in tree.find_all(exp.Column)}

    def qualified(self, tree: exp.Expr) -> exp.Expr:
        """An expression whose columns all name their tables."""

        def named(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column):
                return node
            (alias, name), fields = self.resolved(node)
            parts = [exp.to_identifier(part, quoted=True) for part in (alias, name, *fields)]
            full = exp.Dot.build(parts) if fields else exp.column(*reversed(parts))
            return _with_position(full, node)

        return tree.copy().transform(named)

    def check(self, tree: exp.Expr) -> None:
        """Refuse an expression whose types do not fit, in the query's own words."""
        bind_tree(self.source, self, tree)

    def check_condition(self, tree: exp.Expr) -> None:
        """Refuse a condition that is neither true nor false."""
        found = bind_tree(self.source, self, tree).type
        if found not in (BOOL, NULL):
            problem = f"a condition must be true or false, not {type_name(found)}"
            raise self.source.error(problem, tree, "compare it with something")

    def unique(self) -> Names:
        """A name for each column that no other has: its own if no other table has it."""
        taken = Counter(name.lower() for schema in self.every.values() for name in schema.names)
        names: Names = {}
        for alias, schema in self.every.items():
            for name in schema.names:
                new = name
                while taken[new.lower()] > (new == name):
                    new = f"{alias}_{new}"
                taken[new.lower()] += new != name
                names[alias, name] = new
        return names

    def text(
        self,
        tree: exp.Expr,
        left: Names,
        right: Names | None = None,
    ) -> str:
        """An expression over the relations' columns, with l and r where there are two."""

        def rename(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column):
                return node
            key, fields = self.resolved(node)
            if right is not None and key in right:
                return _named(right[key], "r", fields)
            return _named(left[key], "l" if right is not None else None, fields)

        return tree.copy().transform(rename).sql(dialect="spark")


@contextmanager
def users_words(left: Names, right: Names) -> Iterator[None]:
    """Errors of a join about ``l.x`` and ``r.y`` as errors about the query's own columns."""
    sides = {"l": left, "r": right}
    own = {(side, new): key for side, names in sides.items() for key, new in names.items()}

    def worded(found: re.Match[str]) -> str:
        key = own.get((found[1], found[2].strip("`")))
        return found[0] if key is None else ".".join(key)

    try:
        yield
    except ThetaJoinError as error:
        told = re.sub(r"\b([lr])\.(`[^`]+`|\w+)", worded, str(error))
        if told == str(error):
            raise
        # A position would be one in a text that the user has not seen.
        told = re.sub(r" at position \d+(?=: `)", "", told)
        raise type(error)(f"in the query: {told}") from error


def schema_of(table: Any) -> pa.Schema:
    """A table's columns as Arrow has them."""
    if is_spark(table):
        from thetajoin.spark.stream import arrow_schema

        return arrow_schema(table)
    return take_in(table, "query's").schema


def _named(name: str, side: str | None, fields: list[str]) -> exp.Expr:
    """A column as sqlglot writes it: quoted where it must be."""
    parts = [exp.to_identifier(p, quoted=not _is_plain(p)) for p in (name, *fields)]
    if side is not None:
        parts = [exp.to_identifier(side), *parts]
    return exp.Dot.build(parts) if len(parts) > 2 else exp.column(*reversed(parts))


def _with_position(new: exp.Expr, old: exp.Expr) -> exp.Expr:
    """A node that errors point to where they would point to another."""
    metas = [part.meta for part in old.walk() if "start" in part.meta]
    if metas:
        first = next(iter(new.find_all(exp.Identifier)))
        first.meta.update(
            start=min(meta["start"] for meta in metas), end=max(meta["end"] for meta in metas)
        )
    return new


def _is_plain(name: str) -> bool:
    return name.isidentifier() and name.upper() not in _keywords()


@cache
def _keywords() -> frozenset[str]:
    from sqlglot.dialects.spark import Spark

    return frozenset(Spark.Tokenizer.KEYWORDS)


def _find(names: list[str], name: str) -> str | None:
    if name in names:
        return name
    close = [other for other in names if other.lower() == name.lower()]
    return close[0] if len(close) == 1 else None
