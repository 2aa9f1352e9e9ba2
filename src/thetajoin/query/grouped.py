"""Aggregates that the join itself computes, for a SELECT whose other clauses are an engine's."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from thetajoin.query.beyond import is_known, is_plain_group
from thetajoin.query.columns import Columns, Names
from thetajoin.query.tree import Query, is_aggregate, ordinal

_CLAUSES = ("having", "qualify", "order", "windows")


def grouped_outside(
    tree: exp.Select, query: Query, scope: Columns, names: Names, alias: str
) -> exp.Select | None:
    """The SELECT over groups and totals that the join gives, or None if it cannot give them.

    Then no pairs are listed, and HAVING, QUALIFY, window functions and ORDER BY are of the groups.
    alias: what the SELECT calls the join's rows. The query is given groups and outputs.
    """
    group = tree.args.get("group")
    nodes = [node for part in _parts(tree) for node in part.walk()]
    if not (group or any(map(_is_total, nodes))) or not all(map(_is_plain, nodes)):
        return None
    if group is not None and not is_plain_group(group):
        return None
    if tree.args.get("distinct") is not None and tree.args["distinct"].args.get("on"):
        return None
    return _Groups(tree.copy(), query, scope, names, alias).tree


class _Groups:
    """A SELECT in which groups and totals are columns."""

    def __init__(
        self, tree: exp.Select, query: Query, scope: Columns, names: Names, alias: str
    ) -> None:
        self.tree, self.query = tree, query
        self.scope, self.names, self.alias = scope, names, alias
        group = tree.args.get("group")
        groups = [] if group is None else group.expressions
        query.groups = [ordinal(query.source, item, tree).copy() for item in groups]
        self.groups = {self._text(item): f"g{at}" for at, item in enumerate(query.groups)}
        self.totals: dict[str, tuple[str, exp.Expr]] = {}
        self.shown = {item.alias.lower(): item.this.copy() for item in tree.expressions}
        tree.set("group", None)
        for key in ("having", "qualify"):
            if tree.args.get(key) is not None:
                self._without_aliases(tree.args[key])
        for part in _parts(tree):
            self._replace(part)
        having = tree.args.get("having")
        if having is not None:
            tree.set("where", exp.Where(this=having.this))
            tree.set("having", None)
        query.outputs = [*zip(self.groups.values(), query.groups, strict=False)]
        query.outputs += self.totals.values()
        if not self.totals:
            count = exp.Anonymous(this="count", expressions=[exp.Star()])
            query.outputs.append(("a0", count))

    def _text(self, tree: exp.Expr) -> str:
        return self.scope.text(tree, self.names)

    def _without_aliases(self, clause: exp.Expr) -> None:
        """What outputs' names stand for, where a clause of SQL may not name them."""
        for column in list(clause.find_all(exp.Column)):
            name = column.name.lower()
            if not column.table and name in self.shown and not self.scope.owns(column):
                column.replace(self.shown[name].copy())

    def _replace(self, part: exp.Expr) -> None:
        """Put columns of the join's rows in the place of groups and totals."""
        for node in list(part.walk(prune=self._is_done)):
            if node.parent is None or not self._is_done(node):
                continue
            if _is_total(node):
                node.replace(self._total(node))
                continue
            group = self.groups.get(self._text(node)) if self._is_ours(node) else None
            if group is not None:
                node.replace(self._column(group))
            elif isinstance(node, exp.Column):
                own = not node.table and node.name.lower() in self.shown
                if own and part.find_ancestor(exp.Select) is self.tree and _is_order(part):
                    continue
                raise self.query.source.error(
                    "a column outside of an aggregate must be in GROUP BY", node
                )

    def _is_done(self, node: exp.Expr) -> bool:
        """Whether there is nothing to look for inside a node."""
        if _is_total(node) or isinstance(node, exp.Column):
            return True
        return self._is_ours(node) and self._text(node) in self.groups

    def _is_ours(self, node: exp.Expr) -> bool:
        """Whether a node is an expression over the tables' columns, and nothing more."""
        if not isinstance(node, exp.Condition) or isinstance(node, exp.Window):
            return False
        columns = list(node.find_all(exp.Column))
        plain = not any(map(_is_total, node.walk()))
        return plain and bool(columns) and all(map(self.scope.owns, columns))

    def _total(self, node: exp.Expr) -> exp.Expr:
        text = self._text(node)
        if text not in self.totals:
            self.totals[text] = f"a{len(self.totals)}", node.copy()
        return self._column(self.totals[text][0])

    def _column(self, name: str) -> exp.Expr:
        return exp.column(name, self.alias, quoted=True)


def _parts(tree: exp.Select) -> Iterator[exp.Expr]:
    yield from tree.expressions
    for key in _CLAUSES:
        clause = tree.args.get(key)
        yield from clause if isinstance(clause, list) else [clause] if clause is not None else []


def _is_order(part: exp.Expr) -> bool:
    return isinstance(part, exp.Order)


def _is_total(node: exp.Expr) -> bool:
    """Whether a node is an aggregate over a group, and not one over a window."""
    over = isinstance(node.parent, exp.Window) and node.arg_key == "this"
    return is_aggregate(node) and not over


def _is_plain(node: exp.Expr) -> bool:
    """Whether a node is nothing that lists of pairs are needed for."""
    if isinstance(node, exp.Query | exp.Filter | exp.Distinct):
        return False
    if isinstance(node, exp.Star):
        return is_aggregate(node.parent) if node.parent is not None else False
    if not isinstance(node, exp.Anonymous):
        return True
    return (isinstance(node.parent, exp.Window) and node.arg_key == "this") or is_known(node)
