"""A parsed query as tables, conditions and outputs; whatever else it says is an error."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from sqlglot import exp

from thetajoin.errors import ConditionError
from thetajoin.predicate.parse import Source
from thetajoin.query.tables import is_path
from thetajoin.query.text import MOST_DIGITS
from thetajoin.query.using import Merged, merge_columns, without_table

MOST_ROWS = 2**31 - 1  # as in Spark, whose LIMIT and OFFSET are integers
AGGREGATES = ("count", "sum", "avg", "mean", "min", "max")
_HOWS = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}


@dataclass
class TableRef:
    """A table of the query: its name, its alias, and how it is joined to those before it.

    A table that is a query itself has it in `query`. An as-of join's conditions are in `on`, or in
    the columns of `using`, and in `match` if there is a MATCH_CONDITION. Columns in `merged`, in
    lower case, are one with those of tables before it.
    """

    name: str
    alias: str
    how: str = "inner"
    on: exp.Expr | None = None
    query: exp.Select | None = None
    asof: bool = False
    match: exp.Expr | None = None
    using: tuple[exp.Expr, ...] = ()
    natural: bool = False
    merged: frozenset[str] = frozenset()


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


def read_query(source: Source, tree: exp.Select, columns: Callable[[TableRef], list[str]]) -> Query:
    """Take a tree apart that is not beyond us; `columns` gives a table's columns.

    What `columns` is asked for is checked by it: an unknown table is its error.
    """
    query = Query(source, read_tables(source, tree))
    merged = merge_columns(source, query.tables, columns)

    def plain(node: exp.Expr) -> exp.Expr:
        return without_table(node, merged)

    for ref in query.tables:
        ref.on = None if ref.on is None else plain(ref.on)
    where = tree.args.get("where")
    query.where = plain(where.this) if where is not None else None
    group = tree.args.get("group")
    if group is not None:
        query.groups = [plain(ordinal(source, item, tree)) for item in group.expressions]
    query.distinct = tree.args.get("distinct") is not None
    query.outputs = named_outputs(source, tree, query.tables, columns, merged)
    having, order = tree.args.get("having"), tree.args.get("order")
    if having is not None:
        if not query.groups and not has_aggregate(tree):
            problem = f"HAVING without groups: {having.this.sql(dialect='spark')}"
            raise source.error_at(r"\bhaving\b.*", problem, "use WHERE")
        query.having = by_alias(plain(having.this), query)
    for item in order.expressions if order is not None else []:
        chosen = ordinal(source, item.this, tree, "ORDER BY")
        named = by_alias(item.this, query) if chosen is item.this else chosen
        query.order.append(item.copy())
        query.order[-1].set("this", plain(named))
    query.limit = _whole(source, tree, "limit")
    query.offset = _whole(source, tree, "offset") or 0
    return query


def read_tables(source: Source, tree: exp.Select) -> list[TableRef]:
    """The tables of a query, as they are joined."""
    joins = tree.args.get("joins") or []
    tables = [_table(source, tree.args["from_"].this)]
    tables += [_joined(source, join) for join in joins]
    names = [table.alias.lower() for table in tables]
    for at, name in enumerate(names):
        if name in names[:at]:
            raise source.error(f"two tables are called {name!r}", hint="give one an alias")
    return tables


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


def _clause(source: Source, node: Any, name: str, where: str = "") -> ConditionError:
    text = node.sql(dialect="spark") if isinstance(node, exp.Expr) else name
    what = f"{name} {where}" if where else name
    return source.error_at(
        r"\s+".join(map(re.escape, name.split())), f"{what} is not supported: {text.strip()}"
    )


def _table(source: Source, node: exp.Expr) -> TableRef:
    if isinstance(node, exp.Subquery):
        return TableRef(node.alias, node.alias, query=node.this)
    assert isinstance(node, exp.Table)
    name = ".".join(part.name for part in node.parts)
    alias = node.alias or (PurePath(name).name.partition(".")[0] if is_path(name) else node.name)
    return TableRef(name, alias)


def _joined(source: Source, join: exp.Join) -> TableRef:
    table = _table(source, join.this)
    method, side, kind = (join.args.get(part) or "" for part in ("method", "side", "kind"))
    table.asof, table.natural = method == "ASOF", method == "NATURAL"
    table.match, table.on = join.args.get("match_condition"), join.args.get("on")
    table.using = tuple(join.args.get("using") or ())
    if table.match is not None and not table.asof:
        problem = "MATCH_CONDITION is for an ASOF JOIN"
        raise source.error_at(r"\bmatch_condition\b[^)]*\)?", problem, "write it in ON")
    single = kind in ("SEMI", "ANTI")
    odd = (kind == "OUTER" and not side) or (kind == "CROSS" and table.asof)
    if odd or side not in (("", "LEFT") if single or table.asof else tuple(_HOWS)):
        what = " ".join(str(x) for x in (method, side, kind) if x)
        hint = "ASOF JOIN gives rows for each row on its left: swap the tables" * table.asof
        problem = f"{what} JOIN is not supported"
        raise source.error_at(rf"\b{what.split()[0]}\b.*?\bjoin\b", problem, hint)
    table.how = kind.lower() if single else _HOWS[side]
    if table.match is not None and not kind:
        table.how = "left"  # as in Snowflake, whose word it is
    return table


def ordinal(source: Source, item: exp.Expr, tree: exp.Select, clause: str = "GROUP BY") -> exp.Expr:
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


def named_outputs(
    source: Source,
    tree: exp.Select,
    tables: list[TableRef],
    columns: Callable[[TableRef], list[str]],
    merged: Merged,
) -> list[tuple[str, exp.Expr]]:
    """What a query gives, by the names of its result, `*` taken apart."""
    outputs: list[tuple[str, exp.Expr]] = []
    for item in tree.expressions:
        if is_star(item):
            outputs += _starred(source, item, tables, columns, merged)
            continue
        inner = item.unalias()
        name = item.alias or inner.output_name or inner.sql(dialect="spark")
        outputs.append((name, without_table(inner, merged)))
    return unique(outputs)


def is_star(item: exp.Expr) -> bool:
    """Whether an output is `*`, or a table's."""
    return isinstance(item, exp.Star) or (
        isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
    )


