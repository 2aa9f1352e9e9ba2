"""Cells: which rows meet in which task of a join of tables.

One side is held: its rows are cut into groups of neighbours, and each row is in one group. Rows of
the other side are streamed past every group whose box they may match, and past no other. Cuts are
set where the estimated cost of the dearest cell is least, counting the rows of both sides and the
pairs they give. A group that no cut can make smaller (a repeated value) is dealt out by a hash:
its held rows over some cells, the rows streamed past it over others.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.batch.keys import INT64_MAX, INT64_MIN, BytesKey, Int64
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.parts import OTHER, Side
from thetajoin.engine.rows import KeyedBatch, make_batch
from thetajoin.errors import DataError
from thetajoin.index.po_join import PoJoin
from thetajoin.index.probe import Arrivals, Probe
from thetajoin.kernels.order import gather, order_of
from thetajoin.planner.zones import (
    Boxes,
    Places,
    ProbingRows,
    Sight,
    Zones,
    may_match,
    places,
    sights_of,
)
from thetajoin.routes.copies import Copies

# Costs in the unit of shipping, sorting and probing one row.
PAIR_COST = 0.25
CELL_COST = 20_000.0
SLICES = 128
MOST_DEALT = 8
Floats = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]
Index = NDArray[np.int32]
Hashes = NDArray[np.uint64]
Targets = Iterator[tuple[int, Index]]


@dataclass(frozen=True)
class Group:
    """Neighbouring rows of the held side, with estimates of what they meet."""

    held: float
    streamed: float
    pairs: float
    held_parts: int = 1
    streamed_parts: int = 1

    @property
    def cells(self) -> int:
        """Cells it is dealt out over."""
        return self.held_parts * self.streamed_parts

    @property
    def cost(self) -> float:
        """What each of its cells costs."""
        a, b = self.held_parts, self.streamed_parts
        return self.held / a + self.streamed / b + PAIR_COST * self.pairs / (a * b)

    @property
    def shipped(self) -> float:
        """Rows sent to its cells."""
        return self.held * self.streamed_parts + self.streamed * self.held_parts


@dataclass(frozen=True)
class CellPlan:
    """How a join is spread over tasks; printable, and the same for every task."""

    held: Side
    cuts: Places
    boxes: Boxes
    outside: Boxes
    groups: tuple[Group, ...]
    dropped: tuple[bool, ...]
    first_cell: tuple[int, ...]
    cells: int
    makespan: float

    def __str__(self) -> str:
        lines = [
            f"{'left' if self.held == 'l' else 'right'} side held in {len(self.groups)} groups, "
            f"{self.cells} cells"
        ]
        for number, group in enumerate(self.groups):
            split = f", dealt {group.held_parts} x {group.streamed_parts}" * (group.cells > 1)
            drop = ", matches nothing" * self.dropped[number]
            lines.append(
                f"  group {number}: about {group.held:,.0f} rows held, {group.streamed:,.0f} "
                f"streamed, {group.pairs:,.0f} pairs{split}{drop}"
            )
        return "\n".join(lines)


@dataclass(frozen=True)
class _Slices:
    """The held side in fine slices, each with the streamed zones it may match."""

    cuts: Places
    boxes: Boxes
    held: Floats
    pairs: Floats
    meets: Mask
    weights: Floats


def plan_cells(
    sights: tuple[Sight, ...],
    held: Side,
    zones: dict[Side, Zones],
    pairs: tuple[Places, Floats] | None,
    *,
    cores: int,
    preserved: bool,
    most_held: int,
    tasks: tuple[int, ...] = (),
) -> CellPlan:
    """The cheapest cells with `held` as the held side.

    `pairs` are estimates: places of held rows and how many pairs each stands for. With `preserved`
    each held row must meet all its matches in one cell. `tasks` are numbers of cells to choose
    from.
    """
    probing = zones[OTHER[held]].coarser(SLICES)
    slices = _slice(sights, held, zones[held], probing, pairs)
    best: tuple[float, list[tuple[int, int]], list[Group]] | None = None
    for number in sorted({*(tasks or (1, cores, 2 * cores, 4 * cores))}):
        spans, groups = _split(slices, number, preserved, most_held)
        length = makespan(groups, cores) + sum(group.shipped for group in groups) / cores
        if best is None or length < best[0]:
            best = length, spans, groups
    assert best is not None
    length, spans, groups = best
    into = np.zeros(len(slices.held), np.intp)
    for number, (start, end) in enumerate(spans):
        into[start:end] = number
    boxes = slices.boxes.merge(np.arange(len(into)), into, len(groups))
    # By the groups' own boxes, which rows are held against: none of those seen may match one.
    met = may_match(sights, held, boxes, probing.boxes)
    dropped = tuple(not preserved and not met[number].any() for number in range(len(groups)))
    first, cells = _number(groups, dropped)
    return CellPlan(
        held,
        slices.cuts.take(np.array([start - 1 for start, _ in spans[1:]], np.intp)),
        boxes,
        zones[OTHER[held]].boxes.all(),
        tuple(groups),
        dropped,
        first,
        cells,
        length,
    )


def without_boxes(plan: CellPlan, sight: Sight) -> CellPlan:
    """The same groups of rows of which only some were seen; they must have an equality.

    A group then has all rows between its cuts, wherever else they are, and no row is left out.
    """
    number = len(plan.groups)
    low = np.full((sight.width(plan.held), number), INT64_MIN, np.int64)
    high = np.full(low.shape, INT64_MAX, np.int64)
    equal, ordered = sight.places(plan.held)
    assert equal is not None
    low[equal, 1:], high[equal, :-1] = plan.cuts.equal, plan.cuts.equal
    if ordered is not None and number > 2:  # parts of the rows of one key
        inside = np.flatnonzero(plan.cuts.equal[1:] == plan.cuts.equal[:-1])
        low[ordered, inside + 1] = plan.cuts.ordered[inside]
        high[ordered, inside + 1] = plan.cuts.ordered[inside + 1]
    width = sight.width(OTHER[plan.held])
    ends = [np.full((width, 1), end, np.int64) for end in (INT64_MIN, INT64_MAX)]
    dropped = (False,) * number
    first, cells = _number(list(plan.groups), dropped)
    return replace(
        plan,
        boxes=Boxes([low], [high]),
        outside=Boxes([ends[0]], [ends[1]]),
        dropped=dropped,
        first_cell=first,
        cells=cells,
    )


def _slice(
    sights: tuple[Sight, ...],
    held: Side,
    zones: Zones,
    probing: Zones,
    pairs: tuple[Places, Floats] | None,
) -> _Slices:
    """Cut the held side at its zones' beginnings; zones across a cut count in both slices."""
    starts = zones.first.take(zones.first.order())
    every = max(1, len(starts) // SLICES)
    cuts = starts.take(np.arange(0, len(starts), every)).distinct()
    cuts = cuts.take(np.arange(1, len(cuts)))
    first, last = zones.first.among(cuts), zones.last.among(cuts)
    spread = last - first + 1
    of = np.repeat(np.arange(len(zones)), spread)
    into = np.repeat(first - np.cumsum(spread) + spread, spread) + np.arange(len(of))
    number = len(cuts) + 1
    boxes = zones.boxes.merge(of, into, number)
    rows = np.zeros(number)
    np.add.at(rows, into, (zones.rows / spread)[of])
    found = np.zeros(number)
    if pairs is not None:
        np.add.at(found, pairs[0].among(cuts), pairs[1])
    meets = may_match(sights, held, boxes, probing.boxes)
    return _Slices(cuts, boxes, rows, found, meets, probing.rows.astype(np.float64))


def _split(
    slices: _Slices, tasks: int, preserved: bool, most_held: int
) -> tuple[list[tuple[int, int]], list[Group]]:
    """Groups of neighbouring slices, such that the dearest of about `tasks` cells costs least."""
    met, held = slices.meets.any(axis=0), float(slices.held.sum())
    whole = Group(held, float(slices.weights[met].sum()), float(slices.pairs.sum()))
    low, high = whole.cost / tasks / 4, max(whole.cost, 1.0)
    best = _greedy(slices, high, preserved, most_held)
    assert best is not None
    for _ in range(9):
        middle = (low + high) / 2
        tried = _greedy(slices, middle, preserved, most_held, tasks)
        if tried is not None:
            best, high = tried, middle
        else:
            low = middle
    return best


def _greedy(
    slices: _Slices, limit: float, preserved: bool, most_held: int, most_cells: float = np.inf
) -> tuple[list[tuple[int, int]], list[Group]] | None:
    """Fill one group after another up to a cost; deal out a slice that exceeds it alone.

    None if that takes too many cells.
    """
    spans: list[tuple[int, int]] = []
    groups: list[Group] = []
    number = len(slices.held)
    start = cells = 0
    while start < number:
        met = slices.meets[start].copy()
        held, pairs = slices.held[start], slices.pairs[start]
        end = start + 1
        while end < number:
            wider = met | slices.meets[end]
            more, found = held + slices.held[end], pairs + slices.pairs[end]
            streamed = slices.weights @ wider
            if more + streamed + PAIR_COST * found > limit or more > most_held:
                break
            met, held, pairs = wider, more, found
            end += 1
        group = Group(float(held), float(slices.weights[met].sum()), float(pairs))
        groups.append(_deal_out(group, limit, preserved, most_held))
        cells += groups[-1].cells
        if cells > most_cells:
            return None
        spans.append((start, end))
        start = end
    return spans, groups


def _deal_out(group: Group, limit: float, preserved: bool, most_held: int) -> Group:
    """A group in as few cells as the limit allows, or in those that cost least."""
    least = max(1, int(np.ceil(group.held / most_held)))
    fewest = replace(group, held_parts=least)
    if fewest.cost <= limit:
        return fewest
    tried = [
        Group(group.held, group.streamed, group.pairs, a, b)
        for a in range(least, least + MOST_DEALT)
        for b in ((1,) if preserved else range(1, 1 + MOST_DEALT))
    ]
    fitting = [dealt for dealt in tried if dealt.cost <= limit]
    if fitting:
        return min(fitting, key=lambda dealt: (dealt.cells, dealt.shipped))
    return min(tried, key=lambda dealt: dealt.cost * (1 + 0.05 * dealt.cells))


def makespan(groups: list[Group], cores: int) -> float:
    """When the last cell is done, if the most expensive ones start first."""
    costs = sorted((g.cost + CELL_COST for g in groups for _ in range(g.cells)), reverse=True)
    busy = [0.0] * cores
    for cost in costs:
        heapq.heappush(busy, heapq.heappop(busy) + cost)
    return max(busy)


def _number(groups: list[Group], dropped: tuple[bool, ...]) -> tuple[tuple[int, ...], int]:
    """The first cell of each group: expensive ones come first, because tasks start in order."""
    first = [0] * len(groups)
    cells = 0
    for number in sorted(range(len(groups)), key=lambda n: -groups[n].cost):
        if not dropped[number]:
            first[number] = cells
            cells += groups[number].cells
    return tuple(first), max(cells, 1)


def sample_matches(
    compiled: CompiledJoin, held: Side, samples: dict[Side, pa.RecordBatch]
) -> tuple[Places, Int64]:
    """Places of the held sample's rows, and how many rows of the other sample each matches.

    A residual filter is not applied, so that this is too many rather than too few.
    """
    other = OTHER[held]
    batches = {side: make_batch(samples[side], side, compiled.parts, []) for side in (held, other)}
    counts = np.zeros(len(batches[held]), np.int64)
    for at, part in enumerate(compiled.parts):
        view, probes, rows = part.views[other], batches[held].parts[at], batches[other].parts[at]
        index = PoJoin(view.shape, [rows.keys[key] for key in view.stored], rows.rows)
        probe = Probe(view.intervals(probes.keys), len(probes))
        arrivals = Arrivals.dense(0, samples[other].num_rows)
        for stream in index.pairs(probe, arrivals, room=1 << 16):
            for found, _ in stream:
                np.add.at(counts, probes.rows[found], 1)
    sight = Sight(compiled.parts[0])
    columns = sight.columns(held, batches[held].parts[0])
    return places(sight, held, batches[held], columns), counts


def change_error(side: Side) -> DataError:
    """The error for rows that were not there when the cells were planned."""
    name = "left" if side == "l" else "right"
    return DataError(
        f"the {name} input gave other rows than when the join was planned: cache it, or write it "
        "to a table first"
    )


def cell_copies(
    compiled: CompiledJoin,
    plan: CellPlan,
    rows: pa.RecordBatch,
    side: Side,
    hashes: Hashes | None,
    keep_all: bool = False,
) -> Copies:
    """Which cells are sent which of a side's rows.

    `hashes` of all that the rows hold deal out a group that has several cells. With `keep_all`,
    held rows are sent that can match nothing.
    """
    if side == plan.held:
        found = list(_place_held(compiled, plan, rows, hashes, keep_all))
    else:
        found = list(_place_streamed(compiled, plan, rows, hashes))
    if not found:
        return Copies.single(np.zeros(0, np.int32))
    cells = np.array([cell for cell, _ in found], np.int32)
    sizes = [len(chosen) for _, chosen in found]
    return Copies(np.concatenate([chosen for _, chosen in found]), np.repeat(cells, sizes))


def _place_held(
    compiled: CompiledJoin,
    plan: CellPlan,
    chunk: pa.RecordBatch,
    hashes: Hashes | None,
    keep_all: bool,
) -> Targets:
    """Each held row goes to its group; the group's cells split it by its hash."""
    side = plan.held
    sights = sights_of(compiled)
    batch = make_batch(chunk, side, compiled.parts, [])
    rows = ProbingRows(sights, side, batch)
    where = places(sights[0], side, batch, rows.columns[0])
    group = where.among(plan.cuts)
    kept = np.ones(len(batch), np.bool_)
    if not keep_all:
        kept[:] = False
        kept[rows.find_matching(plan.outside, 0)] = True
    order = order_of(group)
    ends = np.searchsorted(gather(group, order), np.arange(len(plan.groups) + 1))
    for number, start, end in zip(range(len(plan.groups)), ends[:-1], ends[1:], strict=True):
        members = order[start:end]
        if not len(members):
            continue
        _check_inside(plan, rows, members, number)
        members = members[kept[members]]
        if plan.dropped[number] or not len(members):
            continue
        dealt = plan.groups[number]
        for part, chosen in _deal(members, hashes, dealt.held_parts, 0):
            first = plan.first_cell[number] + part * dealt.streamed_parts
            for other in range(dealt.streamed_parts):
                yield first + other, chosen


def _check_inside(
    plan: CellPlan, rows: ProbingRows, members: NDArray[np.int32], number: int
) -> None:
    """Fail for rows outside the box by which others are sent: they would miss their matches."""
    mask = None
    for at, part in enumerate(rows.batch.parts):
        chosen = members
        if len(part) != len(rows.batch):  # some rows have no part in this conjunction
            if mask is None:
                mask = np.zeros(len(rows.batch), np.bool_)
                mask[members] = True
            chosen = np.flatnonzero(mask[part.rows]).astype(np.int32)
        columns = [gather(column, chosen) for column in rows.columns[at]]
        if not plan.boxes.holds(at, columns, number):
            raise change_error(plan.held)


def _place_streamed(
    compiled: CompiledJoin, plan: CellPlan, chunk: pa.RecordBatch, hashes: Hashes | None
) -> Targets:
    """Each other row goes past every group that it may match."""
    side = OTHER[plan.held]
    batch = make_batch(chunk, side, compiled.parts, [])
    rows = ProbingRows(sights_of(compiled), side, batch)
    for at in range(len(compiled.parts)):
        if not plan.outside.holds(at, rows.columns[at], 0):
            raise change_error(side)
    for number, dealt in enumerate(plan.groups):
        matching = rows.find_matching(plan.boxes, number)
        if not len(matching):
            continue
        if compiled.spec.nearest is not None:
            matching = matching[_may_be_nearest(compiled, plan, rows.batch, number, matching)]
        if plan.dropped[number]:
            raise change_error(side)  # its held rows are nowhere, for nothing could match them
        for part, chosen in _deal(matching, hashes, dealt.streamed_parts, 32):
            for other in range(dealt.held_parts):
                cell = plan.first_cell[number] + other * dealt.streamed_parts + part
                yield cell, chosen


def _may_be_nearest(
    compiled: CompiledJoin, plan: CellPlan, batch: KeyedBatch, number: int, matching: Index
) -> NDArray[np.bool_]:
    """Which right rows may be the nearest of some row of a group.

    Of the rows before all keys of the group only the last may be, and of those behind it only the
    first: `k` of them for each value of the equal keys. Only where nothing else decides is that
    known.
    """
    nearest, part = compiled.spec.nearest, compiled.parts[0]
    assert nearest is not None
    view, rows = part.views["r"], batch.parts[0]
    primary = view.shape.primary
    assert primary is not None
    keys = rows.keys[view.stored[primary]]
    others = (d.equal for at, d in enumerate(view.shape.dims) if at != primary)
    alone = len(compiled.parts) == 1 and part.residual is None and all(others)
    if not alone or isinstance(keys, BytesKey):
        return np.ones(len(matching), np.bool_)
    at = np.searchsorted(rows.rows, matching)
    # Numbers that are equal exactly where the keys are.
    equal = [rows.keys[view.stored[dim]] for dim in view.shape.run]
    runs = [(k.dictionary()[1] if isinstance(k, BytesKey) else k)[at] for k in equal]
    key, own = keys[at], view.asks[primary][0].probe_key
    before = key < plan.boxes.low[0][own, number]
    behind = key > plan.boxes.high[0][own, number]
    kept: NDArray[np.bool_] = ~(before | behind)
    if nearest.direction != "forward":
        kept[before] = _largest(key[before], [run[before] for run in runs], nearest.k)
    if nearest.direction != "backward":
        kept[behind] = _largest(~key[behind], [run[behind] for run in runs], nearest.k)
    return kept


def _largest(keys: Int64, runs: list[Int64], k: int) -> NDArray[np.bool_]:
    """Which keys are among the `k` largest of their run, those that tie with the last included.

    >>> _largest(np.array([5, 7, 7, 1]), [np.array([0, 0, 0, 9])], 1).tolist()
    [False, True, True, True]
    """
    if not keys.size:
        return np.zeros(0, np.bool_)
    order = np.lexsort((keys, *runs))
    new = np.zeros(keys.size, np.bool_)
    new[0] = True
    for run in runs:
        in_order = run[order]
        new[1:] |= in_order[1:] != in_order[:-1]
    starts = np.flatnonzero(new)
    ends = np.append(starts[1:], keys.size)
    least = keys[order[np.maximum(starts, ends - k)]]
    kept = np.empty(keys.size, np.bool_)
    kept[order] = keys[order] >= np.repeat(least, ends - starts)
    return kept


def _deal(
    rows: Index, hashes: Hashes | None, parts: int, shift: int
) -> Iterator[tuple[int, Index]]:
    """The rows by parts, which bits of their hash decide."""
    if parts == 1:
        yield 0, rows
        return
    assert hashes is not None
    part = (hashes[rows] >> np.uint64(shift)) % np.uint64(parts)
    for number in range(parts):
        chosen = rows[part == number]
        if len(chosen):
            yield number, chosen
