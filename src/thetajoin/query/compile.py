"""From a query to joins of two relations: columns that matter below a join, the rest after it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from thetajoin.api import is_spark
from thetajoin.dispatch import run_call
from thetajoin.engine.nearest import Nearest
from thetajoin.engine.spec import JoinSpec
from thetajoin.errors import WindowError, enough_memory, suggest
from thetajoin.predicate.render import backquoted
from thetajoin.query.after import After, Order, filtered, with_column
from thetajoin.query.asof import read_asof
from thetajoin.query.beyond import needs_engine
from thetajoin.query.call import Grouping, LastCall, Relation
from thetajoin.query.columns import Columns, Names, schema_of, users_words
from thetajoin.query.place import place
from thetajoin.query.tables import stream_options
from thetajoin.query.text import WindowClause
from thetajoin.query.tree import Query, TableRef, conjuncts, is_aggregate
from thetajoin.window.windows import CountWindow, TimeWindow, Window

Text = Callable[[exp.Expr], str]


class Compiler:
    """From a query to nested joins of two relations at a time."""

    def __init__(
        self,
        query: Query,
        tables: list[Any],
        kind: Any,
        clause: WindowClause | None,
        window: Any,
        settings: Any = None,
    ) -> None:
        self.query, self.clause, self.given_window = query, clause, window
        self.settings = settings
        self.tables, self.kind = tables, kind
        self.aliases = [ref.alias.lower() for ref in query.tables]
        schemas = map(schema_of, tables)
        merged = {
            (alias, column.name.lower())
            for alias, ref in zip(self.aliases, query.tables, strict=True)
            for column in ref.using
        }
        every = Columns(
            query.source,
            dict(zip(self.aliases, schemas, strict=True)),
            merged=frozenset(merged),
        )
        self.names = every.unique()
        self.unseen = {
            alias: f"gives no columns: a {ref.how.upper()} JOIN has those of the tables before it"
            for alias, ref in zip(self.aliases, query.tables, strict=True)
            if ref.how in ("semi", "anti")
        }
        # What may be named outside of ON.
        self.columns = every.hiding(self.unseen)
        if self._windowed and len(tables) > 2:
            raise WindowError("a window is for a query of two tables, and this one has more")
        self.asof = {
            at: read_asof(ref, self.columns_of_on(at))
            for at, ref in enumerate(query.tables)
            if ref.asof
        }

    @property
    def _windowed(self) -> bool:
        return self.clause is not None or self.given_window is not None

    def columns_of_on(self, at: int) -> Columns:
        """What the ON of a table may name: it, and what there is of those before it."""
        hidden = {alias: why for alias, why in self.unseen.items() if alias != self.aliases[at]}
        later = dict.fromkeys(self.aliases[at + 1 :], "is joined later: its columns are not there")
        return self.columns.hiding({**hidden, **later})

    def call(self) -> LastCall:
        """All joins but the last are carried out; the last is described."""
        query = self.query
        if len(query.tables) == 1:
            return self._one_table()
        needed = self._needed()
        self._check()
        if self._is_self_join:
            return self._self_call()
        self._reorder()
        on, after_join, of_table = self._placed()
        last = query.tables[-1]
        if query.aggregates and last.how != "inner" and not last.asof:
            self._check_outer(last, after_join[-1])
        relation = self._relation(0, needed, [*of_table[0], *after_join[0]])
        for at, ref in enumerate(query.tables[1:], 1):
            other = self._relation(at, needed, of_table[at])
            scope = self.columns_of_on(at)
            texts = [scope.text(c, relation.names, other.names) for c in self._on(at)]
            near = None
            if at in self.asof:
                relation, other, near = self._keyed(at, relation, other)
                texts.append(self.asof[at].compared(*near.key))
            texts += [self.columns.text(c, relation.names, other.names) for c in on[at]]
            self._check_joined(ref, texts)
            if at + 1 == len(query.tables):
                shown = {**relation.names, **other.names}
                return self._last(ref, relation, other, texts, shown, after_join[at], near)
            with (
                enough_memory("join fewer rows at a time"),
                users_words(relation.names, other.names),
            ):
                tables = relation.table, other.table
                options = stream_options(self.settings, *tables)
                spec = JoinSpec.of(texts, ref.how, nearest=near, options=options)
                found = run_call(*tables, spec)
            shown = {} if ref.how in ("semi", "anti") else other.names
            relation = self._filtered(Relation(found, {**relation.names, **shown}), after_join[at])
        raise AssertionError("a query has two tables")

    def _check(self) -> None:
        """Find mistakes while the query's own text is at hand to point into."""
        query = self.query
        for at, _ in enumerate(query.tables):
            for tree in self._on(at):
                self.columns_of_on(at).check_condition(tree)
        if any(map(is_spark, self.tables)):
            return  # whose own functions and types what is after the join may use
        for tree in conjuncts(query.where):
            self.columns.check_condition(tree)
        trees = [tree for _, tree in query.outputs] + [item.this for item in query.order]
        if query.aggregates:
            trees += [] if query.having is None else [query.having]
            calls = [n for tree in trees for n in tree.find_all(exp.Anonymous) if is_aggregate(n)]
            inside = [part for call in calls for part in call.expressions]
            trees = query.groups + [part for part in inside if isinstance(part, exp.Column)]
        for tree in trees:
            self.columns.check(tree)

    def _reorder(self) -> None:
        """Take the tables in an order in which each has a condition with those before it."""
        query = self.query
        if self._windowed or any(ref.asof or ref.how != "inner" for ref in query.tables):
            return
        conditions = conjuncts(query.where)
        for at, _ in enumerate(query.tables):
            scope = self.columns_of_on(at)
            # Without a table an ON's name may be one that only tables before it make clear.
            conditions += [scope.qualified(tree) for tree in self._on(at)]
        about = [self.columns.tables(tree) for tree in conditions]
        order, left = [0], list(range(1, len(query.tables)))
        while left:
            there = {self.aliases[at] for at in order}
            fits = [
                at
                for at in left
                if any(
                    self.aliases[at] in tables and tables <= there | {self.aliases[at]}
                    for tables in about
                    if len(tables) > 1
                )
            ]
            order.append(fits[0] if fits else left[0])
            left.remove(order[-1])
        if order == sorted(order):
            return
        query.where = exp.and_(*conditions)
        query.tables = [replace(query.tables[at], on=None) for at in order]
        self.tables = [self.tables[at] for at in order]
        self.aliases = [self.aliases[at] for at in order]

    def _one_table(self) -> LastCall:
        """A query without a join: its table's rows, and what is done with them."""
        query = self.query
        if self._windowed:
            raise WindowError("a window is for a query of two tables, and this one has one")
        needed = self._needed()
        if not is_spark(self.tables[0]):
            for tree in conjuncts(query.where):
                self.columns.check_condition(tree)
        relation = self._relation(0, needed, [])

        def text(tree: exp.Expr) -> str:
            return self.columns.text(tree, relation.names)

        after = self._after(text, None if query.where is None else text(query.where))
        return LastCall(relation, None, {}, False, after, self.kind)

    def _on(self, at: int) -> list[exp.Expr]:
        """The conditions of a table's join, but for the key of an as-of join."""
        return self.asof[at].rest if at in self.asof else conjuncts(self.query.tables[at].on)

    def _key_operands(self, at: int) -> tuple[exp.Expr, ...]:
        asof = self.asof.get(at)
        return () if asof is None else (asof.left, asof.right)

    def _keyed(
        self, at: int, left: Relation, right: Relation
    ) -> tuple[Relation, Relation, Nearest]:
        """Both relations with the columns that a table's as-of join goes by, and how it does."""
        asof, scope = self.asof[at], self.columns_of_on(at)
        left, left_key = self._with_key(left, asof.left, scope, f"_key_{at}_left")
        right, right_key = self._with_key(right, asof.right, scope, f"_key_{at}_right")
        order_by = None
        if is_spark(right.table) and self.query.tables[at].how not in ("semi", "anti"):
            from thetajoin.spark.row_order import add_order

            order_by = self._free(f"_order_{at}")
            right = replace(right, table=add_order(right.table, order_by))
        return left, right, Nearest((left_key, right_key), asof.direction, order_by=order_by)

    def _with_key(
        self, relation: Relation, tree: exp.Expr, scope: Columns, name: str
    ) -> tuple[Relation, str]:
        """The relation with an operand of an as-of join as a column, and what that is called."""
        column = scope.plain(tree)
        if column is not None:
            return relation, relation.names[column]
        if self._windowed:
            raise self.query.source.error(
                "the key of an as-of join under a window is a column",
                tree,
                "make it one in a query in FROM",
            )
        name = self._free(name)
        text = scope.text(tree, relation.names)
        return replace(relation, table=with_column(relation.table, name, text)), name

    def _free(self, name: str) -> str:
        """A name that no column has."""
        taken = {known.lower() for known in self.names.values()}
        while name in taken:
            name += "_"
        return name

    def _check_joined(self, ref: TableRef, texts: list[str]) -> None:
        if not texts and self._windowed:
            raise self.query.source.error(
                f"nothing joins {ref.alias!r} with the tables before it",
                hint="write ON a.x < b.x, or the like in WHERE",
            )
        if not texts:
            what = f"{ref.alias!r}, which nothing joins with the tables before it,"
            raise needs_engine(self.query.source, what, rf"\b{re.escape(ref.alias)}\b")

    @property
    def _is_self_join(self) -> bool:
        """Whether this is a table with itself under a window: one stream with one order of rows.

        Without a window the same table named twice is joined as two tables are.
        """
        refs = self.query.tables
        named = all(ref.query is None for ref in refs)
        same = len({ref.name.lower() for ref in refs}) == 1 and self.tables[0] is self.tables[-1]
        return self._windowed and len(refs) == 2 and named and same

    def _self_call(self) -> LastCall:
        ref = self.query.tables[1]
        if ref.asof:
            raise self.query.source.error(
                f"an as-of join of {ref.name!r} with itself has no window",
                hint="give the table under two names",
            )
        if ref.how != "inner":
            raise self.query.source.error(
                f"{ref.name!r} with itself under a window is an inner join, not {ref.how}",
                hint="use JOIN",
            )
        needed = {name for _, name in self._needed()}
        schema = self.columns.every[self.aliases[0]]
        mine = [name for name in schema.names if name in needed] or schema.names[:1]
        table = self.tables[0]
        table = table.select(*map(backquoted, mine)) if is_spark(table) else table.select(mine)
        left, right = (Relation(table, {(a, name): name for name in mine}) for a in self.aliases)
        conditions = conjuncts(ref.on) + conjuncts(self.query.where)
        texts = [self.columns.text(c, left.names, right.names) for c in conditions]
        self._check_joined(ref, texts)
        suffix, taken = "_right", {name.lower() for name in mine}
        while any(name.lower() + suffix in taken for name in mine):
            suffix += "_"
        shown = left.names | {key: name + suffix for key, name in right.names.items()}
        call = self._last(ref, left, right, texts, shown, [])
        more = {} if call.aggregated else {"suffix": suffix}
        return replace(call, arguments=call.arguments | more, self_join=True)

    def _placed(self) -> tuple[list[list[exp.Expr]], ...]:
        """The conditions of WHERE by where they are applied: in ON, after a join, on a table."""
        # Rows that were not there would leave an as-of join with others that are nearest then: what
        # is about its right side stays above it, as with a left join.
        hows = ["left" if ref.asof else ref.how for ref in self.query.tables]
        places: dict[str, list[list[exp.Expr]]] = {
            what: [[] for _ in hows] for what in ("on", "joined", "table")
        }
        for tree in conjuncts(self.query.where):
            about = self.columns.tables(tree)
            found = place(about, self.aliases, hows, windowed=self._windowed)
            places[found.what][found.at].append(tree)
        return places["on"], places["joined"], places["table"]

    def _after(self, text: Text, where: str | None) -> After:
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

    def _needed(self) -> set[tuple[str, str]]:
        query = self.query
        trees = [tree for _, tree in query.outputs] + query.groups
        trees += [item.this for item in query.order]
        trees += [tree for tree in (query.where, query.having) if tree is not None]
        scoped = [(tree, self.columns) for tree in trees]
        scoped += [
            (tree, self.columns_of_on(at))
            for at, _ in enumerate(query.tables)
            for tree in (*self._on(at), *self._key_operands(at))
        ]
        needed = {scope.of(node) for tree, scope in scoped for node in tree.find_all(exp.Column)}
        for alias, names in zip(self.aliases, self._window_columns(), strict=False):
            needed |= {(alias, name) for name in names}
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
        schema = self.columns.every[self.aliases[at]]
        times = [
            f.name for f in schema if pa.types.is_timestamp(f.type) or pa.types.is_date(f.type)
        ]
        if len(times) != 1:
            raise WindowError(
                f"WITHIN needs to know the time column of {ref.alias!r}, which has "
                f"{len(times) or 'no'} columns with a time: write WITHIN 10 minutes ON ts"
            )
        return str(times[0])

    def _relation(
        self, at: int, needed: set[tuple[str, str]], conditions: list[exp.Expr]
    ) -> Relation:
        """The columns that matter, under names that no other table has."""
        alias, table = self.aliases[at], self.tables[at]
        mine = [name for name in self.columns.every[alias].names if (alias, name) in needed]
        mine = mine or self.columns.every[alias].names[:1]
        names = {(alias, name): self.names[alias, name] for name in mine}
        if is_spark(table):
            chosen = table.selectExpr(
                *[f"{backquoted(name)} AS {backquoted(new)}" for (_, name), new in names.items()]
            )
        else:
            chosen = table.select(mine).rename_columns(list(names.values()))
        return self._filtered(Relation(chosen, names), conditions)

    def _filtered(self, relation: Relation, conditions: list[exp.Expr]) -> Relation:
        for tree in conditions:
            where = self.columns.text(tree, relation.names)
            relation = replace(relation, table=filtered(relation.table, where))
        return relation

    def _last(
        self,
        ref: TableRef,
        left: Relation,
        right: Relation,
        on: list[str],
        shown: Names,
        conditions: list[exp.Expr],
        near: Nearest | None = None,
    ) -> LastCall:
        """The last join; its result has the columns `shown`, and is filtered by the conditions."""
        window, order_by = self._renamed_window(left, right)
        arguments: dict[str, Any] = {"on": on, "window": window, "order_by": order_by}
        query = self.query

        def text(tree: exp.Expr) -> str:
            return self.columns.text(tree, shown)

        where = text(exp.and_(*conditions)) if conditions else None
        if near is not None:
            arguments["nearest"] = near
        if not query.aggregates:
            arguments["how"] = ref.how
            after = self._after(text, where)
            return LastCall(left, right, arguments, False, after, self.kind, settings=self.settings)
        if near is not None:
            if any(is_spark(side.table) and side.table.isStreaming for side in (left, right)):
                raise query.source.error_at(
                    r"\basof\b.*?\bjoin\b",
                    "aggregates over an ASOF JOIN of a stream are not supported",
                    "leave them out, and group the result (groupBy)",
                )
            arguments["how"] = ref.how
            groups, aggs, after = self._grouped(text)
            grouping = Grouping(where, groups, aggs)
            return LastCall(left, right, arguments, True, after, self.kind, grouping=grouping)
        if ref.how != "inner":
            arguments["how"] = ref.how

        def of_pair(tree: exp.Expr) -> str:
            return self.columns.text(tree, left.names, right.names)

        groups, aggs, after = self._grouped(of_pair)
        arguments |= {"group_by": groups, "aggs": aggs}
        return LastCall(left, right, arguments, True, after, self.kind, settings=self.settings)

    def _check_outer(self, ref: TableRef, conditions: list[exp.Expr]) -> None:
        """Leave aggregates that see a row without a match, which `join_agg` does not, to an engine.

        In SQL such a row has its own columns and NULLs, so only what skips the NULLs is the same.
        """
        query, alias = self.query, ref.alias.lower()
        trees = [tree for _, tree in query.outputs] + [item.this for item in query.order]
        trees += [] if query.having is None else [query.having]
        calls = [n for tree in trees for n in tree.find_all(exp.Anonymous) if is_aggregate(n)]
        plain = all(
            len(call.expressions) == 1
            and isinstance(call.expressions[0], exp.Column)
            and self.columns.of(call.expressions[0])[0] == alias
            for call in calls
        )
        by_right = any(alias in self.columns.tables(group) for group in query.groups)
        if ref.how != "left" or not plain or conditions or by_right:
            what = f"this aggregate over a {ref.how.upper()} JOIN"
            raise needs_engine(query.source, what, r"\bselect\b.*?\bfrom\b")

    def _grouped(self, text: Text) -> tuple[dict[str, str], dict[str, str], After]:
        """Groups and aggregates, by the names that what is done after them calls them by."""
        query = self.query
        groups = {f"g{at}": text(tree) for at, tree in enumerate(query.groups)}
        aggs: dict[str, str] = {}

        def over(tree: exp.Expr) -> str:
            return self._over_groups(tree, groups, aggs, text)

        having = None if query.having is None else over(query.having)
        after = self._after(over, having)
        return groups, aggs or {"a0": "count(*)"}, after

    def _over_groups(
        self, tree: exp.Expr, groups: dict[str, str], aggs: dict[str, str], text: Text
    ) -> str:
        """An output as an expression over groups and aggregates."""
        texts = {group: name for name, group in groups.items()}

        def replaced(node: exp.Expr) -> exp.Expr:
            if is_aggregate(node):
                call = text(node)
                name = next((n for n, t in aggs.items() if t == call), f"a{len(aggs)}")
                aggs[name] = call
                return exp.column(name)
            if not list(node.find_all(exp.Anonymous)) or not any(
                is_aggregate(inner) for inner in node.find_all(exp.Anonymous)
            ):
                if list(node.find_all(exp.Column)):
                    group = texts.get(text(node))
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
        sides = self.aliases[:2]

        def of(at: int, name: str) -> str:
            names = (left, right)[at].names
            if (sides[at], name) not in names:
                known = self.columns.every[sides[at]].names
                raise WindowError(
                    f"the window's column {name!r} is not in {sides[at]!r}: {suggest(name, known)}"
                )
            return names[sides[at], name]

        if isinstance(window, TimeWindow):
            window = replace(window, time=(of(0, window.left_time), of(1, window.right_time)))
        if order_by is not None:
            pair = (order_by, order_by) if isinstance(order_by, str) else order_by
            order_by = of(0, pair[0]), of(1, pair[1])
        return window, order_by
