"""What a fault history should have given: a brute-force join of the micro-batches it took.

The micro-batches are read from the checkpoint's own logs, so nothing here depends on the engine.
Rows have no ids, and many are alike: results are compared as multisets of whole rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from campaigns import fault_query as made
from campaigns.fault_logs import Batch, by_group, read_batches, read_sink, read_totals
from campaigns.fault_query import END, SIDES, Case, instants

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
NOBODY = -1


@dataclass
class Side:
    """All rows of a side that are not late, by micro-batch.

    index: a row's place among its side's rows; others: how many rows of the other side came before
    it. Both are for count windows.
    """

    table: pa.Table
    a: npt.NDArray[np.float64]
    b: npt.NDArray[np.float64]
    at: Ints
    late: int = 0
    index: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    others: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def matchable(self) -> Flags:
        """Rows without a NULL in the condition's columns."""
        return ~(np.isnan(self.a) | np.isnan(self.b))

    def __len__(self) -> int:
        return len(self.table)


def compare(folder: Path, case: Case) -> dict[str, Any]:
    """What the sink holds against the naive join of the checkpoint's micro-batches."""
    batches = list(read_batches(folder / "checkpoint"))
    taken = sorted(path.name for batch in batches for path in batch.files["l"] + batch.files["r"])
    there = sorted(path.name for side in SIDES for path in (folder / side).glob("*.parquet"))
    if taken != there:
        raise RuntimeError("the checkpoint's logs do not name every file once")
    left, right = sides_of(batches, case)
    i, j = pairs_of(left, right, case)
    if case.totals:
        found = compare_totals(read_totals(folder / "out"), totals_of(left, right, i, j))
    else:
        wanted = with_unmatched(left, right, i, j, case)
        found = compare_rows(left, right, wanted, ordinary(read_sink(folder / "out"), case))
    return {
        **found,
        "pairs": len(i),
        "rows": len(left) + len(right),
        "late_rows": left.late + right.late,
        "batches": len(batches),
        "batches_of_several_files": sum(
            max(len(batch.files[side]) for side in SIDES) > 1 for batch in batches
        ),
    }


# What came


def sides_of(batches: list[Batch], case: Case) -> tuple[Side, Side]:
    """Both sides' rows as the query should have taken them."""
    tables = {side: [_read(batch.files[side]) for batch in batches] for side in SIDES}
    # A row is late by the watermark of the micro-batch before.
    marks = [0, *(batch.watermark for batch in batches[:-1])]
    left, right = (take_in(tables[side], marks, case) for side in SIDES)
    if case.window == "count":
        number_rows(left, right, [tables[side] for side in SIDES])
    return left, right


def _read(paths: list[Path]) -> pa.Table:
    tables = [pq.read_table(path) for path in paths]
    return pa.concat_tables(tables) if tables else None


def take_in(tables: list[pa.Table | None], marks: list[int], case: Case) -> Side:
    """A side's rows in order of micro-batch and, in a count window, of their place."""
    kept, late = [], 0
    for table, mark in zip(tables, marks, strict=True):
        if table is None:
            continue
        rows = table.combine_chunks()
        if case.window == "count":
            rows = rows.take(pc.sort_indices(rows, [("at", "ascending")]))
        elif case.window == "time":
            times = _millis(rows["at"])
            late += int((times < mark).sum())
            rows = rows.filter(pa.array((times >= mark) & (times < END)))
        kept.append(rows)
    table = pa.concat_tables(kept).combine_chunks()
    a, b = (table[name].cast(pa.float64()).to_numpy() for name in ("a", "b"))
    return Side(table, a, b, _millis(table["at"]), late)


def _millis(at: pa.ChunkedArray) -> Ints:
    if pa.types.is_timestamp(at.type):
        at = at.cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    numbers: Ints = at.to_numpy()
    return numbers


def number_rows(left: Side, right: Side, tables: list[list[pa.Table | None]]) -> None:
    """Give every row its index, and how many rows of the other side came before it."""
    seen = [0, 0]
    found: list[list[Ints]] = [[], []]
    sides = (left, right)
    for batch in zip(*tables, strict=True):
        counts = [0 if table is None else len(table) for table in batch]
        at = [s.at[n : n + c] for s, n, c in zip(sides, seen, counts, strict=True)]
        # Left before right on a tie.
        found[0].append(seen[1] + np.searchsorted(at[1], at[0], side="left"))
        found[1].append(seen[0] + np.searchsorted(at[0], at[1], side="right"))
        seen = [n + c for n, c in zip(seen, counts, strict=True)]
    for side, others in zip(sides, found, strict=True):
        side.index, side.others = np.arange(len(side)), np.concatenate(others)


def ordinary(given: pa.Table, case: Case) -> pa.Table:
    """Output rows without those of the last files, which may come out or not come yet."""
    if case.window != "time":
        return given
    end = instants([END])[0]
    for name in ("at", "at_right"):
        if name in given.column_names:
            given = given.filter(pc.fill_null(pc.less(given[name], end), True))
    return given


# What it should give


def pairs_of(left: Side, right: Side, case: Case) -> tuple[Ints, Ints]:
    """Row numbers of every pair: each left row with each right row, some left rows at a time."""
    meets = MEETINGS[case.window](left, right)
    found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for start in range(0, len(left), 500):
        at = slice(start, start + 500)
        holds = (left.a[at, None] <= right.a) & (left.b[at, None] >= right.b)
        i, j = np.nonzero(meets(at) & holds)
        found.append((i + start, j))
    i, j = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return i, j


