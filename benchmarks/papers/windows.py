"""One side's window under any structure, driven by keys alone: what `structures` measures.

Times are processor times: all of it runs on one thread, and neighbours should not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from thetajoin.batch.keys import Int64
from thetajoin.engine.block import rows_without_columns
from thetajoin.engine.rows import KeyedBatch, PartRows
from thetajoin.engine.store import Store, StoreConfig
from thetajoin.index.interval import Interval
from thetajoin.index.probe import Arrivals, Dim, Probe, Shape
from thetajoin.paper_options import PO_JOIN
from thetajoin.papers import catalog

ROOM = 1 << 17


class SideWindow:
    """The last `window` rows of a stream under a structure; probes count their matches.

    `presort` is PanJoin's batch mode; without it rows are taken one after another as they came.
    """

    def __init__(
        self,
        name: str,
        window: int,
        *,
        dims: int = 1,
        presort: bool = True,
        head_rows: int = 2048,
        **options: Any,
    ) -> None:
        self.name, self.window, self.rows = name, window, 0
        self.shape = Shape((Dim(),) * dims)
        self.presort = presort
        self._store: Store | None = None
        if name == PO_JOIN:
            view = SimpleNamespace(shape=self.shape, stored=tuple(range(dims)))
            part: Any = SimpleNamespace(views={"r": view})
            self._store = Store("r", (part,), StoreConfig(head_rows=head_rows, background=False))
        else:
            self.index = catalog.make(name, self.shape, window, options)
            self.index.presort = presort

    def insert(self, *keys: Int64) -> None:
        """Put the next rows in and let the oldest expire."""
        count = keys[0].size
        if self._store is not None:
            numbers = np.arange(count, dtype=np.int32)
            batch = KeyedBatch(rows_without_columns(count), (PartRows(numbers, list(keys)),))
            self._store.add(self._store.block_of(batch, None))
            self._store.drop_before(self._store.count - self.window)
        else:
            self.index.insert(keys, np.arange(self.rows, self.rows + count, dtype=np.int32))
            self.index.expire(max(0, self.rows + count - self.window))
        self.rows += count

    def probe(self, *intervals: Interval) -> int:
        """How many rows of the window lie in the probes' intervals."""
        first = max(0, self.rows - self.window)
        some = next(end for i in intervals for end in (i.low, i.high) if end is not None)
        seen = np.full(some.size, first)
        probe = Probe(tuple(intervals), some.size, see_low=seen)
        if not self.presort:
            for dim in range(len(intervals)):
                probe._orders[dim] = np.arange(some.size, dtype=np.int32)
        if self._store is None:
            self.index.base = first
            arrivals = Arrivals.dense(first, self.rows - first)
            streams = self.index.pairs(probe, arrivals, room=ROOM)
        else:
            streams = [
                stream
                for block in self._store.list_probed()
                for stream in block.indexes[0].pairs(probe, block.arrivals, room=ROOM)
            ]
        return sum(len(probes) for stream in streams for probes, _ in stream)


def seconds_of(run: Callable[[], Any], at_least: float = 0.2, rounds: int = 3) -> float:
    """Seconds of one call: the median of some rounds, each long enough to be measured."""
    calls = 1
    spent: list[float] = []
    run()
    while len(spent) < rounds:
        start = time.process_time()
        for _ in range(calls):
            run()
        taken = time.process_time() - start
        if taken < at_least / rounds and not spent:
            calls = max(calls + 1, int(calls * at_least / rounds / max(taken, 1e-6)))
            continue
        spent.append(taken / calls)
    return sorted(spent)[len(spent) // 2]


def band(keys: Int64, width: int) -> Interval:
    """The band of a width around each key."""
    return Interval(keys - width, keys + width)
