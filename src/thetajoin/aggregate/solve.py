"""Sums, counts and extremes of the rows inside boxes, without visiting the rows.

A segment's rows stand in several orders, one for each key. A probe asks for a range of positions in
each of them, so its matches are the points of a permutation (or of several) inside a box:

| orders | counts and sums | extremes |
| --- | --- | --- |
| 1 | running sums | a segment tree |
| 2 | a sweep, or a summed-area table that is kept with the segment | a sweep |
| 3 | one order's ranges as nodes of a binary tree: inside a node two orders are left | the same |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thetajoin.batch.keys import Int64
from thetajoin.kernels import exact_sums, rectangles
from thetajoin.kernels.order import gather, invert, is_sorted, order_of
from thetajoin.kernels.threads import ALONE, Mapper

Int32 = NDArray[np.int32]
Ranges = tuple[Int32, Int32]
NONE = np.iinfo(np.int64).max  # the rank of no row at all
MOST_ORDERS = 3
# A summed-area table is asked where questions are this many times fewer than rows.
GRID_RATIO = 12
# Boxes are taken as differences of what is before two places where most of them are.
MOST_OTHERS = 0.75
# Up to this many rows, a sweep with more questions than points is made for questions.
OFTEN_ROWS = 1 << 20


@dataclass(frozen=True)
class Axis:
    """Another order of the rows: position to primary position, and each probe's range in it."""

    order: Int32
    start: Int32
    end: Int32
    # Names the order among those of its plane, where something may be kept for it.
    name: Any = None
    # Probes in an order in which the ranges probably go up, because their keys do.
    rising: Int32 | None = None
    # The run of rows with equal keys that each probe asks in, where that is known.
    runs: Ranges | None = None


@dataclass
class Plane:
    """Rows in primary order: columns to add up and ranks to take the least of.

    `memo` keeps what depends on the rows alone; a plane that is used once needs none.
    """

    size: int
    sums: list[Int64]
    ranks: list[Int64]
    memo: dict[Any, Any] | None = None
    mapper: Mapper = ALONE

    def keep(self, key: Any, make: Callable[[], Any]) -> Any:
        """Something computed from the rows, kept if this plane keeps anything."""
        if self.memo is None:
            return make()
        if key not in self.memo:
            self.memo[key] = make()
        return self.memo[key]


@dataclass(frozen=True)
class Answer:
    """``totals[0]`` counts rows, the others are the columns' sums; `least` are the least ranks."""

    totals: NDArray[np.int64]
    least: NDArray[np.int64]

    @staticmethod
    def empty(plane: Plane, size: int) -> Answer:
        """An answer without rows."""
        return Answer(
            np.zeros((1 + len(plane.sums), size), np.int64),
            np.full((len(plane.ranks), size), NONE, np.int64),
        )

    def add(self, other: Answer) -> None:
        """Take in the answer for other rows."""
        np.add(self.totals, other.totals, out=self.totals)
        np.minimum(self.least, other.least, out=self.least)

    def add_at(self, rows: Int64, other: Answer) -> None:
        """Take in answers for some of the probes; one may be there twice."""
        for mine, theirs in zip(self.totals, other.totals, strict=True):
            exact_sums.count_at(rows, theirs, mine)
        for mine, theirs in zip(self.least, other.least, strict=True):
            exact_sums.least_at(rows, theirs, mine)


def solve(plane: Plane, primary: Ranges, axes: list[Axis]) -> Answer:
    """The rows in each probe's box; at most `MOST_ORDERS` orders with the primary one."""
    if plane.size == 0 or not len(primary[0]):
        return Answer.empty(plane, len(primary[0]))
    if not axes:
        return _one(plane, primary)
    if len(axes) == 1:
        return _two(plane, primary, axes[0])
    if len(axes) + 1 > MOST_ORDERS:
        raise ValueError(f"{len(axes) + 1} orders")
    return _by_nodes(plane, primary, axes[-1], axes[:-1])


def narrow(axis: Axis, chosen: Int64) -> Axis:
    """The axis as some of the probes see it."""
    rising = None
    if axis.rising is not None:
        number = np.full(axis.start.size, -1, np.int32)
        number[chosen] = np.arange(chosen.size, dtype=np.int32)
        rising = gather(number, axis.rising)
        rising = rising[rising >= 0]
    start, end = gather(axis.start, chosen), gather(axis.end, chosen)
    runs = None
    if axis.runs is not None:
        runs = gather(axis.runs[0], chosen), gather(axis.runs[1], chosen)
    return Axis(axis.order, start, end, axis.name, rising, runs)


