"""B-chain: the chained index with a B+-tree for each sub-window.

BiStream, Section 3.3, and the PIM-Tree paper, Section 2.2.2, whose names are used here.
"""

from __future__ import annotations

from thetajoin.batch.keys import Int64
from thetajoin.index.probe import Shape
from thetajoin.papers.structures.b_plus_tree import F_B, BTree
from thetajoin.papers.structures.structure import SUB_ROWS, Int32
from thetajoin.papers.structures.sub_windows import Sub, SubWindows


def sub_rows(window: int | None, L: int, N_Sub: int | None) -> int:
    """Rows of a sub-index so that a chain of `L` covers the window, its newest still filling."""
    if N_Sub is not None:
        return N_Sub
    return SUB_ROWS if window is None else max(1, -(-window // max(1, L - 1)))


class BChain(SubWindows[BTree]):
    """A chain of B+-trees.

    L: length of the chain; the paper finds two the fastest. N_Sub: rows of a sub-index, in place
    of `L`. f_b: fan-out of the trees.
    """

    name = "b_chain"

    def __init__(
        self,
        shape: Shape,
        window: int | None = None,
        *,
        L: int = 2,
        N_Sub: int | None = None,
        f_b: int = F_B,
    ) -> None:
        """An empty chain."""
        super().__init__(shape, window, sub_rows(window, L, N_Sub))
        self._f_b = f_b

    def _begin(self, keys: Int64) -> list[BTree]:
        return [BTree(self._f_b, rows=keys.size)]

    def _add(self, sub: Sub[BTree], order: Int32, keys: Int64, rid: Int32) -> None:
        sub.parts[0].insert(order, keys, rid)

    def _check(self) -> None:
        """Verify every tree."""
        super()._check()
        for sub in self.subs:
            sub.parts[0]._check()
