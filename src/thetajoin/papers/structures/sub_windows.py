"""A window as a chain of sub-windows by arrival, each with an index of its own, dropped whole.

PanJoin (Section III-A) and the chained index of BiStream (Section 3.3): rows go into the newest;
when it is full it is archived and a new one begun; the oldest goes when its last row has expired.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from thetajoin.batch.keys import Int64
from thetajoin.index.probe import Shape
from thetajoin.kernels.order import order_of
from thetajoin.papers.structures.structure import Component, Int32, Structure

C = TypeVar("C", bound=Component)


@dataclass
class Sub(Generic[C]):
    """One sub-window: its components, how many rows were put in, and the last one's number."""

    parts: list[C]
    rows: int = 0
    last: int = -1


class SubWindows(Structure, Generic[C]):
    """Rows in sub-windows of `N_Sub` rows."""

    N_Sub: int

    def __init__(self, shape: Shape, window: int | None, N_Sub: int) -> None:
        """An empty chain."""
        super().__init__(shape, window)
        self.N_Sub = max(1, N_Sub)
        self.subs: list[Sub[C]] = []

    @abstractmethod
    def _begin(self, keys: Int64) -> list[C]:
        """A new sub-window's components; `keys` are the first it will get."""

    @abstractmethod
    def _add(self, sub: Sub[C], order: Int32, keys: Int64, rid: Int32) -> None:
        """Put rows into the newest sub-window, in the order of their keys."""

    def _archive(self, sub: Sub[C]) -> None:
        """The newest sub-window is full and will not change any more."""

    def components(self) -> Sequence[Component]:
        """All sub-windows' parts, oldest first."""
        return [part for sub in self.subs for part in sub.parts]

    def _insert(self, order: Int32, keys: list[Int64], rid: Int32) -> None:
        values = keys[self.drive]
        done = 0
        while done < rid.size:
            if not self.subs or self.subs[-1].rows >= self.N_Sub:
                self.subs.append(Sub(self._begin(values[done:])))
            sub = self.subs[-1]
            take = min(rid.size - done, self.N_Sub - sub.rows)
            if take == rid.size:
                self._add(sub, order, values, rid)
            else:
                some = values[done : done + take]
                self._add(sub, order_of(some), some, rid[done : done + take])
            done += take
            sub.rows += take
            sub.last = int(rid[done - 1])
            if sub.rows >= self.N_Sub:
                self._archive(sub)

    def _expire(self) -> None:
        kept = 0
        while kept < len(self.subs) and self.subs[kept].last < self.first:
            kept += 1
        del self.subs[:kept]

    def _holds_expired(self) -> bool:
        return self.first > 0 and bool(self.subs)

    def _check(self) -> None:
        """Verify that sub-windows follow each other and all but the newest are full."""
        super()._check()
        at = -1
        for sub in self.subs:
            rids = np.concatenate([part.rows()[1] for part in sub.parts])
            assert rids.size == sub.rows <= self.N_Sub
            assert sub is self.subs[-1] or sub.rows == self.N_Sub
            assert rids.min() > at
            assert rids.max() == sub.last
            at = sub.last
