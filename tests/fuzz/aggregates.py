"""Aggregates over a join's matches: drawn at random, and computed from the pairs one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from typing import Any

import naive
from fuzz.draw import Draw
from fuzz.expressions import expression
from fuzz.kinds import Kind, Table
from fuzz.meaning import FAILED, Notes, coerced, compiled
from fuzz.nodes import Node, arithmetic, col, signed

FUNCTIONS = ("count", "sum", "avg", "min", "max")


@dataclass(frozen=True)
class Agg:
    """An aggregate; without an expression it counts pairs."""

    function: str
    of: Node | None = None

    def sql(self, alias: Mapping[str, str] | None = None) -> str:
        """The text in SQL."""
        return f"{self.function}({'*' if self.of is None else self.of.sql(alias)})"


def aggregates(draw: Draw, tables: Mapping[str, Table]) -> tuple[tuple[Node, ...], tuple[Agg, ...]]:
    """Groups, mostly few, and one to three aggregates."""
    groups: list[Node] = []
    for _ in range(draw.weighted({0: 2, 1: 4, 2: 1})):
        side = draw.pick(list(tables))
        found = draw.pick(tables[side].columns[1:])
        group = col(side, found.name, found.kind)
        if group.sql() not in [other.sql() for other in groups]:
            groups.append(group)
    return tuple(groups), tuple(_agg(draw, tables) for _ in range(draw.randint(1, 3)))


def _agg(draw: Draw, tables: Mapping[str, Table]) -> Agg:
    function = draw.pick(FUNCTIONS)
    side = draw.pick(list(tables))
    if function == "count" and draw.chance(0.6):
        return Agg("count")
    family = (
        "number" if function in ("sum", "avg") else draw.pick(tables[side].columns[1:]).kind.family
    )
    node = expression(draw, side, tables[side], family)
    if node is None or family == "bool":
        return Agg("count")
    if family == "number" and draw.chance(0.1):
        other = next(s for s in tables if s != side)
        second = expression(draw, other, tables[other], "number", 0)
        wider = arithmetic("+", node, second) if second is not None else None
        node = wider if wider is not None else node
    return Agg(function, node)


# --- what they give ------------------------------------------------------------------------------

Pairs = Sequence[tuple[int, int]]


def grouped(
    pairs: Pairs,
    groups: Sequence[Node],
    aggs: Sequence[Agg],
    tables: Mapping[str, Table],
    notes: Notes,
) -> dict[tuple[Any, ...], list[Any]]:
    """Each group's aggregates; without groups there is one, even without pairs."""
    keys = [compiled(group, tables, notes) for group in groups]
    values = [None if agg.of is None else compiled(agg.of, tables, notes) for agg in aggs]
    left, right = tables
    members: dict[tuple[Any, ...], list[dict[str, int]]] = {} if groups else {(): []}
    for l, r in pairs:
        rows = {left: l, right: r}
        members.setdefault(tuple(naive.group_key(key(rows)) for key in keys), []).append(rows)
    return {
        key: [_total(agg, value, rows, notes) for agg, value in zip(aggs, values, strict=True)]
        for key, rows in members.items()
    }


def _total(
    agg: Agg, value: Callable[[Any], Any] | None, rows: list[dict[str, int]], notes: Notes
) -> Any:
    if value is None or agg.of is None:
        return len(rows)
    found = [value(chosen) for chosen in rows]
    if any(v is FAILED for v in found):
        return FAILED
    found = [v for v in found if v is not None]
    if agg.function == "count":
        return len(found)
    if not found:
        return None
    if agg.function in ("min", "max"):
        return naive.extreme(agg.function, found)
    return _sum(
        agg.function, [coerced(v, signed(agg.of.kind)) for v in found], signed(agg.of.kind), notes
    )


def _sum(function: str, values: list[Any], kind: Kind, notes: Notes) -> Any:
    if kind.name == "float":
        return Near.of(values, len(values) if function == "avg" else 1)
    with localcontext(prec=120):
        total = sum(values)
        if function == "sum":
            if kind.name == "decimal":
                return notes.fitted(
                    Decimal(total), Kind("decimal", min(38, kind.size + 10), kind.scale)
                )
            return notes.fitted(total, Kind("int", 64))
        if kind.name == "int":
            notes.fitted(total, Kind("int", 64))
            return Near(total / len(values), abs(total / len(values)) * 1e-12)
        scale = kind.scale + 4
        if kind.size + 4 > 38:
            scale = max(38 - (kind.size - kind.scale), min(scale, 6))
        notes.fitted(Decimal(total), Kind("decimal", min(38, kind.size + 10), kind.scale))
        return (Decimal(total) / len(values)).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)


@dataclass(frozen=True)
class Near:
    """A sum of floats, right up to the rounding of its terms."""

    value: float
    slack: float

    @staticmethod
    def of(values: list[float], parts: int) -> Near:
        """The sum of the values over a number of parts."""
        if all(math.isfinite(v) for v in values):
            exact = sum(map(Fraction, values)) / parts
            slack = sum(abs(Fraction(v)) for v in values) / parts
            if slack < 10**307:
                return Near(float(exact), float(slack) * 1e-12)
            return Near(math.nan, math.inf)  # may overflow on the way
        return Near(float(sum(v for v in values if not math.isfinite(v))), 0.0)

    def fits(self, got: Any) -> bool:
        """Whether a result is this sum."""
        if not isinstance(got, float):
            return False
        if self.slack == math.inf:
            return True
        if not math.isfinite(self.value) or not math.isfinite(got):
            return got == self.value or (math.isnan(got) and math.isnan(self.value))
        return abs(got - self.value) <= self.slack
