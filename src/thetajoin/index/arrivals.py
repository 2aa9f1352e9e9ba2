"""Arrival numbers of a block's rows: increasing, in a few runs without gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from thetajoin.batch.keys import Int64


@dataclass(frozen=True)
class Arrivals:
    """Row numbers from ``starts[i]`` on have the arrival numbers from ``firsts[i]`` on.

    >>> numbers = Arrivals.concat([Arrivals.dense(10, 3), Arrivals.dense(20, 2)])
    >>> numbers.rows_before(np.array([9, 11, 15, 21, 99])).tolist()
    [0, 1, 3, 4, 5]
    """

    rows: int
    firsts: tuple[int, ...]
    starts: tuple[int, ...]

    @staticmethod
    def dense(first: int, rows: int) -> Arrivals:
        """Rows that arrived one after the other."""
        return Arrivals(rows, (first,), (0,))

    @property
    def first(self) -> int:
        """The oldest row's arrival number."""
        return self.firsts[0]

    @property
    def last(self) -> int:
        """The newest row's arrival number."""
        return self.firsts[-1] + self.rows - 1 - self.starts[-1]

    def rows_before(self, numbers: Int64) -> Int64:
        """How many rows have an arrival number below each of `numbers`."""
        if len(self.firsts) == 1:
            return np.clip(numbers - self.first, 0, self.rows)
        piece = np.searchsorted(self.firsts, numbers, side="right") - 1
        ends = np.array([*self.starts[1:], self.rows])
        inside = np.array(self.starts)[piece] + (numbers - np.array(self.firsts)[piece])
        return np.where(piece < 0, 0, np.minimum(inside, ends[piece]))

    @staticmethod
    def concat(parts: Sequence[Arrivals]) -> Arrivals:
        """The rows of several blocks one after another."""
        firsts: list[int] = []
        starts: list[int] = []
        rows = 0
        for part in parts:
            for first, start in zip(part.firsts, part.starts, strict=True):
                if firsts and firsts[-1] + rows + start - starts[-1] == first:
                    continue
                firsts.append(first)
                starts.append(rows + start)
            rows += part.rows
        return Arrivals(rows, tuple(firsts), tuple(starts))
