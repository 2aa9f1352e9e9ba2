"""Running a query: columns that matter below the join, everything else after it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from thetajoin.api import is_spark, join
from thetajoin.batch.tables import kind_of, to_batch
from thetajoin.errors import WindowError, nearest
from thetajoin.query.call import Call, Relation, quoted
from thetajoin.query.text import WindowClause, no_table, parse_query
from thetajoin.query.tree import Query, TableRef, is_aggregate, read_query
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
    """Check a query against its tables; `window` comes from a job file, as (window, order_by)."""
    parsed = parse_query(query)
    found = {name.lower(): table for name, table in tables.items()}

    def table_of(name: str) -> Any:
        if name.lower() not in found:
            raise no_table(name, nearest(name, tables))
        return found[name.lower()]

    read = read_query(parsed, lambda name: list(_schema(table_of(name)).names))
    return _Compiler(read, table_of, parsed.window, window).call()


def _schema(table: Any) -> pa.Schema:
    if is_spark(table):
        from thetajoin.spark.stream import arrow_schema

        return arrow_schema(table)
    return to_batch(table, "query's").schema


class _Compiler:
    """From a query to nested joins of two relations at a time."""

    def __init__(
        self, query: Query, table_of: Any, clause: WindowClause | None, window: Any
    ) -> None:
        self.query, self.clause, self.given_window = query, clause, window
        self.tables = [table_of(table.name) for table in query.tables]
        self.schemas = {
            ref.alias.lower(): _schema(table)
            for ref, table in zip(query.tables, self.tables, strict=True)
        }
        if (clause is not None or window is not None) and len(self.tables) > 2:
            raise WindowError("a window is for a query of two tables, and this one has more")
        if clause is not None and window is not None:
            raise WindowError("the query and the job file both have a window: leave one out")

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
                mine += [c for c in waiting if self._about(c) <= {a for a, _ in known}]
                waiting = [c for c in waiting if c not in mine]
            if not mine:
                raise query.source.error(
                    f"nothing joins {ref.alias!r} with the tables before it",
                    hint="write ON a.x < b.x, or the like in WHERE",
                )
            on = [self._text(c, relation.names, other.names) for c in mine]
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

    def _conjuncts(self, tree: exp.Expr | None) -> list[exp.Expr]:
        if tree is None:
            return []
        return [part.unnest() for part in tree.flatten()] if isinstance(tree, exp.And) else [tree]

    def _column(self, node: exp.Column) -> tuple[str, str]:
        """The table and column that a name means."""
        source = self.query.source
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

    def _about(self, tree: exp.Expr) -> set[str]:
        return {self._column(node)[0] for node in tree.find_all(exp.Column)}

    def _needed(self) -> set[tuple[str, str]]:
        query = self.query
        trees = [tree for _, tree in query.outputs] + query.groups
        trees += [table.on for table in query.tables if table.on is not None]
        trees += [query.where] if query.where is not None else []
        needed = {self._column(node) for tree in trees for node in tree.find_all(exp.Column)}
        for at in range(2):
            alias = query.tables[at].alias.lower()
            for name in self._window_columns()[at]:
                needed.add((alias, name))
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
        schema = self.schemas[ref.alias.lower()]
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
        mine = [name for name in self.schemas[alias].names if (alias, name) in needed]
        mine = mine or self.schemas[alias].names[:1]
        names = {(alias, name): self._unique(alias, name) for name in mine}
        if is_spark(table):
            chosen = table.selectExpr(
                *[f"{quoted(name)} AS {quoted(new)}" for (_, name), new in names.items()]
            )
        else:
            batch = to_batch(table, ref.alias).select(mine)
            chosen = pa.table(batch).rename_columns(list(names.values()))
        return Relation(chosen, names)

    def _unique(self, alias: str, name: str) -> str:
        """A column's name among all tables': its own if no other table has it."""
        others = [n.lower() for a, s in self.schemas.items() if a != alias for n in s.names]
        while name.lower() in others:
            name = f"{alias}_{name}"
        return name

    def _text(
        self,
        tree: exp.Expr,
        left: dict[tuple[str, str], str],
        right: dict[tuple[str, str], str] | None,
    ) -> str:
        """An expression over the relations' columns, with l and r where there are two."""

        def rename(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column):
                return node
            key = self._column(node)
            fields = [part.name for part in node.parts][2:]
            if right is not None and key in right:
                return _named(right[key], "r", fields)
            return _named(left[key], "l" if right is not None else None, fields)

        return tree.copy().transform(rename).sql(dialect="spark")

    def _last(self, ref: TableRef, left: Relation, right: Relation, on: list[str]) -> Call:
        window, order_by = self._renamed_window(left, right)
        arguments: dict[str, Any] = {"on": on, "window": window, "order_by": order_by}
        query = self.query
        first = self.tables[0]
        kind = None if is_spark(first) else kind_of(first)
        if not query.aggregates:
            arguments["how"] = ref.how
            names = {**left.names, **right.names}
            outputs = [(name, self._text(tree, names, None)) for name, tree in query.outputs]
            return Call(left, right, arguments, False, outputs, query.distinct, kind)
        if ref.how != "inner":
            raise query.source.error(
                f"aggregates over a {ref.how} join are not supported", hint="use JOIN"
            )
        groups = {
            f"g{at}": self._text(tree, left.names, right.names)
            for at, tree in enumerate(query.groups)
        }
        aggs: dict[str, str] = {}
        outputs = [
            (name, self._over_groups(tree, groups, aggs, left, right))
            for name, tree in query.outputs
        ]
        aggs = aggs or {"a0": "count(*)"}
        arguments |= {"group_by": groups, "aggs": aggs}
        return Call(left, right, arguments, True, outputs, query.distinct, kind)

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
                text = self._text(node, left.names, right.names)
                name = next((n for n, t in aggs.items() if t == text), f"a{len(aggs)}")
                aggs[name] = text
                return exp.column(name)
            if not list(node.find_all(exp.Anonymous)) or not any(
                is_aggregate(inner) for inner in node.find_all(exp.Anonymous)
            ):
                if list(node.find_all(exp.Column)):
                    group = texts.get(self._text(node, left.names, right.names))
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
                known = self.schemas[sides[at]].names
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
