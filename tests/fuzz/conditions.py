"""Random conditions over two tables: comparisons, bands, filters, residuals, AND and OR."""

from __future__ import annotations

from collections.abc import Mapping

from fuzz.draw import Draw
from fuzz.expressions import columns, counted, expression, literal, span, together
from fuzz.kinds import BOOL, DATE, SPAN, TEXT, Kind, Table
from fuzz.nodes import COMPARISONS, Node, arithmetic, both, lit, number, test

FAMILIES = ("number", "text", "binary", "bool", "moment", "span", "clock")
INEQUALITIES = ("<", "<=", ">", ">=")


def families(draw: Draw) -> list[str]:
    """Which families the columns of a case have; numbers mostly."""
    first = draw.weighted(
        {"number": 8, "moment": 3, "text": 2, "span": 1, "binary": 1, "bool": 0.5, "clock": 0.5}
    )
    more = [draw.pick(FAMILIES[:5]) for _ in range(draw.weighted({0: 3, 1: 4, 2: 1}))]
    return [first, *more]


class Conditions:
    """Conditions over two of the tables."""

    def __init__(self, draw: Draw, tables: Mapping[str, Table], left: str, right: str) -> None:
        self.draw, self.tables, self.left, self.right = draw, tables, left, right
        mine, theirs = ({c.kind.family for c in tables[s].columns[1:]} for s in (left, right))
        self.shared = sorted(mine & theirs)

    def condition(self) -> Node:
        """Any condition that names both tables."""
        draw = self.draw
        parts = [
            self.crossed(),
            *(self.atom() for _ in range(draw.weighted({0: 3, 1: 4, 2: 2, 3: 0.5}))),
        ]
        draw.shuffle(parts)
        whole = both(parts)
        if draw.chance(0.15):
            whole = Node("or", BOOL, (whole, both([self.crossed(), self.atom()])))
        if draw.chance(0.04):
            whole = test("not", whole)
        return whole

    def crossed(self) -> Node:
        """A comparison of one side with the other, or a band."""
        draw = self.draw
        if draw.chance(0.8 if draw.edge else 0.3):
            band = self._band()
            if band is not None:
                return band
        family = draw.pick(self.shared)
        a, b = self._one(self.left, family), self._one(self.right, family)
        if draw.chance(0.4):
            a, b = b, a
        if draw.chance(0.1):
            other = self._one(next(iter(b.sides())), family)
            return test("between", a, b, other)
        if draw.chance(0.04):
            return test("<=>", a, b)
        return test(draw.pick((*COMPARISONS, *INEQUALITIES)), a, b)

    def _one(self, side: str, family: str) -> Node:
        if family == "number" and self.draw.chance(0.08):
            node = counted(self.draw, side, self.tables[side])
            if node is not None:
                return node
        node = expression(
            self.draw, side, self.tables[side], family, self.draw.weighted({1: 4, 2: 1})
        )
        assert node is not None
        return node

    def _band(self) -> Node | None:
        """`l - r`, bare or within ABS, against a constant."""
        draw = self.draw
        family = draw.pick([f for f in self.shared if f in ("number", "moment", "span")] or [""])
        if not family:
            return None
        a, b = self._one(self.left, family), self._one(self.right, family)
        if draw.chance(0.4):
            a, b = b, a
        if a.kind == b.kind == DATE and draw.chance(0.4):
            minus: Node | None = Node("datediff", Kind("int", 32), (a, b))
        else:
            minus = arithmetic("-", a, b)
        if minus is None:
            return None
        width = span(draw) if minus.kind.name == "span" else literal(draw, minus.kind)
        if width.kind.name == "float" and minus.kind.name != "float":
            width = number(1)
        shape = draw.pick(("abs", "abs", "plain", "between", "moved"))
        if shape == "abs":
            return test(
                draw.pick((*INEQUALITIES, "<=", "=", "!=")),
                Node("abs", minus.kind, (minus,)),
                width,
            )
        if shape == "between":
            return test("between", minus, self._negative(width), width)
        if shape == "moved":
            moved = arithmetic("+", b, width)
            return None if moved is None else test(draw.pick(INEQUALITIES), a, moved)
        return test(draw.pick(COMPARISONS), minus, width)

    def _negative(self, width: Node) -> Node:
        return (
            lit(-width.value, width.kind) if width.kind.name != "span" else lit(-width.value, SPAN)
        )

    def atom(self) -> Node:
        """A comparison, a filter of one side, or something else over both."""
        kind = self.draw.weighted({"crossed": 5, "filter": 3, "residual": 2})
        if kind == "filter":
            side = self.draw.pick((self.left, self.right))
            node = self.one_sided(side)
            return test("not", node) if self.draw.chance(0.1) else node
        if kind == "residual":
            residual = self._residual()
            if residual is not None:
                return residual
        return self.crossed()

    def one_sided(self, side: str) -> Node:
        """A filter of one side."""
        draw = self.draw
        table = self.tables[side]
        family = draw.pick([c.kind.family for c in table.columns[1:]])
        node = self._one(side, family)
        family = node.kind.family
        what = draw.pick(("compare", "compare", "compare", "in", "null", "between", "own"))
        if what == "null":
            return test(draw.pick(("isnull", "isnotnull")), node)
        if family == "bool" and what == "own":
            return node if draw.chance(0.5) else test("istrue", node)
        if family == "text" and what in ("own", "in"):
            op = draw.pick(("like", "startswith", "endswith", "contains"))
            pattern = draw.pick(("a%", "%b", "_", "a", "", "%"))
            return test(op, node, lit(pattern, TEXT))
        if node.kind.name == "float" and what == "own":
            return test("isnan", node)
        if family == "clock":
            return test("isnotnull", node)
        if what == "in" and family not in ("span",):
            return test("in", node, *(literal(draw, node.kind) for _ in range(draw.randint(1, 3))))
        if what == "between":
            return test("between", node, literal(draw, node.kind), literal(draw, node.kind))
        return test(draw.pick(COMPARISONS), node, literal(draw, node.kind))

    def _residual(self) -> Node | None:
        """Something over both sides that is no comparison of one with the other."""
        draw = self.draw
        family = draw.pick(self.shared)
        a, b = self._one(self.left, family), self._one(self.right, family)
        what = draw.pick(("or", "sum", "greatest", "same", "case"))
        if family == "number" and what in ("sum", "greatest"):
            op = draw.pick(("+", "*", "-", "%"))
            node = (
                arithmetic(op, a, b)
                if what == "sum"
                else together(draw.pick(("greatest", "least", "coalesce")), [a, b])
            )
            return (
                None
                if node is None
                else test(draw.pick(COMPARISONS), node, literal(draw, node.kind))
            )
        if family == "text" and what in ("sum", "greatest"):
            return test(draw.pick(("startswith", "contains")), a, b)
        if what == "case":
            guard = test(draw.pick(COMPARISONS), a, b)
            return Node("case", BOOL, (guard, self.crossed(), lit(draw.chance(0.5), BOOL)))
        if what == "same":
            return test(draw.pick(("=", "!=", "<=>")), self.crossed(), test("isnull", a))
        return Node(
            "or", BOOL, (self.one_sided(self.left), self.one_sided(self.right), self.crossed())
        )


def unused(node: Node, side: str, table: Table) -> list[str]:
    """Columns of a table that a condition does not name."""
    used = {n.value[1] for n in node.walk() if n.op == "col" and n.value[0] == side}
    return [c.name for c in table.columns[1:] if c.name not in used]


__all__ = ["FAMILIES", "Conditions", "columns", "families", "unused"]
