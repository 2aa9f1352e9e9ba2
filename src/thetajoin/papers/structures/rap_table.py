"""RaP-Table: range partitions whose splitters follow the sub-window before.

PanJoin, Section III-B. Rows lie unsorted in their partition; a linked list adaptive table (LLAT)
gives a partition that has too many a further entry.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from thetajoin.batch.keys import INT64_MAX, INT64_MIN, Int64
from thetajoin.errors import OptionError
from thetajoin.index.probe import Shape
from thetajoin.papers.kernels import llat
from thetajoin.papers.structures.structure import (
    SUB_ROWS,
    Component,
    Cursors,
    Int32,
    Storage,
    blank,
    repeat,
)
from thetajoin.papers.structures.sub_windows import Sub, SubWindows

# Rows of a partition where the number of partitions is not given (PanJoin: 8M rows, 64K of them).
N_P = 128


class RapPartitions(Component):
    """One sub-window: a partition table and an LLAT."""

    in_order = False

    def __init__(self, splitters: Int64, N_Sub: int, sigma: float) -> None:
        """Empty partitions, one more than there are splitters."""
        self.size = 0
        self.splitters = splitters
        self.P = splitters.size + 1
        self.width = int(np.ceil(N_Sub / self.P * sigma)) + 1
        entries = 2 * self.P
        self._begin = np.arange(entries, dtype=np.int64) * self.width
        self._count = np.zeros(entries, np.int32)
        self._after = repeat(entries, -1)
        self._after[: self.P - 1] = np.arange(1, self.P)
        self._tail = np.arange(self.P, dtype=np.int32)
        self._used = np.array([self.P])
        self._key = np.empty(entries * self.width, np.int64)
        self._rid = np.empty(entries * self.width, np.int32)
        self.histograms = llat.Histograms(
            np.zeros(self.P, np.int64), np.full(self.P, INT64_MAX), np.full(self.P, INT64_MIN)
        )

    def storage(self) -> Storage:
        """The entries."""
        return self._begin, self._count, self._after, self._key, self._rid

    def insert(self, order: Int32, keys: Int64, rid: Int32) -> None:
        """Put rows in, in key order."""
        entries = llat.Entries(self.storage(), self._tail, self._used, self.width)
        llat.rap_insert(order, keys, rid, self.splitters, entries, self.histograms)
        self.size += order.size

    def cursors(self, order: Int32, low: Int64, high: Int64) -> Cursors:
        """The first entry of the lowest partition and the last of the highest."""
        block, pos, last = blank(low.size), blank(low.size), blank(low.size)
        llat.rap_locate(order, self.splitters, low, high, self._tail, block, pos, last)
        return block, pos, last, repeat(low.size, -1)

    def adjust(self) -> Int64:
        """Splitters that would have balanced this sub-window (Algorithm 1)."""
        out = np.empty(self.P - 1, np.int64)
        llat.adjust_splitters(self.histograms, out)
        return out

    def imbalance(self) -> float:
        """Mean distance of the partitions' sizes from their mean, as a share of it (Fig. 10f)."""
        counts = self.histograms.counts
        mean = counts.mean()
        return float(np.abs(counts - mean).mean() / mean) if mean else 0.0

    def _check(self) -> None:
        """Verify that every row is in the partition its key belongs to, and the histograms."""
        assert (self.splitters[1:] >= self.splitters[:-1]).all()
        counts, lows, highs = self.histograms
        assert counts.sum() == self.size
        assert self._used[0] <= 2 * self.P
        for part in range(self.P):
            entry, keys = part, []
            while True:
                keys.append(self._key[entry * self.width :][: self._count[entry]])
                if entry == self._tail[part]:
                    break
                assert self._count[entry] == self.width
                entry = int(self._after[entry])
            held = np.concatenate(keys)
            assert held.size == counts[part]
            if held.size:
                assert (held.min(), held.max()) == (lows[part], highs[part])
                assert part == 0 or held.min() > self.splitters[part - 1]
                assert part == self.P - 1 or held.max() <= self.splitters[part]


class RapTable(SubWindows[RapPartitions]):
    """Range partitions in sub-windows.

    N_Sub: rows of a sub-window. P: partitions of one. sigma: how much room an entry has above the
    even share of a partition; the paper suggests 1.10 to 1.25.
    """

    name = "rap_table"

    def __init__(
        self,
        shape: Shape,
        window: int | None = None,
        *,
        N_Sub: int | None = None,
        P: int | None = None,
        sigma: float = 1.25,
    ) -> None:
        """An empty chain."""
        if sigma <= 1:
            raise OptionError(f"sigma={sigma!r}: must be above 1, or entries might run out")
        super().__init__(shape, window, N_Sub or window or SUB_ROWS)
        self.P = P or max(1, self.N_Sub // N_P)
        self._sigma = sigma
        self._splitters: Int64 | None = None

    def _begin(self, keys: Int64) -> list[RapPartitions]:
        if self._splitters is None:
            self._splitters = first_splitters(keys, self.P)
        elif self.subs:
            self._splitters = self.subs[-1].parts[0].adjust()
        return [RapPartitions(self._splitters, self.N_Sub, self._sigma)]

    def _add(self, sub: Sub[RapPartitions], order: Int32, keys: Int64, rid: Int32) -> None:
        sub.parts[0].insert(order, keys, rid)

    def components(self) -> Sequence[Component]:
        """All sub-windows."""
        return [sub.parts[0] for sub in self.subs]

    def _check(self) -> None:
        """Verify every sub-window's partitions."""
        super()._check()
        for sub in self.subs:
            sub.parts[0]._check()


def first_splitters(keys: Int64, P: int) -> Int64:
    """Splitters when nothing is known but the first rows.

    The paper spreads them evenly over all 32-bit integers; over all 64-bit keys that would put
    everything into one partition, so the first rows' own range is taken.
    """
    low, high = float(keys.min()), float(keys.max())
    share = np.arange(1, P) / P
    even = low + share * (high - low)
    limit = float(np.nextafter(INT64_MAX, 0))
    out: Int64 = np.clip(even, INT64_MIN, limit).astype(np.int64)
    return np.maximum.accumulate(out) if out.size else out
