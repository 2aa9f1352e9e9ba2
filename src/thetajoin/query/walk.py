"""What is where in a query's tree: tables of FROM, queries inside, columns and whose they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeGuard

from sqlglot import exp

from thetajoin.predicate.parse import Source
from thetajoin.query.columns import Columns
from thetajoin.query.tree import read_tables
from thetajoin.query.using import own_columns


def names_itself(output: exp.Expr) -> bool:
    """Whether an output is a column under its own name."""
    inner = output.unalias()
    return isinstance(inner, exp.Column) and inner.name.lower() == output.alias_or_name.lower()


def items_of(select: exp.Select) -> list[exp.Expr]:
    """What stands in FROM and after JOIN."""
    start = select.args.get("from_")
    first = [start.this] if start is not None else []
    return first + [join.this for join in select.args.get("joins") or []]


def is_named(item: exp.Expr) -> TypeGuard[exp.Table]:
    """Whether what stands in FROM is a table's name, or a query's in WITH."""
    return isinstance(item, exp.Table) and isinstance(item.this, exp.Identifier)


def stands_alone(item: exp.Expr) -> bool:
    """Whether what stands in FROM depends on nothing that stands before it."""
    if isinstance(item, exp.Table):
        return not any(item.args.get(key) for key in ("joins", "laterals", "pivots", "sample"))
    return isinstance(item, exp.Subquery | exp.Values)


def name_of(source: Source, item: exp.Expr) -> str:
    """The name of what stands in FROM."""
    if item.alias or not isinstance(item, exp.Table):
        return item.alias
    return read_tables(source, exp.Select(from_=exp.From(this=item.copy())))[0].alias


def queries_in(node: exp.Expr) -> Iterator[exp.Expr]:
    """The outermost queries inside a node, but those of its WITH."""

    def stop(inner: exp.Expr) -> bool:
        return inner is not node and isinstance(inner, exp.Query | exp.With)

    yield from [
        inner
        for inner in node.walk(prune=stop)
        if inner is not node and isinstance(inner, exp.Query)
    ]


def tables_in(node: exp.Expr) -> list[exp.Expr]:
    """The tables named in a node, outside of queries inside it."""

    def stop(inner: exp.Expr) -> bool:
        return inner is not node and isinstance(inner, exp.Query | exp.With)

    return [inner for inner in node.walk(prune=stop) if isinstance(inner, exp.Table)]


def columns_in(value: Any) -> list[exp.Column]:
    """All columns named in a clause, those in queries inside it too."""
    nodes = value if isinstance(value, list) else [value] if value is not None else []
    return [
        column
        for node in nodes
        for column in node.find_all(exp.Column)
        if not isinstance(column.this, exp.Star)
    ]


def is_nested(node: exp.Expr, select: exp.Select) -> bool:
    """Whether a node is in a query inside a SELECT, and not in the SELECT's own clauses."""
    return node.find_ancestor(exp.Select) is not select


def tables_about(tree: exp.Expr, scope: Columns) -> set[str]:
    """The tables of this FROM that an expression names."""
    found = set()
    for column in own_columns(tree):
        if scope.owns(column):
            found.add(scope.of(column)[0])
    return found
