"""As-of joins: the one comparison that says what is nearest, among a join's conditions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from thetajoin.errors import ConditionError
from thetajoin.predicate.render import backquoted
from thetajoin.query.columns import Columns
from thetajoin.query.tree import TableRef, conjuncts

Order = Literal[">", ">=", "<", "<="]
# Comparisons that a key may be in, and how they read from the other side.
_ORDERED: dict[type[exp.Expr], tuple[Order, Order]] = {
    exp.GT: (">", "<"),
    exp.GTE: (">=", "<="),
    exp.LT: ("<", ">"),
    exp.LTE: ("<=", ">="),
}
_NOT_BEFORE = "is the table that is joined: USING names columns that those before it have, too"
_FORM = "write it like ON a.k = b.k AND a.ts >= b.ts"


@dataclass(frozen=True)
class AsOf:
    """What an as-of join goes by: the greatest right key up to the left one, or the least from it.

    left, op, right: the comparison that says so, turned to have the table's own operand on the
    right. rest: what else a pair must satisfy.
    """

    left: exp.Expr
    op: Order
    right: exp.Expr
    rest: list[exp.Expr]

    @property
    def direction(self) -> Literal["backward", "forward"]:
        """Where the nearest row is looked for, from the left row."""
        return "backward" if self.op in (">", ">=") else "forward"

    def compared(self, left: str, right: str) -> str:
        """The comparison between the columns of these names, as a condition."""
        return f"l.{backquoted(left)} {self.op} r.{backquoted(right)}"


def read_asof(ref: TableRef, scope: Columns) -> AsOf:
    """The as-of join of a table with those before it, of which `scope` has the columns.

    In DuckDB's spelling the key is the comparison in ON that is neither `=` nor `!=`, or the last
    column of USING; in Snowflake's it is MATCH_CONDITION, and ON may say anything.
    """
    alias = ref.alias.lower()
    conditions = _using(ref, scope) if ref.using else conjuncts(ref.on)
    if ref.match is not None:
        match = ref.match.unnest()
        if not _is_key(match, scope, alias):
            raise scope.source.error(
                f"MATCH_CONDITION is one comparison of {ref.alias!r} with the tables before it",
                match,
                "write it like MATCH_CONDITION (a.ts >= b.ts)",
            )
        return _of(match, scope, alias, conditions)
    keys = [tree for tree in conditions if _is_key(tree, scope, alias)]
    if len(keys) != 1:
        raise _not_one(ref, scope, keys)
    return _of(keys[0], scope, alias, [tree for tree in conditions if tree is not keys[0]])


def _of(key: exp.Expr, scope: Columns, alias: str, rest: list[exp.Expr]) -> AsOf:
    op, mirrored = _ORDERED[type(key)]
    if scope.tables(key.this) == {alias}:
        return AsOf(key.expression, mirrored, key.this, rest)
    return AsOf(key.this, op, key.expression, rest)


def _is_key(tree: exp.Expr, scope: Columns, alias: str) -> bool:
    """Whether a condition is an order between a table and those before it."""
    if type(tree) not in _ORDERED:
        return False
    mine, other = scope.tables(tree.this), scope.tables(tree.expression)
    if mine != {alias}:
        mine, other = other, mine
    return mine == {alias} and bool(other) and alias not in other


def _not_one(ref: TableRef, scope: Columns, keys: list[exp.Expr]) -> ConditionError:
    if keys:
        return scope.source.error(
            f"ASOF JOIN {ref.alias} has {len(keys)} comparisons of order, and goes by one",
            keys[1],
            "name it in MATCH_CONDITION (a.ts >= b.ts) before ON",
        )
    problem = f"ASOF JOIN {ref.alias} needs a comparison with <, <=, > or >= that says what is near"
    return scope.source.error_at(r"\basof\b.*?\bjoin\b", problem, _FORM)


def _using(ref: TableRef, scope: Columns) -> list[exp.Expr]:
    """The conditions that USING stands for; without MATCH_CONDITION the last is the key."""
    alias = ref.alias.lower()
    before = scope.hiding({**scope.hidden, alias: _NOT_BEFORE})
    found: list[exp.Expr] = []
    for at, name in enumerate(ref.using, 1):
        owner, real = before.of(exp.Column(this=name.copy()))
        left = exp.column(real, owner, quoted=True)
        right = exp.Column(this=name.copy(), table=exp.to_identifier(alias, quoted=True))
        last = at == len(ref.using) and ref.match is None
        found.append((exp.GTE if last else exp.EQ)(this=left, expression=right))
    return found
