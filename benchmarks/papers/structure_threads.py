"""The parallel join over shared PIM-Trees: throughput by number of threads."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from thetajoin.kernels.order import order_of
from thetajoin.papers.pim_join import SharedJoin

SPAN = 1 << 40
# Turns that are wanted with two cores free, and turns at most.
WANTED, MOST = 3, 10
# What counts as two free cores.
FREE = 1.8


class Feed:
    """A two-way band join of uniform keys that is fed and timed."""

    def __init__(
        self, threads: int, window: int, matches: float = 2.0, task_size: int = 512, **options: Any
    ) -> None:
        """Fill both windows, and a quarter of T_I."""
        self._random = np.random.default_rng(7)
        self._width = max(1, int(SPAN * matches / (2 * window)))
        self._batch = max(task_size, 1024)
        self.pairs = 0
        self.join = SharedJoin(window, self._count, threads=threads, task_size=task_size, **options)
        self.threads = threads
        self.turn(2 * window + window // 2)

    def _count(self, _: int, tuples: Any, __: Any) -> None:
        self.pairs += tuples.size

    def turn(self, rows: int, threads: int | None = None) -> float:
        """Tuples a second over that many rows, half of them from each stream."""
        while threads is not None and self.threads < threads:
            self.join.add_thread()
            self.threads += 1
        while threads is not None and self.threads > threads:
            self.join.remove_thread()
            self.threads -= 1
        draws = [self._random.integers(0, SPAN, self._batch) for _ in range(0, rows, self._batch)]
        asked = [(keys, keys - self._width, keys + self._width) for keys in draws]
        start = time.perf_counter()
        for at, pushed in enumerate(asked):
            self.join.push(at % 2, *pushed)
        self.join.drain()
        return len(draws) * self._batch / (time.perf_counter() - start)


def throughput(threads: int, window: int, rows: int, **options: Any) -> float:
    """Tuples a second of a two-way band join in its steady state."""
    feed = Feed(threads, window, **options)
    speed = feed.turn(rows)
    feed.join.close()
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

    Two threads say nothing while others use the machine, so turns that did not find two cores free
    before and after are tried again, and the best of the others counts (of all, if there is none).
    """
    window = int((1 << 20) * scale)
    feed = Feed(1, window)
    speeds: dict[int, list[float]] = {1: [], 2: []}
    free: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(MOST):
        for count, seen in speeds.items():
            if sum(cores >= FREE for cores in free[count]) < WANTED:
                before = free_cores()
                seen.append(feed.turn(2 * window, count))
                free[count].append(min(before, free_cores()))
    feed.join.close()
    best = {
        count: max(s for s, cores in zip(seen, free[count], strict=True) if cores >= least)
        for count, seen in speeds.items()
        for least in [FREE if max(free[count]) >= FREE else 0.0]
    }
    details = {"rows_per_second": speeds, "free_cores": free}
    return {"pim_threads_2_vs_1": best[2] / best[1]}, details
