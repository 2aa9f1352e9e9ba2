"""The parallel join over shared PIM-Trees: throughput by number of threads."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from thetajoin.engine.shared import SharedJoin
from thetajoin.kernels.order import order_of

SPAN = 1 << 40
ROUNDS = 5


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

    def feed(total: int) -> float:
        draws = [random.integers(0, SPAN, batch) for _ in range(0, total, batch)]
        asked = [(keys, keys - width, keys + width) for keys in draws]
        start = time.perf_counter()
        for at, pushed in enumerate(asked):
            join.push(at % 2, *pushed)
        join.drain()
        return len(draws) * batch / (time.perf_counter() - start)

    feed(2 * window + window // 2)
    speed = feed(rows)
    join.close()
    return speed


def free_cores() -> float:
    """How many of two cores this process gets at the moment: two threads that only sort."""
    data = np.random.default_rng(1).integers(0, SPAN, 1 << 19)
    spent: list[float] = []

    def sort() -> None:
        start = time.thread_time()
        order_of(data)
        spent.append(time.thread_time() - start)

    order_of(data[:1024])
    workers = [threading.Thread(target=sort) for _ in range(2)]
    start = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(spent) / (time.perf_counter() - start)


def threads(scale: float) -> tuple[dict[str, float], dict[str, Any]]:
    """Two threads against one, in turns: window 2^20, two matches a row, a merge in each turn.

    The best turn of each counts: others' work on the machine can only make a turn slower. Where
    `free_cores` stays below two there is no telling what two threads could do.
    """
    window = int((1 << 20) * scale)
    speeds: dict[int, list[float]] = {1: [], 2: []}
    free = []
    for _ in range(ROUNDS):
        free.append(free_cores())
        for count, seen in speeds.items():
            seen.append(throughput(count, window, 2 * window))
    best = {count: max(seen) for count, seen in speeds.items()}
    details = {"rows_per_second": speeds, "free_cores": free}
    return {"pim_threads_2_vs_1": best[2] / best[1]}, details
