"""Choosing the window structure of a running join, and changing it between sub-windows.

A join under ``index="auto"`` begins with PO-Join. As its window grows, and then once a window's
worth of rows, it looks at the batches it was given and at a sample of the driving key, and moves a
side to another structure where the cost model expects a clear gain.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from thetajoin.batch.keys import BytesKey, Int64
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.parts import OTHER, SIDES, Part, Side, View
from thetajoin.engine.rows import PartRows, make_batch
from thetajoin.engine.state import JoinState
from thetajoin.engine.store import Store
from thetajoin.index.interval import Interval
from thetajoin.paper_options import AUTO, PO_JOIN
from thetajoin.papers.catalog import NAMES, suits
from thetajoin.papers.costs import WORTH_CHANGING, Workload, panjoin_advice, rank_structures
from thetajoin.papers.structures.structure import ends, find_driver
from thetajoin.planner.plan import sample_of
from thetajoin.window.windows import CountWindow

# Rows of a side before the first look, and pushes between two looks.
FIRST_LOOK, LOOKS_APART = 4096, 16
SAMPLED = 256
# Batches this many times larger or smaller than at the last look are another workload.
OTHER_BATCHES = 4.0
# Microseconds to move a row to another structure.
MOVE_US = 1.5


@dataclass
class Watch:
    """What one side's store has been given lately, and what another structure would have spared.

    regret: microseconds that were lost by not having moved before.
    """

    pushes: int = 0
    rows: int = 0
    next_rows: int = field(default_factory=lambda: FIRST_LOOK)
    batch: float = 0.0
    regret: float = 0.0

    def see(self, rows: int) -> None:
        """Count a push."""
        self.pushes += 1
        self.rows += rows

    def due(self, store: Store) -> bool:
        """Whether it is time for another look; the next is then set."""
        if self.pushes < LOOKS_APART or store.count < FIRST_LOOK:
            return False
        batch = max(1.0, self.rows / self.pushes)
        other = not self.batch / OTHER_BATCHES <= batch <= self.batch * OTHER_BATCHES
        if store.count < self.next_rows and not other and not self.regret:
            return False
        self.next_rows = store.count + max(FIRST_LOOK, store.rows)
        self.regret *= not other
        self.batch = batch
        return True

    def decide(self, store: Store, views: list[View], reach: float, growing: bool) -> str | None:
        """The structure to move to, if that is clearly expected to pay."""
        keys = max(len(view.shape.dims) for view in views)
        work = Workload(self.batch, store.rows, keys, reach, growing)
        name, gain = better(store, views, work)
        self.regret += gain * self.pushes
        pushes = max(1.0, store.rows / self.batch)
        self.pushes = self.rows = 0
        # A move must be paid by a window's worth of pushes, or by those that would have gained.
        if name is None or max(self.regret, gain * pushes) < MOVE_US * store.rows:
            return None
        self.regret = 0.0
        return name


def better(store: Store, views: list[View], work: Workload) -> tuple[str | None, float]:
    """A structure that is clearly expected to be faster than a store's own, and by how much."""
    able = [name for name in NAMES if suits(name, [view.shape for view in views]) is None]
    order = rank_structures(work, able)
    current = store.config.index if store.config.index in NAMES else PO_JOIN
    now = next((cost for cost, name in order if name == current), float("inf"))
    cost, name = order[0]
    if name == current or cost >= WORTH_CHANGING * now:
        return None, 0.0
    return name, now - cost


def sample_rows(store: Store, parts: tuple[Part, ...]) -> tuple[PartRows, ...]:
    """Some rows of a store, from its largest block, in the order they came."""
    block = max(store.blocks(), key=lambda block: block.rows, default=None)
    if block is None:
        return ()
    rows = np.linspace(0, block.rows - 1, min(block.rows, SAMPLED)).astype(np.int64)
    return make_batch(block.table.take(pa.array(rows)), store.side, parts, []).parts


def look(store: Store, other: Store, parts: tuple[Part, ...]) -> tuple[float, bool]:
    """The largest reach that a part's driving key has over a sample, and whether keys grow."""
    views = [part.views[store.side] for part in parts]
    seen = zip(views, sample_rows(store, parts), sample_rows(other, parts), strict=False)
    found = [reach_of(view, stored, probes) for view, stored, probes in seen]
    if not found:
        return 1.0, False
    return max(reach for reach, _ in found), all(growing for _, growing in found)