def first_visible(count: Any) -> Any:
    """The first row that is seen when so many have come, from the definition."""
    return made.SLIDE * -(-np.maximum(0, count - made.SIZE) // made.SLIDE)


def _counted(left: Side, right: Side) -> Callable[[slice], Flags]:
    def meets(at: slice) -> Flags:
        i, n = left.index[at, None], left.others[at, None]
        left_sees = (right.index < n) & (right.index >= first_visible(n))
        seen: Flags = left_sees | (i < right.others) & (i >= first_visible(right.others))
        return seen

    return meets


def _timed(left: Side, right: Side) -> Callable[[slice], Flags]:
    def meets(at: slice) -> Flags:
        t = left.at[at, None]
        near: Flags = (right.at >= t - made.BEFORE) & (right.at <= t + made.AFTER)
        return near

    return meets


def _always(left: Side, right: Side) -> Callable[[slice], Flags]:
    return lambda at: np.ones((len(left.at[at]), len(right)), np.bool_)


MEETINGS = {"count": _counted, "time": _timed, "history": _always}


def with_unmatched(left: Side, right: Side, i: Ints, j: Ints, case: Case) -> tuple[Ints, Ints]:
    """Row numbers of each output row's halves, NOBODY where there is none."""
    if case.how == "semi":
        matched = np.unique(i)
        return matched, np.full(len(matched), NOBODY)
    parts = [(i, j)]
    if case.how in ("left", "full"):
        alone = owed(left, i, case)
        parts.append((alone, np.full(len(alone), NOBODY)))
    if case.how in ("right", "full"):
        alone = owed(right, j, case)
        parts.append((np.full(len(alone), NOBODY), alone))
    lefts, rights = (np.concatenate(column) for column in zip(*parts, strict=True))
    return lefts, rights


def owed(side: Side, matched: Ints, case: Case) -> Ints:
    """Rows without a match that can have none any more.

    In a time window the last files have moved the watermark past all rows but their own.
    """
    alone = np.ones(len(side), np.bool_)
    alone[matched] = False
    if case.window == "count":
        gone = np.arange(len(side)) < first_visible(len(side))
        alone &= gone | ~side.matchable
    return np.flatnonzero(alone)


def totals_of(left: Side, right: Side, i: Ints, j: Ints) -> dict[Any, tuple[Any, ...]]:
    """The aggregates of each group, by Arrow's own grouping."""
    p, b, a, q = (
        side.table[name].take(pa.array(rows)).combine_chunks()
        for side, rows, name in ((left, i, "p"), (right, j, "b"), (right, j, "a"), (right, j, "q"))
    )
    # Zeros of either sign are one group.
    groups = pa.table({"p": pc.add(p, 0.0), "b": b, "a": a, "q": q}).group_by("p")
    asked = [([], "count_all"), ("b", "sum"), ("a", "max"), ("q", "min")]
    table = groups.aggregate(asked)
    names = ("p", "count_all", "b_sum", "a_max", "q_min")
    return by_group([table[name].to_pylist() for name in names])


def compare_totals(given: dict[Any, Any], wanted: dict[Any, Any]) -> dict[str, int]:
    """Pairs that the counts miss or have too often, and groups whose other totals differ."""
    lost = duplicate = wrong = 0
    for group in given.keys() | wanted.keys():
        mine, right = (totals.get(group, (0, None, None, None)) for totals in (given, wanted))
        lost += max(0, right[0] - mine[0])
        duplicate += max(0, mine[0] - right[0])
        wrong += mine[1:] != right[1:]
    return {"lost": lost, "duplicate": duplicate, "wrong": wrong}


def compare_rows(
    left: Side, right: Side, wanted: tuple[Ints, Ints], given: pa.Table
) -> dict[str, int]:
    """How often each output row is missing, is there too often, or should not be at all."""
    width = len(left.table.column_names)
    names = given.column_names
    should, there = [], []
    for side, rows, mine in ((left, wanted[0], names[:width]), (right, wanted[1], names[width:])):
        if not mine:  # a semi join has no right half
            continue
        nobody = pa.table({f.name: pa.nulls(1, f.type) for f in side.table.schema})
        half = given.select(mine).rename_columns(side.table.column_names).cast(side.table.schema)
        codes, found = row_codes([pa.concat_tables([side.table, nobody]), half])
        should.append(codes[rows])
        there.append(found)
    return multiset_difference(np.stack(there, 1), np.stack(should, 1))


def row_codes(tables: list[pa.Table]) -> list[Ints]:
    """A number for each row, the same for rows alike in every bit: -0.0 is not 0.0 here."""
    bits = [_bits(table) for table in tables]
    codes = np.unique(np.concatenate(bits), axis=0, return_inverse=True)[1].reshape(-1)
    return np.split(codes.astype(np.int64), np.cumsum([len(part) for part in bits])[:-1])


def _bits(table: pa.Table) -> Ints:
    columns = []
    for column in table.columns:
        columns.append(column.is_null().to_numpy().astype(np.int64))
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        columns.append(pc.fill_null(column, 0).to_numpy().view(np.int64))
    return np.stack(columns, 1)


def multiset_difference(given: Ints, wanted: Ints) -> dict[str, int]:
    """Rows that are missing, those there too often, and those that should not be there."""
    both, at = np.unique(np.concatenate([given, wanted]), axis=0, return_inverse=True)
    at = at.reshape(-1)
    had = np.bincount(at[: len(given)], minlength=len(both))
    should = np.bincount(at[len(given) :], minlength=len(both))
    more = np.maximum(had - should, 0)
    return {
        "lost": int(np.maximum(should - had, 0).sum()),
        "duplicate": int(more[should > 0].sum()),
        "wrong": int(more[should == 0].sum()),
    }
