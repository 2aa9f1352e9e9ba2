"""The papers' structures side by side: the figures they promise, and their plots as ratios here.

`figures` are the headline ratios; `curves` (see `structure_curves`) are the papers' plots.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Report
from benchmarks.papers.windows import SideWindow, band, seconds_of
from thetajoin.batch.keys import Int64, float_keys
from thetajoin.index.interval import Interval, interval_of
from thetajoin.papers.structures.rap_table import RapPartitions

TARGETS = {
    "po_join_vs_css_bit": "> 1",
    "po_join_vs_css_hash": "> 1",
    "po_join_vs_b_chain": "> 1",
    "bitset_vs_hash": ">= 5",
    "bi_sort_vs_nested_loop": ">= 1000",
    "wib_vs_b_plus_insert": ">= 2",
    "rap_adjustments_to_balance": "<= 3",
    "pim_vs_b_plus": ">= 1.5",
    "pim_threads_2_vs_1": ">= 1.6",
    "auto_vs_best": "<= 1.2",
}
SPAN = 1 << 40
Progress = Callable[[str], None]
Figures = tuple[dict[str, float], dict[str, Any]]


def run(progress: Progress, scale: float = 1.0) -> Report:
    """All figures, and the papers' plots; `scale` shrinks windows for a quick look."""
    from benchmarks.papers.structure_auto import auto_vs_best
    from benchmarks.papers.structure_curves import CURVES
    from benchmarks.papers.structure_threads import threads

    report = Report("structures", targets=TARGETS)
    for name, measure in {
        "q2": q2,
        "head": head,
        "bi_sort": bi_sort,
        "wib": wib,
        "rap": rap,
        "pim": pim,
        "threads": threads,
        "auto": auto_vs_best,
    }.items():
        progress(name)
        figures, details = measure(scale)
        report.figures |= figures
        report.details[name] = details
    for name, curve in CURVES.items():
        progress(name)
        report.curves[name] = curve(scale)
    report.figures = {key: report.figures.get(key) for key in TARGETS}
    return report


def taxi(
    random: np.random.Generator, rows: int, window: int, matches: float
) -> tuple[Int64, Int64]:
    """Distances and fares: a fare follows its distance but for a little noise."""
    distance = random.random(rows)
    fare = distance + random.random(rows) * (6.0 * matches / window)
    return float_keys(distance), float_keys(fare)


def ask_q2(distance: Int64, fare: Int64) -> tuple[Interval, Interval]:
    """Q2: shorter trips that cost more."""
    return interval_of(">", distance), interval_of("<", fare)


def _probe_all(side: SideWindow, asked: list[tuple[Interval, Interval]]) -> int:
    return sum(side.probe(*intervals) for intervals in asked)


def q2(scale: float) -> Figures:
    """Q2 of the SPO-Join paper: a window of a million trips, a slide of a hundred thousand."""
    window, slide, matches = int(1_000_000 * scale), int(100_000 * scale), 10.0
    rivals: dict[str, tuple[str, dict[str, Any], int]] = {
        "po_join": ("po_join", {}, 1000),
        "css_bit": ("css_tree", {"N_Sub": slide, "intersection": "bitset"}, 100),
        "css_hash": ("css_tree", {"N_Sub": slide, "intersection": "hash"}, 10),
        "b_chain": ("b_chain", {"N_Sub": slide}, 100),
    }
    spent, found = {}, {}
    for name, (index, options, probes) in rivals.items():
        random = np.random.default_rng(1)
        side = SideWindow(index, window, dims=2, **options)
        while side.rows < window:
            side.insert(*taxi(random, slide, window, matches))
        asked = [ask_q2(*taxi(random, probes, window, matches)) for _ in range(8)]
        spent[name] = seconds_of(partial(_probe_all, side, asked)) / (8 * probes)
        found[name] = _probe_all(side, asked) / (8 * probes)
    figures = {f"po_join_vs_{k}": v / spent["po_join"] for k, v in spent.items() if k != "po_join"}
    return figures, {"seconds_per_probe": spent, "matches_per_probe": found}


def head(scale: float) -> Figures:
    """The mutable part of SPO-Join: a slide of a hundred thousand rows, bitsets or hash sets."""
    slide, probes = int(100_000 * scale), 50
    spent = {}
    for name in ("bitset", "hash"):
        random = np.random.default_rng(2)
        side = SideWindow(name, slide, dims=2)
        side.insert(*taxi(random, slide, slide, 10.0))
        asked = ask_q2(*taxi(random, probes, slide, 10.0))
        spent[name] = seconds_of(partial(side.probe, *asked)) / probes
    return {"bitset_vs_hash": spent["hash"] / spent["bitset"]}, {"seconds_per_probe": spent}


