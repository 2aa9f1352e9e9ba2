"""Running a query: columns that matter below the join, everything else after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from thetajoin.api import is_spark, join
from thetajoin.batch.tables import kind_of, to_batch
from thetajoin.errors import WindowError, nearest
from thetajoin.predicate.render import backquoted
from thetajoin.query.after import After, Order
from thetajoin.query.call import Call, Relation
from thetajoin.query.columns import Columns, schema_of
from thetajoin.query.text import Parsed, WindowClause, no_table, parse_query
from thetajoin.query.tree import Query, TableRef, is_aggregate, read_query, refuse_on_stream
from thetajoin.window.spec import CountWindow, TimeWindow, Window


def sql(query: str, /, **tables: Any) -> Any:
    """Run a query over tables given by name; the result is of the first table's kind.

    Spark's SQL, and the papers' clauses: ``WITHIN 10 minutes``, ``SELECT ONLINE``,
    ``WINDOW AS (SLIDE INTERVAL '100' ON COUNT '1000')``. Costs what `join` and `join_agg` cost.

    >>> import thetajoin as tj, pyarrow as pa
    >>> dc1 = pa.table({"rack": ["a", "b"], "rp": [10, 30]})
    >>> dc2 = pa.table({"rack": ["x", "y"], "rp": [20, 40]})
    >>> query = "SELECT dc1.rack, count(*) AS n FROM dc1, dc2 WHERE dc1.rp < dc2.rp GROUP BY 1"
    >>> tj.sql(query, dc1=dc1, dc2=dc2).to_pydict()
    {'rack': ['a', 'b'], 'n': [2, 1]}
    """
    return compile_query(query, tables).run()


def compile_query(query: str, tables: dict[str, Any], window: Any = None) -> Call:
    """Check a query against its tables; `window` comes from a job file, as (window, order_by).

    Queries in FROM are carried out here.
    """
    parsed = parse_query(query)
    given = _Tables(parsed, tables)
    if window is not None and parsed.window is not None:
        raise WindowError("the query and the job file both have a window: leave one out")
    read = read_query(parsed.source, parsed.tree, given.columns)
    compiler = _Compiler(read, [given.of(ref) for ref in read.tables], parsed.window, window)
    if any(is_streaming(table) for table in compiler.tables):
        refuse_on_stream(read, parsed.tree)
    return compiler.call()


class _Tables:
    """The tables that a query may name, and what its own queries in FROM give."""

    def __init__(self, parsed: Parsed, tables: dict[str, Any]) -> None:
        self.parsed = parsed
        self.known = tables
        self._found = {name.lower(): table for name, table in tables.items()}
        self._nested: dict[int, Any] = {}

    def columns(self, ref: TableRef) -> list[str]:
        """A table's columns."""
        return list(schema_of(self.of(ref)).names)

    def of(self, ref: TableRef) -> Any:
        """A table."""
        if ref.query is not None:
            if id(ref.query) not in self._nested:
                self._nested[id(ref.query)] = self._run(ref.query)
            return self._nested[id(ref.query)]
        if ref.name.lower() not in self._found:
            raise no_table(ref.name, nearest(ref.name, self.known))
        return self._found[ref.name.lower()]

    def _run(self, tree: exp.Select) -> Any:
        """A query in FROM: of one table a filter and a projection, of more a join."""
        read = read_query(self.parsed.source, tree, self.columns, least=1)
        tables = [self.of(ref) for ref in read.tables]
        if any(is_streaming(table) for table in tables):
            refuse_on_stream(read, tree)
        compiler = _Compiler(read, tables, None, None)
        if len(tables) == 1:
            return compiler.rows()
        if self.parsed.window is not None:
            raise WindowError(
                "the query has a window and joins in FROM as well, so that it is not clear which "
                "join it is for: give the inner one's result as a table"
            )
        return compiler.call().run()


def is_streaming(table: Any) -> bool:
    """Whether a table grows."""
    return is_spark(table) and bool(table.isStreaming)


