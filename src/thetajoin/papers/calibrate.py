"""Measuring what a push costs under each structure on this machine, for the cost model."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from thetajoin.engine.stream import StreamJoin
from thetajoin.papers.costs import CANDIDATES, table, user_table
from thetajoin.window.windows import CountWindow

WINDOWS = (10_000, 200_000)
# A batch above half the head's rows is sorted at once: the last two but one are on both sides.
BATCHES = (1, 64, 1024, 1025, 8192)
_CONDITIONS = {1: "ABS(l.a - r.a) <= 3", 2: "l.a > r.a AND l.b > r.b"}
_SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64())])


def calibrate(progress: Callable[[str], None] | None = None, seconds: float = 0.1) -> Any:
    """Measure every point of the table, keep it for this machine, and return it."""
    measured: dict[str, Any] = {
        name: {str(keys): {} for keys in _CONDITIONS} for name in CANDIDATES
    }
    for keys in _CONDITIONS:
        for window in WINDOWS:
            for name in CANDIDATES:
                if progress is not None:
                    progress(f"{name}, {keys} keys, window {window}")
                measured[name][str(keys)][str(window)] = _pushes(name, keys, window, seconds)
    path = user_table()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(measured, indent=1))
    table.cache_clear()
    return measured


def _pushes(name: str, keys: int, window: int, seconds: float) -> dict[str, float]:
    """Microseconds of a push of each size into a full window, in processor time.

    Everything runs on this thread, and what others do on the machine should not count.
    """
    random = np.random.default_rng(1)
    join = StreamJoin(
        _CONDITIONS[keys],
        window=CountWindow(window),
        left_schema=_SCHEMA,
        right_schema=_SCHEMA,
        threads=1,
        merge="inline",
        index=name,
    )

    def tables(rows: int) -> list[pa.Table]:
        # With two keys the left side lies below the right one but for a few rows, which match.
        a = [random.integers(0, 1 << 40, rows) for _ in range(4)]
        if keys == 2:
            a[0] -= (1 << 40) - (1 << 30)
        return [pa.table({"a": a[i], "b": a[i + 1]}) for i in (0, 2)]

    for _ in range(33):
        join.push(*tables(window // 32))
    costs = {}
    for batch in BATCHES:
        for _ in range(3):
            join.push(*tables(batch))
        rounds = []
        for _ in range(3):
            spent, pushes = 0.0, 0
            while spent < seconds / 3:
                pair = tables(batch)
                start = time.process_time()
                join.push(*pair)
                spent += time.process_time() - start
                pushes += 1
            rounds.append(spent / pushes)
        # Others on the machine only ever make it slower.
        costs[str(batch)] = 1e6 * min(rounds)
    return costs
