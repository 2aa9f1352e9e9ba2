"""Names of a query's columns: which table's they are, and what they are called in a join."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from thetajoin.api import is_spark
from thetajoin.batch.tables import to_batch
from thetajoin.errors import nearest
from thetajoin.predicate.parse import Source

Names = dict[tuple[str, str], str]


@dataclass(frozen=True)
class Columns:
    """The columns of a query's tables, by alias."""

    source: Source
    schemas: dict[str, pa.Schema]

    def of(self, node: exp.Column) -> tuple[str, str]:
        """The table and column that a name means."""
        source = self.source
        parts = [part.name for part in node.parts]
        if len(parts) > 1 and parts[0].lower() in self.schemas:
            owners = [parts[0].lower()]
            name = parts[1]
        else:
            name = parts[0]
            owners = [a for a, schema in self.schemas.items() if _find(schema.names, name)]
            if len(parts) > 1 and not owners:
                known = nearest(parts[0], self.schemas)
                raise source.error(f"unknown table {parts[0]!r} in the query", node, known)
        if len(owners) > 1:
            hint = " or ".join(f"{owner}.{name}" for owner in owners)
            raise source.error(f"column {name!r} is ambiguous", node, f"write {hint}")
        names = self.schemas[owners[0]].names if owners else []
        real = _find(names, name)
        if not owners or real is None:
            known_names = names or [n for s in self.schemas.values() for n in s.names]
            raise source.error(f"unknown column {name!r}", node, nearest(name, known_names))
        return owners[0], real

    def tables(self, tree: exp.Expr) -> set[str]:
        """The tables that an expression is about."""
        return {self.of(node)[0] for node in tree.find_all(exp.Column)}

    def unique(self, alias: str, name: str) -> str:
        """A column's name among all tables': its own if no other table has it."""
        others = [n.lower() for a, s in self.schemas.items() if a != alias for n in s.names]
        while name.lower() in others:
            name = f"{alias}_{name}"
        return name

    def text(
        self,
        tree: exp.Expr,
        left: Names,
        right: Names | None,
    ) -> str:
        """An expression over the relations' columns, with l and r where there are two."""

        def rename(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column):
                return node
            key = self.of(node)
            fields = [part.name for part in node.parts][2:]
            if right is not None and key in right:
                return _named(right[key], "r", fields)
            return _named(left[key], "l" if right is not None else None, fields)

        return tree.copy().transform(rename).sql(dialect="spark")


def schema_of(table: Any) -> pa.Schema:
    """A table's columns as Arrow has them."""
    if is_spark(table):
        from thetajoin.spark.stream import arrow_schema

        return arrow_schema(table)
    return to_batch(table, "query's").schema


def _named(name: str, side: str | None, fields: list[str]) -> exp.Expr:
    """A column as sqlglot writes it: quoted where it must be."""
    parts = [exp.to_identifier(p, quoted=not p.isidentifier()) for p in (name, *fields)]
    if side is not None:
        parts = [exp.to_identifier(side), *parts]
    return exp.Dot.build(parts) if len(parts) > 2 else exp.column(*reversed(parts))


def _find(names: list[str], name: str) -> str | None:
    if name in names:
        return name
    close = [other for other in names if other.lower() == name.lower()]
    return close[0] if len(close) == 1 else None
