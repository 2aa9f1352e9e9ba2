"""A parsed query as tables, conditions and outputs; whatever else it says is an error."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from thetajoin.errors import ConditionError
from thetajoin.predicate.parse import Source
from thetajoin.query.text import Parsed

AGGREGATES = ("count", "sum", "avg", "mean", "min", "max")
_HOWS = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}
_CLAUSES = {
    "with_": "WITH",
    "having": "HAVING",
    "order": "ORDER BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "qualify": "QUALIFY",
    "windows": "WINDOW",
    "laterals": "LATERAL VIEW",
    "sort": "SORT BY",
    "cluster": "CLUSTER BY",
    "distribute": "DISTRIBUTE BY",
    "pivots": "PIVOT",
    "sample": "TABLESAMPLE",
    "hint": "a hint",
}
_KNOWN = {"expressions", "from_", "joins", "where", "group", "distinct", "kind"}


@dataclass
class TableRef:
    """A table of the query: its name, its alias, and how it is joined to those before it."""

    name: str
    alias: str
    how: str = "inner"
    on: exp.Expr | None = None


@dataclass
class Query:
    """What a query asks for, in terms of its own tables and columns."""

    source: Source
    tables: list[TableRef] = field(default_factory=list)
    where: exp.Expr | None = None
    groups: list[exp.Expr] = field(default_factory=list)
    outputs: list[tuple[str, exp.Expr]] = field(default_factory=list)
    distinct: bool = False

    @property
    def aggregates(self) -> bool:
        """Whether the matches are grouped."""
        return bool(self.groups) or any(has_aggregate(tree) for _, tree in self.outputs)


def has_aggregate(tree: exp.Expr) -> bool:
    """Whether an aggregate function is called in an expression."""
    return any(is_aggregate(node) for node in tree.find_all(exp.Anonymous))


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node is a call of an aggregate function."""
    return isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES


def read_query(parsed: Parsed, columns: Callable[[str], list[str]]) -> Query:
    """Take a tree apart; `columns` gives a table's columns by its name in the query."""
    source, tree = parsed.source, parsed.tree
    if not isinstance(tree, exp.Select):
        raise source.error(f"a query begins with SELECT, not {tree.key.upper()}")
    _refuse(source, tree)
    query = Query(source)
    start = tree.args.get("from_")
    if start is None:
        raise source.error("the query has no FROM", hint="name two tables")
    query.tables.append(_table(source, start.this))
    for join in tree.args.get("joins") or []:
        query.tables.append(_joined(source, join))
    if len(query.tables) < 2:
        raise source.error("the query has one table", hint="join it with another: FROM a JOIN b")
    names = [table.alias.lower() for table in query.tables]
    for at, name in enumerate(names):
        if name in names[:at]:
            raise source.error(f"two tables are called {name!r}", hint="give one an alias")
    where = tree.args.get("where")
    query.where = where.this if where is not None else None
    group = tree.args.get("group")
    if group is not None:
        if {k for k, v in group.args.items() if v} - {"expressions"}:
            raise _clause(source, group, "this form of GROUP BY")
        query.groups = [_ordinal(source, item, tree) for item in group.expressions]
    distinct = tree.args.get("distinct")
    if distinct is not None and distinct.args.get("on") is not None:
        raise _clause(source, distinct, "DISTINCT ON")
    query.distinct = distinct is not None
    query.outputs = _outputs(source, tree, query, columns)
    return query


def _refuse(source: Source, tree: exp.Select) -> None:
    for key, value in tree.args.items():
        if not value or key in _KNOWN:
            continue
        name = _CLAUSES.get(key, key.replace("_", " ").strip().upper())
        node = value if isinstance(value, exp.Expr) else next(iter(value), None)
        raise _clause(source, node, name)
    for node in tree.walk():
        if isinstance(node, exp.Subquery) or (isinstance(node, exp.Select) and node is not tree):
            problem = "a subquery is not supported"
            raise source.error_at(r"\(\s*select\b.*", problem, "give its result as a table")
        if isinstance(node, exp.Window):
            raise _clause(source, node, "a window function")


def _clause(source: Source, node: Any, name: str) -> ConditionError:
    text = node.sql(dialect="spark") if isinstance(node, exp.Expr) else name
    return source.error_at(
        r"\s+".join(map(re.escape, name.split())), f"{name} is not supported: {text}"
    )


def _table(source: Source, node: exp.Expr) -> TableRef:
    if not isinstance(node, exp.Table) or node.args.get("joins"):
        raise source.error("a table's name is expected here", node)
    for key in ("pivots", "sample", "laterals", "version", "when"):
        if node.args.get(key):
            raise _clause(source, node, _CLAUSES.get(key, key.upper()))
    name = ".".join(part.name for part in node.parts)
    return TableRef(name, node.alias or node.name)


def _joined(source: Source, join: exp.Join) -> TableRef:
    table = _table(source, join.this)
    side, kind = join.args.get("side") or "", join.args.get("kind") or ""
    if join.args.get("using"):
        raise source.error_at(r"\busing\b[^)]*\)?", "USING is not supported", "write ON a.k = b.k")
    if join.args.get("method") or kind not in ("", "INNER", "OUTER", "CROSS", "SEMI", "ANTI"):
        what = " ".join(str(x) for x in (join.args.get("method"), side, kind) if x)
        raise source.error_at(rf"\b{what.split()[0]}\b.*?\bjoin\b", f"{what} JOIN is not supported")
    table.how = kind.lower() if kind in ("SEMI", "ANTI") else _HOWS[side]
    table.on = join.args.get("on")
    return table


def _ordinal(source: Source, item: exp.Expr, tree: exp.Select) -> exp.Expr:
    """A group by position or by an output's name is that output's expression."""
    if isinstance(item, exp.Literal) and not item.is_string:
        at = int(item.name)
        if not 1 <= at <= len(tree.expressions):
            raise source.error(f"GROUP BY {at}: there are {len(tree.expressions)} columns", item)
        chosen: exp.Expr = tree.expressions[at - 1].unalias()
        return chosen
    if isinstance(item, exp.Column) and not item.table:
        for output in tree.expressions:
            if isinstance(output, exp.Alias) and output.alias.lower() == item.name.lower():
                named: exp.Expr = output.this
                return named
    return item


def _outputs(
    source: Source, tree: exp.Select, query: Query, columns: Callable[[str], list[str]]
) -> list[tuple[str, exp.Expr]]:
    outputs: list[tuple[str, exp.Expr]] = []
    for item in tree.expressions:
        star = isinstance(item, exp.Star) or (
            isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
        )
        if not star:
            inner = item.unalias()
            outputs.append((item.alias or inner.output_name or inner.sql(dialect="spark"), inner))
            continue
        wanted = item.table.lower() if isinstance(item, exp.Column) else None
        tables = [t for t in query.tables if wanted is None or t.alias.lower() == wanted]
        if not tables:
            raise source.error(f"unknown table {item.table!r} in the query", item)
        for table in tables:
            if table.how in ("semi", "anti"):
                continue
            for name in columns(table.name):
                outputs.append((name, exp.column(name, table.alias, quoted=True)))
    return _unique(outputs)


def _unique(outputs: list[tuple[str, exp.Expr]]) -> list[tuple[str, exp.Expr]]:
    """Names as a join gives them: a name that is taken gets a suffix."""
    taken: set[str] = set()
    named = []
    for name, tree in outputs:
        while name in taken:
            name += "_right"
        taken.add(name)
        named.append((name, tree))
    return named
