"""Bitset: SPO-Join's mutable part, a B+-tree for each key and one bitset for each predicate.

SPO-Join, Section 4.1: a predicate's bits are set along a range of leaves, then all are ANDed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from thetajoin.batch.keys import Int64
from thetajoin.index.probe import Arrivals, Pairs, Probe, Shape
from thetajoin.kernels.order import order_of
from thetajoin.papers.structures.b_plus_tree import F_B, BTree
from thetajoin.papers.structures.intersection import Intersection
from thetajoin.papers.structures.structure import Component, Int32, Structure


class Bitset(Structure):
    """A B+-tree for each key; expired rows are deleted from all of them.

    f_b: fan-out of the trees.
    """

    name = "bitset"
    meet = "bitset"

    def __init__(self, shape: Shape, window: int | None = None, *, f_b: int = F_B) -> None:
        """Empty trees."""
        super().__init__(shape, window, multi_key=True)
        self._trees = [BTree(f_b) for _ in shape.dims]
        self._queue: list[tuple[list[Int64], Int32]] = []

    def components(self) -> Sequence[Component]:
        """The driving key's tree, which has every row."""
        return (self._trees[self.drive],)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(tree.nbytes for tree in self._trees)

    def _insert(self, order: Int32, keys: list[Int64], rid: Int32) -> None:
        for dim, tree in enumerate(self._trees):
            by_key = order if dim == self.drive else order_of(keys[dim])
            tree.insert(by_key, keys[dim], rid)
        self._queue.append((keys, rid))

    def _expire(self) -> None:
        while self._queue:
            keys, rid = self._queue[0]
            gone = int(np.searchsorted(rid, self.first))
            for tree, values in zip(self._trees, keys, strict=True):
                tree.delete(values[:gone], rid[:gone])
            if gone < rid.size:
                self._queue[0] = [values[gone:] for values in keys], rid[gone:]
                return
            del self._queue[0]

    def _holds_expired(self) -> bool:
        return False

    def pairs(
        self, probe: Probe, arrivals: Arrivals, *, room: int, once: bool = False
    ) -> list[Iterator[Pairs]]:
        """As in the protocol, by intersecting every predicate's rows."""
        visible = self.find_visible(probe, arrivals) if probe.size and self.size else None
        if visible is None:
            return []
        meet = Intersection(self.shape, self.meet)
        first = int(self._queue[0][1][0])
        return [meet.stream(self._trees, probe, visible, first, self.last, room=room, once=once)]

    def _check(self) -> None:
        """Verify every tree, and that all hold the same rows."""
        super()._check()
        for tree in self._trees:
            tree._check()
            assert (np.sort(tree.rows()[1]) == np.sort(self._trees[0].rows()[1])).all()
