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
from thetajoin.query.frames import (
    Frame,
    at_of,
    is_aggregate,
    is_output,
    keys_of,
    unparenthesised,
)
from thetajoin.query.join import Join, Relation, bound, check_truth, text

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
    group, distinct = select.args.get("group"), select.args.get("distinct")
    nodes = [node for part in _parts(select) for node in part.walk()]
    calls = [node for node in nodes if _is_total(node)]
    if not (group or calls) or not all(map(_is_plain, nodes)):
        return None
    if (group and not _is_plain_group(group)) or (distinct and distinct.args.get("on")):
        return None
    groups = [_ordinal(item, frame).copy() for item in (group.expressions if group else ())]
    arguments = [a for call in calls for a in call.expressions if isinstance(a, exp.Column)]
    made = _Groups(source, frame, left, right)
    if not all(map(made.is_ours, groups)) or any(map(made.is_nested, [*groups, *arguments])):
        return None
    # Rows without a match must count for nothing, so that the call's totals are SQL's.
    theirs = [len(c.expressions) == 1 and made.is_of(c.expressions[0], at) for c in calls]
    if spec.how == "left" and not (
        all(theirs) and not any(key[0] == at for key in keys_of(frame, *groups))
    ):
        return None
    made.names = {made.text(tree): f"g{n}" for n, tree in enumerate(groups)}
    made.replace_all()
    aggs = {name: call for call, name in made.totals.items()} or {"a0": "count(*)"}
    group_by = {f"g{n}": made.text(tree) for n, tree in enumerate(groups)}
    columns = {name: name for name in (*group_by, *aggs)}
    return Join(left, right, replace(spec, group_by=group_by, aggs=aggs), columns, settings)


class _Groups:
    """A SELECT in which groups and totals become columns.

    names: of groups, by their text. totals: names of the calls, by theirs.
    """

    def __init__(self, source: Source, frame: Frame, left: Relation, right: Relation) -> None:
        self.source, self.frame, self.relations = source, frame, (left, right)
        self.names: dict[str, str] = {}
        self.totals: dict[str, str] = {}

    def text(self, tree: exp.Expr) -> str:
        """An expression as the API takes it."""
        return text(tree, *self.relations)

    def is_of(self, tree: exp.Expr, at: int) -> bool:
        """Whether an expression is a column of what stands at a place."""
        return isinstance(tree, exp.Column) and [k[0] for k in keys_of(self.frame, tree)] == [at]

    def is_ours(self, node: exp.Expr) -> bool:
        """Whether a node is an expression over the tables' columns, and nothing more."""
        if not isinstance(node, exp.Condition) or isinstance(node, exp.Window):
            return False
        columns = list(node.find_all(exp.Column))
        plain = not any(map(_is_total, node.walk()))
        return plain and bool(columns) and all(at_of(c) is not None for c in columns)

    def is_nested(self, tree: exp.Expr) -> bool:
        """Whether an expression gives structs, lists or maps."""
        try:
            return bool(pa.types.is_nested(bound(self.source, tree, *self.relations).type))
        except ConditionError:
            return False

    def replace_all(self) -> None:
        """Put columns of the call's result in the place of groups and totals."""
        select = self.frame.select
        select.set("group", None)
        for key in ("having", "qualify"):  # which may not name outputs
            clause = select.args.get(key)
            for column in list(clause.find_all(exp.Column)) if clause else ():
                if is_output(column, self.frame):
                    column.replace(self.frame.shown[column.name.lower()].unalias().copy())
        having = select.args.get("having")
        if having is not None:
            self._check_truth(unparenthesised(having.this))
        for part in list(_parts(select)):
            for node in list(part.walk(prune=self._is_done)):
                if node.parent is not None and self._is_done(node):
                    self._replace(node)
        if having is not None:
            select.set("where", exp.Where(this=having.this))
            select.set("having", None)

    def _check_truth(self, tree: exp.Expr) -> None:
        if _is_total(tree):
            count = tree.name.lower() == "count" or not tree.expressions
            argument = None if count else bound(self.source, tree.expressions[0], *self.relations)
            check_truth(self.source, tree, pa.int64() if argument is None else argument.type)

    def _is_done(self, node: exp.Expr) -> bool:
        """Whether there is nothing to look for inside a node."""
        if _is_total(node) or isinstance(node, exp.Column):
            return True
        return self.is_ours(node) and self.text(node) in self.names

    def _replace(self, node: exp.Expr) -> None:
        if _is_total(node):
            name = self.totals.setdefault(self.text(node), f"a{len(self.totals)}")
        elif self.is_ours(node) and self.text(node) in self.names:
            name = self.names[self.text(node)]
        elif at_of(node) is None:
            return
        else:
            raise self.source.error("a column outside of an aggregate must be in GROUP BY", node)
        column = exp.column(name, quoted=True)
        column.meta["total"] = name  # of the call's result, which has no name yet
        node.replace(column)


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
