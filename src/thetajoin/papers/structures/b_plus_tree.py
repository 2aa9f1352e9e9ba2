"""B+-tree: one tree over the window, from which expired rows are deleted one by one.

The baseline of the PIM-Tree paper (Section 2.2.1), and the mutable part of its trees and of chains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thetajoin.batch.keys import Int64
from thetajoin.index.probe import Shape
from thetajoin.kernels.order import gather, order_of
from thetajoin.papers.kernels import btree
from thetajoin.papers.structures.structure import (
    Component,
    Cursors,
    Int32,
    Storage,
    Structure,
    blank,
    repeat,
)

# Children of an inner node and slots of a leaf: the PIM-Tree paper's tree has nodes of 256 bytes.
F_B = 32
_ONE_TREE: Int32 = np.zeros(0, np.int32)


class BTree(Component):
    """Rows by one key in one or several B+-trees that share their nodes and one list of leaves."""

    _key: Int64
    _rid: Int32
    _count: Int32
    _after: Int32
    _before: Int32

    def __init__(self, f_b: int = F_B, trees: int = 1, rows: int = 0) -> None:
        """Empty trees of fan-out `f_b`, with room for about `rows` rows."""
        self.f_b = f_b
        leaves = trees + 2 + 2 * rows // f_b
        inners = trees + btree.DEPTH + 2 + 4 * leaves // f_b
        self._grow_leaves(leaves)
        self.inners = btree.inner_nodes(inners, f_b)
        self.clear(trees)

    def clear(self, trees: int = 1) -> None:
        """Forget all rows; each tree is one empty leaf, linked to the next tree's."""
        self.size = 0
        if trees > self._count.size - 2:
            self._grow_leaves(2 * trees + 2)
        self.trees = np.zeros((trees, 2), np.int64)
        self.trees[:, 0] = np.arange(trees)
        self.alloc = np.array([trees, 0, -1, -1], np.int64)
        self._count[:trees] = 0
        self._after[:trees] = np.arange(1, trees + 1)
        self._after[trees - 1] = -1
        self._before[:trees] = np.arange(-1, trees - 1)

    def _grow_leaves(self, leaves: int) -> None:
        old = getattr(self, "_count", np.zeros(0, np.int32)).size
        new: dict[str, NDArray[Any]] = {
            "_key": np.empty(leaves * self.f_b, np.int64),
            "_rid": np.empty(leaves * self.f_b, np.int32),
            "_count": np.zeros(leaves, np.int32),
            "_after": np.empty(leaves, np.int32),
            "_before": np.empty(leaves, np.int32),
        }
        for name, array in new.items():
            if old:
                kept = getattr(self, name)
                array[: kept.size] = kept
            setattr(self, name, array)
        self._begin = np.arange(leaves, dtype=np.int64) * self.f_b

    @property
    def leaves(self) -> btree.Leaves:
        """The leaves, as the kernels take them."""
        return btree.Leaves(self._key, self._rid, self._count, self._after, self._before)

    @property
    def pool(self) -> btree.Pool:
        """The trees and their inner nodes, as the kernels take them."""
        return btree.Pool(self.trees, self.inners, self.alloc, self.f_b)

    def storage(self) -> Storage:
        """The leaves as linked blocks."""
        return self._begin, self._count, self._after, self._key, self._rid

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(a.nbytes for a in (*self.leaves, *self.inners, self._begin))

    def insert(self, order: Int32, keys: Int64, rid: Int32, tree_of: Int32 = _ONE_TREE) -> None:
        """Put rows in, in `order`; rows with neighbouring keys share a descent."""
        done = 0
        while done < order.size:
            done = btree.insert(order, done, keys, rid, tree_of, self.pool, self.leaves)
            if done < order.size:
                if self.alloc[0] >= self._count.size - 1:
                    self._grow_leaves(2 * self._count.size)
                inners = self.inners.counts.size
                if self.alloc[1] >= inners - btree.DEPTH:
                    self.inners = btree.inner_nodes(2 * inners, self.f_b, self.inners)
        self.size += order.size

    def delete(self, keys: Int64, rid: Int32) -> None:
        """Take rows out one by one; O(log n) each."""
        missing = btree.delete(keys, rid, self.pool, self.leaves)
        assert missing == 0, missing
        self.size -= keys.size

    def cursors(self, order: Int32, low: Int64, high: Int64, tree_of: Int32 = _ONE_TREE) -> Cursors:
        """The leaf and position of each probe's first row; the walk ends by itself."""
        block, pos = blank(low.size), blank(low.size)
        btree.locate(order, low, tree_of, self.pool, self.leaves, block, pos)
        return block, pos, repeat(low.size, -1), repeat(low.size, -1)

    def rows(self) -> tuple[Int64, Int32]:
        """The keys and row numbers held, in key order."""
        keys, rid = np.empty(self.size, np.int64), np.empty(self.size, np.int32)
        first = int(self.trees[0, 0])
        for _ in range(int(self.trees[0, 1])):
            first = int(self.inners.children[first * self.f_b])
        done = btree.drain(first, self.leaves, self.f_b, keys, rid)
        assert done == self.size, (done, self.size)
        return keys, rid

    def _check(self) -> None:
        """Verify that keys ascend along the leaves and separators bound what is below them."""
        keys, rid = self.rows()
        assert (keys[1:] >= keys[:-1]).all()
        assert np.unique(rid).size == rid.size
        for root, height in self.trees.tolist():
            self._check_node(root, height, None, None)

    def _check_node(self, node: int, height: int, low: int | None, high: int | None) -> None:
        f = self.f_b
        if height == 0:
            held = self._key[node * f : node * f + self._count[node]]
            assert low is None or (held >= low).all()
            assert high is None or (held <= high).all()
            return
        n = int(self.inners.counts[node])
        assert 1 <= n <= f
        bounds = [low, *self.inners.keys[node * f : node * f + n - 1].tolist(), high]
        for at, child in enumerate(self.inners.children[node * f : node * f + n].tolist()):
            self._check_node(child, height - 1, bounds[at], bounds[at + 1])


class BPlusTree(Structure):
    """One B+-tree; an expired row is deleted when it expires.

    f_b: children of an inner node, and rows of a leaf.
    """

    name = "b_plus_tree"

    def __init__(self, shape: Shape, window: int | None = None, *, f_b: int = F_B) -> None:
        """An empty tree."""
        super().__init__(shape, window)
        self._tree = BTree(f_b)
        self._queue: list[tuple[Int64, Int32]] = []

    def components(self) -> Sequence[Component]:
        """The tree."""
        return (self._tree,)

    def _insert(self, order: Int32, keys: list[Int64], rid: Int32) -> None:
        self._tree.insert(order, keys[self.drive], rid)
        self._queue.append((keys[self.drive], rid))

    def _expire(self) -> None:
        while self._queue:
            keys, rid = self._queue[0]
            gone = int(np.searchsorted(rid, self.first))
            if self.presort and gone > 1:
                order = order_of(keys[:gone])
                self._tree.delete(gather(keys, order), gather(rid, order))
            else:
                self._tree.delete(keys[:gone], rid[:gone])
            if gone < rid.size:
                self._queue[0] = keys[gone:], rid[gone:]
                return
            del self._queue[0]

    def _holds_expired(self) -> bool:
        return False

    def _check(self) -> None:
        """Verify the tree, and that the queue of rows to delete is what it holds."""
        super()._check()
        self._tree._check()
        queued = np.concatenate([r for _, r in self._queue]) if self._queue else np.zeros(0)
        assert (np.sort(self._tree.rows()[1]) == queued).all()
