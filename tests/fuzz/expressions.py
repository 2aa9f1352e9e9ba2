"""Random expressions over one table: arithmetic, casts, functions, CASE."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from fuzz.draw import BYTES, FLOATS, NOW, WORDS, Draw
from fuzz.kinds import (
    BINARY,
    BOOL,
    DATE,
    DAY,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    MOMENT,
    SPAN,
    TEXT,
    Kind,
    Table,
)
from fuzz.nodes import Node, arithmetic, cast, col, common, lit, number, signed, test

SECOND = 10**9


def columns(side: str, table: Table, family: str) -> list[Node]:
    """A table's columns of a family."""
    named = [(c.name, c.kind) for c in table.columns[1:] if c.kind.family == family]
    return [col(side, name, kind) for name, kind in named]


def literal(draw: Draw, kind: Kind) -> Node:
    """A constant that compares with values of a kind."""
    name = kind.name
    if name in ("int", "uint"):
        return number(draw.weighted({0: 3, 1: 3, -1: 1, 2: 2, 100: 1, 2**40: 0.3}))
    if name == "float":
        odd = draw.chance(0.08)
        return number(draw.pick((float("nan"), float("inf"), 1e300) if odd else FLOATS))
    if name == "decimal":
        return number(draw.pick([Decimal("0.5"), Decimal("1.25"), Decimal("-1.00"), Decimal(2)]))
    if name == "text":
        return lit(draw.pick([w for w in WORDS if "\x00" not in w]), TEXT)
    if name == "binary":
        return lit(draw.pick(BYTES), BINARY)
    if name == "bool":
        return lit(draw.chance(0.5), BOOL)
    if name == "span":
        return span(draw)
    if name == "date":
        return lit(NOW + draw.randint(-2, 3) * DAY, DATE)
    return lit(NOW + draw.randint(-3, 3) * draw.pick((1000, SECOND, DAY)), MOMENT)


def span(draw: Draw) -> Node:
    """A length of time."""
    return lit(draw.randint(0, 4) * draw.pick((1000, 10**6, SECOND, 60 * SECOND, DAY)), SPAN)


def expression(draw: Draw, side: str, table: Table, family: str, depth: int = 1) -> Node | None:
    """An expression over one table's columns; None where the table has none of the family."""
    found = columns(side, table, family)
    if not found:
        return None
    node = draw.pick(found)
    for _ in range(depth if draw.chance(0.05 if draw.edge else 0.4) else 0):
        wider = _WIDER.get(family, _kept)(draw, node, found)
        node = wider if wider is not None else node
    return node


def _kept(draw: Draw, node: Node, found: list[Node]) -> Node | None:
    return None


def _number(draw: Draw, node: Node, found: list[Node]) -> Node | None:
    what = draw.pick(_NUMBERS)
    if what in ("+", "-", "*", "/", "%", "div"):
        other = draw.pick(found) if draw.chance(0.2) else literal(draw, node.kind)
        if what in ("/", "%", "div") and other.op == "lit" and other.value == 0:
            other = number(2)
        return arithmetic(what, node, other)
    kind = signed(node.kind)
    if what in ("neg", "abs"):
        return Node(what, kind, (node,))
    if what in ("sqrt", "sign"):
        return Node(what, DOUBLE, (node,)) if kind.name == "float" else None
    if what in ("floor", "ceil"):
        if kind.name == "decimal":
            return None
        return Node(what, LONG, (node,))
    if what in ("greatest", "least", "coalesce"):
        return together(what, [node, draw.pick([*found, literal(draw, node.kind)])])
    if what == "nullif":
        return Node("nullif", node.kind, (node, literal(draw, node.kind)))
    if what == "case":
        guard = test(draw.pick(("<", ">=", "=")), draw.pick(found), literal(draw, node.kind))
        return chosen(guard, node, draw.pick([*found, literal(draw, node.kind)]))
    to = draw.pick((DOUBLE, LONG, INT, Kind("int", 8), FLOAT, Kind("decimal", 38, 2), BOOL))
    if to == BOOL or (to == FLOAT and kind.name != "float"):
        return None
    if to.name == "decimal" and kind.name == "float":
        return None
    return cast(
        draw.pick(("cast", "try_cast", "try_cast")) if to.name == "int" else "cast", node, to
    )


