"""The papers' plots, repeated as curves: one function a figure, named after it.

A curve is ``{"title", "x", "y", "at": [...], "lines": {name: [...]}}``. Windows are smaller than in
the papers where theirs would take hours on one core; ratios are what is compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.papers.structure_threads import SPAN, throughput
from benchmarks.papers.structures import ask_q2, distributions, rap, steady, taxi
from benchmarks.papers.windows import SideWindow, band, seconds_of
from thetajoin.index.interval import interval_of

Curve = dict[str, Any]


def _curve(title: str, x: str, y: str, at: Sequence[Any], lines: dict[str, list[float]]) -> Curve:
    return {"title": title, "x": x, "y": y, "at": list(at), "lines": lines}


def _two_keys(
    name: str,
    window: int,
    slide: int,
    probes: int,
    matches: float,
    *,
    two_way: bool,
    **options: Any,
) -> float:
    """Probes a second of Q1 (two-way) or Q2 (self-join) over a window filled slide by slide."""
    random = np.random.default_rng(1)
    side = SideWindow(name, window, dims=2, **options)
    while side.rows < window:
        side.insert(*taxi(random, slide, window, matches))
    a, b = taxi(random, probes, window, matches)
    asked = (interval_of("<", a), interval_of(">", b)) if two_way else ask_q2(a, b)
    return probes / seconds_of(lambda: side.probe(*asked), 0.05)


def _spo(scale: float, *, two_way: bool) -> Curve:
    windows = [int(w * scale) for w in (200_000, 400_000, 600_000)]
    rivals: dict[str, tuple[str, int, dict[str, Any]]] = {
        "PO-Join": ("po_join", 500, {}),
        "CSS-tree, bitset": ("css_tree", 20, {"intersection": "bitset"}),
        "CSS-tree, hash": ("css_tree", 3, {"intersection": "hash"}),
    }
    if two_way:
        del rivals["CSS-tree, hash"]
    lines: dict[str, list[float]] = {name: [] for name in rivals}
    for window in windows:
        for label, (name, probes, options) in rivals.items():
            given = options | ({"N_Sub": window // 10} if options else {})
            speed = _two_keys(name, window, window // 10, probes, 10, two_way=two_way, **given)
            lines[label].append(speed)
    figure, query = ("9", "Q1, two-way") if two_way else ("7", "Q2, self-join")
    title = f"SPO-Join Fig. {figure}: {query}, slide a tenth of the window"
    return _curve(title, "rows in the window", "probes a second", windows, lines)


def spo_7(scale: float) -> Curve:
    """Throughput of Q2 by window."""
    return _spo(scale, two_way=False)


def spo_9(scale: float) -> Curve:
    """Throughput of Q1 by window."""
    return _spo(scale, two_way=True)


def spo_11(scale: float) -> Curve:
    """PO-Join, the chained index and nested loops (SplitJoin, BCHJ) on Q2."""
    windows = [int(w * scale) for w in (100_000, 300_000, 500_000)]
    lines: dict[str, list[float]] = {"PO-Join": [], "chained index": [], "nested loop": []}
    for window in windows:
        slide = window // 10
        for label, name, probes, options in (
            ("PO-Join", "po_join", 500, {}),
            ("chained index", "b_chain", 20, {"N_Sub": slide}),
            ("nested loop", "nested_loop", 20, {}),
        ):
            given: dict[str, Any] = dict(options)
            lines[label].append(_two_keys(name, window, slide, probes, 10, two_way=False, **given))
    title = "SPO-Join Fig. 11: chained index and nested loops, Q2"
    return _curve(title, "rows in the window", "probes a second", windows, lines)


def spo_12(scale: float) -> Curve:
    """Match rate: probes a second of the mutable and the immutable part."""
    window, rates = int(200_000 * scale), (1, 10, 100, 1000)
    lines: dict[str, list[float]] = {"mutable (bitset)": [], "immutable (PO-Join)": []}
    for rate in rates:
        for label, name, probes in (
            ("mutable (bitset)", "bitset", 20),
            ("immutable (PO-Join)", "po_join", 500),
        ):
            lines[label].append(_two_keys(name, window, window // 10, probes, rate, two_way=False))
    title = "SPO-Join Fig. 12: match rate"
    return _curve(title, "matches a row", "probes a second", rates, lines)


def spo_15(scale: float) -> Curve:
    """Merging a slide into the immutable part: PO-Join's permutation against CSS-trees."""
    from thetajoin.index.po_join import PoJoin
    from thetajoin.index.probe import Dim, Shape
    from thetajoin.kernels.order import gather, order_of
    from thetajoin.papers.structures.css_tree import Css

    slides = [int(s * scale) for s in (60_000, 80_000, 100_000)]
    lines: dict[str, list[float]] = {"PO-Join": [], "CSS-trees": []}
    for slide in slides:
        keys = taxi(np.random.default_rng(1), slide, slide, 10)
        rid = np.arange(slide, dtype=np.int32)

        def trees(keys: Any = keys, rid: Any = rid) -> None:
            for key in keys:
                order = order_of(key)
                Css(gather(key, order), gather(rid, order))

        lines["PO-Join"].append(
            1e3 * seconds_of(partial(PoJoin, Shape((Dim(), Dim())), keys, rid), 0.1)
        )
        lines["CSS-trees"].append(1e3 * seconds_of(trees, 0.1))
    title = "SPO-Join Fig. 15a: building the immutable part from a slide"
    return _curve(title, "rows of the slide", "ms", slides, lines)


