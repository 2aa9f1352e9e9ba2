"""What a case must give, by the naive join."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import naive
from fuzz.aggregates import grouped
from fuzz.cases import ONE_TABLE, Case, Window, window_unit
from fuzz.kinds import Table
from fuzz.meaning import FAILED, Notes, compiled
from fuzz.nodes import both

Ids = tuple[int | None, ...]


@dataclass
class Expected:
    """Rows by their ids, or groups; `undecided` where some pair has no answer."""

    rows: Counter[Ids] = field(default_factory=Counter)
    groups: dict[tuple[Any, ...], list[Any]] | None = None
    notes: Notes = field(default_factory=Notes)
    undecided: bool = False


def expected(case: Case) -> Expected:
    """The naive join of the case's tables."""
    found = Expected()
    holds = compiled(case.on, case.tables, found.notes)

    def pred(rows: dict[str, int]) -> bool | None:
        value = holds(rows)
        if value is FAILED:
            found.undecided = True
            return None
        return value

    if case.chain:
        found.rows = Counter(_chain(case, found))
        return found
    if case.call == "join_many":
        found.rows = Counter(_many(case, pred))
        return found
    left, right = case.tables

    def of_pair(l: naive.Row, r: naive.Row) -> bool | None:
        return pred({left: l["id"], right: r["id"]})

    pairs = _pairs(case, of_pair)
    if case.aggs:
        matches = [(l["id"], r["id"]) for l, r in pairs]
        found.groups = grouped(matches, case.groups, case.aggs, case.tables, found.notes)
        found.undecided |= any(FAILED in values for values in found.groups.values())
        return found
    semi = case.how in ("semi", "anti")
    ids = ((l and l["id"], r and r["id"]) for l, r in pairs)
    rows = [(l,) if semi else (l, r) for l, r in ids]
    found.rows = Counter(rows if case.limit is None else sorted(rows)[: case.limit])
    return found


def may_fail(case: Case) -> bool:
    """Whether some expression overflows or fails on some rows, whether these meet or not."""
    notes = Notes()
    parts = [on for _, on in case.chain] + ([] if case.where is None else [case.where])
    holds = compiled(both(parts or [case.on]), case.tables, notes)
    sides = list(case.tables)
    for chosen in product(*(range(table.size) for table in case.tables.values())):
        holds(dict(zip(sides, chosen, strict=True)))
    if case.aggs:
        left, right = (range(table.size) for table in case.tables.values())
        grouped(list(product(left, right)), (), case.aggs, case.tables, notes)
    return notes.may_fail


def _rows(table: Table) -> list[naive.Row]:
    has_time = any(column.name == "t" for column in table.columns)
    times = table.column("t").values if has_time else [None] * table.size
    return [{"id": i, "t": time} for i, time in enumerate(times)]


def naive_window(case: Case) -> naive.Window:
    """The case's window as the oracle knows it."""
    window = case.window
    if window is None or window.name == "full":
        return naive.Full()
    if window.name == "count":
        return naive.Count(window.size, window.slide)
    unit = window_unit(case)
    return naive.Time(window.before * unit, window.after * unit)


def _pairs(case: Case, pred: naive.Predicate) -> list[naive.Pair]:
    window, order_by = naive_window(case), "t" if case.order_by else None
    left, right = (_rows(table) for table in case.tables.values())
    if case.call in ONE_TABLE:
        return naive.naive_self_join(left, pred, window=window, order_by=order_by)
    if case.call != "stream":
        return naive.naive_join(left, right, pred, how=case.how, window=window, order_by=order_by)
    steps: list[Any] = []
    at = (0, 0)
    for step in case.steps:
        if step.name == "push":
            steps.append(naive.Push(left[at[0] : step.left], right[at[1] : step.right]))
            at = step.left, step.right
        elif step.name == "advance":
            steps.append(naive.Advance(step.watermark))
    return naive.naive_stream(steps, pred, how=case.how, window=window, order_by=order_by).rows


def _many(case: Case, pred: Any) -> list[Ids]:
    """Every combination of rows, one of each table, that the condition and the window allow."""
    sides = list(case.tables)
    rows = [_rows(table) for table in case.tables.values()]
    sees = _Sees(case.window, rows, case.order_by) if case.window else None
    found = []
    for chosen in product(*rows):
        ids = tuple(row["id"] for row in chosen)
        if sees is not None and not sees.together(ids, chosen, naive_window(case)):
            continue
        if pred(dict(zip(sides, ids, strict=True))) is True:
            found.append(ids)
    return found


def _chain(case: Case, found: Expected) -> list[Ids]:
    """One join after the other, each over the rows that the one before gave; then WHERE."""
    sides = list(case.tables)
    rows: list[Ids] = [(i,) for i in range(case.tables[sides[0]].size)]
    for at, (how, on) in enumerate(case.chain, 1):
        holds = compiled(on, case.tables, found.notes)
        new = range(case.tables[sides[at]].size)
        joined: list[Ids] = []
        matched: set[int] = set()
        for row in rows:
            ids = dict(zip(sides, row, strict=False))
            answers = {i: holds({**ids, sides[at]: i}) for i in new}
            found.undecided |= any(answer is FAILED for answer in answers.values())
            mine = [i for i, answer in answers.items() if answer is True]
            joined += [(*row, i) for i in mine]
            matched |= set(mine)
            if not mine and how in ("left", "full"):
                joined.append((*row, None))
        if how in ("right", "full"):
            joined += [(*[None] * at, i) for i in new if i not in matched]
        rows = joined
    if case.where is None:
        return rows
    keeps = compiled(case.where, case.tables, found.notes)
    answers = [keeps(dict(zip(sides, row, strict=True))) for row in rows]
    found.undecided |= any(answer is FAILED for answer in answers)
    return [row for row, answer in zip(rows, answers, strict=True) if answer is True]


class _Sees:
    """Which rows of several tables are in one window."""

    def __init__(self, window: Window, rows: list[list[naive.Row]], order_by: bool) -> None:
        arrivals = [
            (row["t"] if order_by else 0, side, row["id"])
            for side, of in enumerate(rows)
            for row in of
        ]
        arrivals.sort(key=lambda a: ((a[0] is not None, a[0] or 0), a[1], a[2]))
        self.place: dict[tuple[int, int], int] = {}
        self.index: dict[tuple[int, int], int] = {}
        self.before: dict[tuple[int, int], list[int]] = {}
        counts = [0] * len(rows)
        for place, (_, side, row) in enumerate(arrivals):
            self.place[side, row], self.index[side, row] = place, counts[side]
            self.before[side, row] = list(counts)
            counts[side] += 1

    def together(self, ids: Ids, rows: tuple[naive.Row, ...], window: naive.Window) -> bool:
        """Whether the latest row sees all others, or all times lie within the window."""
        keys = list(enumerate(ids))
        if isinstance(window, naive.Time):
            return all(
                window.near(rows[i], rows[j])
                for i in range(len(rows))
                for j in range(i + 1, len(rows))
            )
        if isinstance(window, naive.Full):
            return True
        last = max(keys, key=lambda key: self.place[key])
        return all(
            self.index[key] >= window.first_visible(self.before[last][key[0]])
            for key in keys
            if key != last
        )
