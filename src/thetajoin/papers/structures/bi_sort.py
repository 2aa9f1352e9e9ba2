"""BI-Sort: a sorted main array, a small index array over it, and an insertion buffer.

PanJoin, Section III-D. A probe's answer is a record ``<start, end>`` of the main array, so what a
probe costs does not depend on how much it matches until the pairs are written out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from thetajoin.batch.keys import Int64
from thetajoin.index.probe import Shape
from thetajoin.kernels.order import gather, order_of
from thetajoin.papers.kernels.css import merge_sorted, search_indexed
from thetajoin.papers.structures.nested_loop import Buffer
from thetajoin.papers.structures.structure import (
    SUB_ROWS,
    Component,
    Cursors,
    Int32,
    Storage,
    blank,
    one_block,
    repeat,
)
from thetajoin.papers.structures.sub_windows import Sub, SubWindows


class Main(Component):
    """The main array, and an index array with every (M / P)th key of it."""

    def __init__(self, P: int) -> None:
        """An empty array with up to `P` samples."""
        self.P = P
        self._take(np.zeros(0, np.int64), np.zeros(0, np.int32))

    def _take(self, keys: Int64, rid: Int32) -> None:
        self.keys, self.rid, self.size = keys, rid, rid.size
        self.step = max(1, -(-self.size // self.P))
        self.samples = keys[:: self.step].copy()

    def merge(self, keys: Int64, rid: Int32) -> None:
        """Merge rows in key order into the array; O(M + rows)."""
        both, numbers = np.empty(self.size + keys.size, np.int64), blank(self.size + keys.size)
        merge_sorted(self.keys, self.rid, keys, rid, -1, both, numbers)
        self._take(both, numbers)

    def storage(self) -> Storage:
        """One block."""
        return one_block(self.keys, self.rid, self.size)

    def records(self, order: Int32, low: Int64, high: Int64) -> tuple[Int32, Int32]:
        """The record ``<start, end>`` of each probe, the end not included."""
        start, end = blank(low.size), blank(low.size)
        search_indexed(order, self.keys, self.samples, self.step, low, False, start)
        search_indexed(order, self.keys, self.samples, self.step, high, True, end)
        return start, end

    def cursors(self, order: Int32, low: Int64, high: Int64) -> Cursors:
        """The records, as positions in the one block."""
        start, end = self.records(order, low, high)
        return repeat(low.size, 0), start, repeat(low.size, 0), end

    def _check(self) -> None:
        """Verify the order and the samples."""
        assert (self.keys[1:] >= self.keys[:-1]).all()
        assert self.samples.size <= max(self.P, 1)
        assert (self.samples == self.keys[:: self.step]).all()


class BiSort(SubWindows[Main | Buffer]):
    """Buffered indexed sort in sub-windows.

    N_Sub: rows of a sub-window. B: rows of the insertion buffer. P: partitions, the samples of the
    index array.
    """

    name = "bi_sort"

    def __init__(
        self,
        shape: Shape,
        window: int | None = None,
        *,
        N_Sub: int | None = None,
        B: int = 1024,
        P: int = 65_536,
    ) -> None:
        """An empty chain."""
        super().__init__(shape, window, N_Sub or window or SUB_ROWS)
        self.B, self.P = B, P

    def _begin(self, keys: Int64) -> list[Main | Buffer]:
        return [Main(self.P), Buffer()]

    def components(self) -> Sequence[Component]:
        """All main arrays, and the buffers that have rows."""
        return [part for sub in self.subs for part in sub.parts if part.size]

    def _add(self, sub: Sub[Main | Buffer], order: Int32, keys: Int64, rid: Int32) -> None:
        main, buffer = sub.parts
        assert isinstance(main, Main)
        assert isinstance(buffer, Buffer)
        if order.size > self.B:
            main.merge(gather(keys, order), gather(rid, order))
            return
        buffer.append(keys, rid)
        if buffer.size >= self.B:
            self._flush(main, buffer)

    def _archive(self, sub: Sub[Main | Buffer]) -> None:
        main, buffer = sub.parts
        assert isinstance(main, Main)
        assert isinstance(buffer, Buffer)
        self._flush(main, buffer)

    @staticmethod
    def _flush(main: Main, buffer: Buffer) -> None:
        if buffer.size:
            keys, rid = buffer.rows()
            order = order_of(keys)
            main.merge(gather(keys, order), gather(rid, order))
            buffer.clear()

    def _check(self) -> None:
        """Verify every main array, and that no buffer is full."""
        super()._check()
        for sub in self.subs:
            main, buffer = sub.parts
            assert isinstance(main, Main)
            main._check()
            assert buffer.size < self.B
