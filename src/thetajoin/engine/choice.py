"""Choosing the window structure of a running join, and changing it between sub-windows.

A join under ``index="auto"`` begins with PO-Join. As its window grows, and then once a window's
worth of rows, it looks at the batches it was given and at a sample of the driving key, and moves a
side to another structure where the cost model expects a clear gain.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from thetajoin.batch.keys import BytesKey, Int64
from thetajoin.engine.costs import WORTH_CHANGING, Workload, ranked
from thetajoin.engine.rows import PartRows
from thetajoin.engine.spec import View
from thetajoin.engine.store import Store
from thetajoin.index.catalog import NAMES, PO_JOIN, suits
from thetajoin.index.interval import Interval
from thetajoin.index.structure import driving_key, ends

# Rows of a side before the first look, and pushes between two looks.
FIRST_LOOK, LOOKS_APART = 4096, 16
SAMPLED = 256


@dataclass
class Watch:
    """What one side's store has been given lately."""

    pushes: int = 0
    rows: int = 0
    next_rows: int = field(default_factory=lambda: FIRST_LOOK)
    reach: float = 0.0
    growing: bool = False

    def see(self, rows: int) -> None:
        """Count a push."""
        self.pushes += 1
        self.rows += rows

    def due(self, store: Store) -> bool:
        """Whether it is time for another look; the next is then set."""
        if self.pushes < LOOKS_APART or store.count < self.next_rows:
            return False
        self.next_rows = store.count + max(FIRST_LOOK, store.rows)
        return True

    def workload(self, store: Store, keys: int) -> Workload:
        """The batches since the last look."""
        work = Workload(self.rows / max(1, self.pushes), store.rows, keys, self.reach, self.growing)
        self.pushes = self.rows = 0
        return work


def better(store: Store, views: list[View], work: Workload) -> str | None:
    """A structure that is clearly expected to be faster than a store's own, if there is one."""
    able = [name for name in NAMES if suits(name, [view.shape for view in views]) is None]
    order = ranked(work, able)
    current = store.config.index if store.config.index in NAMES else PO_JOIN
    now = next((cost for cost, name in order if name == current), float("inf"))
    cost, name = order[0]
    return name if name != current and cost < WORTH_CHANGING * now else None


def reach_of(view: View, stored: PartRows, probes: PartRows) -> tuple[float, bool]:
    """What share of a sample the driving key alone lets through, and whether it grows with time."""
    drive = driving_key(view.shape)
    if drive < 0 or not len(stored) or not len(probes):
        return 1.0, False
    keys = stored.keys[view.stored[drive]]
    asked = view.intervals(_sampled(probes).keys)[drive]
    if isinstance(keys, BytesKey) or not isinstance(asked, Interval):
        return 1.0, False
    rows: Int64 = np.sort(keys[:: max(1, keys.size // SAMPLED)])
    low, high = ends(asked, min(len(probes), SAMPLED) if len(probes) > SAMPLED else len(probes))
    inside = np.searchsorted(rows, high, "right") - np.searchsorted(rows, low, "left")
    steps = np.diff(keys.astype(np.float64))
    growing = bool(steps.size >= 8 and (steps >= 0).mean() > 0.9)
    return float(np.maximum(inside, 0).mean() / rows.size), growing


def _sampled(rows: PartRows) -> PartRows:
    if len(rows) <= SAMPLED:
        return rows
    return rows.take(np.linspace(0, len(rows) - 1, SAMPLED).astype(np.int32))
