"""A parsed query as tables, conditions and outputs; whatever else it says is an error."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from thetajoin.errors import ConditionError
from thetajoin.predicate.parse import Source
from thetajoin.query.text import MOST_DIGITS

MOST_ROWS = 2**31 - 1  # as in Spark, whose LIMIT and OFFSET are integers
AGGREGATES = ("count", "sum", "avg", "mean", "min", "max")
_HOWS = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}
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
    "hint": "a hint",
}
_KNOWN = {
    *("expressions", "from_", "joins", "where", "group", "having", "distinct", "kind"),
    *("order", "limit", "offset"),
}


@dataclass
class TableRef:
    """A table of the query: its name, its alias, and how it is joined to those before it.

    A table that is a query itself has it in `query`. An as-of join's conditions are in `on`, or in
    the columns of `using`, and in `match` if there is a MATCH_CONDITION.
    """

    name: str
    alias: str
    how: str = "inner"
    on: exp.Expr | None = None
    query: exp.Select | None = None
    asof: bool = False
    match: exp.Expr | None = None
    using: tuple[exp.Expr, ...] = ()


@dataclass
class Query:
    """What a query asks for, in terms of its own tables and columns."""

    source: Source
    tables: list[TableRef] = field(default_factory=list)
    where: exp.Expr | None = None
    groups: list[exp.Expr] = field(default_factory=list)
    outputs: list[tuple[str, exp.Expr]] = field(default_factory=list)
    distinct: bool = False
    having: exp.Expr | None = None
    order: list[exp.Ordered] = field(default_factory=list)
    limit: int | None = None
    offset: int = 0

    @property
    def aggregates(self) -> bool:
        """Whether the matches are grouped."""
        trees = [tree for _, tree in self.outputs] + [item.this for item in self.order]
        return bool(self.groups or self.having) or any(map(has_aggregate, trees))


def has_aggregate(tree: exp.Expr) -> bool:
    """Whether an aggregate function is called in an expression."""
    return any(is_aggregate(node) for node in tree.find_all(exp.Anonymous))


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node is a call of an aggregate function."""
    return isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES


def conjuncts(tree: exp.Expr | None) -> list[exp.Expr]:
    """The conditions that are ANDed in one; none where there is none."""
    if tree is None:
        return []
    tree = tree.unnest()
    if not isinstance(tree, exp.And):
        return [tree]
    return [one for part in tree.flatten() for one in conjuncts(part)]


def read_query(
    source: Source, tree: exp.Expr, columns: Callable[[TableRef], list[str]], least: int = 2
) -> Query:
    """Take a tree apart; `columns` gives a table's columns, `least` how many tables it must have.

    What `columns` is asked for is checked by it: an unknown table is its error.
    """
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
    if len(query.tables) < least:
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
    having, order = tree.args.get("having"), tree.args.get("order")
    if having is not None:
        if not query.groups and not has_aggregate(tree):
            problem = f"HAVING without groups: {having.this.sql(dialect='spark')}"
            raise source.error_at(r"\bhaving\b.*", problem, "use WHERE")
        query.having = by_alias(having.this, query)
    for item in order.expressions if order is not None else []:
        chosen = _ordinal(source, item.this, tree, "ORDER BY")
        query.order.append(item.copy())
        query.order[-1].set("this", chosen if chosen is not item.this else by_alias(chosen, query))
    query.limit = _whole(source, tree, "limit")
    query.offset = _whole(source, tree, "offset") or 0
    return query