def part_of(
    plane: Plane, primary: Ranges, axes: list[Axis], kept: NDArray[np.bool_]
) -> tuple[Plane, Ranges, list[Axis]]:
    """The rows for which `keep`, in primary order, holds; and the ranges among them. O(rows)."""
    place = _ranks(kept)
    part = Plane(
        int(place[-1]),
        [column[kept] for column in plane.sums],
        [column[kept] for column in plane.ranks],
        mapper=plane.mapper,
    )
    smaller = []
    for axis in axes:
        there = gather(kept, axis.order)
        at = _ranks(there)
        order = gather(place, axis.order[there])
        smaller.append(
            Axis(order, gather(at, axis.start), gather(at, axis.end), rising=axis.rising)
        )
    return part, (gather(place, primary[0]), gather(place, primary[1])), smaller


def _ranks(kept: NDArray[np.bool_]) -> Int32:
    """How many are kept before each position, and before the end."""
    out = np.zeros(kept.size + 1, np.int32)
    np.cumsum(kept, out=out[1:])
    return out


def _one(plane: Plane, primary: Ranges) -> Answer:
    starts, ends = primary
    answer = Answer.empty(plane, starts.size)
    answer.totals[0] = np.maximum(ends - starts, 0)

    def column(at: int) -> None:
        exact_sums.add_range_sums(_sum_running(plane, at), starts, ends, answer.totals[at + 1])

    plane.mapper(column, range(len(plane.sums)))
    for at, ranks in enumerate(plane.ranks):
        rectangles.least_in_ranges(ranks, starts, ends, answer.least[at])
    return answer


def _sum_running(plane: Plane, at: int) -> Int64:
    def make() -> Int64:
        out = np.empty(plane.size + 1, np.int64)
        exact_sums.sum_running(plane.sums[at], out)
        return out

    found: Int64 = plane.keep(("running", at), make)
    return found


def _two(plane: Plane, primary: Ranges, axis: Axis) -> Answer:
    answer = Answer.empty(plane, primary[0].size)
    few = primary[0].size * GRID_RATIO < plane.size
    if few and plane.memo is not None and axis.name is not None:
        _ask_grid(plane, primary, axis, answer)
    else:
        rest = None if axis.runs is None else _differences(plane, primary, axis, axis.runs, answer)
        if rest is None:
            _sweep_sums(plane, primary, axis, answer)
        elif rest.size:
            some = gather(primary[0], rest), gather(primary[1], rest)
            found = Answer(np.zeros((len(answer.totals), rest.size), np.int64), answer.least)
            _sweep_sums(plane, some, narrow(axis, rest), found)
            answer.totals[:, rest] = found.totals
    if plane.ranks:
        _least_of_two(plane, primary, axis, answer)
    return answer


def _differences(
    plane: Plane, primary: Ranges, axis: Axis, runs: Ranges, answer: Answer
) -> Int64 | None:
    """Totals of boxes that are all before one place less all before another; which boxes are not.

    It is so for intervals and those they overlap: what ends before an interval begins has begun
    before it ends. Each box must begin with its run in one order and end with it in the other; None
    if they do not, or if most are no difference. Costs a pass over the rows and a look at each box.
    """
    starts, ends = primary
    others = np.empty(starts.size, np.int64)
    extreme = np.empty(plane.size + 1, np.int32)
    counts = answer.totals[0]
    if _same(starts, runs[0]) and _same(axis.end, runs[1]):
        rectangles.largest_before(axis.order, extreme)
        more, less = ends, axis.start
        found = rectangles.count_differences(more, less, extreme, runs[0], others, counts)
    elif _same(ends, runs[1]) and _same(axis.start, runs[0]):
        rectangles.smallest_from(axis.order, extreme)
        more, less = axis.end, starts
        found = rectangles.count_back_differences(more, less, extreme, runs[1], others, counts)
    else:
        return None
    if found > MOST_OTHERS * others.size:
        counts[:] = 0
        return None

    def column(at: int) -> None:
        by_y = np.empty(plane.size + 1, np.int64)
        exact_sums.sum_running(gather(plane.sums[at], axis.order), by_y)
        by_x = _sum_running(plane, at)
        first, second = (by_x, by_y) if more is ends else (by_y, by_x)
        np.subtract(gather(first, more), gather(second, less), out=answer.totals[at + 1])

    plane.mapper(column, range(len(plane.sums)))
    return others[:found]