def reach_of(view: View, stored: PartRows, probes: PartRows) -> tuple[float, bool]:
    """What share of a sample the driving key alone lets through, and whether it grows with time."""
    drive = find_driver(view.shape)
    if drive < 0 or not len(stored) or not len(probes):
        return 1.0, False
    keys = stored.keys[view.stored[drive]]
    asked = view.intervals(probes.keys)[drive]
    if isinstance(keys, BytesKey) or not isinstance(asked, Interval):
        return 1.0, False
    rows: Int64 = np.sort(keys)
    low, high = ends(asked, len(probes))
    inside = np.searchsorted(rows, high, "right") - np.searchsorted(rows, low, "left")
    steps = np.diff(keys.astype(np.float64))
    growing = bool(steps.size >= 8 and (steps >= 0).mean() > 0.9)
    return float(np.maximum(inside, 0).mean() / rows.size), growing


class Tuner:
    """What a join under ``index="auto"`` calls when it has taken rows of a side in."""

    def __init__(self) -> None:
        self._watches: dict[Side, Watch] = {side: Watch() for side in SIDES}

    def copy(self) -> Tuner:
        """A tuner that has seen the same and goes its own way."""
        other = Tuner()
        other._watches = {side: replace(watch) for side, watch in self._watches.items()}
        return other

    def __call__(self, state: JoinState, side: Side, rows: int) -> None:
        """Move a side's rows to another structure if that is due."""
        watch, store = self._watches[side], state.stores[side]
        watch.see(rows)
        if not watch.due(store):
            return
        views = [part.views[side] for part in state.join.parts]
        name = watch.decide(store, views, *look(store, state.stores[OTHER[side]], state.join.parts))
        if name is not None:
            state.stores[side] = move_rows(state.join, store, name)


def move_rows(join: CompiledJoin, store: Store, name: str) -> Store:
    """The rows of a store under another structure; O(rows log rows)."""
    store.settle_merge(wait=True)
    new = join.new_store(store.side, name, {})
    for block in store.blocks():
        batch = make_batch(block.table, store.side, join.parts, list(block.table.schema.names))
        block_there = new.block_of(batch, block.times, arrivals=block.arrivals)
        new.add(block_there.with_marks(block.settled))
    new.count, new.merges = store.count, store.merges
    return new


def explain_choice(
    join: CompiledJoin, left: pa.RecordBatch, right: pa.RecordBatch
) -> tuple[str, str | None]:
    """The structure for the right side's rows if both tables came as one batch, and why."""
    asked = join.options.index
    views = [part.views["r"] for part in join.parts]
    able = [name for name in NAMES if suits(name, [view.shape for view in views]) is None]
    rows = max(1, right.num_rows)
    window = join.window
    held = min(rows, window.size) if isinstance(window, CountWindow) else rows
    reach, growing = 0.0, False
    if len(views) == 1 and left.num_rows and right.num_rows:
        held_rows = make_batch(sample_of(right), "r", join.parts, []).parts[0]
        probes = make_batch(sample_of(left), "l", join.parts, []).parts[0]
        reach, growing = reach_of(views[0], held_rows, probes)
    keys = max((len(view.shape.dims) for view in views), default=1)
    work = Workload(max(1, left.num_rows), held, keys, reach, growing)
    order = rank_structures(work, able)
    index = PO_JOIN if asked == AUTO else asked
    cost = next((cost for cost, name in order if name == index), None)
    rest = [pair for pair in order if pair[1] != index]
    if asked != AUTO:
        return index, "as asked" + _describe_costs(cost, rest)
    if not rest:
        return index, "no other serves this condition"
    why = f"one batch of {left.num_rows:,} rows, {keys} key{'s' if keys != 1 else ''}"
    if keys > 1:
        why += f", the driving one lets {reach:.2g} through"
    if growing:
        why += ", growing"
    return (
        index,
        f"{why}{_describe_costs(cost, rest)}; "
        f"PanJoin's advice: {panjoin_advice(work, reach * held)}",
    )


def _describe_costs(cost: float | None, rest: list[tuple[float, str]]) -> str:
    """What a batch is expected to cost, and the next best structure."""
    if cost is None or not rest:
        return ""
    return f"; about {_time(cost)} a batch, next best {rest[0][1]} {_time(rest[0][0])}"


def _time(microseconds: float) -> str:
    return f"{microseconds / 1000:.3g} ms" if microseconds >= 1000 else f"{microseconds:.3g} us"
