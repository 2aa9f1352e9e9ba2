"""What of a query takes a SQL engine: all that is not a join, or plainly around one."""

from __future__ import annotations

import re
from typing import Any

from sqlglot import exp

from thetajoin.errors import ConditionError
from thetajoin.predicate.functions import FUNCTIONS
from thetajoin.predicate.literals import TYPE_FUNCTIONS
from thetajoin.predicate.parse import Source
from thetajoin.query.tree import AGGREGATES, has_aggregate, is_aggregate

INSTALL = "pip install 'thetajoin[sql]'"
_CLAUSES = {
    "with_": "WITH",
    "qualify": "QUALIFY",
    "windows": "WINDOW",
    "laterals": "LATERAL VIEW",
    "sort": "SORT BY",
    "cluster": "CLUSTER BY",
    "distribute": "DISTRIBUTE BY",
    "pivots": "PIVOT",
    "sample": "TABLESAMPLE",
}
_OPERATIONS: dict[type[exp.Expr], str] = {
    exp.Union: "UNION",
    exp.Except: "EXCEPT",
    exp.Intersect: "INTERSECT",
}
_PLAIN = {
    *("expressions", "from_", "joins", "where", "group", "having", "distinct", "kind"),
    *("order", "limit", "offset"),
}
# Functions without parentheses, which look like columns.
BARE = ("current_date", "current_timestamp", "current_time", "localtimestamp", "current_user")
_JOINS = ("", "INNER", "OUTER", "CROSS", "SEMI", "ANTI")


class BeyondError(ConditionError):
    """A query, or a part of one, that only a SQL engine can carry out."""


def beyond(source: Source, tree: exp.Expr) -> BeyondError | None:
    """The first thing in a query that takes a SQL engine, as the error if there is none."""
    found = _first(tree)
    return None if found is None else needs_engine(source, *found)


def needs_engine(source: Source, what: str, pattern: str = "") -> BeyondError:
    """The error for a part of a query that takes a SQL engine, which the pattern finds."""
    pattern = pattern or r"\b" + r"\s+".join(map(re.escape, what.split()))
    found = re.search(pattern, source.text, re.IGNORECASE | re.DOTALL)
    start, end = found.span() if found else (0, len(source.text))
    return BeyondError(
        f"{source.label}{what} needs DuckDB, which is not installed",
        position=start + 1,
        fragment=source.text[start:end],
        hint=INSTALL,
    )


def _first(tree: exp.Expr) -> tuple[str, str] | None:
    if type(tree) in _OPERATIONS:
        return _OPERATIONS[type(tree)], ""
    if not isinstance(tree, exp.Select):
        return "this query", ".+"
    for key, value in tree.args.items():
        if value and key not in _PLAIN:
            return _CLAUSES.get(key, key.replace("_", " ").strip().upper()), ""
    start = tree.args.get("from_")
    if start is None:
        return "a query without FROM", ".+"
    joins = tree.args.get("joins") or []
    items = [start.this, *(join.this for join in joins)]
    if not joins and (tree.args.get("group") or tree.args.get("having") or has_aggregate(tree)):
        return "an aggregate over one table", r"\bselect\b.+"
    for item in items:
        found = _item(item)
        if found is not None:
            return found
    for join in joins:
        if (join.args.get("method") or "") not in ("", "ASOF", "NATURAL"):
            return f"{join.args['method']} JOIN", ""
        if (join.args.get("kind") or "") not in _JOINS:
            return f"{join.args['kind']} JOIN", ""
    group, distinct = tree.args.get("group"), tree.args.get("distinct")
    if group is not None and not is_plain_group(group):
        return "this form of GROUP BY", r"\bgroup\s+by\b.+"
    if distinct is not None and distinct.args.get("on") is not None:
        return "DISTINCT ON", ""
    for key in ("limit", "offset"):
        node = tree.args.get(key)
        if node is not None and not isinstance(node.expression, exp.Literal):
            return f"{key.upper()} of an expression", rf"\b{key}\b.+"
    return _expressions(tree, {id(item) for item in items})


def _item(item: exp.Expr) -> tuple[str, str] | None:
    """What of a table in FROM takes an engine."""
    if isinstance(item, exp.Subquery) and isinstance(item.this, exp.Select):
        if not item.alias:
            return "a query in FROM without a name", r"\(\s*select\b.*"
        columns = item.args["alias"].args.get("columns")
        return ("names of columns after a table", "") if columns else _first(item.this)
    if not isinstance(item, exp.Table) or not isinstance(item.this, exp.Identifier):
        return f"{item.key.upper()} in FROM", r"\bfrom\b.+"
    said = {key for key, value in item.args.items() if value} - {"this", "db", "catalog", "alias"}
    alias = item.args.get("alias")
    if said or (alias is not None and alias.args.get("columns")):
        return "more than a name in FROM", r"\bfrom\b.+"
    return None


def _expressions(tree: exp.Select, items: set[int]) -> tuple[str, str] | None:
    for node in tree.walk(prune=lambda node: id(node) in items):
        if id(node) in items:
            continue
        if isinstance(node, exp.Query) and node is not tree:
            return "a query outside of FROM", r"\(\s*select\b.*"
        if isinstance(node, exp.Window):
            return "a window function", r"\w+\s*\([^()]*\)\s*over\b"
        if isinstance(node, exp.Filter):
            return "FILTER", ""
        if isinstance(node, exp.Star) and any(node.args.values()):
            return "a change of *", r"\*\s*\w+"
        if isinstance(node, exp.Column) and is_bare(node):
            return f"the function {node.name!r}", ""
        if isinstance(node, exp.Anonymous) and not is_known(node):
            name = node.name.lower()
            distinct = name in AGGREGATES
            return (f"{name}(DISTINCT)" if distinct else f"the function {name!r}"), rf"\b{name}\b"
    return None


def is_plain_group(group: exp.Group) -> bool:
    """Whether GROUP BY has expressions only, and makes one row of each group."""
    said = {key for key, value in group.args.items() if value}
    several = (exp.Rollup, exp.Cube, exp.GroupingSets)
    return said == {"expressions"} and not any(isinstance(e, several) for e in group.expressions)


def is_bare(node: exp.Column) -> bool:
    """Whether what looks like a column is a function without parentheses."""
    return not node.table and node.name.lower() in BARE and not node.this.quoted


def is_known(node: exp.Anonymous) -> bool:
    """Whether a call is of a function that conditions or aggregates here have."""
    if not is_aggregate(node):
        return node.name.lower() in FUNCTIONS or node.name.lower() in TYPE_FUNCTIONS
    given: list[Any] = node.expressions
    odd = any(isinstance(part, exp.Distinct | exp.Order) for part in given)
    return not odd or node.name.lower() in ("min", "max")


def is_small(tree: exp.Expr) -> bool:
    """Whether an expression has nothing in it that takes an engine, and no aggregate either."""
    for node in tree.walk():
        if isinstance(node, exp.Query | exp.Window | exp.Filter):
            return False
        if isinstance(node, exp.Column) and is_bare(node):
            return False
        if isinstance(node, exp.Anonymous) and (is_aggregate(node) or not is_known(node)):
            return False
    return True
