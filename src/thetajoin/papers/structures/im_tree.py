"""IM-Tree: a mutable B+-tree T_I, merged into an immutable one T_S from time to time.

The PIM-Tree paper, Section 3.2. Expired rows stay in T_S, unseen, until the next merge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thetajoin.batch.keys import Int64
from thetajoin.index.probe import Shape
from thetajoin.kernels.order import gather
from thetajoin.papers.structures.b_plus_tree import F_B, BTree
from thetajoin.papers.structures.css_tree import F_IB, Css
from thetajoin.papers.structures.structure import Component, Int32, Structure

# Where the window's size is not known, T_I may grow to this many rows before the first merge.
_LEAST = 4096


def merge_rows(m: float, window: int | None, held: int) -> int:
    """Rows that T_I may have: the merge ratio's share of the window."""
    return max(1, int(m * window)) if window else max(_LEAST, int(m * held))


class ImTree(Structure):
    """T_I and T_S.

    m: merge ratio, the share of the window that T_I may hold (the paper finds 1/8 to 1/16 best on
    one thread). f_b, f_ib: fan-outs of T_I and T_S.
    """

    name = "im_tree"
    # A B+-tree; in the PIM-Tree its partitions.
    T_I: Any

    def __init__(
        self,
        shape: Shape,
        window: int | None = None,
        *,
        m: float = 1 / 8,
        f_b: int = F_B,
        f_ib: int = F_IB,
    ) -> None:
        """Two empty trees."""
        super().__init__(shape, window)
        self.m = m
        self.merges = 0
        self.T_S = Css(f_ib=f_ib)
        self.T_I = BTree(f_b)

    def components(self) -> Sequence[Component]:
        """Both trees."""
        return self.T_S, self.T_I

    def _insert(self, order: Int32, keys: list[Int64], rid: Int32) -> None:
        values = keys[self.drive]
        limit = merge_rows(self.m, self.window, self.T_S.size)
        if order.size >= limit:
            # A batch that would fill T_I at once goes to T_S directly.
            self._merge(*self.T_I.rows())
            self._merge(gather(values, order), gather(rid, order))
            return
        self.T_I.insert(order, values, rid)
        if self.T_I.size >= limit:
            self._merge(*self.T_I.rows())

    def _merge(self, keys: Int64, rid: Int32) -> None:
        """Rows in key order go to T_S, which drops what has expired; T_I starts anew."""
        if rid.size:
            self.T_S = self.T_S.merge(keys, rid, self.first)
            self.merges += 1
            self._restart()

    def _restart(self) -> None:
        self.T_I.clear()

    def _check(self) -> None:
        """Verify both trees, and that T_I is not above its share."""
        super()._check()
        self.T_S._check()
        self.T_I._check()
        assert self.T_I.size <= merge_rows(self.m, self.window, max(self.T_S.size, self.size))
