"""What stands in a FROM and how it is joined, and which of a query's columns are its."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pyarrow as pa
from sqlglot import exp

from thetajoin.predicate.bind import HANDLERS
from thetajoin.predicate.functions import FUNCTIONS
from thetajoin.predicate.literals import TYPE_FUNCTIONS

if TYPE_CHECKING:
    from thetajoin.query.asof import AsOf

_UNEQUAL = (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NEQ, exp.Between)
COMPARED = (*_UNEQUAL, exp.EQ)
# What a condition may be made of; the rest is an engine's.
_SYNTAX = (*HANDLERS, exp.Binary, exp.Neg, exp.BitwiseNot, exp.Identifier, exp.Var)
_SYNTAX += (exp.DataType, exp.DataTypeParam, exp.IntervalSpan)
LEFT_AS_IT_IS = ("inner", "left", "semi", "anti")
AGGREGATES = ("count", "sum", "avg", "mean", "min", "max")
# Functions without parentheses, which look like columns.
_BARE = ("current_date", "current_timestamp", "current_time", "localtimestamp", "current_user")
Key = tuple[int, str]  # a place in FROM, and the name of a column there


class At(NamedTuple):
    """Whose a column is: a FROM, what stands there at this place, its column, fields in that."""

    frame: int
    item: int
    name: str
    fields: tuple[str, ...] = ()


@dataclass
class Item:
    """What stands at one place of a FROM.

    names: the names that it goes by, each with the columns by the names they have there; None where
    only an engine knows them. table: what it was given as, of a table of the query's. closed:
    whether it depends on nothing around it. hidden_by: the semi or anti join whose ON alone may
    name its columns.
    """

    node: exp.Expr
    names: dict[str, dict[str, str] | None]
    table: str | None = None
    schema: pa.Schema | None = None
    closed: bool = True
    hidden_by: int = -1
    merged: set[str] = field(default_factory=set)

    @property
    def name(self) -> str:
        """What it is called."""
        return next(iter(self.names))

    @property
    def columns(self) -> dict[str, str] | None:
        """All columns by name, if they are known."""
        return next(iter(self.names.values()))


@dataclass
class Frame:
    """A FROM: what stands there, and the SELECT around it.

    merged: what a name means that USING or NATURAL made of several columns. shown: outputs by name.
    limit, inside: how far ON and LATERAL look. spelled: whether its columns must be written anew.
    """

    number: int
    select: exp.Select
    outer: Frame | None
    items: list[Item] = field(default_factory=list)
    merged: dict[str, exp.Expr] = field(default_factory=dict)
    shown: dict[str, exp.Expr] = field(default_factory=dict)
    limit: int = 0
    inside: int = -1
    spelled: bool = False

    @property
    def joins(self) -> list[exp.Join]:
        """The joins; that at place n is with the item at n + 1."""
        return self.select.args.get("joins") or []

    def visible(self) -> Iterator[tuple[int, str, dict[str, str] | None]]:
        """What may be named now: places, names and columns."""
        for at, item in enumerate(self.items[: self.limit]):
            if item.hidden_by in (-1, self.inside):
                for name, columns in item.names.items():
                    yield at, name, columns

    def is_made(self, place: int, columns: Any, name: str) -> bool:
        """Whether USING in parentheses made a name, among others, of that of a table in them."""
        made = self.items[place].columns
        return columns is not made and name.lower() in map(str.lower, made or ())

    def is_bare(self, place: int, columns: Any, name: str) -> bool:
        """Whether a name without a table means this one's column, and not what USING made."""
        merged = name.lower() in self.items[place].merged
        return not merged and not self.is_made(place, columns, name)

    def column(self, at: At) -> exp.Column:
        """A new column of this FROM, by the name of its table."""
        table = exp.to_identifier(self.items[at.item].name, quoted=True)
        node = exp.Column(this=exp.to_identifier(at.name, quoted=True), table=table)
        node.meta["at"] = at
        return node


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


def at_of(node: exp.Expr) -> At | None:
    """Whose a column is, if that is known."""
    return node.meta.get("at") if isinstance(node, exp.Column) else None