def _same(some: Int32, others: Int32) -> bool:
    return some is others or bool((some == others).all())


def _ask_grid(plane: Plane, primary: Ranges, axis: Axis, answer: Answer) -> None:
    # Cells of such a size that there are at most four for each row.
    shift = next(s for s in range(32) if ((plane.size >> s) + 2) ** 2 <= 4 * plane.size + 64)
    side = (plane.size >> shift) + 2
    name = axis.name
    place = plane.keep(("place", name), lambda: invert(axis.order))
    box = (*primary, axis.start, axis.end)

    def table(at: int) -> NDArray[np.int64]:
        cells = np.zeros((side, side), np.int64 if at else np.int32)
        values = plane.sums[at - 1] if at else _NOTHING
        rectangles.build_grid(place, values, at > 0, shift, cells)
        return cells

    def column(at: int) -> None:
        cells = plane.keep(("grid", name, at), lambda: table(at))
        if at == 0:
            rectangles.count_in_grid(place, axis.order, shift, cells, box, answer.totals[0])
            return
        by_x = plane.sums[at - 1]
        by_y = plane.keep(("by", name, at), lambda: gather(by_x, axis.order))
        rectangles.sum_in_grid(place, axis.order, by_x, by_y, shift, cells, box, answer.totals[at])

    plane.mapper(column, range(1 + len(plane.sums)))


def _sweep_sums(plane: Plane, primary: Ranges, axis: Axis, answer: Answer) -> None:
    starts, ends = primary
    rising = np.arange(starts.size, dtype=np.int32) if axis.rising is None else axis.rising
    at, asked, whole = (np.empty(size * starts.size, np.int32) for size in (2, 2, 1))
    signs = np.empty(at.size, np.int8)
    box = (starts, ends, axis.start, axis.end, plane.size)
    listed, to_end = rectangles.list_questions(*box, rising, at, asked, signs, whole)
    at, asked, signs, whole = at[:listed], asked[:listed], signs[:listed], whole[:to_end]
    if not is_sorted(at):
        order = order_of(at.astype(np.int64))
        at, signs, asked = gather(at, order), gather(signs, order), gather(asked, order)

    packed = _pack(plane)
    often = at.size > 0 and at.size > at[-1] and plane.size <= OFTEN_ROWS
    sweep_sum = rectangles.sweep_sum_often if often else rectangles.sweep_sum

    def column(at_column: int) -> None:
        out = answer.totals[at_column]
        if at_column == 0:
            out[whole] = ends[whole] - starts[whole]
            if packed is None:
                rectangles.sweep_count(
                    axis.order, at, asked, signs, starts, ends, rectangles.WIDE, out
                )
            return
        if whole.size:
            ranges = np.zeros(whole.size, np.int64)
            sums = _sum_running(plane, at_column - 1)
            exact_sums.add_range_sums(sums, starts[whole], ends[whole], ranges)
            out[whole] = ranges
        if at_column > 1 or packed is None:
            values = plane.sums[at_column - 1]
            sweep_sum(axis.order, values, at, asked, signs, *primary, rectangles.WIDE, out)

    plane.mapper(column, range(1 + len(plane.sums)))
    if packed is not None:
        values, bits = packed
        counts, sums = answer.totals[:2]
        both = (sums << bits) + counts
        sweep_sum(axis.order, values, at, asked, signs, *primary, rectangles.WIDE, both)
        exact_sums.unpack_counts(both, bits, counts, sums)


def _pack(plane: Plane) -> tuple[Int64, int] | None:
    """The first column's values with a count in their lowest bits, if both fit: one sweep for two.

    Several threads sweep one column each, and need no packing.
    """
    if not plane.sums or plane.mapper.threads > 1:
        return None

    def make() -> tuple[Int64, int] | None:
        bits = plane.size.bit_length()
        least, most = plane.sums[0].min(), plane.sums[0].max()
        largest = max(-int(least), int(most))
        if (largest + 1) * plane.size << bits >= 2**63:
            return None
        return (plane.sums[0] << bits) + 1, bits

    found: tuple[Int64, int] | None = plane.keep("packed", make)
    return found


