"""WiB+-Tree: a B+-tree with wide leaves that are sorted only when they split.

PanJoin, Section III-C. It adapts to skewed and to growing keys, which the RaP-Table cannot. All
rows of one key are in one leaf, which goes on in further entries of an LLAT if it must.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from thetajoin.batch.keys import Int64
from thetajoin.index.probe import Shape
from thetajoin.papers.kernels import llat
from thetajoin.papers.kernels.btree import DEPTH, Pool, inner_nodes
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

# Elements of an inner node (PanJoin III-C), and rows of a leaf.
FANOUT, WIDTH = 64, 128
_SPARE = 4


class WibLeaves(Component):
    """One sub-window: inner nodes over unsorted leaves."""

    in_order = False
    _count: Int32
    _after: Int32
    _tail: Int32
    _pure: Int32
    _key: Int64
    _rid: Int32

    def __init__(self, W: int, fanout: int, rows: int) -> None:
        """One empty leaf."""
        self.size = 0
        self.W, self.fanout = W, fanout
        self.trees = np.zeros((1, 2), np.int64)
        self.alloc = np.array([0, 0, -1, -1], np.int64)
        self._used = np.array([1, 0])
        self._entries(_SPARE + 2 + 2 * rows // W)
        self.inners = inner_nodes(DEPTH + 2 + 8 * rows // (W * fanout), fanout)

    def _entries(self, entries: int) -> None:
        new: dict[str, NDArray[Any]] = {
            "_count": np.zeros(entries, np.int32),
            "_after": repeat(entries, -1),
            "_tail": np.arange(entries, dtype=np.int32),
            "_pure": np.ones(entries, np.int32),
            "_key": np.empty(entries * self.W, np.int64),
            "_rid": np.empty(entries * self.W, np.int32),
        }
        for name, array in new.items():
            kept = getattr(self, name, None)
            if kept is not None:
                array[: kept.size] = kept
            setattr(self, name, array)
        self._begin = np.arange(entries, dtype=np.int64) * self.W
        self._used[1] = entries - _SPARE

    @property
    def pool(self) -> Pool:
        """The inner nodes, as the kernels take them."""
        return Pool(self.trees, self.inners, self.alloc, self.fanout)

    def storage(self) -> Storage:
        """The leaves' entries."""
        return self._begin, self._count, self._after, self._key, self._rid

    def insert(self, order: Int32, keys: Int64, rid: Int32) -> None:
        """Put rows in, in key order; the next row's leaf is looked for near the last one's."""
        done = 0
        while done < order.size:
            entries = llat.Entries(self.storage(), self._tail, self._used, self.W)
            done = llat.wib_insert(order, done, keys, rid, self.pool, entries, self._pure)
            if done < order.size:
                if self._used[0] >= self._used[1]:
                    self._entries(2 * self._count.size)
                inners = self.inners.counts.size
                if self.alloc[1] >= inners - DEPTH:
                    self.inners = inner_nodes(2 * inners, self.fanout, self.inners)
        self.size += order.size

    def cursors(self, order: Int32, low: Int64, high: Int64) -> Cursors:
        """The first entry of the lowest leaf and the last of the highest."""
        block, pos, last = blank(low.size), blank(low.size), repeat(low.size, -1)
        llat.wib_locate(order, low, high, self.pool, self._tail, block, pos, last)
        return block, pos, last, repeat(low.size, -1)

    @property
    def leaves(self) -> int:
        """Number of leaves: PanJoin's partition count P."""
        return len(self._leaf_bounds())

    def _leaf_bounds(self) -> list[tuple[int, int | None, int | None]]:
        found: list[tuple[int, int | None, int | None]] = []
        ikey, _, ichild, icount = self.inners
        stack: list[tuple[int, int, int | None, int | None]] = [
            (int(self.trees[0, 0]), int(self.trees[0, 1]), None, None)
        ]
        while stack:
            node, height, low, high = stack.pop()
            if height == 0:
                found.append((node, low, high))
                continue
            base, n = node * self.fanout, int(icount[node])
            bounds = [low, *ikey[base : base + n - 1].tolist(), high]
            stack += [
                (int(ichild[base + j]), height - 1, bounds[j], bounds[j + 1])
                for j in reversed(range(n))
            ]
        return found

    def _check(self) -> None:
        """Verify that leaves are linked in order, bounded by their separators, and part no key."""
        leaves = self._leaf_bounds()
        total = 0
        for at, (leaf, low, high) in enumerate(leaves):
            entry, keys = leaf, []
            while True:
                keys.append(self._key[entry * self.W :][: self._count[entry]])
                if entry == self._tail[leaf]:
                    break
                assert self._count[entry] == self.W
                entry = int(self._after[entry])
            after = int(self._after[entry])
            assert after == (leaves[at + 1][0] if at + 1 < len(leaves) else -1)
            held = np.concatenate(keys)
            total += held.size
            assert low is None or (held >= low).all()
            assert high is None or (held < high).all()
            assert not self._pure[leaf] or np.unique(held).size <= 1
        assert total == self.size


class WibTree(SubWindows[WibLeaves]):
    """Wide B+-trees in sub-windows.

    N_Sub: rows of a sub-window. W: rows of a full leaf. fanout: children of an inner node.
    """

    name = "wib_tree"

    def __init__(
        self,
        shape: Shape,
        window: int | None = None,
        *,
        N_Sub: int | None = None,
        W: int = WIDTH,
        fanout: int = FANOUT,
    ) -> None:
        """An empty chain."""
        super().__init__(shape, window, N_Sub or window or SUB_ROWS)
        self._W, self._fanout = W, fanout

    def _begin(self, keys: Int64) -> list[WibLeaves]:
        return [WibLeaves(self._W, self._fanout, keys.size)]

    def _add(self, sub: Sub[WibLeaves], order: Int32, keys: Int64, rid: Int32) -> None:
        sub.parts[0].insert(order, keys, rid)

    def _check(self) -> None:
        """Verify every sub-window's tree."""
        super()._check()
        for sub in self.subs:
            sub.parts[0]._check()
