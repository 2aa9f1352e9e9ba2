"""IB-chain: the chained index whose archived sub-windows are immutable B+-trees.

The PIM-Tree paper, Section 5.1.
"""

from __future__ import annotations

from thetajoin.batch.keys import Int64
from thetajoin.index.probe import Shape
from thetajoin.papers.structures.b_chain import sub_rows
from thetajoin.papers.structures.b_plus_tree import F_B, BTree
from thetajoin.papers.structures.css_tree import F_IB, Css
from thetajoin.papers.structures.structure import Int32
from thetajoin.papers.structures.sub_windows import Sub, SubWindows


class IbChain(SubWindows[BTree | Css]):
    """A B+-tree for the newest sub-window, CSS-trees for the others.

    L: length of the chain. N_Sub: rows of a sub-index, in place of `L`. f_b, f_ib: fan-outs.
    """

    name = "ib_chain"

    def __init__(
        self,
        shape: Shape,
        window: int | None = None,
        *,
        L: int = 2,
        N_Sub: int | None = None,
        f_b: int = F_B,
        f_ib: int = F_IB,
    ) -> None:
        """An empty chain."""
        super().__init__(shape, window, sub_rows(window, L, N_Sub))
        self._f_b, self._f_ib = f_b, f_ib

    def _begin(self, keys: Int64) -> list[BTree | Css]:
        return [BTree(self._f_b, rows=keys.size)]

    def _add(self, sub: Sub[BTree | Css], order: Int32, keys: Int64, rid: Int32) -> None:
        tree = sub.parts[0]
        assert isinstance(tree, BTree)
        tree.insert(order, keys, rid)

    def _archive(self, sub: Sub[BTree | Css]) -> None:
        sub.parts = [Css(*sub.parts[0].rows(), self._f_ib)]

    def _check(self) -> None:
        """Verify every tree, and that the archived ones are immutable."""
        super()._check()
        for sub in self.subs:
            assert isinstance(sub.parts[0], Css) == (sub.rows == self.N_Sub)
            sub.parts[0]._check()