PAN = {"RaP-Table": "rap_table", "WiB+-Tree": "wib_tree", "BI-Sort": "bi_sort"}


def _pan_insert(scale: float, name: str, batches: Sequence[int], **options: Any) -> list[float]:
    rows = int((1 << 19) * scale)
    data = np.random.default_rng(4).integers(0, SPAN, rows)
    speeds = []
    for batch in batches:
        side = SideWindow(name, rows, **options)
        start, done = time.process_time(), 0
        while done < rows and time.process_time() - start < 0.5:
            side.insert(data[done : done + batch])
            done += batch
        speeds.append(min(done, rows) / (time.process_time() - start))
    return speeds


def _pan_probe(scale: float, name: str, rates: Sequence[int], **options: Any) -> list[float]:
    rows, batch = int((1 << 19) * scale), 8192
    random = np.random.default_rng(4)
    side = SideWindow(name, rows, **options)
    side.insert(random.integers(0, SPAN, rows))
    speeds = []
    for rate in rates:
        asked = band(random.integers(0, SPAN, batch), int(SPAN * rate / (2 * rows)))
        speeds.append(batch / seconds_of(partial(side.probe, asked), 0.05))
    return speeds


def _pan(figure: str, name: str, label: str, sizes: dict[str, dict[str, Any]]) -> Any:
    def curve(scale: float) -> Curve:
        batches = (64, 1024, 16_384, 131_072)
        lines = {key: _pan_insert(scale, name, batches, **given) for key, given in sizes.items()}
        title = f"PanJoin Fig. {figure}: insertion, {label}"
        return _curve(title, "rows of a batch", "rows a second", batches, lines)

    curve.__doc__ = f"Insertion into {label} by batch size."
    return curve


pan_10 = _pan("10a", "rap_table", "RaP-Table", {"P=1K": {"P": 1024}, "P=16K": {"P": 16_384}})
pan_11 = _pan("11a", "wib_tree", "WiB+-Tree", {"W=64": {"W": 64}, "W=512": {"W": 512}})
pan_12 = _pan("12a", "bi_sort", "BI-Sort", {"B=256": {"B": 256}, "B=1K": {}, "B=8K": {"B": 8192}})


def pan_10f(scale: float) -> Curve:
    """Splitter adjustment: mean error of the partitions' sizes."""
    errors = rap(min(scale, 0.2))[1]["mean_error"]
    title = "PanJoin Fig. 10f: splitter adjustment"
    return _curve(title, "adjustments", "mean error / mean size", range(8), errors)


