"""What the joins of a FROM are: which are ours, and where the conditions of WHERE go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
from sqlglot import exp

from thetajoin.predicate.bind import HANDLERS
from thetajoin.predicate.functions import FUNCTIONS
from thetajoin.predicate.literals import TYPE_FUNCTIONS
from thetajoin.predicate.parse import Source
from thetajoin.query.asof import AsOf, read_asof, read_nearest
from thetajoin.query.frames import (
    Frame,
    at_of,
    conjuncts,
    is_aggregate,
    is_alone,
    keys_of,
    nodes_of,
)

_UNEQUAL = (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NEQ, exp.Between)
COMPARED = (*_UNEQUAL, exp.EQ)
# What a condition may be made of; the rest is an engine's.
_SYNTAX = (*HANDLERS, exp.Binary, exp.Neg, exp.BitwiseNot, exp.Identifier, exp.Var)
_SYNTAX += (exp.DataType, exp.DataTypeParam, exp.IntervalSpan)
_HOWS = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}
LEFT_AS_IT_IS = ("inner", "left", "semi", "anti")


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