def _least_of_two(plane: Plane, primary: Ranges, axis: Axis, answer: Answer) -> None:
    """Extremes cannot be subtracted: a sweep needs an order in which all ranges share an end."""
    (starts, ends), n = primary, plane.size
    some = np.flatnonzero((starts < ends) & (axis.start < axis.end))
    if not some.size:
        return
    x, y = (starts, ends), (axis.start, axis.end)
    if not _share_end(y, some, n) and _share_end(x, some, n):
        place = invert(axis.order)
        _sweep_least([gather(r, axis.order) for r in plane.ranks], place, x, y, some, n, answer)
    elif _share_end(y, some, n):
        _sweep_least(plane.ranks, axis.order, y, x, some, n, answer)
    else:
        only = Plane(n, [], plane.ranks)
        found = _by_nodes(only, primary, axis, [])
        np.minimum(answer.least, found.least, out=answer.least)


def _share_end(ranges: Ranges, some: Int64, n: int) -> bool:
    return bool((ranges[0][some] == 0).all() or (ranges[1][some] == n).all())


def _sweep_least(
    ranks: list[Int64],
    perm: Int32,
    swept: Ranges,
    inside: Ranges,
    some: Int64,
    n: int,
    answer: Answer,
) -> None:
    if (swept[0][some] == 0).all():
        at = swept[1][some].astype(np.int64)
    else:
        perm, at = perm[::-1], n - swept[0][some].astype(np.int64)
    order = order_of(at)
    at, asked = gather(at, order), gather(some, order)
    for out, column in zip(answer.least, ranks, strict=True):
        rectangles.sweep_least(perm, column, at, asked, *inside, out)


def _by_nodes(plane: Plane, primary: Ranges, axis: Axis, rest: list[Axis]) -> Answer:
    """One order's ranges cut into nodes of a binary tree: inside a node that order is done with.

    A level's nodes are solved together: its rows sorted by node are a segment whose runs they are.
    """
    answer = Answer.empty(plane, primary[0].size)
    n = plane.size
    places = np.stack([np.arange(n, dtype=np.int32), *(invert(other.order) for other in rest)])
    low = np.stack([primary[0], *(other.start for other in rest)])
    high = np.stack([primary[1], *(other.end for other in rest)])
    empty = (low >= high).any(axis=0)
    start, end = axis.start, np.where(empty, axis.start, axis.end).astype(np.int32)
    sums = np.stack(plane.sums) if plane.sums else np.zeros((0, n), np.int64)
    ranks = np.stack(plane.ranks) if plane.ranks else np.zeros((0, n), np.int64)
    rectangles.scan_ends(
        axis.order, start, end, places, low, high, sums, ranks, answer.totals, answer.least
    )
    per_level = np.zeros(40, np.int64)
    rectangles.count_nodes(start, end, per_level)
    for level in np.flatnonzero(per_level):
        node, asked = (np.empty(per_level[level], np.int64) for _ in range(2))
        rectangles.list_nodes(start, end, level, node, asked)
        _solve_level(plane, axis, int(level), node, asked, places, low, high, answer)
    return answer


def _solve_level(
    plane: Plane,
    axis: Axis,
    level: int,
    node: Int64,
    asked: Int64,
    places: Int32,
    low: Int32,
    high: Int32,
    answer: Answer,
) -> None:
    shift, n = rectangles.LEAF + level, plane.size
    wanted = np.zeros((n >> shift) + 1, np.bool_)
    rectangles.mark_at(node, wanted)
    number = np.arange(n, dtype=np.int64) >> shift
    chosen = wanted[number]
    of, rows = number[chosen], axis.order[chosen]
    # Where the wanted nodes' rows begin, and the last one's end.
    edges = np.minimum(np.arange(wanted.size + 1, dtype=np.int64) << shift, n)
    firsts = np.zeros(wanted.size + 1, np.int32)
    np.cumsum(np.diff(edges) * wanted, out=firsts[1:])
    runs = gather(firsts[:-1], node), gather(firsts[1:], node)

    def ranges(place: Int32, by: Int32, at: int) -> Ranges:
        keys = gather(place, by)
        out = []
        for ends in (low[at], high[at]):
            found = np.empty(node.size, np.int32)
            rectangles.place_in_runs(keys, *runs, gather(ends, asked), found)
            out.append(found)
        return out[0], out[1]

    by_primary = gather(rows, order_of(of * n + rows))
    first = ranges(places[0], by_primary, 0)
    axes = []
    for at in range(1, len(places)):
        order = order_of(of * n + places[at][by_primary])
        axes.append(Axis(order, *ranges(places[at], gather(by_primary, order), at)))
    part = Plane(
        rows.size,
        [gather(column, by_primary) for column in plane.sums],
        [gather(column, by_primary) for column in plane.ranks],
        mapper=plane.mapper,
    )
    answer.add_at(asked, solve(part, first, axes))


_NOTHING: Int64 = np.zeros(0, np.int64)
