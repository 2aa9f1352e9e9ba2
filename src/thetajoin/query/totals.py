"""Aggregates that the join itself computes, so that no pairs are listed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from thetajoin.engine.spec import JoinSpec
from thetajoin.errors import ConditionError
from thetajoin.predicate.functions import FUNCTIONS
from thetajoin.predicate.literals import TYPE_FUNCTIONS
from thetajoin.predicate.parse import Source
from thetajoin.predicate.types import BOOL, NULL, type_name
from thetajoin.query.frames import Frame, at_of, is_aggregate, is_output, unparenthesised
from thetajoin.query.join import Join, Relation, bound, text

_CLAUSES = ("having", "qualify", "order", "windows")


def over_totals(
    source: Source,
    frame: Frame,
    left: Relation,
    right: Relation,
    spec: JoinSpec,
    at: int,
    settings: Any,
) -> Join | None:
    """The call that gives groups and totals, and the SELECT made one over them; None if it cannot.

    Then HAVING, QUALIFY, window functions and ORDER BY are of the groups. at: the place of the
    right side in FROM.
    """
    select = frame.select
    group = select.args.get("group")
    nodes = [node for part in _parts(select) for node in part.walk()]
    if not (group or any(map(_is_total, nodes))) or not all(map(_is_plain, nodes)):
        return None
    distinct = select.args.get("distinct")
    if (group is not None and not _is_plain_group(group)) or (
        distinct is not None and distinct.args.get("on")
    ):
        return None
    groups = _Groups(source, frame, left, right)
    if not groups.possible or (spec.how == "left" and not groups.only_matches(at)):
        return None
    names = groups.replace_all()
    group_by = dict(zip(names, groups.texts, strict=False))
    aggs = {name: call for call, name in groups.totals.items()} or {"a0": "count(*)"}
    columns = {name: name for name in (*group_by, *aggs)}
    spec = replace(spec, group_by=group_by, aggs=aggs)
    return Join(left, right, spec, columns, settings)


class _Groups:
    """A SELECT in which groups and totals become columns."""

    def __init__(self, source: Source, frame: Frame, left: Relation, right: Relation) -> None:
        self.source, self.frame, self.select = source, frame, frame.select
        self.relations = left, right
        group = self.select.args.get("group")
        items = [] if group is None else group.expressions
        self.groups = [_ordinal(item, frame).copy() for item in items]
        self.possible = all(map(self._is_ours, self.groups)) and not any(
            self._is_nested(tree) for tree in [*self.groups, *self._arguments()]
        )
        self.texts = [self._text(tree) for tree in self.groups] if self.possible else []
        self.totals: dict[str, str] = {}

    def only_matches(self, at: int) -> bool:
        """Whether rows without a match count for nothing, so that the call's totals are SQL's."""
        by_right = any(self._places(group) & {at} for group in self.groups)
        plain = all(
            len(call.expressions) == 1
            and isinstance(call.expressions[0], exp.Column)
            and self._places(call.expressions[0]) == {at}
            for call in self._calls()
        )
        return plain and not by_right

    def replace_all(self) -> list[str]:
        """Put columns of the call's result in the place of groups and totals; the groups' names."""
        select = self.select
        names = [f"g{at}" for at, _ in enumerate(self.groups)]
        self.names = dict(zip(self.texts, names, strict=True))
        select.set("group", None)
        for key in ("having", "qualify", "order"):
            if select.args.get(key) is not None:
                self._without_aliases(select.args[key], key)
        for part in list(_parts(select)):
            self._replace(part)
        having = select.args.get("having")
        if having is not None:
            select.set("where", exp.Where(this=having.this))
            select.set("having", None)
        return names

    def _places(self, tree: exp.Expr) -> set[int]:
        found = [at_of(column) for column in tree.find_all(exp.Column)]
        return {at.item for at in found if at is not None}

    def _calls(self) -> list[exp.Expr]:
        return [n for part in _parts(self.select) for n in part.walk() if _is_total(n)]

    def _arguments(self) -> list[exp.Expr]:
        return [a for call in self._calls() for a in call.expressions if isinstance(a, exp.Column)]

    def _is_nested(self, tree: exp.Expr) -> bool:
        try:
            return bool(pa.types.is_nested(bound(self.source, tree, *self.relations).type))
        except ConditionError:
            return False

    def _text(self, tree: exp.Expr) -> str:
        return text(tree, *self.relations)

    def _without_aliases(self, clause: exp.Expr, key: str) -> None:
        """What outputs' names stand for, where a clause of SQL may not name them."""
        for column in list(clause.find_all(exp.Column)):
            if is_output(column, self.frame) and key != "order":
                column.replace(self.frame.shown[column.name.lower()].unalias().copy())
        if key == "having":
            for tree in [clause.this] if not isinstance(clause.this, exp.And) else []:
                self._check_truth(unparenthesised(tree))

    def _check_truth(self, tree: exp.Expr) -> None:
        if not _is_total(tree):
            return
        type_: Any = pa.int64()
        if tree.name.lower() != "count" and tree.expressions:
            type_ = bound(self.source, tree.expressions[0], *self.relations).type
        if type_ not in (BOOL, NULL):
            problem = f"a condition must be true or false, not {type_name(type_)}"
            raise self.source.error(problem, tree, "compare it with something")

    def _replace(self, part: exp.Expr) -> None:
        for node in list(part.walk(prune=self._is_done)):
            if node.parent is None or not self._is_done(node):
                continue
            if _is_total(node):
                node.replace(self._total(node))
                continue
            name = self.names.get(self._text(node)) if self._is_ours(node) else None
            if name is not None:
                node.replace(_column(name))
            elif isinstance(node, exp.Column) and at_of(node) is not None:
                raise self.source.error(
                    "a column outside of an aggregate must be in GROUP BY", node
                )

    def _is_done(self, node: exp.Expr) -> bool:
        """Whether there is nothing to look for inside a node."""
        if _is_total(node) or isinstance(node, exp.Column):
            return True
        return self._is_ours(node) and self._text(node) in self.names

    def _is_ours(self, node: exp.Expr) -> bool:
        """Whether a node is an expression over the tables' columns, and nothing more."""
        if not isinstance(node, exp.Condition) or isinstance(node, exp.Window):
            return False
        columns = list(node.find_all(exp.Column))
        plain = not any(map(_is_total, node.walk()))
        return plain and bool(columns) and all(at_of(c) is not None for c in columns)

    def _total(self, node: exp.Expr) -> exp.Expr:
        call = self._text(node)
        return _column(self.totals.setdefault(call, f"a{len(self.totals)}"))