def pan_13a(scale: float) -> Curve:
    """The three structures: insertion by batch size."""
    batches = (16, 256, 4096, 65_536)
    lines = {label: _pan_insert(scale, name, batches) for label, name in PAN.items()}
    title = "PanJoin Fig. 13a: insertion"
    return _curve(title, "rows of a batch", "rows a second", batches, lines)


def pan_13b(scale: float) -> Curve:
    """The three structures: probing by selectivity, pairs written out."""
    rates = (1, 16, 256, 2048)
    lines = {label: _pan_probe(scale, name, rates) for label, name in PAN.items()}
    title = "PanJoin Fig. 13b: non-equi probing, pairs written out"
    return _curve(title, "matches a row", "probes a second", rates, lines)


def _per_second(costs: dict[str, float]) -> dict[str, float]:
    return {name: 1 / seconds for name, seconds in costs.items()}


def _sweep(
    title: str,
    x: str,
    at: Sequence[Any],
    measure: Callable[[Any], dict[str, float]],
) -> Curve:
    lines: dict[str, list[float]] = {}
    for value in at:
        for name, speed in _per_second(measure(value)).items():
            lines.setdefault(name, []).append(speed)
    return _curve(title, x, "rows a second", at, lines)


def pim_8(scale: float) -> Curve:
    """Chain length."""
    window = int((1 << 18) * scale)

    def measure(length: int) -> dict[str, float]:
        rivals: dict[str, tuple[str, dict[str, Any]]] = {
            "B-chain": ("b_chain", {"L": length}),
            "IB-chain": ("ib_chain", {"L": length}),
            "B+-tree": ("b_plus_tree", {}),
        }
        return steady(rivals, window, 1024, matches=2, rounds=1)

    title = "PIM-Tree Fig. 8b: chain length"
    return _sweep(title, "sub-indexes in the chain", (2, 4, 8, 16), measure)


def pim_9(scale: float) -> Curve:
    """Merge ratio."""
    window = int((1 << 18) * scale)

    def measure(m: float) -> dict[str, float]:
        rivals = {"IM-Tree": ("im_tree", {"m": m}), "PIM-Tree": ("pim_tree", {"m": m})}
        return steady(rivals, window, 512, matches=2, rounds=1)

    return _sweep(
        "PIM-Tree Fig. 9b, c: merge ratio", "merge ratio m", (1 / 64, 1 / 16, 1 / 8, 1 / 2), measure
    )


def pim_8c(scale: float) -> Curve:
    """Insertion depth on one thread."""
    window = int((1 << 18) * scale)
    return _sweep(
        "PIM-Tree Fig. 8c: insertion depth, one thread",
        "insertion depth D_I",
        (1, 2, 3),
        lambda depth: steady(
            {"PIM-Tree": ("pim_tree", {"D_I": depth})}, window, 512, matches=2, rounds=1
        ),
    )


def _parallel(title: str, x: str, name: str, at: Sequence[Any]) -> Callable[[float], Curve]:
    def curve(scale: float) -> Curve:
        window = int((1 << 18) * scale)
        speeds = [throughput(2, window, 2 * window, **{name: value}) for value in at]
        return _curve(title, x, "rows a second", at, {"2 threads": speeds})

    curve.__doc__ = f"{title}, over a parameter of the parallel join."
    return curve


pim_9a = _parallel(
    "PIM-Tree Fig. 9a: insertion depth, two threads", "insertion depth D_I", "D_I", (1, 2, 3)
)
pim_9d = _parallel(
    "PIM-Tree Fig. 9d: merge ratio, two threads", "merge ratio m", "m", (1 / 32, 1 / 8, 1 / 2, 1.0)
)