def is_output(node: exp.Expr, frame: Frame) -> bool:
    """Whether a column is an output of this SELECT, by its name."""
    return bool(node.meta.get("shown")) and node.meta["seen"] == frame.number


def nodes_of(tree: exp.Expr) -> Iterator[exp.Expr]:
    """A node and all below it, as they are written; sqlglot's own walk takes twice as long."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for value in reversed(node.args.values()):
            if isinstance(value, exp.Expr):
                waiting.append(value)
            elif isinstance(value, list):
                waiting += [one for one in reversed(value) if isinstance(one, exp.Expr)]


def columns_of(tree: exp.Expr, frame: Frame) -> list[exp.Column]:
    """The columns of a FROM that are named in a tree, in queries inside it too."""
    number = frame.number
    return [
        node
        for node in nodes_of(tree)
        if isinstance(node, exp.Column) and (at := node.meta.get("at")) and at.frame == number
    ]


def keys_of(frame: Frame, *trees: exp.Expr) -> list[Key]:
    """The columns of a FROM that are named in trees, each once, as (place, name)."""
    found = (at_of(column) for tree in trees for column in columns_of(tree, frame))
    return list(dict.fromkeys((at.item, at.name) for at in found if at is not None))


def is_closed(tree: exp.Expr, number: int) -> bool:
    """Whether an expression, or what stands in FROM, names nothing of a FROM before this one."""
    if any(table.meta.get("open") for table in tree.find_all(exp.Table)):
        return False
    for column in tree.find_all(exp.Column):
        at = at_of(column)
        found = column.meta.get("seen") if at is None else at.frame
        if found is not None and found < number:
            return False
    return True


def is_alone(tree: exp.Expr, frame: Frame) -> bool:
    """Whether the columns in an expression are known, and none is of what is around a FROM."""
    unsure = any(node.meta.get("seen") == frame.number for node in tree.find_all(exp.Column))
    return not unsure and is_closed(tree, frame.number)


def unparenthesised(tree: exp.Expr) -> exp.Expr:
    """What is inside parentheses; a query keeps its own."""
    while isinstance(tree, exp.Paren):
        tree = tree.this
    return tree


def conjuncts(tree: exp.Expr | None) -> list[exp.Expr]:
    """The conditions that are ANDed in one; none where there is none."""
    if tree is None:
        return []
    tree = unparenthesised(tree)
    if not isinstance(tree, exp.And):
        return [tree]
    return [one for part in tree.flatten() for one in conjuncts(part)]


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node is a call of an aggregate function of ours."""
    return isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES


def renamed(tree: exp.Expr, name: str) -> exp.Expr:
    """An output under a name."""
    return exp.Alias(this=tree, alias=exp.to_identifier(name, quoted=True))


def is_star(item: exp.Expr) -> bool:
    """Whether an output is `*`, or a table's."""
    return isinstance(item, exp.Star) or (
        isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
    )


def is_bare(node: exp.Column) -> bool:
    """Whether what looks like a column is a function without parentheses."""
    return not node.table and node.name.lower() in _BARE and not node.this.quoted


def queries_in(node: exp.Expr) -> list[exp.Expr]:
    """The outermost queries inside a node, but those of its WITH."""

    def stop(inner: exp.Expr) -> bool:
        return inner is not node and isinstance(inner, exp.Query | exp.With)

    found = [inner for inner in node.walk(prune=stop) if inner is not node]
    return [inner for inner in found if isinstance(inner, exp.Query)]


def shown_as(frame: Frame, at: At, names: Mapping[Key, tuple[str, str]]) -> exp.Expr:
    """A column as the engine finds it: in a join's rows, or where it was."""
    table, new = names.get((at.item, at.name)) or (frame.items[at.item].name, at.name)
    parts = [exp.to_identifier(part, quoted=True) for part in (table, new, *at.fields)]
    return exp.Dot.build(parts) if at.fields else exp.column(*reversed(parts))


def field_of(tree: exp.Expr, names: Sequence[str]) -> exp.Expr:
    """An expression, or a field in its value."""
    for name in names:
        tree = exp.Dot(this=tree, expression=exp.to_identifier(name, quoted=True))
    return tree


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