def _column(name: str) -> exp.Expr:
    """A column of the call's result, which has no name yet."""
    column = exp.column(name, quoted=True)
    column.meta["total"] = name
    return column


def _ordinal(item: exp.Expr, frame: Frame) -> exp.Expr:
    """A group by position or by an output's name is that output's expression."""
    outputs = frame.select.expressions
    if isinstance(item, exp.Literal) and not item.is_string:
        chosen: exp.Expr = outputs[int(item.name) - 1].unalias()
        return chosen
    if isinstance(item, exp.Column) and is_output(item, frame):
        named: exp.Expr = frame.shown[item.name.lower()].unalias()
        return named
    return item


def _is_plain_group(group: exp.Group) -> bool:
    """Whether GROUP BY has expressions only, and makes one row of each group."""
    said = {key for key, value in group.args.items() if value}
    several = (exp.Rollup, exp.Cube, exp.GroupingSets)
    return said == {"expressions"} and not any(isinstance(e, several) for e in group.expressions)


def _parts(select: exp.Select) -> Iterator[exp.Expr]:
    yield from select.expressions
    for key in _CLAUSES:
        clause = select.args.get(key)
        yield from clause if isinstance(clause, list) else [clause] if clause is not None else []


def _is_total(node: exp.Expr) -> bool:
    """Whether a node is an aggregate over a group, and not one over a window."""
    over = isinstance(node.parent, exp.Window) and node.arg_key == "this"
    return is_aggregate(node) and not over


def _is_plain(node: exp.Expr) -> bool:
    """Whether a node is nothing that lists of pairs are needed for."""
    if isinstance(node, exp.Query | exp.Filter | exp.Distinct):
        return False
    if isinstance(node, exp.Star):
        return node.parent is not None and is_aggregate(node.parent)
    if not isinstance(node, exp.Anonymous):
        return True
    if isinstance(node.parent, exp.Window) and node.arg_key == "this":
        return True
    if is_aggregate(node):
        odd = any(isinstance(part, exp.Distinct | exp.Order) for part in node.expressions)
        return not odd or node.name.lower() in ("min", "max")
    return node.name.lower() in FUNCTIONS or node.name.lower() in TYPE_FUNCTIONS
