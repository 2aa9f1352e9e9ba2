"""The parallel join over shared PIM-Trees: throughput by number of threads."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from thetajoin.engine.shared import SharedJoin

SPAN = 1 << 40


def throughput(
    threads: int,
    window: int,
    rows: int,
    *,
    matches: float = 2.0,
    task_size: int = 512,
    **options: Any,
) -> float:
    """Tuples a second of a two-way band join in its steady state."""
    random = np.random.default_rng(7)
    width = max(1, int(SPAN * matches / (2 * window)))
    found = 0

    def count(_: int, tuples: Any, __: Any) -> None:
        nonlocal found
        found += tuples.size

    join = SharedJoin(window, count, threads=threads, task_size=task_size, **options)
    batch = max(task_size, 1024)

    def feed(total: int) -> None:
        for at in range(0, total, batch):
            keys = random.integers(0, SPAN, batch)
            join.push((at // batch) % 2, keys, keys - width, keys + width)

    feed(2 * window + window // 2)
    join.drain()
    start = time.perf_counter()
    feed(rows)
    join.drain()
    spent = time.perf_counter() - start
    join.close()
    return rows / spent


def threads(scale: float) -> tuple[dict[str, float], dict[str, Any]]:
    """Two threads against one: window 2^20, two matches a row; the median of turns."""
    window = int((1 << 20) * scale)
    runs: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(3):
        for count, speeds in runs.items():
            speeds.append(throughput(count, window, window // 2))
    middle = {count: sorted(speeds)[1] for count, speeds in runs.items()}
    return {"pim_threads_2_vs_1": middle[2] / middle[1]}, {"rows_per_second": middle}
