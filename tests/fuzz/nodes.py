"""Expressions: what they are, how SQL and Python write them, and what kind of value they have.

The kinds follow Spark's rules for operators in ANSI mode. A constructor gives None where the
operator does not take its operands, or where the result would need rounding that this package and
Spark may do in different places.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from fuzz.kinds import BOOL, DATE, DOUBLE, INT, LONG, MOMENT, SPAN, TEXT, Kind

COMPARISONS = ("<", "<=", ">", ">=", "=", "!=")
INFIX = ("+", "-", "*", "/", "%", "div")
SQL = {
    **{op: f"({{0}} {op} {{1}})" for op in (*COMPARISONS, "<>", "<=>", *INFIX[:5])},
    "div": "({0} DIV {1})",
    "neg": "(-{0})",
    "not": "(NOT {0})",
    "between": "({0} BETWEEN {1} AND {2})",
    "isnull": "({0} IS NULL)",
    "isnotnull": "({0} IS NOT NULL)",
    "istrue": "({0} IS TRUE)",
    "like": "({0} LIKE {1})",
    "case": "CASE WHEN {0} THEN {1} ELSE {2} END",
    "datetrunc": "DATE_TRUNC({0}, {1})",
}
PYTHON = {
    **{op: f"({{0}} {op} {{1}})" for op in ("<", "<=", ">", ">=", "!=", "+", "-", "*", "/", "%")},
    "=": "({0} == {1})",
    "<=>": "{0}.eq_null_safe({1})",
    "neg": "(-{0})",
    "not": "(~{0})",
    "abs": "abs({0})",
    "between": "{0}.between({1}, {2})",
    "isnull": "{0}.is_null()",
    "isnotnull": "{0}.is_not_null()",
    "like": "{0}.like({1})",
}
TYPE_NAMES = {
    Kind("int", 8): "TINYINT",
    Kind("int", 16): "SMALLINT",
    INT: "INT",
    LONG: "BIGINT",
    Kind("float", 32): "FLOAT",
    DOUBLE: "DOUBLE",
    TEXT: "STRING",
    BOOL: "BOOLEAN",
    DATE: "DATE",
    MOMENT: "TIMESTAMP",
}


@dataclass(frozen=True)
class Node:
    """An operator and its operands; a column has (side, name) as its value, a literal its own."""

    op: str
    kind: Kind
    args: tuple[Node, ...] = ()
    value: Any = None

    def walk(self) -> Iterator[Node]:
        """The node and all below it."""
        yield self
        for arg in self.args:
            yield from arg.walk()

    def sides(self) -> frozenset[str]:
        """The tables it names."""
        return frozenset(node.value[0] for node in self.walk() if node.op == "col")

    def sql(self, alias: Mapping[str, str] | None = None) -> str:
        """The text in SQL; `alias` gives other names to the sides."""
        if self.op == "col":
            side, name = self.value
            return f"{(alias or {}).get(side, side)}.{name}"
        if self.op == "lit":
            return literal_sql(self.value, self.kind)
        parts = [arg.sql(alias) for arg in self.args]
        if self.op in ("and", "or"):
            return "(" + f" {self.op.upper()} ".join(parts) + ")"
        if self.op in ("cast", "try_cast"):
            return f"{self.op.upper()}({parts[0]} AS {type_name(self.kind)})"
        if self.op == "in":
            return f"({parts[0]} IN ({', '.join(parts[1:])}))"
        if self.op in SQL:
            return SQL[self.op].format(*parts)
        return f"{self.op.upper()}({', '.join(parts)})"

    def python(self) -> str | None:
        """The text in Python, built from tj.l and tj.r; None where it cannot be."""
        if self.op == "col":
            side, name = self.value
            return f"tj.{side}.{name}"
        if self.op == "lit":
            return literal_python(self.value, self.kind)
        parts = [arg.python() for arg in self.args]
        if None in parts or all(arg.op == "lit" for arg in self.args):
            return None
        if self.op in ("and", "or"):
            return "(" + {"and": " & ", "or": " | "}[self.op].join(parts) + ")"
        if self.op == "cast":
            return f'{parts[0]}.cast("{type_name(self.kind)}")' if self.args[0].args == () else None
        if self.op == "in":
            return f"{parts[0]}.isin({', '.join(parts[1:])})"
        if self.op not in PYTHON or (self.args[0].op == "lit" and self.op not in (*COMPARISONS,)):
            return None
        return PYTHON[self.op].format(*parts)


def type_name(kind: Kind) -> str:
    """The kind as a SQL type."""
    return (
        f"DECIMAL({kind.size},{kind.scale})" if kind.name == "decimal" else TYPE_NAMES.get(kind, "")
    )


def literal_sql(value: Any, kind: Kind) -> str:
    """A constant in SQL, of just this kind."""
    if value is None:
        return "NULL"
    if kind.name == "float":
        return f"CAST('{value}' AS DOUBLE)" if not math.isfinite(value) else f"{value!r}D"
    if kind == TEXT:
        return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
    if kind.name == "binary":
        return f"X'{value.hex().upper()}'"
    if kind == SPAN:
        return f"INTERVAL '{value // 1000}' MICROSECOND"
    if kind in (DATE, MOMENT):
        text = moment_text(value)
        return f"DATE '{text[:10]}'" if kind == DATE else f"TIMESTAMP '{text}+00:00'"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, Decimal):
        return f"{value:f}" if "." in f"{value:f}" else f"{value:f}BD"
    return f"{value}L" if kind == LONG and -(2**31) <= value < 2**31 else str(value)


def literal_python(value: Any, kind: Kind) -> str | None:
    """A constant in Python; None where Python's is of another kind."""
    if isinstance(value, float):
        return f'float("{value}")'
    if kind == SPAN and value is not None:
        return f"timedelta(microseconds={value // 1000})"
    if value is None or kind.family == "moment" or (kind == LONG and -(2**31) <= value < 2**31):
        return None
    return ascii(value)


