"""USING and NATURAL: columns of two tables that a query has as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from sqlglot import exp

from thetajoin.errors import ConditionError
from thetajoin.predicate.parse import Source

if TYPE_CHECKING:
    from thetajoin.query.tree import TableRef

Merged = dict[str, exp.Expr]


def merge_columns(
    source: Source, tables: list[TableRef], columns: Callable[[TableRef], list[str]]
) -> Merged:
    """Make equalities in ON of USING and NATURAL, but for as-of joins, which have their own.

    Gives what each name that was merged stands for without a table, in lower case: the column on
    the left, the one on the right of a right join, whichever is there in a full one.
    """
    merged: Merged = {}
    seen: dict[str, list[exp.Expr]] = {}
    for ref in tables:
        mine = {name.lower(): exp.column(name, ref.alias, quoted=True) for name in columns(ref)}
        named = [part.name.lower() for part in ref.using]
        # Without a common column a natural join is a cross join, as everywhere.
        shared = [name for name in mine if name in seen] if ref.natural else named
        for name in () if ref.asof else shared:
            before = merged.get(name) or _one(source, name, seen.get(name, []), ref)
            if name not in mine:
                raise _missing(source, name, repr(ref.alias))
            on = exp.EQ(this=before.copy(), expression=mine[name].copy())
            ref.on = on if ref.on is None else exp.and_(ref.on, on, copy=False)
            merged[name] = _kept(ref.how, before, mine[name])
        ref.merged = frozenset(shared)
        ref.using = ref.using if ref.asof else ()
        if ref.how in ("semi", "anti"):
            continue
        for name, column in mine.items():
            if name not in shared:
                seen.setdefault(name, []).append(column)
    return merged


def without_table(tree: exp.Expr, merged: Merged) -> exp.Expr:
    """An expression in which merged names are what they stand for, but in queries inside it."""
    if not merged:
        return tree
    root = exp.Paren(this=tree.copy())
    for node in list(own_columns(root)):
        if not node.table and node.name.lower() in merged:
            node.replace(merged[node.name.lower()].copy())
    found: exp.Expr = root.this
    return found


def own_columns(tree: exp.Expr) -> Iterator[exp.Column]:
    """The columns that an expression names itself, not those of queries inside it."""
    for node in tree.walk(prune=lambda node: isinstance(node, exp.Query) and node is not tree):
        if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            yield node


def _kept(how: str, left: exp.Expr, right: exp.Expr) -> exp.Expr:
    if how == "right":
        return right
    if how == "full":
        return exp.Anonymous(this="coalesce", expressions=[left.copy(), right.copy()])
    return left


def _one(source: Source, name: str, found: list[exp.Expr], ref: TableRef) -> exp.Expr:
    if not found:
        raise _missing(source, name, "the tables before it")
    if len(found) > 1:
        raise source.error_at(
            rf"\busing\s*\([^)]*\b{name}\b",
            f"column {name!r} is ambiguous: several tables before {ref.alias!r} have it",
            "write ON a.k = b.k",
        )
    return found[0]


def _missing(source: Source, name: str, where: str) -> ConditionError:
    return source.error_at(
        rf"\busing\s*\([^)]*\b{name}\b", f"USING names {name!r}, which is not in {where}"
    )
