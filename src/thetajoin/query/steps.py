"""What the joins of a FROM are: which are ours, what is near in an as-of join, where WHERE goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
from sqlglot import exp

from thetajoin.engine.nearest import Nearest
from thetajoin.errors import ConditionError
from thetajoin.predicate.bind import HANDLERS
from thetajoin.predicate.functions import FUNCTIONS
from thetajoin.predicate.literals import TYPE_FUNCTIONS
from thetajoin.predicate.parse import Source
from thetajoin.predicate.render import backquoted
from thetajoin.query.frames import (
    Frame,
    at_of,
    conjuncts,
    is_aggregate,
    is_alone,
    keys_of,
    nodes_of,
    unparenthesised,
)

_UNEQUAL = (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NEQ, exp.Between)
COMPARED = (*_UNEQUAL, exp.EQ)
# What a condition may be made of; the rest is an engine's.
_SYNTAX = (*HANDLERS, exp.Binary, exp.Neg, exp.BitwiseNot, exp.Identifier, exp.Var)
_SYNTAX += (exp.DataType, exp.DataTypeParam, exp.IntervalSpan)
_HOWS = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}
LEFT_AS_IT_IS = ("inner", "left", "semi", "anti")
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
        return f"l.{backquoted(left)} {self.op} r.{backquoted(right)}"

    def spec(self, key: tuple[str, str], order_by: str | None) -> Nearest:
        """The same for the API."""
        if self.op is None:
            return Nearest(key, "nearest", k=self.k, order_by=order_by)
        direction: Literal["backward", "forward"] = (
            "backward" if self.op in (">", ">=") else "forward"
        )
        return Nearest(key, direction, order_by=order_by)


@dataclass
class Step:
    """A join of a FROM: the item at a place with those before it.

    turned: a RIGHT SEMI or RIGHT ANTI join, which has the columns of its right side.
    """

    at: int
    join: exp.Join
    how: str
    on: list[exp.Expr]
    asof: AsOf | None = None
    turned: bool = False
    ours: bool = False

    @property
    def trees(self) -> list[exp.Expr]:
        """What names columns in it."""
        return [*self.on, self.join.this, *(self.asof.operands if self.asof is not None else ())]

    @property
    def passing(self) -> str:
        """The kind of join that lets the same rows of its sides pass, as far as WHERE goes.

        Rows that were not there would leave an as-of join with others that are nearest then: what
        is about its right side stays above it, as with a left join.
        """
        if self.turned or (self.asof is not None and self.how in ("right", "full")):
            return "full"
        return "left" if self.asof is not None and self.how == "inner" else self.how


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


def has_inequality(on: list[exp.Expr], frame: Frame, step: Step) -> bool:
    """Whether a join compares what it joins by more than equality, in a way that is ours."""
    found = any(
        step.at in about(node, frame) and len(about(node, frame)) > 1
        for tree in on
        if is_ours(tree, frame)
        for node in unequal(tree)
    )
    before = set(range(step.at))
    return found and all(
        (step.how in ("inner", "left", "semi", "anti") and about(tree, frame) <= {step.at})
        or (step.how == "right" and is_alone(tree, frame) and about(tree, frame) <= before)
        or step.how == "inner"
        or is_ours(tree, frame)
        for tree in step.on
    )


def is_ours(tree: exp.Expr, frame: Frame) -> bool:
    """Whether a condition is of this FROM's columns alone, and of what conditions may have."""
    for node in nodes_of(tree):
        if isinstance(node, exp.Column):
            at = at_of(node)
            if at is None or at.frame != frame.number:
                return False
        elif not isinstance(node, _SYNTAX):
            return False
        elif isinstance(node, exp.Anonymous):
            name = node.name.lower()
            if is_aggregate(node) or not (name in FUNCTIONS or name in TYPE_FUNCTIONS):
                return False
        elif isinstance(node, COMPARED) and all(_is_nested(frame, x) for x in node.args.values()):
            return False
    return bool(about(tree, frame))


def about(tree: exp.Expr, frame: Frame) -> set[int]:
    """The places of a FROM that an expression names columns of."""
    return {key[0] for key in keys_of(frame, tree)}


def unequal(tree: exp.Expr) -> list[exp.Expr]:
    """What may join by more than equality: comparisons of order, and sides of an equality.

    A difference of two tables' columns that equals something is a band, not a key to hash.
    """
    found: list[exp.Expr] = list(tree.find_all(*_UNEQUAL))
    for node in tree.find_all(exp.EQ):
        found += [node.this, node.expression]
    return found


def _is_nested(frame: Frame, operand: Any) -> bool:
    """Whether an operand is a column of structs, lists or maps."""
    at = at_of(operand) if isinstance(operand, exp.Expr) else None
    schema = None if at is None or at.fields else frame.items[at.item].schema
    return bool(schema and at and pa.types.is_nested(schema.field(at.name).type))


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


@dataclass(frozen=True)
class Place:
    """Where a condition is applied; tables are numbered from 0, and so are the joins with them.

    what: "on" is with the ON of table `at`'s join, "joined" on the rows of that join (of table 0:
    its own), "table" on the rows of table `at` before it is joined.
    """

    what: Literal["on", "joined", "table"]
    at: int


def place(
    about: set[Any], aliases: Sequence[Any], hows: Sequence[str], *, windowed: bool = False
) -> Place:
    """The first place for a condition about some tables, joined from left to right.

    It may go below a join into the side whose rows that join gives out as they are: a row that it
    removes there would have made only rows that it removes later. Below a join that makes up NULLs
    for that side it would remove the row's matches but not the row of NULLs that takes their place.
    ``hows[at]`` says how table `at` is joined to those before it. Rows that are not there would not
    be counted by a window, so `windowed` joins are given all of them.

    >>> place({"a"}, "abc", ["", "inner", "left"])
    Place(what='on', at=1)
    >>> place({"a"}, "abc", ["", "inner", "right"])
    Place(what='joined', at=2)
    """
    for at in range(len(aliases) - 1, 0, -1):
        how, left = hows[at], set(aliases[:at])
        below = bool(about) and about <= left and how in LEFT_AS_IT_IS and not windowed
        if how == "inner" and (at == 1 or not below):
            return Place("on", at)
        if how == "right" and about == {aliases[at]} and not windowed:
            return Place("table", at)
        if not below:
            return Place("joined", at)
    return Place("joined", 0)