def bi_sort(scale: float) -> Figures:
    """A band join of a match a row over 8 million rows, in batches of 32,768 (PanJoin Fig. 15e)."""
    window, batch, workers = int(8_388_608 * scale), 32_768, 16
    random = np.random.default_rng(3)
    spent: dict[str, float] = {}
    found: dict[str, float] = {}
    for name, probes in (("bi_sort", batch), ("nested_loop", 64)):
        options: dict[str, Any] = {"N_Sub": window // workers} if name == "bi_sort" else {}
        side = SideWindow(name, window, **options)
        while side.rows < window:
            side.insert(random.integers(0, SPAN, window // 64))
        width = SPAN // (2 * window)
        inserted = seconds_of(partial(side.insert, random.integers(0, SPAN, batch)))
        asked = band(random.integers(0, SPAN, probes), width)
        found[name] = side.probe(asked) / probes
        probed = seconds_of(partial(side.probe, asked)) * batch / probes
        spent[name] = inserted + probed
    ratio = spent["nested_loop"] / spent["bi_sort"]
    details = {"seconds_per_batch": spent, "matches_per_row": found}
    return {"bi_sort_vs_nested_loop": ratio}, details


def wib(scale: float) -> Figures:
    """Filling a sub-window in batches of 1,024 (PanJoin Fig. 11f)."""
    rows, batch = int((1 << 20) * scale), 1024
    random = np.random.default_rng(4)
    data = random.integers(0, SPAN, rows)

    def fill(name: str) -> float:
        side = SideWindow(name, rows)
        start = time.process_time()
        for at in range(0, rows, batch):
            side.insert(data[at : at + batch])
        return time.process_time() - start

    names = ("wib_tree", "b_plus_tree")
    spent = {name: [fill(name) for _ in range(4)][1:] for name in names}
    middle = {name: sorted(values)[1] / rows for name, values in spent.items()}
    ratio = middle["b_plus_tree"] / middle["wib_tree"]
    return {"wib_vs_b_plus_insert": ratio}, {"seconds_per_row": middle}


def distributions(random: np.random.Generator, rows: int) -> dict[str, Int64]:
    """The distributions that splitters have to follow, in the range of 32-bit integers."""
    span = float(1 << 31)
    modes = random.choice([0.1, 0.35, 0.6, 0.9], rows)
    made = {
        "normal": random.normal(0.5, 0.05, rows) * span,
        "multimodal": random.normal(modes, 0.01) * span,
        # Each rank is a thousand values wide: no splitter can part rows of one value.
        "zipf": (random.zipf(1.5, rows) + random.random(rows)) * 1024,
    }
    return {k: np.clip(v, 0, span - 1).astype(np.int64) for k, v in made.items()}


def rap(scale: float) -> Figures:
    """How many adjustments balance the partitions, from splitters even over the whole range.

    Balanced: a mean error of at most a quarter of a partition's share.
    """
    rows, parts, balanced = int(1_000_000 * scale), 1024, 0.25
    random = np.random.default_rng(5)
    needed: dict[str, int] = {}
    errors: dict[str, list[float]] = {}
    for name in ("normal", "multimodal", "zipf"):
        splitters = (np.arange(1, parts) * ((1 << 31) // parts)).astype(np.int64)
        errors[name] = []
        for _ in range(8):
            keys = distributions(random, rows)[name]
            table = RapPartitions(splitters, rows, 1.25)
            order = np.argsort(keys, kind="stable").astype(np.int32)
            table.insert(order, keys, np.arange(rows, dtype=np.int32))
            errors[name].append(table.imbalance())
            splitters = table.adjust()
        good = [at for at, error in enumerate(errors[name]) if error <= balanced]
        needed[name] = good[0] if good else len(errors[name])
    figure = {"rap_adjustments_to_balance": float(max(needed.values()))}
    return figure, {"adjustments": needed, "mean_error": errors}


def pim(scale: float) -> Figures:
    """The PIM-Tree paper's band join, tuple by tuple: window 2^20, two matches a row."""
    window, batch = int((1 << 20) * scale), 1024
    names = ("b_plus_tree", "im_tree", "pim_tree")
    spent = steady({name: (name, {}) for name in names}, window, batch, matches=2.0)
    return {"pim_vs_b_plus": spent["b_plus_tree"] / spent["pim_tree"]}, {"seconds_per_row": spent}


def steady(
    rivals: dict[str, tuple[str, dict[str, Any]]],
    window: int,
    batch: int,
    *,
    matches: float,
    presort: bool = False,
    rounds: int = 5,
    keys: Callable[[int], Int64] | None = None,
    width: int | None = None,
) -> dict[str, float]:
    """Seconds a row of a full window's steady state: probe, insert, expire; rivals take turns.

    Each round is long enough for a merge of every tree that merges.
    """
    random = np.random.default_rng(6)
    draw = keys or (lambda count: random.integers(0, SPAN, count))
    width = width or max(1, int(SPAN * matches / (2 * window)))
    sides = {k: SideWindow(n, window, presort=presort, **o) for k, (n, o) in rivals.items()}
    for side in sides.values():
        while side.rows < window + window // 4:
            side.insert(draw(max(batch, window // 32)))
        side.probe(band(draw(batch), width))
    spent: dict[str, list[float]] = {name: [] for name in sides}
    steps = max(1, window // 4 // batch)
    for _ in range(rounds):
        asked = [band(draw(batch), width) for _ in range(steps)]
        added = [draw(batch) for _ in range(steps)]
        for name, side in sides.items():
            start = time.process_time()
            for probe, rows in zip(asked, added, strict=True):
                side.probe(probe)
                side.insert(rows)
            spent[name].append((time.process_time() - start) / (steps * batch))
    return {name: sorted(values)[len(values) // 2] for name, values in spent.items()}


def plot(report: Report, folder: Path) -> list[Path]:
    """A picture for each of the papers' plots."""
    from benchmarks.plots import plot_curves

    return plot_curves(report.curves, folder)
