"""What a micro-batch costs under each window structure, from measurements on a machine.

The table holds microseconds of a push of `batch` rows a side into a window of `window` rows, with
few matches, by structure, number of keys, window and batch; between its points it is interpolated
in logarithms. It was measured on one
machine; `thetajoin.papers.calibrate` measures another, where somebody calls it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from thetajoin.paper_options import PO_JOIN

# Structures that are clearly the fastest at something. The B+-tree, the WiB+-Tree and, in small
# windows, nested loops come near them at times; the others are for comparisons.
CANDIDATES = (PO_JOIN, "im_tree", "pim_tree", "bi_sort")
# Nanoseconds to test one row that the driving key let through against the other keys.
VISIT_NS = 3.0
# Nanoseconds that a match costs more than under PO-Join, whose matches lie together.
PAIR_NS = 35.0
# Another structure must be expected to take less than this share of the time to be changed to.
WORTH_CHANGING = 0.8


@dataclass(frozen=True)
class Workload:
    """What a choice depends on.

    batch: rows of a side that come together. window: rows of a side that are held. keys: keys
    compared. reach: share of the window that the driving key alone lets through. growing: whether
    that key grows with time.
    """

    batch: float
    window: float
    keys: int = 1
    reach: float = 0.0
    growing: bool = False


def user_table() -> Path:
    """Where a machine's own measurements are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "thetajoin" / "costs.json"


@cache
def table() -> dict[str, Any]:
    """The measurements: this machine's own if there are any."""
    try:
        own: dict[str, Any] = json.loads(user_table().read_text())
        if set(own) >= set(CANDIDATES):
            return own
    except (OSError, ValueError):
        pass
    shipped: dict[str, Any] = json.loads(
        (files("thetajoin.papers") / "costs.json").read_text(encoding="utf-8")
    )
    return shipped


def estimate(name: str, work: Workload) -> float:
    """Microseconds of a push, about."""
    measured = table()[name]["1" if work.keys <= 1 else "2"]
    windows = sorted(int(w) for w in measured)
    by_window = [_between(measured[str(w)], max(work.batch, 1)) for w in windows]
    cost = _interpolate(windows, by_window, max(work.window, 1))
    if name != PO_JOIN:
        each = PAIR_NS if work.keys <= 1 else VISIT_NS
        cost += 2 * work.batch * work.reach * work.window * each / 1000
    return cost


def _between(points: dict[str, float], batch: float) -> float:
    sizes = sorted(int(b) for b in points)
    return _interpolate(sizes, [points[str(b)] for b in sizes], batch)


def _interpolate(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    """A line through the two nearest points, all in logarithms; lines go on past the ends."""
    if len(xs) == 1:
        return ys[0]
    at = next((i for i in range(1, len(xs) - 1) if x <= xs[i]), len(xs) - 1)
    slope = math.log(ys[at] / ys[at - 1]) / math.log(xs[at] / xs[at - 1])
    return float(ys[at - 1] * (x / xs[at - 1]) ** slope)


def rank_structures(work: Workload, able: Sequence[str]) -> list[tuple[float, str]]:
    """Expected microseconds of each structure that is able to serve, the fastest first."""
    return sorted((estimate(name, work), name) for name in able if name in CANDIDATES)


def panjoin_advice(work: Workload, matches: float) -> str:
    """What PanJoin would choose among its three (Section V-A4)."""
    if work.batch >= 65_536 or matches >= 1024:
        return "bi_sort"
    return "wib_tree" if work.growing else "rap_table"