_NUMBERS = (
    *("+", "+", "-", "-", "*", "/", "%", "div", "neg", "abs", "sqrt", "sign", "floor", "ceil"),
    *("greatest", "least", "coalesce", "nullif", "case", "cast", "cast"),
)


def together(op: str, parts: list[Node]) -> Node | None:
    """GREATEST and the like of two numbers, in the kind they have in common."""
    kind = common(*parts)
    return None if kind is None or not _keeps(parts, kind) else Node(op, kind, tuple(parts))


def chosen(guard: Node, yes: Node, no: Node) -> Node | None:
    """CASE WHEN of two numbers."""
    kind = common(yes, no)
    return (
        None
        if kind is None or not _keeps([yes, no], kind)
        else Node("case", kind, (guard, yes, no))
    )


def _keeps(parts: list[Node], kind: Kind) -> bool:
    # A float32 beside an integer is a double; kept out to leave one meaning for float32.
    return kind.name != "float" or all(p.kind == kind or p.kind.name != "float" for p in parts)


def _text(draw: Draw, node: Node, found: list[Node]) -> Node | None:
    what = draw.pick(("upper", "lower", "trim", "concat", "substring", "coalesce"))
    if what == "concat":
        return Node(what, TEXT, (node, draw.pick([*found, literal(draw, TEXT)])))
    if what == "substring":
        return Node(what, TEXT, (node, number(draw.randint(-2, 3)), number(draw.randint(0, 3))))
    if what == "coalesce":
        return Node(what, TEXT, (node, literal(draw, TEXT)))
    return Node(what, TEXT, (node,))


def _moment(draw: Draw, node: Node, found: list[Node]) -> Node | None:
    what = draw.pick(("+", "-", "cast", "date_trunc", "days"))
    if node.kind == DATE:
        if what in ("+", "-"):
            return arithmetic(what, node, number(draw.randint(0, 3)))
        return Node("date_add", DATE, (node, number(draw.randint(-2, 3))))
    if what in ("+", "-"):
        return arithmetic(what, node, span(draw))
    if what == "date_trunc":
        unit = lit(draw.pick(("second", "minute", "hour", "day", "week")), TEXT)
        return Node("date_trunc", MOMENT, (unit, node))
    return cast("cast", node, DATE)


def _span(draw: Draw, node: Node, found: list[Node]) -> Node | None:
    if draw.chance(0.5):
        return Node(draw.pick(("neg", "abs")), node.kind, (node,))
    return arithmetic(draw.pick(("+", "-")), node, draw.pick([*found, span(draw)]))


_WIDER: dict[str, Any] = {"number": _number, "text": _text, "moment": _moment, "span": _span}


def counted(draw: Draw, side: str, table: Table) -> Node | None:
    """A whole number made from something else: a length, a year, a parsed text."""
    family = draw.pick(("text", "moment", "bool"))
    found = columns(side, table, family)
    if not found:
        return None
    node = draw.pick(found)
    if family == "text":
        if draw.chance(0.3):
            return cast(draw.pick(("cast", *["try_cast"] * 9)), node, draw.pick((INT, LONG)))
        return Node("length", INT, (node,))
    if family == "bool":
        return cast("cast", node, INT)
    what = draw.pick(("year", "month", "day", "unix_seconds", "hour"))
    if what in ("unix_seconds", "hour") and node.kind == DATE:
        what = "day"
    return Node(what, LONG if what == "unix_seconds" else INT, (node,))
