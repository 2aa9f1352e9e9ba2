"""A query's joins taken out of it: what is left reads their rows from tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from thetajoin.api import is_spark
from thetajoin.errors import WindowError
from thetajoin.query.chain import Chain, read_step
from thetajoin.query.frames import (
    COMPARED,
    Frame,
    Step,
    at_of,
    columns_of,
    conjuncts,
    has_inequality,
    is_aggregate,
    is_output,
    queries_in,
    shown_as,
    unparenthesised,
)
from thetajoin.query.join import Join
from thetajoin.query.on_duckdb import DuckDB
from thetajoin.query.text import Parsed

if TYPE_CHECKING:
    from thetajoin.query.on_spark import Spark
    from thetajoin.query.run import Tables


class Rewriter:
    """What takes the joins out of one query; trees are changed in place."""

    def __init__(
        self,
        parsed: Parsed,
        tables: Tables,
        engine: DuckDB | Spark,
        window: Any,
        frames: list[Frame],
    ) -> None:
        self.source, self.tables, self.engine = parsed.source, tables, engine
        self.clause, self.window, self.frames = parsed.window, window, frames
        self.joins: dict[str, Join] = {}
        self.ctes: list[exp.CTE] = []
        self._stem = stem_of(parsed.source.text)
        self._numbers = 0
        self._given: dict[str, str] = {}
        self._mentioned = _mentioned(parsed.tree)

    @property
    def on_spark(self) -> bool:
        """Whether Spark runs the query."""
        return not isinstance(self.engine, DuckDB)

    @property
    def windowed(self) -> bool:
        """Whether the query has a window, so that its join is ours whatever it is."""
        return self.clause is not None or self.window is not None

    def rewrite(self, tree: exp.Query) -> None:
        """Take all joins out of a query."""
        self._query(tree)
        self.name_tables(tree)
        if self.windowed and not self.joins:
            raise WindowError("the query has a window and no join that it is for")

    def _query(self, node: exp.Expr) -> None:
        before = list(self.ctes)
        with_ = node.args.get("with_")
        for cte in with_.expressions if with_ is not None else ():
            self._query(cte.this)
            self.ctes.append(cte)
        if isinstance(node, exp.Select):
            self._select(self.frames[node.meta["frame"]])
        else:
            for inner in queries_in(node):
                self._query(inner)
        self.ctes = before

    def _select(self, frame: Frame) -> None:
        select = frame.select
        _spell_tuples(select)
        _spell_groups(select)
        self._spell_aliases(frame)
        self._exists(frame)
        for inner in queries_in(select):
            self._query(inner)
        steps = [
            read_step(self.source, frame, at, windowed=self.windowed)
            for at in range(1, len(frame.joins) + 1)
        ]
        if any(step.ours for step in steps):
            if self.windowed and self.joins:
                raise WindowError(
                    "the query has a window and several joins, so that it is not clear which join "
                    "it is for: give the other one's result as a table"
                )
            Chain(self, frame, steps).take_out()
        elif frame.spelled:
            for column in columns_of(select, frame):
                at = at_of(column)
                if at is not None:
                    column.replace(shown_as(frame, at, {}))

    def run(self, query: exp.Query) -> Any:
        """The rows of a part of the query, which may name what is in WITH around it."""
        known = {cte.alias.lower(): cte for cte in self.ctes}
        if known:
            withs = [cte.find_ancestor(exp.With) for cte in self.ctes]
            recursive = any(one is not None and one.args.get("recursive") for one in withs)
            ctes = [cte.copy() for cte in known.values()]
            query.set("with_", exp.With(expressions=ctes, recursive=recursive))
        self.name_tables(query)
        return self.engine.table(query)

    def name_tables(self, tree: exp.Expr) -> None:
        """Let the tables in a query be called as the engine knows them."""
        for node in tree.find_all(exp.Table):
            known = node.meta.pop("given", None)
            if known is None:
                continue
            if known not in self._given:
                table = self.tables.of(known)[0]
                if not is_spark(table) and self._mentioned is not None:
                    names = table.schema.names
                    kept = [name for name in names if name.lower() in self._mentioned]
                    table = table.select(kept or names[:1])
                self._given[known] = self.add(table)
            if not node.alias:
                called = exp.to_identifier(node.meta["called"], quoted=True)
                node.set("alias", exp.TableAlias(this=called))
            node.set("this", exp.to_identifier(self._given[known]))
            node.set("db", None)
            node.set("catalog", None)

    def add(self, rows: Any) -> str:
        """Give the engine rows under a new name."""
        self._numbers += 1
        name = f"{self._stem}_rows_{self._numbers}"
        self.engine.add(name, rows)
        if isinstance(rows, Join):
            self.joins[name] = rows
        return name

    def _exists(self, frame: Frame) -> None:
        """Make semi and anti joins of [NOT] EXISTS where it compares with the tables outside."""
        select = frame.select
        where, odd = select.args.get("where"), self.windowed or select.args.get("laterals")
        if where is None or odd or not all(item.closed for item in frame.items):
            return
        trees = conjuncts(where.this)
        kept = [tree for tree in trees if not self._made_join(tree, frame)]
        if len(kept) < len(trees):
            select.set("where", exp.Where(this=exp.and_(*kept, copy=False)) if kept else None)

    def _made_join(self, tree: exp.Expr, frame: Frame) -> bool:
        exists = unparenthesised(tree.this) if isinstance(tree, exp.Not) else tree
        query = exists.this if isinstance(exists, exp.Exists) else None
        query = query.this if isinstance(query, exp.Subquery) else query
        if not isinstance(query, exp.Select) or not query.args.get("where") or not frame.items:
            return False
        inner, place = self.frames[query.meta["frame"]], len(frame.items)
        said = {key for key, value in query.args.items() if value}
        plain = (exp.Star, exp.Literal, exp.Column)
        if (
            said - {"expressions", "from_", "where", "kind"}
            or not all(isinstance(e.unalias(), plain) for e in query.expressions)
            or [item.closed for item in inner.items] != [True]
        ):
            return False
        on = query.args["where"].this.copy()
        for column in on.find_all(exp.Column):
            at = at_of(column)
            if at is None or at.frame not in (frame.number, inner.number):
                return False
            if at.frame == inner.number:
                column.meta["at"] = at._replace(frame=frame.number, item=place)
        (item,), kind = inner.items, "ANTI" if isinstance(tree, exp.Not) else "SEMI"
        frame.items.append(item)
        step = Step(place, exp.Join(), kind.lower(), conjuncts(on))
        if not has_inequality(step.on, frame, step):
            frame.items.pop()
            return False
        if item.name in {name for one in frame.items[:-1] for name in one.names}:
            self._numbers += 1
            item.names = {f"{self._stem}_{self._numbers}": item.columns}
            item.node.set("alias", exp.TableAlias(this=exp.to_identifier(item.name)))
        frame.select.append("joins", exp.Join(this=item.node, side="LEFT", kind=kind, on=on))
        return True

    def _spell_aliases(self, frame: Frame) -> None:
        """Put what outputs' names stand for into WHERE, where Spark may not name them."""
        for _ in frame.shown:  # what stands for one may name another
            where = frame.select.args.get("where")
            for column in list(where.find_all(exp.Column)) if where is not None else ():
                if is_output(column, frame):
                    output = frame.shown[column.name.lower()].unalias()
                    if not output.find(exp.Query, exp.Window):
                        column.replace(exp.paren(output.copy(), copy=False))