def _starred(
    source: Source,
    item: exp.Expr,
    refs: list[TableRef],
    columns: Callable[[TableRef], list[str]],
    merged: Merged,
) -> list[tuple[str, exp.Expr]]:
    wanted = item.table.lower() if isinstance(item, exp.Column) else None
    tables = [t for t in refs if wanted is None or t.alias.lower() == wanted]
    if not tables:
        raise source.error(f"unknown table {wanted!r} in the query", item)
    star = item.this if isinstance(item, exp.Column) else item
    without = {part.name.lower() for part in star.args.get("except_") or ()}
    instead = {part.alias.lower(): part.this for part in star.args.get("replace") or ()}
    named = {part.this.name.lower(): part.alias for part in star.args.get("rename") or ()}
    found: list[tuple[str, exp.Expr]] = []
    for table in tables:
        if table.how in ("semi", "anti"):
            continue
        for name in columns(table):
            low = name.lower()
            # What USING names is one column, unless its table is asked for.
            if low in without or (wanted is None and low in table.merged):
                continue
            column: exp.Expr = exp.column(name, table.alias, quoted=True)
            if wanted is None and low in merged:
                column = merged[low].copy()
            found.append((named.get(low, name), instead.get(low, column)))
    return found


def unique(outputs: list[tuple[str, exp.Expr]]) -> list[tuple[str, exp.Expr]]:
    """Names as a join gives them: a name that is taken gets a suffix."""
    taken: set[str] = set()
    named = []
    for name, tree in outputs:
        while name in taken:
            name += "_right"
        taken.add(name)
        named.append((name, tree))
    return named