class _Compiler:
    """From a query to nested joins of two relations at a time."""

    def __init__(
        self, query: Query, tables: list[Any], clause: WindowClause | None, window: Any
    ) -> None:
        self.query, self.clause, self.given_window = query, clause, window
        self.tables = tables
        schemas = {
            ref.alias.lower(): schema_of(table)
            for ref, table in zip(query.tables, tables, strict=True)
        }
        self.columns = Columns(query.source, schemas)
        if (clause is not None or window is not None) and len(self.tables) > 2:
            raise WindowError("a window is for a query of two tables, and this one has more")

    def call(self) -> Call:
        """All joins but the last are carried out; the last is described."""
        query = self.query
        needed = self._needed()
        relations = [
            self._relation(ref, table, needed)
            for ref, table in zip(query.tables, self.tables, strict=True)
        ]
        waiting = self._conjuncts(query.where)
        relation = relations[0]
        for at, (ref, other) in enumerate(zip(query.tables[1:], relations[1:], strict=True)):
            known = {**relation.names, **other.names}
            mine = self._conjuncts(ref.on)
            if ref.how == "inner":
                mine += [c for c in waiting if self.columns.tables(c) <= {a for a, _ in known}]
                waiting = [c for c in waiting if c not in mine]
            if not mine:
                raise query.source.error(
                    f"nothing joins {ref.alias!r} with the tables before it",
                    hint="write ON a.x < b.x, or the like in WHERE",
                )
            on = [self.columns.text(c, relation.names, other.names) for c in mine]
            if at + 2 == len(relations):
                if waiting:
                    raise query.source.error(
                        "WHERE after an outer, semi or anti join is not supported: "
                        f"{waiting[0].sql(dialect='spark')}",
                        hint="filter the tables that you give, or put it into ON",
                    )
                return self._last(ref, relation, other, on)
            table = join(relation.table, other.table, on, how=ref.how)
            relation = Relation(table, known)
        raise AssertionError("a query has two tables")

    def rows(self) -> Any:
        """The rows of a query of one table."""
        query = self.query
        if query.aggregates:
            raise query.source.error(
                "aggregates over one table are not supported", hint="give its result as a table"
            )
        relation = self._relation(query.tables[0], self.tables[0], self._needed())

        def text(tree: exp.Expr) -> str:
            return self.columns.text(tree, relation.names, None)

        where = None if query.where is None else text(query.where)
        return self._after(text, where).apply(relation.table)

    def _after(self, text: Callable[[exp.Expr], str], where: str | None) -> After:
        """Outputs and what follows, each expression turned into text."""
        query = self.query
        outputs = [(name, text(tree)) for name, tree in query.outputs]
        order = []
        for item in query.order:
            over = text(item.this)
            if query.distinct:
                own = [name for name, output in outputs if output == over]
                if not own:
                    problem = "ORDER BY of SELECT DISTINCT names something that is not selected"
                    raise query.source.error(f"{problem}: {item.this.sql(dialect='spark')}")
                over = backquoted(own[0])
            falling, first = bool(item.args.get("desc")), bool(item.args.get("nulls_first"))
            order.append(Order(over, falling, first))
        return After(outputs, where, query.distinct, order, query.limit, query.offset)

    def _conjuncts(self, tree: exp.Expr | None) -> list[exp.Expr]:
        if tree is None:
            return []
        return [part.unnest() for part in tree.flatten()] if isinstance(tree, exp.And) else [tree]

    def _needed(self) -> set[tuple[str, str]]:
        query = self.query
        trees = [tree for _, tree in query.outputs] + query.groups
        trees += [table.on for table in query.tables if table.on is not None]
        trees += [item.this for item in query.order]
        trees += [tree for tree in (query.where, query.having) if tree is not None]
        needed = {self.columns.of(node) for tree in trees for node in tree.find_all(exp.Column)}
        for ref, names in zip(query.tables, self._window_columns(), strict=False):
            needed |= {(ref.alias.lower(), name) for name in names}
        return needed

    def _window_columns(self) -> tuple[list[str], list[str]]:
        """Columns that the window reads, of each side."""
        window, order_by = self._window()
        columns: tuple[list[str], list[str]] = [], []
        if isinstance(window, TimeWindow):
            columns[0].append(window.left_time)
            columns[1].append(window.right_time)
        if order_by is not None:
            pair = (order_by, order_by) if isinstance(order_by, str) else order_by
            columns[0].append(pair[0])
            columns[1].append(pair[1])
        return columns

    def _window(self) -> tuple[Window | None, Any]:
        """The window in the tables' own column names, and what orders rows."""
        if self.given_window is not None:
            window, order_by = self.given_window
            return window, order_by
        clause = self.clause
        if clause is None:
            return None, None
        pair = self._pair(clause.columns)
        if clause.size is not None:
            return CountWindow(clause.size, clause.slide), pair
        if pair is None:
            pair = self._time_column(0), self._time_column(1)
        return TimeWindow(clause.length, time=pair), None

    def _pair(self, columns: tuple[str, ...]) -> tuple[str, str] | None:
        if not columns:
            return None
        names = [column.split(".")[-1] for column in columns]
        return names[0], names[-1]

    def _time_column(self, at: int) -> str:
        ref = self.query.tables[at]
        schema = self.columns.schemas[ref.alias.lower()]
        times = [
            f.name for f in schema if pa.types.is_timestamp(f.type) or pa.types.is_date(f.type)
        ]
        if len(times) != 1:
            raise WindowError(
                f"WITHIN needs to know the time column of {ref.alias!r}, which has "
                f"{len(times) or 'no'} columns with a time: write WITHIN 10 minutes ON ts"
            )
        return str(times[0])

    def _relation(self, ref: TableRef, table: Any, needed: set[tuple[str, str]]) -> Relation:
        """The columns that matter, under names that no other table has."""
        alias = ref.alias.lower()
        mine = [name for name in self.columns.schemas[alias].names if (alias, name) in needed]
        mine = mine or self.columns.schemas[alias].names[:1]
        names = {(alias, name): self.columns.unique(alias, name) for name in mine}
        if is_spark(table):
            chosen = table.selectExpr(
                *[f"{backquoted(name)} AS {backquoted(new)}" for (_, name), new in names.items()]
            )
        else:
            kind = kind_of(self.tables[0])
            batch = to_batch(table, ref.alias, as_kind=kind).select(mine)
            chosen = pa.table(batch).rename_columns(list(names.values()))
        return Relation(chosen, names)

    def _last(self, ref: TableRef, left: Relation, right: Relation, on: list[str]) -> Call:
        window, order_by = self._renamed_window(left, right)
        arguments: dict[str, Any] = {"on": on, "window": window, "order_by": order_by}
        query = self.query
        first = self.tables[0]
        kind = None if is_spark(first) else kind_of(first)
        if not query.aggregates:
            arguments["how"] = ref.how
            names = {**left.names, **right.names}
            after = self._after(lambda tree: self.columns.text(tree, names, None), None)
            return Call(left, right, arguments, False, after, kind)
        if ref.how != "inner":
            raise query.source.error(
                f"aggregates over a {ref.how} join are not supported", hint="use JOIN"
            )
        groups = {
            f"g{at}": self.columns.text(tree, left.names, right.names)
            for at, tree in enumerate(query.groups)
        }
        aggs: dict[str, str] = {}

        def over(tree: exp.Expr) -> str:
            return self._over_groups(tree, groups, aggs, left, right)

        having = None if query.having is None else over(query.having)
        after = self._after(over, having)
        aggs = aggs or {"a0": "count(*)"}
        arguments |= {"group_by": groups, "aggs": aggs}
        return Call(left, right, arguments, True, after, kind)

    def _over_groups(
        self,
        tree: exp.Expr,
        groups: dict[str, str],
        aggs: dict[str, str],
        left: Relation,
        right: Relation,
    ) -> str:
        """An output as an expression over groups and aggregates."""
        texts = {text: name for name, text in groups.items()}

        def replaced(node: exp.Expr) -> exp.Expr:
            if is_aggregate(node):
                text = self.columns.text(node, left.names, right.names)
                name = next((n for n, t in aggs.items() if t == text), f"a{len(aggs)}")
                aggs[name] = text
                return exp.column(name)
            if not list(node.find_all(exp.Anonymous)) or not any(
                is_aggregate(inner) for inner in node.find_all(exp.Anonymous)
            ):
                if list(node.find_all(exp.Column)):
                    group = texts.get(self.columns.text(node, left.names, right.names))
                    if group is not None:
                        return exp.column(group)
                if isinstance(node, exp.Column):
                    raise self.query.source.error(
                        "a column outside of an aggregate must be in GROUP BY", node
                    )
            for key, value in list(node.args.items()):
                if isinstance(value, exp.Expr):
                    node.set(key, replaced(value))
                elif isinstance(value, list):
                    kept = [replaced(v) if isinstance(v, exp.Expr) else v for v in value]
                    node.set(key, kept)
            return node

        return replaced(tree.copy()).sql(dialect="spark")

    def _renamed_window(self, left: Relation, right: Relation) -> tuple[Window | None, Any]:
        window, order_by = self._window()
        sides = [ref.alias.lower() for ref in self.query.tables[:2]]

        def of(at: int, name: str) -> str:
            names = (left, right)[at].names
            if (sides[at], name) not in names:
                known = self.columns.schemas[sides[at]].names
                raise WindowError(
                    f"the window's column {name!r} is not in {sides[at]!r}: {nearest(name, known)}"
                )
            return names[sides[at], name]

        if isinstance(window, TimeWindow):
            window = replace(window, time=(of(0, window.left_time), of(1, window.right_time)))
        if order_by is not None:
            pair = (order_by, order_by) if isinstance(order_by, str) else order_by
            order_by = of(0, pair[0]), of(1, pair[1])
        return window, order_by
