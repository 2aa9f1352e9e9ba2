"""CSS-tree: an immutable B+-tree in arrays, and the window as a chain of them.

The immutable part of the PIM-Tree paper's trees, and the SPO-Join paper's baseline: one tree for
each key, and the rows of several predicates intersected as bitsets or hash sets (Section 6.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from thetajoin.batch.keys import Int64
from thetajoin.index.probe import Arrivals, Pairs, Probe, Shape
from thetajoin.kernels.order import gather, order_of
from thetajoin.papers.kernels import css
from thetajoin.papers.structures.intersection import Intersection, check_intersection
from thetajoin.papers.structures.structure import (
    SUB_ROWS,
    Component,
    Cursors,
    Int32,
    Storage,
    Structure,
    blank,
    one_block,
    repeat,
)

# Entries of a directory node: 32 keys of 8 bytes, the 256 bytes of the PIM-Tree paper's nodes.
F_IB = 32
_NO_KEYS: Int64 = np.zeros(0, np.int64)
_NO_ROWS: Int32 = np.zeros(0, np.int32)


class Css(Component):
    """A sorted array of rows with a directory above it; replaced as a whole."""

    def __init__(self, keys: Int64 = _NO_KEYS, rid: Int32 = _NO_ROWS, f_ib: int = F_IB) -> None:
        """A tree over keys in ascending order; O(n / f_ib)."""
        self.f_ib = f_ib
        self.keys, self.rid = keys, rid
        self.size = rid.size
        self.directory, self.offsets = css.build_directory(keys, f_ib)

    @property
    def levels(self) -> int:
        """Levels of inner nodes."""
        return len(self.offsets) - 1

    def storage(self) -> Storage:
        """One block."""
        return one_block(self.keys, self.rid, self.size)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self.keys.nbytes + self.rid.nbytes + self.directory.nbytes)

    def cursors(self, order: Int32, low: Int64, high: Int64) -> Cursors:
        """The first position of each probe by a descent, the last by looking on from there."""
        n = low.size
        pos, end = blank(n), blank(n)
        css.spans(order, self.keys, self.directory, self.offsets, self.f_ib, low, high, pos, end)
        return repeat(n, 0), pos, repeat(n, 0), end

    def nodes(self, depth: int) -> int:
        """How many nodes there are `depth` levels below the root."""
        if depth == 0 or not self.levels:
            return 1
        depth = min(depth, self.levels)
        return int(self.offsets[depth] - self.offsets[depth - 1])

    def node_of(self, order: Int32, values: Int64, depth: int, *, above: bool) -> Int32:
        """Which node at `depth` each value belongs to; of several, the first or the last."""
        out = blank(values.size)
        depth = min(depth, self.levels)
        css.partitions(order, self.directory, self.offsets, self.f_ib, depth, values, above, out)
        return out

    def merge(self, keys: Int64, rid: Int32, first: int) -> Css:
        """A tree with these rows, in key order, as well, and none with a number below `first`."""
        both, numbers = np.empty(self.size + keys.size, np.int64), blank(self.size + keys.size)
        n = css.merge_sorted(self.keys, self.rid, keys, rid, first, both, numbers)
        return Css(both[:n], numbers[:n], self.f_ib)

    def _check(self) -> None:
        """Verify that keys ascend and every directory entry is the largest key below it."""
        assert (self.keys[1:] >= self.keys[:-1]).all()
        below = self.keys
        for level in range(self.levels - 1, -1, -1):
            here = self.directory[self.offsets[level] : self.offsets[level + 1]]
            lasts = np.minimum((np.arange(here.size) + 1) * self.f_ib, below.size) - 1
            assert (here == below[lasts]).all()
            below = here
        assert below.size <= self.f_ib


class CssTree(Structure):
    """A chain of CSS-trees, one sub-window each; new rows mean that the newest is built again.

    N_Sub: rows of a sub-window. f_ib: entries of a directory node. intersection: how several
    predicates meet: "bitset" or "hash" (a tree for each key, SPO-Join), or "test" (one tree, the
    other keys row by row).
    """

    name = "css_tree"

    def __init__(
        self,
        shape: Shape,
        window: int | None = None,
        *,
        N_Sub: int | None = None,
        f_ib: int = F_IB,
        intersection: str = "bitset",
    ) -> None:
        """An empty chain."""
        self._meet = check_intersection(intersection)
        several = self._meet != "test" and len(shape.dims) > 1
        super().__init__(shape, window, multi_key=several)
        self.N_Sub = N_Sub or max(1, (window or 10 * SUB_ROWS) // 10)
        self._f_ib = f_ib
        self._chain: list[tuple[int, int, list[Css]]] = []

    def components(self) -> Sequence[Component]:
        """The driving key's trees, oldest first."""
        at = self.drive if self.multi_key else 0
        return [trees[at] for _, _, trees in self._chain]

    def _insert(self, order: Int32, keys: list[Int64], rid: Int32) -> None:
        done = 0
        dims = range(len(keys)) if self.multi_key else (self.drive,)
        while done < rid.size:
            if not self._chain or self._chain[-1][2][0].size >= self.N_Sub:
                trees = [Css(f_ib=self._f_ib) for _ in dims]
                self._chain.append((int(rid[done]), int(rid[done]), trees))
            first, _, trees = self._chain[-1]
            take = min(rid.size - done, self.N_Sub - trees[0].size)
            rows = slice(done, done + take)
            fresh = []
            for tree, dim in zip(trees, dims, strict=True):
                by_key = order_of(keys[dim][rows])
                added = gather(keys[dim][rows], by_key), gather(rid[rows], by_key)
                fresh.append(tree.merge(*added, 0))
            done += take
            self._chain[-1] = first, int(rid[done - 1]), fresh

    def _expire(self) -> None:
        self._chain = [sub for sub in self._chain if sub[1] >= self.first]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        trees = sum(tree.nbytes for _, _, subs in self._chain for tree in subs)
        return int(self._ring.nbytes) + trees

    def pairs(
        self, probe: Probe, arrivals: Arrivals, *, room: int, once: bool = False
    ) -> list[Iterator[Pairs]]:
        """As in the protocol; with several keys each sub-window intersects on its own."""
        if not self.multi_key:
            return super().pairs(probe, arrivals, room=room, once=once)
        visible = self.find_visible(probe, arrivals)
        if not probe.size or visible is None:
            return []
        meet = Intersection(self.shape, self._meet)
        return [
            meet.stream(trees, probe, visible, first, last, room=room, once=once)
            for first, last, trees in self._chain
        ]

    def _check(self) -> None:
        """Verify every tree, and that a sub-window's trees hold the same rows."""
        super()._check()
        for first, last, trees in self._chain:
            for tree in trees:
                tree._check()
                assert (np.sort(tree.rid) == np.sort(trees[0].rid)).all()
                assert tree.size <= self.N_Sub
                assert not tree.size or first <= tree.rid.min() <= tree.rid.max() <= last
