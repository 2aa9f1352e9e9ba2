"""The joins of one FROM: those that are ours are taken out, and the rest reads their rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from thetajoin.api import is_spark
from thetajoin.engine.spec import JoinSpec
from thetajoin.errors import ConditionError, WindowError
from thetajoin.query.frames import (
    At,
    Frame,
    Item,
    at_of,
    columns_of,
    conjuncts,
    is_aggregate,
    is_alone,
    put,
    renamed,
    shown_as,
    unparenthesised,
)
from thetajoin.query.join import (
    Join,
    NotOursError,
    Relation,
    bound,
    check_condition,
    check_truth,
    text,
)
from thetajoin.query.steps import LEFT_AS_IT_IS, Step, about, has_inequality, is_ours, place
from thetajoin.query.tables import is_streaming, select_columns
from thetajoin.query.totals import over_totals
from thetajoin.query.windows import QueryWindow
from thetajoin.window.windows import TimeWindow

if TYPE_CHECKING:
    from thetajoin.query.rewrite import Rewriter


@dataclass
class State:
    """What there is of a FROM so far: what to read it from, and the columns of the joins in that.

    places: of the items in it. names: of columns that have new ones. where: conditions that must
    still hold.
    """

    start: exp.Expr
    places: list[int]
    joins: list[exp.Join] = field(default_factory=list)
    where: list[exp.Expr] = field(default_factory=list)
    names: dict[tuple[int, str], str] = field(default_factory=dict)
    join: Join | None = None


class Chain:
    """The joins of one FROM, of which some are ours."""

    def __init__(self, rewriter: Rewriter, frame: Frame, steps: list[Step]) -> None:
        self.rewriter, self.frame, self.steps = rewriter, frame, steps
        self.source, self.tables = rewriter.source, rewriter.tables
        self.windowed = rewriter.windowed
        if self.windowed and len(frame.items) > 2:
            raise WindowError("a window is for a query of two tables, and this one has more")
        for column in columns_of(frame.select, frame):
            at = at_of(column)
            if at is not None and at.item < 0:
                put(column, frame.merged[at.name].copy(), at.fields)
        self.window = QueryWindow(frame, rewriter.clause, rewriter.window)
        self.names = self._unique()
        self.words = {at: item.name for at, item in enumerate(frame.items)}
        where = frame.select.args.get("where")
        self.where = conjuncts(where.this) if where is not None else []
        frame.select.set("where", None)
        self._later: Sequence[Step] = steps
        self._places: dict[str, dict[int, list[exp.Expr]]] = {}

    def _unique(self) -> dict[tuple[int, str], str]:
        """A name for each column that no other has: its own if no other table has it."""
        trees: list[exp.Expr] = [self.frame.select]
        for step in self.steps:
            trees += [*step.on, *(step.asof.operands if step.asof is not None else ())]
        found = [at_of(column) for tree in trees for column in columns_of(tree, self.frame)]
        items = self.frame.items
        every = [name.lower() for item in items for name in (item.columns or {})]
        names: dict[tuple[int, str], str] = {}
        taken: set[str] = set()
        for key in dict.fromkeys((at.item, at.name) for at in found if at and at.item >= 0):
            new = key[1]
            # Its own name counts once among all; a name that is made up must not be there at all.
            while new.lower() in taken or every.count(new.lower()) > (new == key[1]):
                new = f"{items[key[0]].name}_{new}"
            taken.add(new.lower())
            names[key] = new
        return names

    def take_out(self) -> None:
        """Run the joins that are ours, and let the SELECT read their rows."""
        frame = self.frame
        known = [item.schema.empty_table() for item in frame.items if item.schema is not None]
        if self.where and len(known) == len(frame.items):
            shown = [
                Relation(table, {(at, name): name for name in table.schema.names}, self.words)
                for at, table in enumerate(known)
            ]
            for tree in self.where:
                self._check_truth(tree, *shown)
        self._reorder()
        places = self._places = self._placed()
        for step in self.steps:
            if step.how == "inner" and step.asof is None and not self.windowed:
                step.ours = has_inequality([*step.on, *places["on"].get(step.at, [])], frame, step)
        first = self._order[0]
        state = State(frame.items[first].node, [first], where=places["joined"].pop(first, []))
        for number, step in enumerate(self.steps):
            self._later = self.steps[number + 1 :]
            on = places["on"].pop(step.at, [])
            table = places["table"].pop(step.at, [])
            after = places["joined"].pop(step.at, [])
            if not step.ours:
                self.rewriter.name_item(frame.items[step.at], frame)
                state.joins.append(step.join)
                state.where += on + table
            else:
                state = self._joined(state, step, on, table, after)
            state.places.append(step.at)
            state.where += after
        self._finish(state)

    def _finish(self, state: State) -> None:
        select = self.frame.select
        select.set("from_", exp.From(this=state.start))
        select.set("joins", state.joins or None)
        where = exp.and_(*state.where, copy=False) if state.where else None
        if state.join is None or not state.join.totals:
            select.set("where", exp.Where(this=where) if where is not None else None)
        for column in columns_of(select, self.frame):
            at = at_of(column)
            assert at is not None
            column.replace(shown_as(self.frame, at, state.names, self._core(state)))
        for column in list(select.find_all(exp.Column)):
            if "total" in column.meta:
                column.replace(exp.column(column.meta["total"], self._core(state), quoted=True))
        if state.start is self.frame.items[state.places[0]].node:
            self.rewriter.name_item(self.frame.items[state.places[0]], self.frame)

    def _core(self, state: State) -> str:
        return state.start.alias_or_name

    # Where conditions go

    @property
    def _order(self) -> list[int]:
        """The places of FROM in the order in which they are joined."""
        rest = [step.at for step in self.steps]
        (first,) = set(range(len(rest) + 1)) - set(rest) if rest else {0}
        return [first, *rest]

    def _reorder(self) -> None:
        """Take the tables in an order in which each has a condition with those before it."""
        odd = any(step.asof is not None or step.how != "inner" for step in self.steps)
        if self.windowed or odd or not all(item.closed for item in self.frame.items):
            return
        conditions = [*self.where, *(one for step in self.steps for one in step.on)]
        groups = [about(tree, self.frame) for tree in conditions]
        order, left = [0], [step.at for step in self.steps]
        while left:
            there = set(order)
            fits = [
                at
                for at in left
                if any(at in group and group <= there | {at} for group in groups if len(group) > 1)
            ]
            order.append(fits[0] if fits else left[0])
            left.remove(order[-1])
        if order == sorted(order):
            return
        self.where = conditions
        steps = {step.at: step for step in self.steps}
        for step in self.steps:
            step.on = []
            for key in ("on", "using", "method"):
                step.join.set(key, None)
            step.join.set("kind", "CROSS")
        self.steps = [steps[at] for at in order[1:]]

    def _placed(self) -> dict[str, dict[int, list[exp.Expr]]]:
        """The conditions of WHERE by where they are applied: in ON, after a join, on a table."""
        order = self._order
        # Rows that were not there would leave an as-of join with others that are nearest then: what
        # is about its right side stays above it, as with a left join.
        hows = ["inner"]
        for step in self.steps:
            nearest_ = step.asof is not None and step.how in ("inner", "left", "semi", "anti")
            how = "left" if nearest_ and step.how not in ("semi", "anti") else step.how
            hows.append("full" if step.turned or (step.asof and how in ("right", "full")) else how)
        places: dict[str, dict[int, list[exp.Expr]]] = {"on": {}, "joined": {}, "table": {}}
        for tree in self.where:
            if not is_alone(tree, self.frame):
                places["joined"].setdefault(order[-1], []).append(tree)
                continue
            numbers = {order.index(at) for at in about(tree, self.frame)}
            found = place(numbers, range(len(order)), hows, windowed=self.windowed)
            places[found.what].setdefault(order[found.at], []).append(tree)
        return places

    # One join

    def _joined(
        self,
        state: State,
        step: Step,
        on: list[exp.Expr],
        table: list[exp.Expr],
        after: list[exp.Expr],
    ) -> State:
        """What there is after a join of ours."""
        frame, item = self.frame, self.frame.items[step.at]
        asof = step.asof
        own: list[exp.Expr] = []
        rest: list[exp.Expr] = []
        for tree in [*step.on, *on]:
            named = about(tree, frame)
            if is_ours(tree, frame):
                own.append(tree)
            elif self.windowed:
                raise self.source.error_at(
                    r"\bon\b.+",
                    "the join under the window has a condition that joins here cannot have",
                    "put it into WHERE of a query around this one",
                )
            elif step.how == "inner" and asof is None and not is_alone(tree, frame):
                rest.append(tree)
            elif not is_alone(tree, frame):
                raise self.source.error(
                    "the ON of this join names what is around the query it is in",
                    tree,
                    "put it into WHERE",
                )
            elif named <= {step.at} and step.how in LEFT_AS_IT_IS and not step.turned:
                table.append(tree)
            elif named <= set(state.places) and (step.how == "right" or step.how == "inner"):
                state.where.append(tree)
            elif step.how == "inner" and asof is None:
                rest.append(tree)
            else:
                raise self.source.error_at(
                    r"\bon\b.+",
                    "the ON of this join has a condition that such joins cannot have",
                    "put it into WHERE, or into a query in FROM",
                )
        operands = [] if asof is None else [asof.left, asof.right]
        left = self._relation(state, [*own, *rest, *operands, *after], step)
        right = self._relation(
            State(item.node, [step.at], where=table), [*own, *rest, *operands, *after], step
        )
        if asof is not None and asof.general is not None:
            return self._ranked(state, step, left)
        kept = []
        for tree in own:
            try:
                check_condition(self.source, tree, left, right)
                kept.append(tree)
            except NotOursError as problem:
                if step.how != "inner" or asof is not None or self.windowed:
                    raise ConditionError(str(problem)) from None
                rest.append(tree)
        if asof is not None and step.how in ("right", "full"):
            return self._asof_outer(state, step, left, right, kept)
        for tree in rest + after:
            self._check_truth(tree, left, right)
        join = self._call(step, left, right, kept, rest + after)
        return self._after(join, [*state.places, step.at], rest)

    def _check_truth(self, tree: exp.Expr, *relations: Relation) -> None:
        """Refuse a condition that is plainly neither true nor false; the engine might take it."""
        if is_ours(tree, self.frame):
            try:
                found = bound(self.source, tree, *relations).type
            except ConditionError:
                return
            check_truth(self.source, tree, found)

    def _after(self, join: Join, places: list[int], rest: list[exp.Expr]) -> State:
        name = self.rewriter.add(join)
        start = exp.Table(
            this=exp.to_identifier(name), alias=exp.TableAlias(this=exp.to_identifier(name))
        )
        names = {key: new for key, new in self.names.items() if key[0] in places}
        return State(start, places[:-1], where=rest, names=names, join=join)

    def _call(
        self,
        step: Step,
        left: Relation,
        right: Relation,
        own: list[exp.Expr],
        rest: list[exp.Expr],
    ) -> Join:
        """The call of the API that a join is."""
        frame, name = self.frame, self.words[step.at]
        window, order_by = self.window.renamed(left, right)
        if step.turned:
            left, right = right, left
        texts = [text(tree, left, right) for tree in own]
        near = None
        if step.asof is not None:
            left, right, near = self._keyed(step, left, right)
            compared = step.asof.compared(*near.key)
            texts += [] if compared is None else [compared]
        if not texts and near is None:
            problem = f"nothing joins {name!r} with the tables before it"
            raise self.source.error(problem, hint="write ON a.x < b.x, or the like in WHERE")
        same = self._is_self_join(step)
        if same:
            return self._self_join(step, left, right, own, window, order_by)
        spec = JoinSpec.of(texts or None, step.how, window, order_by, nearest=near)
        last = not self._later and not rest and not frame.select.args.get("laterals")
        if last:
            self._refuse_totals_of_stream(step, left, right)
        if last and near is None:
            totals = self._totals(step, left, right, spec)
            if totals is not None:
                return totals
        hidden = step.how in ("semi", "anti")
        shown = {**left.names, **({} if hidden else right.names)}
        columns = {shown[key]: shown[key] for key in self._needed(set(), rest) if key in shown}
        if not columns:
            some = next(iter(left.names.values()))
            columns = {some: some}
        return Join(left, right, spec, columns, self.tables.settings)

    def _totals(self, step: Step, left: Relation, right: Relation, spec: JoinSpec) -> Join | None:
        if step.how not in ("inner", "left"):
            return None
        return over_totals(
            self.source, self.frame, left, right, spec, step.at, self.tables.settings
        )

    def _refuse_totals_of_stream(self, step: Step, left: Relation, right: Relation) -> None:
        select = self.frame.select
        totals = select.args.get("group") or any(map(is_aggregate, select.find_all(exp.Anonymous)))
        if step.asof is not None and totals and any(is_streaming(r.table) for r in (left, right)):
            raise self.source.error_at(
                r"\basof\b.*?\bjoin\b",
                "aggregates over an ASOF JOIN of a stream are not supported",
                "leave them out, and group the result (groupBy)",
            )

    def _is_self_join(self, step: Step) -> bool:
        """Whether this is a table with itself under a window: one stream with one order of rows."""
        tables = {item.table for item in self.frame.items}
        return self.windowed and len(tables) == 1 and None not in tables

    def _self_join(
        self,
        step: Step,
        left: Relation,
        right: Relation,
        own: list[exp.Expr],
        window: Any,
        order_by: Any,
    ) -> Join:
        called = self.frame.items[step.at].table
        if step.asof is not None:
            raise self.source.error(
                f"an as-of join of {called!r} with itself has no window",
                hint="give the table under two names",
            )
        if step.how != "inner":
            raise self.source.error(
                f"{called!r} with itself under a window is an inner join, not {step.how}",
                hint="use JOIN",
            )
        # Both sides are the same rows, under the table's own names.
        mine = list(dict.fromkeys(name for _, name in [*left.names, *right.names]))
        assert called is not None
        table = select_columns(self.tables.of(called)[0], {name: name for name in mine})
        one, other = (
            Relation(table, {(at, name): name for name in mine}, self.words) for at in (0, 1)
        )
        texts = [text(tree, one, other) for tree in own]
        suffix, taken = "_right", {name.lower() for name in mine}
        while any(name.lower() + suffix in taken for name in mine):
            suffix += "_"
        back = {new: name for (_, name), new in [*left.names.items(), *right.names.items()]}
        if isinstance(window, TimeWindow):
            times = back[window.left_time], back[window.right_time]
            window = replace(window, time=times)
        if order_by is not None:
            order_by = back[order_by[0]], back[order_by[1]]
        spec = JoinSpec.of(texts, "inner", window, order_by, suffix, self_join=True)
        if not self.frame.select.args.get("laterals"):
            totals = self._totals(step, one, other, spec)
            if totals is not None:
                return totals
        columns = {}
        for at, name in self._needed(set(), ()):
            columns[self.names[at, name]] = name if at == 0 else name + suffix
        return Join(one, other, spec, columns or {mine[0]: mine[0]}, self.tables.settings)

    def _keyed(self, step: Step, left: Relation, right: Relation) -> tuple[Relation, Relation, Any]:
        """Both relations with the columns that an as-of join goes by, and how it does."""
        asof = step.asof
        assert asof is not None
        left, left_key = self._with_key(left, asof.left, f"_key_{step.at}_left")
        right, right_key = self._with_key(right, asof.right, f"_key_{step.at}_right")
        order_by = None
        if is_spark(right.table) and step.how not in ("semi", "anti"):
            from thetajoin.spark.row_order import add_order

            order_by = self._free(f"_order_{step.at}")
            ordered = add_order(right.table, order_by)
            right = Relation(ordered, right.names, right.words)
        return left, right, asof.spec((left_key, right_key), order_by)

    def _with_key(self, relation: Relation, tree: exp.Expr, name: str) -> tuple[Relation, str]:
        """The relation with an operand of an as-of join as a column, and what that is called."""
        at = at_of(unparenthesised(tree))
        if at is not None and not at.fields:
            return relation, relation.names[at.item, at.name]
        if self.windowed:
            raise self.source.error(
                "the key of an as-of join under a window is a column",
                tree,
                "make it one in a query in FROM",
            )
        name = self._free(name)
        return relation.with_column(name, text(tree, relation)), name

    def _free(self, name: str) -> str:
        """A name that no column has."""
        taken = {known.lower() for known in self.names.values()}
        while name in taken:
            name += "_"
        return name

    def _asof_outer(
        self, state: State, step: Step, left: Relation, right: Relation, own: list[exp.Expr]
    ) -> State:
        """ASOF RIGHT or FULL: the matches with a number of their right rows, and all of those."""
        if any(is_streaming(relation.table) for relation in (left, right)):
            raise self.source.error_at(
                r"\basof\b.*?\bjoin\b",
                f"ASOF {step.how.upper()} JOIN of a stream is not supported",
                "swap the tables",
            )
        number = self._free(f"_number_{step.at}")
        right = Relation(_numbered(right.table, number), right.names, right.words)
        asof_how = "inner" if step.how == "right" else "left"
        texts = [text(tree, left, right) for tree in own]
        keyed_left, keyed_right, near = self._keyed(step, left, right)
        assert step.asof is not None
        texts.append(step.asof.compared(*near.key) or "")
        spec = JoinSpec.of([t for t in texts if t], asof_how, nearest=near)
        columns = {new: new for new in left.names.values()} | {number: number}
        matches = self.rewriter.add(Join(keyed_left, keyed_right, spec, columns))
        every = self.rewriter.add(right.table)
        called, other = (exp.TableAlias(this=exp.to_identifier(name)) for name in (matches, every))
        on = exp.EQ(
            this=exp.column(number, matches, quoted=True),
            expression=exp.column(number, every, quoted=True),
        )
        join = exp.Join(
            this=exp.Table(this=exp.to_identifier(every), alias=other),
            side=step.how.upper(),
            on=on,
        )
        shown = {key: (matches, new) for key, new in left.names.items()}
        shown |= {key: (every, new) for key, new in right.names.items()}
        outputs = [
            renamed(exp.column(new, table, quoted=True), new) for table, new in shown.values()
        ]
        inner = exp.Select(
            expressions=outputs,
            from_=exp.From(this=exp.Table(this=exp.to_identifier(matches), alias=called)),
            joins=[join],
        )
        name = f"{matches}_outer"
        alias = exp.TableAlias(this=exp.to_identifier(name))
        start = exp.Subquery(this=inner, alias=alias)
        names = {key: new for key, (_, new) in shown.items()}
        return State(start, list(state.places), names=names)

    def _ranked(self, state: State, step: Step, left: Relation) -> State:
        """NEAREST BY something that is no distance of two keys: the engine ranks all pairs."""
        asof = step.asof
        assert asof is not None
        assert asof.general is not None
        if is_spark(left.table):
            raise self.source.error(
                "NEAREST BY on Spark goes by the distance of a column of each side",
                asof.general,
                "write BY DISTANCE abs(a.x - b.x)",
            )
        frame, item = self.frame, self.frame.items[step.at]
        name = self.rewriter.add(left.table)
        start = exp.Table(
            this=exp.to_identifier(name), alias=exp.TableAlias(this=exp.to_identifier(name))
        )
        names = dict(left.names)
        rank = asof.general.copy()
        root = exp.Paren(this=rank)
        for column in columns_of(root, frame):
            at = at_of(column)
            assert at is not None
            column.replace(shown_as(frame, at, names, name))
        node = item.node.copy()
        self.rewriter.name_item(Item(node, item.names), frame)
        inner = exp.Select(
            expressions=[exp.Star()],
            from_=exp.From(this=node),
            where=exp.Where(this=exp.Not(this=exp.Is(this=root.copy(), expression=exp.Null()))),
            order=exp.Order(
                expressions=[
                    exp.Ordered(
                        this=root.copy(), desc=asof.descending, nulls_first=not asof.descending
                    )
                ]
            ),
            limit=exp.Limit(expression=exp.Literal.number(asof.k)),
        )
        alias = exp.TableAlias(this=exp.to_identifier(item.name, quoted=True))
        lateral = exp.Lateral(this=exp.Subquery(this=inner), alias=alias)
        join = exp.Join(this=lateral, side="LEFT" if step.how == "left" else None, on=exp.true())
        return State(start, list(state.places), [join], names=names)

    # Rows

    def _needed(self, places: set[int], more: Iterable[exp.Expr]) -> list[tuple[int, str]]:
        """The columns that are named where the joins so far have not been; all, or at places."""
        select = self.frame.select
        trees = [
            *more,
            *(
                part
                for key, value in select.args.items()
                if key not in ("from_", "joins", "where", "with_")
                for part in (value if isinstance(value, list) else [value])
                if isinstance(part, exp.Expr)
            ),
        ]
        trees += [tree for where in self._places.values() for c in where.values() for tree in c]
        for step in self._later:
            trees += [*step.on, step.join.this]
            trees += [] if step.asof is None else step.asof.operands
        found = dict.fromkeys(
            (at.item, at.name)
            for tree in trees
            for at in map(at_of, columns_of(tree, self.frame))
            if at is not None and (not places or at.item in places)
        )
        return list(found)

    def _relation(self, state: State, more: list[exp.Expr], step: Step) -> Relation:
        """The columns that matter of what there is, under names that no other table has."""
        places = set(state.places)
        needed = self._needed(places, more)
        if self.windowed:
            (at,) = places
            needed = list(dict.fromkeys([*needed, *((at, n) for n in self.window.columns()[at])]))
        for key in needed:
            self.names.setdefault(key, key[1])
        first, item = state.places[0], self.frame.items[state.places[0]]
        plain = not state.joins and not state.where and not state.names
        if not needed:
            known = list(item.columns or ()) or ["1"]
            key = next((k for k in state.names), (first, known[0]))
            self.names.setdefault(key, f"{item.name}_{key[1]}")
            needed = [key]
        names = {key: self.names[key] for key in needed}
        if plain and state.start is item.node and item.table is not None:
            table = self.tables.of(item.table)[0]
            chosen = select_columns(table, {name: new for (_, name), new in names.items()})
            return Relation(chosen, names, self.words)
        if state.join is not None and not state.joins and not state.where:
            self.rewriter.joins.pop(state.start.name)
            join = state.join
            chosen = join.table()
            return Relation(
                select_columns(chosen, {new: new for new in names.values()}), names, self.words
            )
        return Relation(self._run(state, names), names, self.words)

    def _run(self, state: State, names: dict[tuple[int, str], str]) -> Any:
        """Rows of what there is, from the engine."""
        frame = self.frame
        if state.start is frame.items[state.places[0]].node:
            self.rewriter.name_item(frame.items[state.places[0]], frame)
        outputs = [renamed(frame.column(At(frame.number, *key)), new) for key, new in names.items()]
        query = exp.Select(
            expressions=outputs,
            from_=exp.From(this=state.start.copy()),
            joins=[join.copy() for join in state.joins],
        )
        if state.where:
            query.set("where", exp.Where(this=exp.and_(*state.where)))
        for column in columns_of(query, frame):
            at = at_of(column)
            assert at is not None
            column.replace(shown_as(frame, at, state.names, self._core(state)))
        query.set("with_", self.rewriter.ctes_around(frame.select))
        return self.rewriter.engine.table(query)


def _numbered(table: Any, name: str) -> Any:
    """A table with a column that numbers its rows."""
    if not is_spark(table):
        return table.append_column(name, pa.array(range(table.num_rows), pa.int64()))
    from thetajoin.spark.row_order import add_numbers

    return add_numbers(table, name)