def pim_11c(scale: float) -> Curve:
    """Memory of the indexes, T_I as large as it gets."""
    windows = [int((1 << bits) * scale) for bits in (14, 16, 18)]
    lines: dict[str, list[float]] = {"B+-tree": [], "PIM-Tree, m=1": []}
    rivals: dict[str, tuple[str, dict[str, Any]]] = {
        "B+-tree": ("b_plus_tree", {}),
        "PIM-Tree, m=1": ("pim_tree", {"m": 1.0}),
    }
    for window in windows:
        random = np.random.default_rng(2)
        for label, (name, options) in rivals.items():
            side = SideWindow(name, window, **options)
            for _ in range(62):
                side.insert(random.integers(0, SPAN, window // 32))
            lines[label].append(side.index.nbytes / window)
    title = "PIM-Tree Fig. 11c: memory"
    return _curve(title, "rows in the window", "bytes a row", windows, lines)


TREES: dict[str, tuple[str, dict[str, Any]]] = {
    "B+-tree": ("b_plus_tree", {}),
    "IM-Tree": ("im_tree", {}),
    "PIM-Tree": ("pim_tree", {}),
}


def pim_10b(scale: float) -> Curve:
    """Window size."""
    windows = [int((1 << bits) * scale) for bits in (14, 16, 18, 20)]
    return _sweep(
        "PIM-Tree Fig. 10b: window size",
        "rows in the window",
        windows,
        lambda window: steady(TREES, window, 512, matches=2, rounds=2),
    )


def pim_10c(scale: float) -> Curve:
    """Match rate."""
    window = int((1 << 18) * scale)
    return _sweep(
        "PIM-Tree Fig. 10c: match rate",
        "matches a row",
        (0.25, 4, 64, 512),
        lambda rate: steady(TREES, window, 1024, matches=rate, rounds=1),
    )


def pim_11(scale: float) -> Curve:
    """Task size of the parallel join."""
    window, sizes = int((1 << 18) * scale), (64, 256, 1024)
    lines = {"2 threads": [throughput(2, window, window, task_size=size) for size in sizes]}
    title = "PIM-Tree Fig. 11a: task size"
    return _curve(title, "tuples of a task", "rows a second", sizes, lines)


def pim_12(scale: float) -> Curve:
    """Threads of the parallel join."""
    window, counts = int((1 << 18) * scale), (1, 2, 4)
    lines = {"two-way join": [throughput(count, window, window) for count in counts]}
    title = "PIM-Tree Fig. 12a: threads (this machine has few cores)"
    return _curve(title, "threads", "rows a second", counts, lines)


def width_for(keys: Any, matches: float) -> int:
    """A band that matches about that many of these keys on average."""
    held, width = np.sort(keys), 1
    while True:
        inside = np.searchsorted(held, keys + width, "right") - np.searchsorted(held, keys - width)
        if inside.mean() - 1 >= matches:
            return width
        width += max(1, width // 4)


def pim_13(scale: float) -> Curve:
    """Skewed keys."""
    window = int((1 << 17) * scale)
    random = np.random.default_rng(3)
    names = ("uniform", "normal", "multimodal", "zipf")

    def measure(kind: str) -> dict[str, float]:
        def draw(count: int) -> Any:
            if kind == "uniform":
                return random.integers(0, 1 << 31, count)
            return distributions(random, count)[kind]

        width = width_for(draw(20_000), 2 * 20_000 / window)
        return steady(TREES, window, 1024, matches=2, rounds=1, keys=draw, width=width)

    return _sweep("PIM-Tree Fig. 13a: distributions", "keys", names, measure)


CURVES: dict[str, Callable[[float], Curve]] = {
    "spo_7": spo_7,
    "spo_9": spo_9,
    "spo_11": spo_11,
    "spo_12": spo_12,
    "spo_15": spo_15,
    "pan_10a": pan_10,
    "pan_10f": pan_10f,
    "pan_11a": pan_11,
    "pan_12a": pan_12,
    "pan_13a": pan_13a,
    "pan_13b": pan_13b,
    "pim_8b": pim_8,
    "pim_8c": pim_8c,
    "pim_9a": pim_9a,
    "pim_9bc": pim_9,
    "pim_9d": pim_9d,
    "pim_10b": pim_10b,
    "pim_10c": pim_10c,
    "pim_11a": pim_11,
    "pim_11c": pim_11c,
    "pim_12a": pim_12,
    "pim_13a": pim_13,
}
