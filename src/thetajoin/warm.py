"""Small joins of every common kind, so that their kernels are compiled before they are needed.

Run as a module, it compiles kernels for a processor that nearly all machines surpass, into the
folder it is given: that is how they come into the wheel.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import thetajoin as tj
from thetajoin.index.probe import Arrivals
from thetajoin.ipc import batch_from_ipc, to_ipc
from thetajoin.kernels.order import gather, order_among
from thetajoin.routes.fingerprint import fingerprints

# Few rows lie unsorted, and many are sorted before they are looked up.
SIZES = (80, 6000)
ORDERED = (
    "l.a < r.a",
    "l.a <= r.a AND l.b > r.b",
    "l.a + 0.99 < r.a AND l.b < r.b",
    "l.a > r.a + 0.99 AND l.b > r.b AND l.n <> r.n",
    "ABS(l.a - r.a) <= 0.0005",
    "l.a BETWEEN r.a AND r.a + 0.0005",
    "l.n BETWEEN r.n - 2 AND r.n + 2 AND l.b < r.b",
    "l.start <= r.finish AND l.finish >= r.start",
    "l.at BETWEEN r.start AND r.finish",
    "l.s < r.s AND l.a > r.a + 0.99",
    "l.a < r.a - 0.99 OR l.b > r.b + 0.99",
    "l.d > r.d AND l.a > r.a + 0.99",
    "l.n <> r.n AND l.a > r.a + 0.995",
)
EQUAL = (
    "l.k = r.k AND l.a < r.a",
    "l.k = r.k AND l.at BETWEEN r.start AND r.finish",
    "l.k = r.k AND l.a < r.a AND l.b > r.b",
    "l.n = r.n",
    "l.s = r.s AND l.n = r.n AND l.a < r.a",
)
DIRECTIONS = ("backward", "forward", "nearest")
HOWS = ("inner", "left", "right", "full", "semi", "anti")
AGGREGATES = {
    "pairs": "count(*)",
    "total": "sum(r.n)",
    "mean": "avg(r.b)",
    "least": "min(r.b)",
    "most": "max(r.n)",
}


def table(rows: int, seed: int, *, nulls: bool = False) -> pa.Table:
    """Numbers, times, words and intervals; with NULLs if asked for."""
    random = np.random.default_rng(seed)
    a, n = random.random(rows), random.integers(0, rows, rows)
    seconds = np.sort(random.integers(0, rows, rows))
    hidden = random.random(rows) < 0.05 if nulls else None
    columns = {
        "a": a,
        "b": a + random.random(rows) * 6.0 / rows,
        "n": n,
        "k": random.integers(0, max(1, rows // 8), rows),
        "s": np.char.add("word", random.integers(0, rows // 4, rows).astype(str)),
        "at": seconds.astype("datetime64[s]"),
        "start": seconds.astype("datetime64[s]"),
        "finish": (seconds + 2).astype("datetime64[s]"),
        "d": n.astype("datetime64[D]"),
    }
    return pa.table({name: pa.array(held, mask=hidden) for name, held in columns.items()})


def joins() -> Iterator[Callable[[], Any]]:
    """Calls that between them use the kernels of ordinary work on tables and streams."""
    for rows, nulls in product(SIZES, (False, True)):
        both = table(rows, 1, nulls=nulls), table(rows, 2, nulls=nulls)
        yield partial(tj.join, table(SIZES[0], 3), both[1], ORDERED[1])
        for on in (*ORDERED[1:], *EQUAL):
            yield partial(tj.join, *both, on)
        for on, how in product((ORDERED[1], ORDERED[5], EQUAL[0]), HOWS[1:]):
            yield partial(tj.join, *both, on, how=how)
        for on in (ORDERED[2], ORDERED[4]):
            yield partial(tj.self_join, both[0], on)
        for on, groups in product((ORDERED[0], ORDERED[1], EQUAL[0]), ((), ("l.k",))):
            yield partial(tj.join_agg, *both, on, group_by=groups, aggs=AGGREGATES)
        for direction, by, key in product(DIRECTIONS, ((), ("k",)), ("at", "a")):
            yield partial(tj.nearest, *both, key=key, by=by, direction=direction)
        yield partial(tj.nearest, *both, key="at", k=3, on="l.b < r.b")
    for rows, on in product(SIZES, (ORDERED[1], ORDERED[4], EQUAL[0], EQUAL[1])):
        for window in (
            tj.TimeWindow("2 seconds", time="at"),
            tj.CountWindow(max(10, rows // 8)),
            tj.FullHistory(),
        ):
            yield partial(_warm_stream, rows, on, window)
    yield _warm_packing


def _warm_packing() -> None:
    """What Spark's workers do before and beside the join."""
    for nulls in (False, True):
        batch = table(SIZES[-1], 1, nulls=nulls).combine_chunks().to_batches()[0]
        fingerprints(batch)
        # What comes from Spark cannot be written to, which is another type to numba.
        order = fingerprints(batch_from_ipc(to_ipc(batch).to_pybytes())).order()
    order_among(order, np.arange(0, len(order), 2, dtype=np.int32))
    for kind, index in product((np.bool_, np.int32, np.int64, np.uint64), (np.int32, np.int64)):
        gather(np.zeros(len(order), kind), order.astype(index))
    # A unit has some of a stream's rows: their arrival numbers have gaps.
    arrived = np.arange(0, 2 * len(order), 2)
    for held in (Arrivals.of(arrived), _read_only(Arrivals.of(arrived))):
        held.rows_before(arrived)


def _read_only(arrivals: Arrivals) -> Arrivals:
    for held in (arrivals.firsts, arrivals.starts):
        held.flags.writeable = False
    return arrivals


def _warm_stream(rows: int, on: str, window: Any) -> None:
    counted = isinstance(window, tj.CountWindow)
    join = tj.StreamJoin(on, window=window, order_by="at" if counted else None)
    left, right = (table(rows, seed) for seed in (1, 2))
    step = max(1, rows // 4)
    for start in range(0, rows, step):
        if start == 2 * step:
            join = tj.StreamJoin.restore(join.snapshot())
        join.push(left.slice(start, step), right.slice(start, step))


def warm(done: Callable[[int, int], None] = lambda some, of: None) -> float:
    """Compile what ordinary joins need for this processor, and keep it; returns the seconds.

    Costs about a minute the first time and next to nothing after that.
    """
    from thetajoin.kernels import compiler

    began = time.perf_counter()
    compiler.use_ready = False
    try:
        calls = list(joins())
        for number, call in enumerate(calls, 1):
            call()
            done(number, len(calls))
    finally:
        compiler.use_ready = True
    return time.perf_counter() - began


def compile_ahead(folder: Path) -> str | None:
    """Compile kernels for the best baseline that this machine runs; its name, None without one."""
    from thetajoin.kernels.compiler import find_baselines

    for name, features in find_baselines()[:1]:
        environment = os.environ | {
            "NUMBA_CPU_NAME": name,
            "NUMBA_CPU_FEATURES": features,
            "NUMBA_CACHE_DIR": str(folder),
            "NUMBA_DISABLE_JIT": "0",
        }
        command = [sys.executable, "-c", "from thetajoin.warm import warm; warm()"]
        subprocess.run(command, env=environment, check=True)
        return name
    return None


if __name__ == "__main__":
    compile_ahead(Path(sys.argv[1]))
