"""PIM-Tree: T_I split into range partitions that hang under the nodes of T_S.

The PIM-Tree paper, Section 3.3. Partition `i` takes the keys of node `i` of T_S at the insertion
depth, so partitions follow the data: each merge deals the ranges out anew. The leaves of all
partitions form one linked list, and each partition is a small tree that fits in the cache.
"""

from __future__ import annotations

import numpy as np

from thetajoin.batch.keys import Int64
from thetajoin.index.probe import Shape
from thetajoin.papers.structures.b_plus_tree import F_B, BTree
from thetajoin.papers.structures.css_tree import F_IB, Css
from thetajoin.papers.structures.im_tree import ImTree
from thetajoin.papers.structures.structure import Component, Cursors, Int32, Storage


class Partitioned(Component):
    """T_I: one small B+-tree for each node of T_S at depth `D_I`."""

    def __init__(self, T_S: Css, D_I: int, f_b: int = F_B) -> None:
        """Empty partitions."""
        self._trees = BTree(f_b)
        self.D_I = D_I
        self.reset(T_S)

    def reset(self, T_S: Css) -> None:
        """Forget all rows and take the ranges of a new T_S."""
        self.T_S = T_S
        self._trees.clear(T_S.nodes(self.D_I))

    @property
    def size(self) -> int:  # type: ignore[override]
        """Rows held."""
        return self._trees.size

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return len(self._trees.trees)

    def storage(self) -> Storage:
        """The leaves of all partitions."""
        return self._trees.storage()

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._trees.nbytes

    def insert(self, order: Int32, keys: Int64, rid: Int32) -> None:
        """Put rows into the partitions their keys belong to."""
        nodes = self.T_S.node_of(order, keys, self.D_I, above=True)
        self._trees.insert(order, keys, rid, nodes)

    def cursors(self, order: Int32, low: Int64, high: Int64) -> Cursors:
        """The leaf of each probe's first row, in the first partition that may have one."""
        nodes = self.T_S.node_of(order, low, self.D_I, above=False)
        return self._trees.cursors(order, low, high, nodes)

    def rows(self) -> tuple[Int64, Int32]:
        """The keys and row numbers held, in key order."""
        return self._trees.rows()

    def counts(self) -> Int64:
        """Rows of each partition."""
        keys, _ = self.rows()
        order = np.arange(keys.size, dtype=np.int32)
        nodes = self.T_S.node_of(order, keys, self.D_I, above=True)
        return np.bincount(nodes, minlength=self.partitions)

    def _check(self) -> None:
        """Verify the trees, and that no row is in another partition than its key's."""
        self._trees._check()
        for at, (root, height) in enumerate(self._trees.trees.tolist()):
            node = root
            for _ in range(height):
                node = int(self._trees.inners.children[node * self._trees.f_b])
            if self._trees._count[node]:
                key = self._trees._key[node * self._trees.f_b : node * self._trees.f_b + 1]
                mine = self.T_S.node_of(np.zeros(1, np.int32), key, self.D_I, above=True)
                assert int(mine[0]) == at


class PimTree(ImTree):
    """T_S and the partitions of T_I.

    m: merge ratio, the share of the window that T_I may hold. D_I: insertion depth, the level of
    T_S that the partitions hang under. f_b, f_ib: fan-outs of T_I and T_S.
    """

    name = "pim_tree"
    T_I: Partitioned

    def __init__(
        self,
        shape: Shape,
        window: int | None = None,
        *,
        m: float = 1 / 8,
        D_I: int = 2,
        f_b: int = F_B,
        f_ib: int = F_IB,
    ) -> None:
        """Two empty components."""
        super().__init__(shape, window, m=m, f_b=f_b, f_ib=f_ib)
        self.T_I = Partitioned(self.T_S, D_I, f_b)

    def _restart(self) -> None:
        self.T_I.reset(self.T_S)
