"""The joins of one FROM: those that are ours are taken out, and the rest reads their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from thetajoin.api import is_spark
from thetajoin.engine.spec import JoinSpec
from thetajoin.errors import ConditionError
from thetajoin.predicate.parse import Source
from thetajoin.query.asof import rank_pairs, read_asof, read_nearest
from thetajoin.query.frames import (
    LEFT_AS_IT_IS,
    At,
    Frame,
    Key,
    Step,
    about,
    at_of,
    columns_of,
    conjuncts,
    has_inequality,
    is_aggregate,
    is_alone,
    is_ours,
    keys_of,
    place,
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
    is_streaming,
    select_columns,
    text,
)
from thetajoin.query.totals import over_totals
from thetajoin.query.windows import QueryWindow, read_window

if TYPE_CHECKING:
    from thetajoin.query.rewrite import Rewriter


_HOWS = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}


@dataclass
class State:
    """What there is of a FROM so far: what to read it from, and the columns of the joins in that.

    places: of the items in it. names: where columns are now that were taken out, by table and name.
    where: conditions that must still hold.
    """

    start: exp.Expr
    places: list[int]
    joins: list[exp.Join] = field(default_factory=list)
    where: list[exp.Expr] = field(default_factory=list)
    names: Mapping[Key, tuple[str, str]] = field(default_factory=dict)
    join: Join | None = None


class Chain:
    """The joins of one FROM, of which some are ours."""

    def __init__(self, rewriter: Rewriter, frame: Frame, steps: list[Step]) -> None:
        self.rewriter, self.frame, self.steps = rewriter, frame, steps
        self.source, self.tables = rewriter.source, rewriter.tables
        self.windowed = rewriter.windowed
        self.window = QueryWindow()
        if self.windowed:
            self.window = read_window(frame, rewriter.clause, rewriter.window)
        self.words = {at: item.name for at, item in enumerate(frame.items)}
        for step in steps:
            if step.asof is not None and step.asof.general is not None:
                rank_pairs(self.source, frame, step, on_spark=rewriter.on_spark)
        self.names = self._unique()
        where = frame.select.args.get("where")
        self.where = conjuncts(where.this) if where is not None else []
        # From here on the SELECT has what comes after the joins.
        for clause in ("from_", "joins", "where"):
            frame.select.set(clause, None)
        self._later: Sequence[Step] = steps
        self._places: dict[str, dict[int, list[exp.Expr]]] = {}

    def _unique(self) -> dict[Key, str]:
        """A name for each column that no other has: its own if no other table has it."""
        items = self.frame.items
        every = [name.lower() for item in items for name in (item.columns or {})]
        names: dict[Key, str] = {}
        taken: set[str] = set()
        trees = [self.frame.select, *(tree for step in self.steps for tree in step.trees)]
        for key in keys_of(self.frame, *trees):
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
        if len(known) == len(frame.items):
            shown = [
                Relation(table, {(at, name): name for name in table.schema.names}, self.words)
                for at, table in enumerate(known)
            ]
            for tree in self.where:
                self._check_truth(tree, *shown)
        self._reorder()
        self._places = self._placed()
        state = State(frame.items[0].node, [0], where=self._taken("joined", 0))
        for number, step in enumerate(self.steps):
            self._later = self.steps[number + 1 :]
            on, table, after = (self._taken(what, step.at) for what in ("on", "table", "joined"))
            if step.how == "inner" and step.asof is None and not self.windowed:
                step.ours = has_inequality([*step.on, *on], frame, step)
            if not step.ours:
                state.joins.append(step.join)
                state.where += on + table
            else:
                state = self._joined(state, step, on, table, after)
            state.places.append(step.at)
            state.where += after
        self._finish(state)

    def _taken(self, what: str, at: int) -> list[exp.Expr]:
        """The conditions of a place, which are applied now."""
        return self._places[what].pop(at, [])

    def _finish(self, state: State) -> None:
        select = self.frame.select
        select.set("from_", exp.From(this=state.start))
        select.set("joins", state.joins or None)
        if state.where:
            select.set("where", exp.Where(this=exp.and_(*state.where, copy=False)))
        self._show(select, state)
        for column in list(select.find_all(exp.Column)):
            if "total" in column.meta:
                name = state.start.alias_or_name
                column.replace(exp.column(column.meta["total"], name, quoted=True))

    def _show(self, tree: exp.Expr, state: State) -> None:
        """Name columns as the engine finds them."""
        for column in columns_of(tree, self.frame):
            at = at_of(column)
            assert at is not None
            column.replace(shown_as(self.frame, at, state.names))

    # Where conditions go

    @property
    def _order(self) -> list[int]:
        """The places of FROM in the order in which they are joined."""
        return [0, *(step.at for step in self.steps)]

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
            order.append((fits or left)[0])
            left.remove(order[-1])
        if order == sorted(order):
            return
        self.where = conditions
        steps = {step.at: step for step in self.steps}
        for step in self.steps:
            step.on = []
            step.join.set("on", None)
            step.join.set("kind", "CROSS")
        self.steps = [steps[at] for at in order[1:]]

    def _placed(self) -> dict[str, dict[int, list[exp.Expr]]]:
        """The conditions of WHERE by where they are applied: in ON, after a join, on a table."""
        order = self._order
        hows = ["inner", *(step.passing for step in self.steps)]
        places: dict[str, dict[int, list[exp.Expr]]] = {"on": {}, "joined": {}, "table": {}}
        for tree in self.where:
            named = about(tree, self.frame)
            if not is_alone(tree, self.frame) or not named <= set(order):  # LATERAL VIEW is last
                places["joined"].setdefault(order[-1], []).append(tree)
                continue
            numbers = {order.index(at) for at in named}
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
        frame, item, asof = self.frame, self.frame.items[step.at], step.asof
        plain = step.how == "inner" and asof is None
        own: list[exp.Expr] = []
        rest: list[exp.Expr] = []
        for tree in [*step.on, *on]:
            named, alone = about(tree, frame), is_alone(tree, frame)
            if is_ours(tree, frame):
                own.append(tree)
            elif self.windowed:
                raise self.source.error_at(
                    r"\bon\b.+",
                    "the join under the window has a condition that joins here cannot have",
                    "put it into WHERE of a query around this one",
                )
            elif not alone and not plain:
                raise self.source.error(
                    "the ON of this join names what is around the query it is in",
                    tree,
                    "put it into WHERE",
                )
            elif alone and named <= {step.at} and step.how in LEFT_AS_IT_IS and not step.turned:
                table.append(tree)
            elif alone and named <= set(state.places) and step.how in ("right", "inner"):
                state.where.append(tree)
            elif plain:
                rest.append(tree)
            else:
                raise self.source.error_at(
                    r"\bon\b.+",
                    "the ON of this join has a condition that such joins cannot have",
                    "put it into WHERE, or into a query in FROM",
                )
        more = [*own, *rest, *after, *([] if asof is None else [asof.left, asof.right])]
        left = self._relation(state, more)
        right = self._relation(State(item.node, [step.at], where=table), more)
        kept = []
        for tree in own:
            try:
                check_condition(self.source, tree, left, right)
                kept.append(tree)
            except NotOursError as problem:
                if not plain or self.windowed:
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
        start = _named(self.rewriter.add(join))
        names = {key: (start.name, new) for key, new in self.names.items() if key[0] in places}
        return State(start, places[:-1], where=rest, names=names, join=join)

    def _call(
        self, step: Step, left: Relation, right: Relation, own: list[exp.Expr], rest: list[exp.Expr]
    ) -> Join:
        """The call of the API that a join is."""
        same, suffix = self._is_self_join(), "_right"
        if same:
            left, right, suffix = self._same_rows(step, left, right)
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
            problem = f"nothing joins {self.words[step.at]!r} with the tables before it"
            raise self.source.error(problem, hint="write ON a.x < b.x, or the like in WHERE")
        spec = JoinSpec.of(
            texts or None,
            step.how,
            window,
            order_by,
            suffix,
            nearest=near,
            self_join=same,
        )
        if not self._later and not rest and not self.frame.select.args.get("laterals"):
            totals = self._totals(step, left, right, spec)
            if totals is not None:
                return totals
        shown = dict(left.names)
        if step.how not in ("semi", "anti"):
            shown |= {key: name + (suffix if same else "") for key, name in right.names.items()}
        columns = {self.names[key]: shown[key] for key in self._needed(rest) if key in shown}
        some = next(iter(left.names.values()))
        return Join(left, right, spec, columns or {some: some}, self.tables.settings)

    def _totals(self, step: Step, left: Relation, right: Relation, spec: JoinSpec) -> Join | None:
        select = self.frame.select
        totals = select.args.get("group") or any(map(is_aggregate, select.find_all(exp.Anonymous)))
        if (
            spec.nearest is not None
            and totals
            and any(is_streaming(r.table) for r in (left, right))
        ):
            raise self.source.error_at(
                r"\basof\b.*?\bjoin\b",
                "aggregates over an ASOF JOIN of a stream are not supported",
                "leave them out, and group the result (groupBy)",
            )
        if spec.nearest is not None or spec.how not in ("inner", "left"):
            return None
        settings = self.tables.settings
        return over_totals(self.source, self.frame, left, right, spec, step.at, settings)

    def _is_self_join(self) -> bool:
        """Whether this is a table with itself under a window: one stream with one order of rows."""
        tables = {item.table for item in self.frame.items}
        return self.windowed and len(tables) == 1 and None not in tables

    def _same_rows(
        self, step: Step, left: Relation, right: Relation
    ) -> tuple[Relation, Relation, str]:
        """The same rows for both sides, by their own names, and what the right ones end in."""
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
        names = {name: name for _, name in [*left.names, *right.names]}
        suffix, taken = "_right", {name.lower() for name in names}
        while any(name + suffix in taken for name in taken):
            suffix += "_"
        assert called is not None
        table = select_columns(self.tables.of(called)[0], names)
        left, right = (Relation(table, {(at, n): n for n in names}, self.words) for at in (0, 1))
        return left, right, suffix

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
            right = replace(right, table=add_order(right.table, order_by))
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
        right = replace(right, table=_numbered(right.table, number))
        texts = [text(tree, left, right) for tree in own]
        left_keyed, right_keyed, near = self._keyed(step, left, right)
        assert step.asof is not None
        texts.append(step.asof.compared(*near.key) or "")
        spec = JoinSpec.of(texts, "inner" if step.how == "right" else "left", nearest=near)
        columns = {new: new for new in [*left.names.values(), number]}
        matches = _named(self.rewriter.add(Join(left_keyed, right_keyed, spec, columns)))
        every = _named(self.rewriter.add(right.table))
        one, other = (exp.column(number, table.name, quoted=True) for table in (matches, every))
        join = exp.Join(this=every, side=step.how.upper(), on=exp.EQ(this=one, expression=other))
        names = {key: (matches.name, new) for key, new in left.names.items()}
        names |= {key: (every.name, new) for key, new in right.names.items()}
        return State(matches, list(state.places), [join], names=names)

    # Rows

    def _needed(self, more: Sequence[exp.Expr]) -> list[Key]:
        """The columns that are named where the joins so far have not been."""
        waiting = [
            tree for where in self._places.values() for one in where.values() for tree in one
        ]
        later = [tree for step in self._later for tree in step.trees]
        return keys_of(self.frame, *more, self.frame.select, *waiting, *later)

    def _relation(self, state: State, more: list[exp.Expr]) -> Relation:
        """The columns that matter of what there is, under names that no other table has."""
        needed = [key for key in self._needed(more) if key[0] in state.places]
        first, item = state.places[0], self.frame.items[state.places[0]]
        needed = list(dict.fromkeys([*needed, *((first, c[first]) for c in self.window.columns())]))
        for key in needed:
            self.names.setdefault(key, key[1])
        if not needed:
            key = next(iter(state.names), (first, next(iter(item.columns or ()), "1")))
            self.names.setdefault(key, f"{item.name}_{key[1]}")
            needed = [key]
        names = {key: self.names[key] for key in needed}
        table: Any = None
        if not state.joins and not state.where:
            if state.join is not None:
                self.rewriter.joins.pop(state.start.name)
                rows = state.join.table()
                table = select_columns(rows, {new: new for new in names.values()})
            elif state.start is item.node and item.table is not None:
                rows = self.tables.of(item.table)[0]
                table = select_columns(rows, {new: name for (_, name), new in names.items()})
        if table is None:
            table = self._run(state, names)
        return Relation(table, names, self.words)

    def _run(self, state: State, names: dict[Key, str]) -> Any:
        """Rows of what there is, from the engine."""
        frame = self.frame
        outputs = [renamed(frame.column(At(frame.number, *key)), new) for key, new in names.items()]
        query = exp.Select(
            expressions=outputs,
            from_=exp.From(this=state.start.copy()),
            joins=[join.copy() for join in state.joins],
        )
        if state.where:
            query.set("where", exp.Where(this=exp.and_(*state.where)))
        self._show(query, state)
        return self.rewriter.run(query)


def read_step(source: Source, frame: Frame, at: int, *, windowed: bool) -> Step:
    """The join of what stands at a place of a FROM."""
    join = frame.joins[at - 1]
    method, side, kind = (join.args.get(part) or "" for part in ("method", "side", "kind"))
    match = join.args.get("match_condition")
    if match is not None and method != "ASOF":
        problem = "MATCH_CONDITION is for an ASOF JOIN"
        raise source.error_at(r"\bmatch_condition\b[^)]*\)?", problem, "write it in ON")
    if (kind == "OUTER" and not side) or (kind == "CROSS" and method == "ASOF"):
        what = " ".join(str(x) for x in (method, side, kind) if x)
        raise source.error_at(rf"\b{what.split()[0]}\b.*?\bjoin\b", f"{what} JOIN is not supported")
    single = kind in ("SEMI", "ANTI")
    how = kind.lower() if single else _HOWS.get(side, "inner")
    step = Step(at, join, how, conjuncts(join.args.get("on")), turned=single and side == "RIGHT")
    if "nearest" in join.meta:
        k, what = join.meta["nearest"]
        step.asof, step.on = read_nearest(frame, at, k, what, step.on[0]), []
    elif method == "ASOF":
        step.asof = read_asof(source, frame, at, step.on, match)
        step.on = step.asof.rest
    where = frame.select.args.get("where")
    # Of an inner join, conditions of WHERE too, if they can be applied as early.
    early = conjuncts(where.this) if where is not None and step.how == "inner" else []
    closed = all(item.closed for item in frame.items[: at + 1])
    step.ours = step.asof is not None or windowed or step.turned
    step.ours = step.ours or (closed and has_inequality([*step.on, *early], frame, step))
    return step


def _named(name: str) -> exp.Table:
    """A table that the engine was given."""
    alias = exp.TableAlias(this=exp.to_identifier(name))
    return exp.Table(this=exp.to_identifier(name), alias=alias)


def _numbered(table: Any, name: str) -> Any:
    """A table with a column that numbers its rows."""
    if not is_spark(table):
        return table.append_column(name, pa.array(range(table.num_rows), pa.int64()))
    from thetajoin.spark.row_order import add_numbers

    return add_numbers(table, name)
