"""A query's inequality joins taken out of it: what is left reads their rows from tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from thetajoin.errors import ConditionError, WindowError
from thetajoin.query.beyond import BeyondError, is_bare, is_small, needs_engine
from thetajoin.query.call import LastCall
from thetajoin.query.columns import Columns, schema_of
from thetajoin.query.compile import Compiler
from thetajoin.query.grouped import grouped_outside
from thetajoin.query.tables import Tables
from thetajoin.query.text import Parsed
from thetajoin.query.tree import (
    Query,
    TableRef,
    conjuncts,
    named_outputs,
    read_tables,
)
from thetajoin.query.using import merge_columns, own_columns, without_table
from thetajoin.query.walk import (
    columns_in,
    is_named,
    is_nested,
    items_of,
    name_of,
    names_itself,
    queries_in,
    stands_alone,
    tables_about,
    tables_in,
)

if TYPE_CHECKING:
    from thetajoin.query.wide import Engine

CTEs = dict[str, exp.CTE]
_UNEQUAL = (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NEQ, exp.Between)
_OUTSIDE_FROM = (
    *("expressions", "distinct", "where", "group", "having", "qualify", "order", "windows"),
)


class Rewriter:
    """What takes the joins out of one query; trees are changed in place."""

    def __init__(self, parsed: Parsed, tables: Tables, engine: Engine, window: Any) -> None:
        self.source, self.tables, self.engine = parsed.source, tables, engine
        self.clause, self.window = parsed.window, window
        self.joins: list[LastCall] = []
        self._stem = "thetajoin"
        while self._stem in parsed.source.text.lower():
            self._stem += "_"
        self._numbers = 0
        self._given: dict[str, str] = {}
        self._names: dict[str, list[str]] = {}

    @property
    def _windowed(self) -> bool:
        return self.clause is not None or self.window is not None

    def rewrite(self, tree: exp.Query) -> None:
        """Take all joins out of a query."""
        self._query(tree, {})
        if self._windowed and not self.joins:
            raise WindowError("the query has a window and no join that it is for")

    def _query(self, node: exp.Expr, ctes: CTEs) -> None:
        ctes = self._with(node, ctes)
        if isinstance(node, exp.Select):
            self._select(node, ctes)
            return
        for inner in queries_in(node):
            self._query(inner, ctes)
        for table in tables_in(node):
            self._name(table, ctes)

    def _with(self, node: exp.Expr, ctes: CTEs) -> CTEs:
        """The queries that WITH names, each rewritten, and those around it."""
        with_ = node.args.get("with_")
        recursive = with_ is not None and bool(with_.args.get("recursive"))
        for cte in with_.expressions if with_ is not None else ():
            name = cte.alias.lower()
            own = {t.name.lower() for t in cte.this.find_all(exp.Table)}
            if recursive and name in own:
                for table in cte.this.find_all(exp.Table):
                    self._name(table, {**ctes, name: cte})
            else:
                self._query(cte.this, ctes)
            ctes = {**ctes, name: cte}
        return ctes

    def _select(self, select: exp.Select, ctes: CTEs) -> None:
        self._exists(select, ctes)
        for inner in queries_in(select):
            self._query(inner, ctes)
        if self._has_inequality(select, ctes):
            try:
                self._take_out(select, ctes)
                return
            except BeyondError:
                # A cross join in between, say: then all of this FROM is the engine's.
                if self._windowed:
                    raise self.source.error_at(
                        r"\bon\b.+",
                        "the join under the window has a condition that joins here cannot have",
                        "put it into WHERE of a query around this one",
                    ) from None
        self._check_names(select, ctes)
        for item in items_of(select):
            for table in [item, *tables_in(item)]:
                self._name(table, ctes)

    def _check_names(self, select: exp.Select, ctes: CTEs) -> None:
        """Find unknown columns while the query's own text is at hand to point into."""
        items = items_of(select)
        named = [item for item in items if is_named(item) and self._cte(item, ctes) is None]
        alone = select.find_ancestor(exp.Select) is None
        odd = select.args.get("laterals") or any(not stands_alone(item) for item in items)
        if not alone or odd or not items or len(named) < len(items):
            return
        scope = self._scope(select, ctes)
        shown = {e.alias.lower() for e in select.expressions if not names_itself(e)}
        for key in _OUTSIDE_FROM:
            for column in columns_in(select.args.get(key)):
                free = is_nested(column, select) or column.find_ancestor(exp.Lambda)
                first = column.parts[0].name.lower()
                if free or is_bare(column) or first in shown or first in scope.every:
                    continue
                if not scope.owns(column):
                    scope.resolved(column)

    def _name(self, node: exp.Expr, ctes: CTEs) -> None:
        """Let a table that was given be called as the engine knows it."""
        if not is_named(node) or self._cte(node, ctes) is not None:
            return
        name = ".".join(part.name for part in node.parts)
        if name in self._names:
            return
        alias = name_of(self.source, node)
        known = self.tables.name(name)
        if known not in self._given:
            table = self.tables.of(known)[0]
            self._given[known] = self._add(table, list(schema_of(table).names))
        node.set("this", exp.to_identifier(self._given[known]))
        node.set("db", None)
        node.set("catalog", None)
        if not node.alias:
            node.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))

    def _add(self, rows: Any, names: list[str]) -> str:
        """Give the engine rows under a new name."""
        self._numbers += 1
        name = f"{self._stem}_rows_{self._numbers}"
        self.engine.add(name, rows)
        self._names[name] = names
        return name

    def _cte(self, node: exp.Expr, ctes: CTEs) -> exp.CTE | None:
        if not is_named(node) or len(node.parts) > 1:
            return None
        return ctes.get(node.name.lower())

    def _columns_of(self, item: exp.Expr, ctes: CTEs) -> list[str]:
        """The columns of what stands in FROM."""
        alias = item.args.get("alias")
        renamed = alias is not None and alias.args.get("columns")
        if is_named(item) and not renamed and self._cte(item, ctes) is None:
            name = ".".join(part.name for part in item.parts)
            if name in self._names:
                return self._names[name]
            return list(schema_of(self.tables.of(name)[0]).names)
        return self.engine.columns(self._all_of(item, ctes))

    def _all_of(self, item: exp.Expr, ctes: CTEs) -> exp.Select:
        """The query for all rows of what stands in FROM."""
        item = item.copy()
        self._name(item, ctes)
        query = exp.Select(expressions=[exp.Star()], from_=exp.From(this=item))
        if ctes:
            around = [cte.copy() for cte in ctes.values()]
            recursive = any(c.parent and c.parent.args.get("recursive") for c in ctes.values())
            query.set("with_", exp.With(expressions=around, recursive=recursive))
        return query

    def _has_inequality(self, select: exp.Select, ctes: CTEs) -> bool:
        """Whether a join of this FROM is ours: one of tables that are not only equal in something.

        Under a window every join is.
        """
        joins = select.args.get("joins") or []
        odd = select.args.get("laterals") or any(
            not stands_alone(item) for item in items_of(select)
        )
        if not joins or odd:
            return False
        if self._windowed or any(join.args.get("method") == "ASOF" for join in joins):
            return True
        where = select.args.get("where")
        conditions = conjuncts(where.this) if where is not None else []
        conditions += [tree for join in joins for tree in conjuncts(join.args.get("on"))]
        found = [n for c in conditions for n in c.find_all(*_UNEQUAL) if not is_nested(n, select)]
        # A difference of two tables' columns that equals something is a band, not a key to hash.
        equal = [n for c in conditions for n in c.find_all(exp.EQ) if not is_nested(n, select)]
        found += [side for node in equal for side in (node.this, node.expression)]
        found = [node for node in found if len(list(own_columns(node))) > 1]
        return bool(found) and self._spans(found, self._scope(select, ctes))

    def _scope(self, select: exp.Select, ctes: CTEs) -> Columns:
        """The columns' names, without their types."""
        every = {}
        for item in items_of(select):
            self._alias(item)
            names = self._columns_of(item, ctes)
            called = name_of(self.source, item).lower()
            if called in every:
                raise self.source.error(
                    f"two tables are called {called!r}", hint="give one an alias"
                )
            every[called] = pa.schema([(name, pa.null()) for name in names])
        return Columns(self.source, every)

    def _alias(self, item: exp.Expr) -> None:
        """Give what has no name in FROM one."""
        if isinstance(item, exp.Table) or item.alias:
            return
        self._numbers += 1
        alias = exp.to_identifier(f"{self._stem}_{self._numbers}")
        item.set("alias", exp.TableAlias(this=alias))

    def _spans(self, nodes: Iterable[exp.Expr], scope: Columns) -> bool:
        return any(len(tables_about(node, scope)) > 1 for node in nodes)

    def _exists(self, select: exp.Select, ctes: CTEs) -> None:
        """Make semi and anti joins of [NOT] EXISTS where it compares with the tables outside."""
        where = select.args.get("where")
        if where is None or select.args.get("from_") is None or self._windowed:
            return
        kept = []
        for tree in conjuncts(where.this):
            join = self._semi_join(tree, select, ctes)
            if join is None:
                kept.append(tree)
            else:
                select.append("joins", join)
        if len(kept) < len(conjuncts(where.this)):
            select.set("where", exp.Where(this=exp.and_(*kept)) if kept else None)

    def _semi_join(self, tree: exp.Expr, select: exp.Select, ctes: CTEs) -> exp.Join | None:
        exists = tree.this.unnest() if isinstance(tree, exp.Not) else tree
        query = exists.this if isinstance(exists, exp.Exists) else None
        if isinstance(query, exp.Subquery):
            query = query.this
        items = items_of(select)
        if not isinstance(query, exp.Select) or any(not stands_alone(item) for item in items):
            return None
        said = {key for key, value in query.args.items() if value}
        shown = all(isinstance(e, exp.Star | exp.Literal | exp.Column) for e in query.expressions)
        if said - {"expressions", "from_", "where", "kind"} or "where" not in said or not shown:
            return None
        (item,) = items_of(query)
        inner = query.args["where"].this
        if not stands_alone(item) or not is_small(inner):
            return None
        outside = self._scope(select, ctes)
        inside = self._scope(query, ctes)
        (alias,) = inside.every
        if alias in outside.every:
            return None
        both = Columns(self.source, {**outside.every, **inside.every})
        for column in list(own_columns(inner)):
            if inside.owns(column) and not column.table:
                column.set("table", exp.to_identifier(alias, quoted=True))
            elif not both.owns(column):
                return None
        if not self._spans(inner.find_all(*_UNEQUAL), both):
            return None
        kind = "ANTI" if isinstance(tree, exp.Not) else "SEMI"
        return exp.Join(this=item.copy(), side="LEFT", kind=kind, on=inner.copy())

    def _take_out(self, select: exp.Select, ctes: CTEs) -> None:
        """Run the joins of a FROM, and let the SELECT read their rows."""
        if self._windowed and self.joins:
            raise WindowError(
                "the query has a window and several joins, so that it is not clear which join it "
                "is for: give the other one's result as a table"
            )
        tree = select.copy()
        filters = self._filters(tree, ctes)
        for item, where in zip(items_of(tree), filters, strict=True):
            self._materialise(item, ctes, where)
        tables = {ref.alias: self.tables.of(ref.name) for ref in read_tables(self.source, tree)}

        def columns(ref: TableRef) -> list[str]:
            return list(schema_of(tables[ref.alias][0]).names)

        query = Query(self.source, read_tables(self.source, tree))
        merged = merge_columns(self.source, query.tables, columns)
        outputs = named_outputs(self.source, tree, query.tables, columns, merged)
        tree.set("expressions", [exp.alias_(e.copy(), name, quoted=True) for name, e in outputs])
        for key in ("where", "group", "having", "qualify", "order"):
            if tree.args.get(key) is not None:
                tree.set(key, without_table(tree.args[key], merged))
        for ref in query.tables:
            ref.on = None if ref.on is None else without_table(ref.on, merged)
        given = [tables[ref.alias] for ref in query.tables]
        rows, kind = [table for table, _ in given], given[0][1]
        compiler = Compiler(query, rows, kind, self.clause, self.window, self.tables.settings)
        rest = self._split(tree, query, compiler)
        call = None
        if not rest:
            over = grouped_outside(tree, query, compiler.columns, compiler.names, self._stem)
            try:
                call = None if over is None else compiler.call()
                tree = tree if over is None else over
            except BeyondError:  # an outer join's rows without a match are in these groups
                query.groups, query.outputs = [], []
        if call is None:
            nested = select.find_ancestor(exp.Select) is not None
            self._select_columns(tree, query, compiler, ctes, nested)
            call = compiler.call()
        self.joins.append(call)
        name = self._add(call, [name for name, _ in query.outputs])
        table = exp.Table(this=exp.to_identifier(name), alias=self._core_alias())
        tree.set("from_", exp.From(this=table))
        tree.set("joins", None)
        for key in {*select.args, *tree.args} - {"with_"}:
            select.set(key, tree.args.get(key))

    def _core_alias(self) -> exp.TableAlias:
        return exp.TableAlias(this=exp.to_identifier(self._stem))

    def _filters(self, tree: exp.Select, ctes: CTEs) -> list[list[exp.Expr]]:
        """Take subqueries about one table out of WHERE, for each table of inner joins."""
        items, where = items_of(tree), tree.args.get("where")
        found: list[list[exp.Expr]] = [[] for _ in items]
        joins = tree.args.get("joins") or []
        odd = any(join.args.get(k) for join in joins for k in ("side", "method", "using"))
        odd = odd or any(join.args.get("kind") in ("SEMI", "ANTI") for join in joins)
        conditions = conjuncts(where.this) if where is not None else []
        if odd or self._windowed or not any(c.find(exp.Query) for c in conditions):
            return found
        scope = self._scope(tree, ctes)
        aliases = list(scope.every)
        kept = []
        for one in conditions:
            columns = [c for c in columns_in(one) if not self._is_inner(c, tree, ctes)]
            about = {scope.of(c)[0] if scope.owns(c) else None for c in columns}
            (alias,) = about if len(about) == 1 else (None,)
            if alias is None or one.find(exp.Query) is None:
                kept.append(one)
            else:
                found[aliases.index(alias)].append(one)
        tree.set("where", exp.Where(this=exp.and_(*kept)) if kept else None)
        return found

    def _materialise(self, item: exp.Expr, ctes: CTEs, where: list[exp.Expr]) -> None:
        """Have what stands in FROM, or the rows of it that count, as a table of its own."""
        cte, alias = self._cte(item, ctes), item.args.get("alias")
        renamed = alias is not None and bool(alias.args.get("columns"))
        if is_named(item) and cte is None and not renamed and not where:
            return
        self._numbers += 1
        name = f"{self._stem}_table_{self._numbers}"
        query = self._all_of(item, ctes)
        if where:
            query.set("where", exp.Where(this=exp.and_(*where)))
        table = self.engine.table(query)
        self.tables.add(name, table)
        called = name_of(self.source, item)
        if cte is not None and not renamed and not where:
            # Whoever else reads this query reads what there is of it now.
            rows = self._add(table, list(schema_of(table).names))
            every = exp.Select(
                expressions=[exp.Star()],
                from_=exp.From(this=exp.Table(this=exp.to_identifier(rows))),
            )
            cte.set("this", every)
        named = exp.TableAlias(this=exp.to_identifier(called, quoted=True))
        item.replace(exp.Table(this=exp.to_identifier(name), alias=named))

    def _split(self, tree: exp.Select, query: Query, compiler: Compiler) -> list[exp.Expr]:
        """Leave to the join what it can tell of WHERE, and give the rest."""
        inner = all(ref.how == "inner" and not ref.asof for ref in query.tables)
        where = tree.args.get("where")
        own: list[exp.Expr] = []
        rest: list[exp.Expr] = []
        for one in conjuncts(where.this) if where is not None else []:
            (own if self._is_ours(one, compiler.columns) else rest).append(one)
        odd = [one for ref in query.tables for one in conjuncts(ref.on) if not is_small(one)]
        if odd and not inner:
            raise needs_engine(self.source, "this ON of an outer join", r"\bon\b.+")
        if inner and not self._windowed:
            for ref in query.tables:
                on = conjuncts(ref.on)
                rest += [one for one in on if not is_small(one)]
                kept = [one for one in on if is_small(one)]
                ref.on = exp.and_(*kept) if kept else None
        query.where = exp.and_(*own) if own else None
        tree.set("where", exp.Where(this=exp.and_(*rest)) if rest else None)
        return rest

    def _is_ours(self, tree: exp.Expr, scope: Columns) -> bool:
        """Whether a condition can be told from the tables' own columns, as conditions are here."""
        if not is_small(tree) or not all(scope.owns(c) for c in own_columns(tree)):
            return False
        spans = len(tables_about(tree, scope)) > 1 and tree.find(*_UNEQUAL) is not None
        try:
            scope.check_condition(tree)
        except ConditionError:
            if spans:
                raise
            return False
        return True

    def _select_columns(
        self,
        tree: exp.Select,
        query: Query,
        compiler: Compiler,
        ctes: CTEs,
        nested: bool,
    ) -> None:
        """Let the join give the columns that the SELECT is about, and the SELECT name those."""
        scope = compiler.columns
        shown = {e.alias.lower() for e in tree.expressions}
        needed: dict[tuple[str, str], None] = {}
        found: list[tuple[exp.Column, tuple[str, str], list[str]]] = []
        for key in _OUTSIDE_FROM:
            for column in columns_in(tree.args.get(key)):
                unnamed = not column.table and column.name.lower() in shown
                if key == "order" and unnamed and not is_nested(column, tree):
                    continue
                if is_nested(column, tree) and self._is_inner(column, tree, ctes):
                    continue
                if not scope.owns(column):
                    if is_bare(column) or column.find_ancestor(exp.Lambda):
                        continue
                    outside = nested or is_nested(column, tree)
                    if outside or (unnamed and key != "where"):
                        continue
                key_, fields = scope.resolved(column)
                needed[key_] = None
                found.append((column, key_, fields))
        first = compiler.aliases[0], scope.every[compiler.aliases[0]].names[0]
        wanted = list(needed) or [first]
        query.outputs = [
            (compiler.names[key], exp.column(key[1], key[0], quoted=True)) for key in wanted
        ]
        for column, key_, fields in found:
            parts = [self._stem, compiler.names[key_], *fields]
            quoted = [exp.to_identifier(part, quoted=True) for part in parts]
            new = exp.Dot.build(quoted) if fields else exp.column(*reversed(quoted))
            column.replace(new)

    def _is_inner(self, column: exp.Column, select: exp.Select, ctes: CTEs) -> bool:
        """Whether a name in a query inside a SELECT is one of that query's own tables'."""
        around = column.find_ancestor(exp.Select)
        while around is not None and around is not select:
            for item in items_of(around):
                called = name_of(self.source, item).lower()
                if column.table:
                    if column.table.lower() == called:
                        return True
                elif column.name.lower() in map(str.lower, self._columns_of(item, ctes)):
                    return True
            around = around.find_ancestor(exp.Select)
        return False