def by_alias(tree: exp.Expr, query: Query) -> exp.Expr:
    """An expression with outputs' names replaced by what they stand for."""
    outputs = {name.lower(): output for name, output in query.outputs}

    def replaced(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and not node.table and node.name.lower() in outputs:
            return outputs[node.name.lower()].copy()
        return node

    return tree.copy().transform(replaced)


def refuse_on_stream(query: Query, tree: exp.Expr) -> None:
    """ORDER BY, LIMIT and OFFSET need an end, which a stream has not."""
    for key, name in (("order", "ORDER BY"), ("limit", "LIMIT"), ("offset", "OFFSET")):
        if tree.args.get(key) is not None:
            raise _clause(query.source, tree.args[key], name, "on a stream, which has no end")


def _whole(source: Source, tree: exp.Expr, key: str) -> int | None:
    """The number of a LIMIT or an OFFSET."""
    node = tree.args.get(key)
    if node is None:
        return None
    number = node.expression
    if not isinstance(number, exp.Literal) or number.is_string or not number.name.isdigit():
        raise _clause(source, node, key.upper(), "with anything but a whole number")
    if len(number.name) > MOST_DIGITS or int(number.name) > MOST_ROWS:
        raise source.error_at(rf"\b{key}\b.*", f"{key.upper()} is at most {MOST_ROWS}")
    return int(number.name)


def _refuse(source: Source, tree: exp.Select) -> None:
    for key, value in tree.args.items():
        if not value or key in _KNOWN:
            continue
        name = _CLAUSES.get(key, key.replace("_", " ").strip().upper())
        node = value if isinstance(value, exp.Expr) else next(iter(value), None)
        raise _clause(source, node, name)
    from_ = {id(node) for node in _tables(tree)}
    for node in tree.walk(prune=lambda node: id(node) in from_):
        if id(node) in from_:
            continue
        if isinstance(node, exp.Subquery) or (isinstance(node, exp.Select) and node is not tree):
            problem = "a subquery is supported in FROM alone"
            raise source.error_at(r"\(\s*select\b.*", problem, "join with it")
        if isinstance(node, exp.Window):
            raise _clause(source, node, "a window function")


def _tables(tree: exp.Select) -> list[exp.Expr]:
    """What stands in FROM and after JOIN."""
    start = tree.args.get("from_")
    first = [start.this] if start is not None else []
    return first + [join.this for join in tree.args.get("joins") or []]


def _clause(source: Source, node: Any, name: str, where: str = "") -> ConditionError:
    text = node.sql(dialect="spark") if isinstance(node, exp.Expr) else name
    what = f"{name} {where}" if where else name
    return source.error_at(
        r"\s+".join(map(re.escape, name.split())), f"{what} is not supported: {text.strip()}"
    )


def _table(source: Source, node: exp.Expr) -> TableRef:
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Select):
        if not node.alias:
            raise source.error_at(
                r"\(\s*select\b.*", "a subquery needs a name", "(SELECT ...) AS s"
            )
        return TableRef(node.alias, node.alias, query=node.this)
    if not isinstance(node, exp.Table) or node.args.get("joins"):
        raise source.error("a table's name is expected here", node)
    for key in ("pivots", "sample", "laterals", "version", "when"):
        if node.args.get(key):
            raise _clause(source, node, _CLAUSES.get(key, key.upper()))
    name = ".".join(part.name for part in node.parts)
    return TableRef(name, node.alias or node.name)


def _joined(source: Source, join: exp.Join) -> TableRef:
    table = _table(source, join.this)
    method, side, kind = (join.args.get(part) or "" for part in ("method", "side", "kind"))
    table.asof = method == "ASOF"
    table.match, table.on = join.args.get("match_condition"), join.args.get("on")
    table.using = tuple(join.args.get("using") or ())
    if not table.asof:
        _refuse_asof_clauses(source, table)
    single = kind in ("SEMI", "ANTI")
    known = single or kind in ("", "INNER") or (kind == "OUTER" and side)
    known = known or (kind == "CROSS" and not table.asof)
    sides = ("", "LEFT") if single or table.asof else tuple(_HOWS)
    if method not in ("", "ASOF") or not known or side not in sides:
        what = " ".join(str(x) for x in (method, side, kind) if x)
        hint = "ASOF JOIN gives rows for each row on its left: swap the tables" * table.asof
        problem = f"{what} JOIN is not supported"
        raise source.error_at(rf"\b{what.split()[0]}\b.*?\bjoin\b", problem, hint)
    table.how = kind.lower() if single else _HOWS[side]
    if table.match is not None and not kind:
        table.how = "left"  # as in Snowflake, whose word it is
    return table


def _refuse_asof_clauses(source: Source, table: TableRef) -> None:
    """An ordinary join has no key to look for, and says in ON what it is about."""
    if table.using:
        raise source.error_at(r"\busing\b[^)]*\)?", "USING is not supported", "write ON a.k = b.k")
    if table.match is not None:
        problem = "MATCH_CONDITION is for an ASOF JOIN"
        raise source.error_at(r"\bmatch_condition\b[^)]*\)?", problem, "write it in ON")


def _ordinal(
    source: Source, item: exp.Expr, tree: exp.Select, clause: str = "GROUP BY"
) -> exp.Expr:
    """A group by position or by an output's name is that output's expression."""
    if isinstance(item, exp.Literal) and not item.is_string:
        small = item.name.isdigit() and len(item.name) <= MOST_DIGITS
        at = int(item.name) if small else 0
        if not 1 <= at <= len(tree.expressions):
            text = item.name if len(item.name) <= MOST_DIGITS else "by this number"
            raise source.error(f"{clause} {text}: there are {len(tree.expressions)} columns", item)
        chosen: exp.Expr = tree.expressions[at - 1].unalias()
        return chosen
    if isinstance(item, exp.Column) and not item.table:
        for output in tree.expressions:
            if isinstance(output, exp.Alias) and output.alias.lower() == item.name.lower():
                named: exp.Expr = output.this
                return named
    return item


def _outputs(
    source: Source, tree: exp.Select, query: Query, columns: Callable[[TableRef], list[str]]
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
            # What USING names is one column, the one on the left, unless the table is asked for.
            merged = {column.name.lower() for column in table.using} if wanted is None else ()
            for name in columns(table):
                if name.lower() not in merged:
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