def moment_text(value: int) -> str:
    """Nanoseconds since 1970 as a timestamp's text, to the microsecond."""
    from datetime import datetime, timedelta

    return (datetime(1970, 1, 1) + timedelta(microseconds=value // 1000)).isoformat(" ")


# --- constructors --------------------------------------------------------------------------------


def col(side: str, name: str, kind: Kind) -> Node:
    """A column."""
    return Node("col", kind, (), (side, name))


def lit(value: Any, kind: Kind) -> Node:
    """A constant."""
    return Node("lit", kind, (), value)


def number(value: int | float | Decimal) -> Node:
    """A numeric constant, of the kind that SQL gives it."""
    if isinstance(value, float):
        return lit(value, DOUBLE)
    if isinstance(value, Decimal):
        scale = max(0, -int(value.as_tuple().exponent))
        return lit(value, Kind("decimal", max(len(value.as_tuple().digits), scale, 1), scale))
    return lit(value, INT if -(2**31) <= value < 2**31 else LONG)


def test(op: str, *args: Node) -> Node:
    """Anything that is true or false."""
    return Node(op, BOOL, args)


def signed(kind: Kind) -> Kind:
    """The kind that arithmetic uses for an unsigned integer."""
    if kind.name != "uint":
        return kind
    return Kind("decimal", 20) if kind.size == 64 else Kind("int", 2 * kind.size)


def as_decimal(node: Node, other: Kind) -> Kind:
    """An integer's or a decimal's digits; a literal beside a decimal has those it shows."""
    kind = signed(node.kind)
    if kind.name == "decimal":
        return kind
    if node.op == "lit" and other.name == "decimal" and node.value is not None:
        return Kind("decimal", len(str(abs(node.value))))
    return Kind("decimal", {8: 3, 16: 5, 32: 10, 64: 20}[kind.size])


def common(a: Node, b: Node) -> Kind | None:
    """The kind of two numbers taken together; None for decimals of too many digits."""
    x, y = signed(a.kind), signed(b.kind)
    if x == y:
        return x
    if "float" in (x.name, y.name):
        return DOUBLE
    if "decimal" in (x.name, y.name):
        x, y = as_decimal(a, b.kind), as_decimal(b, a.kind)
        scale = max(x.scale, y.scale)
        digits = max(x.size - x.scale, y.size - y.scale) + scale
        return Kind("decimal", digits, scale) if digits <= 38 else None
    return max(x, y, key=lambda kind: kind.size)


def arithmetic(op: str, a: Node, b: Node) -> Node | None:
    """`a op b` of numbers, or of moments and spans."""
    if a.kind.family == b.kind.family == "number":
        kind = _number_result(op, a, b)
    else:
        kind = _temporal_result(op, a.kind, b.kind)
    return None if kind is None else Node(op, kind, (a, b))


def _number_result(op: str, a: Node, b: Node) -> Kind | None:
    kind = common(a, b)
    if kind is None:
        return None
    if op == "div":
        return LONG if kind.name == "int" else None
    if kind.name != "decimal":
        return DOUBLE if op == "/" and kind.name == "int" else kind
    x, y = as_decimal(a, b.kind), as_decimal(b, a.kind)
    if op == "*":
        digits, scale = x.size + y.size + 1, x.scale + y.scale
    elif op in ("+", "-"):
        scale = max(x.scale, y.scale)
        digits = max(x.size - x.scale, y.size - y.scale) + scale + 1
    else:
        return None
    return Kind("decimal", digits, scale) if digits <= 38 else None


def _temporal_result(op: str, a: Kind, b: Kind) -> Kind | None:
    finer = Kind("span", min(a.size, b.size, 1000 if DATE in (a, b) else a.size))
    if op not in ("+", "-"):
        return None
    if a == DATE and b.name in ("int", "uint") and (b.size < 32 or b == INT):
        return DATE
    if a.name == "timestamp" and b.name == "span":
        return Kind("timestamp", finer.size)
    if a.name == b.name == "span":
        return finer
    if op == "-" and a == b == DATE:
        return SPAN
    if op == "-" and a.name == "timestamp" and b.name in ("timestamp", "date"):
        return Kind("span", min(a.size, b.size))
    return None


def cast(op: str, node: Node, kind: Kind) -> Node:
    """CAST or TRY_CAST."""
    return Node(op, kind, (node,))


def both(nodes: list[Node]) -> Node:
    """The AND of some conditions."""
    return nodes[0] if len(nodes) == 1 else Node("and", BOOL, tuple(nodes))