def stem_of(query: str) -> str:
    """How names begin that a query has nowhere."""
    stem = "thetajoin"
    while stem in query.lower():
        stem += "_"
    return stem


def _mentioned(tree: exp.Expr) -> set[str] | None:
    """All names in a query in lower case, or None where it may mean columns without naming them."""
    for star in tree.find_all(exp.Star):
        if not is_aggregate(star.parent) if star.parent is not None else True:
            return None
    if any(join.args.get("method") == "NATURAL" for join in tree.find_all(exp.Join)):
        return None
    return {node.name.lower() for node in tree.find_all(exp.Identifier)}


def _spell_tuples(select: exp.Select) -> None:
    """Compare rows as Spark does, part by part, with NULL below everything and equal to itself."""
    for node in list(select.find_all(*COMPARED)):
        left: Any = node.args.get("this")
        right: Any = node.args.get("expression")
        both = isinstance(left, exp.Tuple) and isinstance(right, exp.Tuple)
        if both and len(left.expressions) == len(right.expressions) > 0:
            node.replace(exp.paren(_of_tuples(node, left, right), copy=False))
    order: Any = select.args.get("order")
    items: list[exp.Expr] = []
    for item in order.expressions if order is not None else ():
        parts = item.this.expressions if isinstance(item.this, exp.Tuple) else []
        down = bool(item.args.get("desc"))
        items += [exp.Ordered(this=p.copy(), desc=down, nulls_first=not down) for p in parts] or [
            item
        ]
    if order is not None:
        order.set("expressions", items)


def _of_tuples(node: exp.Expr, left: exp.Tuple, right: exp.Tuple) -> exp.Expr:
    pairs = list(zip(left.expressions, right.expressions, strict=True))
    same = [exp.NullSafeEQ(this=a.copy(), expression=b.copy()) for a, b in pairs]
    if isinstance(node, exp.EQ | exp.NEQ):
        every = exp.and_(*same)
        return every if isinstance(node, exp.EQ) else exp.not_(exp.paren(every))
    falling = isinstance(node, exp.GT | exp.GTE)
    found: list[exp.Expr] = []
    for at, (one, other) in enumerate(pairs):
        small, large = (other, one) if falling else (one, other)
        null = exp.Is(this=small.copy(), expression=exp.Null())
        there = exp.Not(this=exp.Is(this=large.copy(), expression=exp.Null()))
        less = exp.or_(
            exp.func("coalesce", exp.LT(this=small.copy(), expression=large.copy()), exp.false()),
            exp.and_(null, there),
        )
        found.append(exp.and_(*same[:at], exp.paren(less)))
    if isinstance(node, exp.GTE | exp.LTE):
        found.append(exp.and_(*same))
    return exp.or_(*[exp.paren(one) for one in found])


def _spell_groups(select: exp.Select) -> None:
    """Write an expression of GROUP BY the same way wherever it is named: a + b, and not b + a."""
    group = select.args.get("group")
    turned = (exp.Add, exp.Mul, exp.EQ, exp.NEQ)
    if group is None or not group.find(*turned):
        return
    for key in ("expressions", "group", "having", "order", "qualify"):
        clause = select.args.get(key)
        for part in clause if isinstance(clause, list) else [clause] if clause else []:
            for node in list(part.find_all(*turned)):
                # An interval stands behind what it is added to.
                sides = sorted(
                    (node.this, node.expression),
                    key=lambda side: (isinstance(side, exp.Interval), side.sql().lower()),
                )
                node.set("this", sides[0])
                node.set("expression", sides[1])
