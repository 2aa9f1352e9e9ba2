"""Making a failing case small: fewer rows, a simpler condition, fewer columns, plainer options."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

from fuzz.cases import ONE_TABLE, Case, Step
from fuzz.check import Outcome, check
from fuzz.conditions import unused
from fuzz.kinds import Column, Kind, Table
from fuzz.nodes import COMPARISONS, Node, both

SECONDS = 20.0  # spent on one case


def shrunk(case: Case, outcome: Outcome, seconds: float = SECONDS) -> tuple[Case, Outcome]:
    """The smallest case found that still fails in the same way."""
    deadline = time.monotonic() + seconds
    found = True
    while found and time.monotonic() < deadline:
        found = False
        for simpler in candidates(case):
            tried = _outcome(simpler)
            if tried is not None and tried.wrong and _alike(tried, outcome):
                case, outcome, found = simpler, tried, True
                break
            if time.monotonic() > deadline:
                break
    return case, outcome


def _outcome(case: Case) -> Outcome | None:
    try:
        return check(case)
    except Exception:  # a candidate that is no case
        return None


def _alike(a: Outcome, b: Outcome) -> bool:
    return a.why == b.why or (a.why.endswith("rows") and b.why.endswith("rows"))


def candidates(case: Case) -> Iterator[Case]:
    """Simpler cases, those first that leave most out."""
    yield from _plainer(case)
    yield from _fewer_rows(case)
    yield from _simpler_condition(case)
    yield from _fewer_columns(case)
    yield from _plainer_values(case)


def _plainer(case: Case) -> Iterator[Case]:
    if case.call in ("join_batches", "stream"):
        yield replace(case, call="join", steps=())
    if case.options:
        yield replace(case, options={})
    for name in case.options:
        yield replace(case, options={k: v for k, v in case.options.items() if k != name})
    for side, given in case.inputs.items():
        if given != "arrow":
            yield replace(case, inputs={**case.inputs, side: "arrow"})
    if case.how != "inner":
        yield replace(case, how="inner", spelling="inner")
    if case.form != "sql":
        yield replace(case, form="sql")
    if case.window is not None and case.call != "stream":
        yield replace(case, window=None, order_by=False)
    if case.order_by:
        yield replace(case, order_by=False)
    if case.suffix != "_right":
        yield replace(case, suffix="_right")
    if case.limit is not None:
        yield replace(case, limit=None)
    if case.where is not None:
        yield replace(case, where=None)
    for at, (how, on) in enumerate(case.chain):
        for part in [("inner", on)] * (how != "inner") + [(how, less) for less in simpler(on)]:
            if len(part[1].sides()) == 2:
                yield replace(case, chain=(*case.chain[:at], part, *case.chain[at + 1 :]))
    for at, step in enumerate(case.steps):
        if step.name != "push" or at < len(case.steps) - 1:
            yield replace(case, steps=(*case.steps[:at], *case.steps[at + 1 :]))
    for at in range(len(case.aggs) if len(case.aggs) > 1 else 0):
        yield replace(case, aggs=(*case.aggs[:at], *case.aggs[at + 1 :]))
    for at in range(len(case.groups)):
        yield replace(case, groups=(*case.groups[:at], *case.groups[at + 1 :]))


def _fewer_rows(case: Case) -> Iterator[Case]:
    sides = ["l"] if case.call in ONE_TABLE else list(case.tables)
    for at, side in enumerate(sides):
        size = case.tables[side].size
        part = size
        while part > 0:
            for start in range(0, size, part):
                gone = range(start, min(size, start + part))
                yield _without(case, at, side, gone)
            part //= 2


def _without(case: Case, at: int, side: str, gone: range) -> Case:
    table = case.tables[side]
    kept = [row for row in range(table.size) if row not in gone]
    made = case.with_table(side, table.take(kept))
    steps = tuple(_moved(step, at, gone) for step in case.steps)
    return replace(made, steps=steps)


def _moved(step: Step, at: int, gone: range) -> Step:
    name = ("left", "right")[at] if step.name == "push" else None
    if name is None:
        return step
    end = getattr(step, name)
    return replace(step, **{name: end - sum(1 for row in gone if row < end)})


def _simpler_condition(case: Case) -> Iterator[Case]:
    if case.chain:
        return
    for on in simpler(case.on):
        if len(on.sides()) == len(case.on.sides()):
            yield replace(case, on=on)


def simpler(node: Node) -> Iterator[Node]:
    """The expression with a part left out, or replaced by what is inside it."""
    if node.op in ("and", "or"):
        for at in range(len(node.args)):
            rest = [*node.args[:at], *node.args[at + 1 :]]
            yield rest[0] if len(rest) == 1 else replace(node, args=tuple(rest))
            yield node.args[at]
    if node.op in ("not", "istrue"):
        yield node.args[0]
    for at, arg in enumerate(node.args):
        for inside in [*_inside(node, arg), *simpler(arg)]:
            yield replace(node, args=(*node.args[:at], inside, *node.args[at + 1 :]))


def _inside(node: Node, arg: Node) -> Iterator[Node]:
    """Parts of an operand that may stand for it without changing any kind above."""
    compared = node.op in COMPARISONS or node.op == "between"
    for part in arg.args:
        alike = part.kind.family == arg.kind.family if compared else part.kind == arg.kind
        if alike and part.sides() == arg.sides():
            yield part


def _fewer_columns(case: Case) -> Iterator[Case]:
    parts = [on for _, on in case.chain] or [case.on]
    parts += [] if case.where is None else [case.where]
    needed = both([*parts, *case.groups, *(agg.of for agg in case.aggs if agg.of is not None)])
    for side, table in case.tables.items():
        spare = set(unused(needed, side, table))
        if case.call in ONE_TABLE:
            spare &= set(unused(needed, "r", table)) & set(unused(needed, "l", table))
        for name in spare:
            if name == "t" and case.window is not None:
                continue
            kept = tuple(column for column in table.columns if column.name != name)
            yield case.with_table(side, Table(kept))


def _plainer_values(case: Case) -> Iterator[Case]:
    for side, table in case.tables.items():
        if table.size > 8:
            continue
        for at, column in enumerate(table.columns[1:], 1):
            for row, value in enumerate(column.values):
                plain = _plain(column.kind)
                if value is None or value == plain:
                    continue
                values = (*column.values[:row], plain, *column.values[row + 1 :])
                changed = Column(column.name, column.code, values)
                columns = (*table.columns[:at], changed, *table.columns[at + 1 :])
                yield case.with_table(side, Table(columns))


def _plain(kind: Kind) -> Any:
    plain = {"text": "", "binary": b"", "float": 0.0, "bool": False}
    plain["decimal"] = Decimal(0).scaleb(-kind.scale)
    return plain.get(kind.name, 0)
