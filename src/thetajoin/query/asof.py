"""As-of joins and NEAREST BY: what says which rows are nearest, among a join's conditions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from thetajoin.engine.nearest import Nearest
from thetajoin.errors import ConditionError
from thetajoin.predicate.parse import Source
from thetajoin.predicate.render import backquote
from thetajoin.query.frames import Frame, Step, about, keys_of, unparenthesised

Order = Literal[">", ">=", "<", "<="]
# Comparisons that a key may be in, and how they read from the other side.
_ORDERED: dict[type[exp.Expr], tuple[Order, Order]] = {
    exp.GT: (">", "<"),
    exp.GTE: (">=", "<="),
    exp.LT: ("<", ">"),
    exp.LTE: ("<=", ">="),
}
_FORM = "write it like ON a.k = b.k AND a.ts >= b.ts"


@dataclass(frozen=True)
class AsOf:
    """What an as-of join goes by: the greatest right key up to the left one, or the least from it.

    left, op, right: the comparison that says so, turned to have the table's own operand on the
    right; without an op it is the `k` nearest on either side. rest: what else a pair must satisfy.
    general: instead of keys, what the engine ranks all pairs by.
    """

    left: exp.Expr
    op: Order | None
    right: exp.Expr
    rest: list[exp.Expr]
    k: int = 1
    general: exp.Expr | None = None
    descending: bool = False

    @property
    def operands(self) -> list[exp.Expr]:
        """The expressions that it goes by."""
        return [self.left, self.right] if self.general is None else [self.general]

    def compared(self, left: str, right: str) -> str | None:
        """The comparison between the columns of these names, as a condition."""
        if self.op is None:
            return None
        return f"l.{backquote(left)} {self.op} r.{backquote(right)}"

    def spec(self, key: tuple[str, str], order_by: str | None) -> Nearest:
        """The same for the API."""
        if self.op is None:
            return Nearest(key, "nearest", k=self.k, order_by=order_by)
        direction: Literal["backward", "forward"] = (
            "backward" if self.op in (">", ">=") else "forward"
        )
        return Nearest(key, direction, order_by=order_by)


def read_asof(
    source: Source, frame: Frame, at: int, on: list[exp.Expr], match: exp.Expr | None
) -> AsOf:
    """The as-of join of the table at a place with those before it.

    In DuckDB's spelling the key is the comparison in ON that is neither `=` nor `!=`, or the last
    column of USING; in Spark's it is MATCH_CONDITION, and ON may say anything.
    """
    name = frame.items[at].node.alias_or_name
    if match is not None:
        match = unparenthesised(match)
        if not _is_key(match, frame, at):
            raise source.error(
                f"MATCH_CONDITION is one comparison of {name!r} with the tables before it",
                match,
                "write it like MATCH_CONDITION (a.ts >= b.ts)",
            )
        return _of(match, frame, at, on)
    keys = [tree for tree in on if _is_key(tree, frame, at)]
    # A second bound on the same columns is how far away the nearest row may be.
    others = [
        tree for tree in keys[1:] if set(keys_of(frame, tree)) != set(keys_of(frame, keys[0]))
    ]
    if not keys or others:
        raise _not_one(source, frame, name, at, [*keys[:1], *others])
    return _of(keys[0], frame, at, [tree for tree in on if tree is not keys[0]])


def read_nearest(frame: Frame, at: int, k: int, what: str, tree: exp.Expr) -> AsOf:
    """The join of NEAREST k BY DISTANCE or SIMILARITY of what stands at a place."""
    inner, similar = unparenthesised(tree), what == "SIMILARITY"
    if similar and isinstance(inner, exp.Neg):
        inner, similar = unparenthesised(inner.this), False
    if not similar and isinstance(inner, exp.Anonymous) and inner.name.lower() == "abs":
        difference = unparenthesised(inner.expressions[0]) if len(inner.expressions) == 1 else None
        if isinstance(difference, exp.Sub):
            one, other = difference.this, difference.expression
            if _is_between(one, other, frame, at):
                one, other = (other, one) if at in about(one, frame) else (one, other)
                return AsOf(one, None, other, [], k)
    return AsOf(tree, None, tree, [], k, tree, what == "SIMILARITY")


def _of(key: exp.Expr, frame: Frame, at: int, rest: list[exp.Expr]) -> AsOf:
    op, mirrored = _ORDERED[type(key)]
    if at in about(key.this, frame):
        return AsOf(key.expression, mirrored, key.this, rest)
    return AsOf(key.this, op, key.expression, rest)


def _is_key(tree: exp.Expr, frame: Frame, at: int) -> bool:
    """Whether a condition is an order between a table and those before it."""
    return type(tree) in _ORDERED and _is_between(tree.this, tree.expression, frame, at)


def _is_between(one: exp.Expr, other: exp.Expr, frame: Frame, at: int) -> bool:
    """Whether one of two expressions is about a table, and the other about those before it."""
    if one.find(exp.Query, exp.Window) or other.find(exp.Query, exp.Window):
        return False
    mine, rest = about(one, frame), about(other, frame)
    if mine != {at}:
        mine, rest = rest, mine
    return mine == {at} and bool(rest) and at not in rest


def _not_one(
    source: Source, frame: Frame, name: str, at: int, keys: list[exp.Expr]
) -> ConditionError:
    if keys:
        return source.error(
            f"ASOF JOIN {name} has {len(keys)} comparisons of order, and goes by one",
            keys[1],
            "name it in MATCH_CONDITION (a.ts >= b.ts) before ON",
        )
    problem = f"ASOF JOIN {name} needs a comparison with <, <=, > or >= that says what is near"
    return source.error_at(r"\basof\b.*?\bjoin\b", problem, _FORM)


def rank_pairs(source: Source, frame: Frame, step: Step, *, on_spark: bool) -> None:
    """Let the engine rank all pairs, for NEAREST BY what is no distance of two keys."""
    asof, item = step.asof, frame.items[step.at]
    assert asof is not None
    rank = asof.general
    assert rank is not None
    if on_spark:
        raise source.error(
            "NEAREST BY on Spark goes by the distance of a column of each side",
            rank,
            "write BY DISTANCE abs(a.x - b.x)",
        )
    down = asof.descending
    inner = exp.Select(
        expressions=[exp.Star()],
        from_=exp.From(this=item.node),
        where=exp.Where(this=exp.Not(this=exp.Is(this=exp.paren(rank), expression=exp.Null()))),
        order=exp.Order(expressions=[exp.Ordered(this=rank, desc=down, nulls_first=not down)]),
        limit=exp.Limit(expression=exp.Literal.number(asof.k)),
    )
    alias = exp.TableAlias(this=exp.to_identifier(item.name, quoted=True))
    lateral = exp.Lateral(this=exp.Subquery(this=inner), alias=alias)
    side = "LEFT" if step.how == "left" else None
    step.join = exp.Join(this=lateral, side=side, on=exp.true())
    step.asof, step.ours = None, False
