"""Cells: which rows meet in which task of a distributed join.

One side is held: its rows are cut into groups of neighbours, and each row is in one group. Rows of
the other side are streamed past every group whose box they may match, and past no other. Cuts are
set where the estimated cost of the dearest cell is least, counting the rows of both sides and the
pairs they give. A group that no cut can make smaller (a repeated value) is dealt out by a hash:
its held rows over some cells, the rows streamed past it over others.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.batch.keys import INT64_MAX, INT64_MIN, Int64
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.parts import OTHER, Side
from thetajoin.engine.rows import make_batch
from thetajoin.index.po_join import PoJoin
from thetajoin.index.probe import Arrivals, Probe
from thetajoin.planner.facets import Boxes, Sight, may_match
from thetajoin.planner.zones import Places, Zones, places

# Costs in the unit of shipping, sorting and probing one row.
PAIR_COST = 0.25
CELL_COST = 20_000.0
SLICES = 128
MOST_DEALT = 8
Floats = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]


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
    boxes = slices.boxes.merged(np.arange(len(into)), into, len(groups))
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
    boxes = zones.boxes.merged(of, into, number)
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
    """Groups of neighbouring slices such that the dearest of about `tasks` cells costs least."""
    whole = _group(slices, 0, len(slices.held))
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


def _group(slices: _Slices, start: int, end: int) -> Group:
    met = slices.meets[start:end].any(axis=0)
    held, pairs = slices.held[start:end].sum(), slices.pairs[start:end].sum()
    return Group(float(held), float(slices.weights[met].sum()), float(pairs))


def _greedy(
    slices: _Slices, limit: float, preserved: bool, most_held: int, most_cells: float = np.inf
) -> tuple[list[tuple[int, int]], list[Group]] | None:
    """Fill groups one after another up to a cost; deal out what alone exceeds it.

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
        groups.append(_dealt(group, limit, preserved, most_held))
        cells += groups[-1].cells
        if cells > most_cells:
            return None
        spans.append((start, end))
        start = end
    return spans, groups


def _dealt(group: Group, limit: float, preserved: bool, most_held: int) -> Group:
    """A group in as few cells as keep to the limit, or in the cheapest of few."""
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
    """When the last compiled is done, if the dearest cells are begun first."""
    costs = sorted((g.cost + CELL_COST for g in groups for _ in range(g.cells)), reverse=True)
    busy = [0.0] * cores
    for cost in costs:
        heapq.heappush(busy, heapq.heappop(busy) + cost)
    return max(busy)


def _number(groups: list[Group], dropped: tuple[bool, ...]) -> tuple[tuple[int, ...], int]:
    """The first cell of each group: dear groups come first, because tasks start in order."""
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
