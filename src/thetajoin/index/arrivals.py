"""Arrival numbers of a block's rows: increasing, in runs without gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from thetajoin.batch.keys import Int64
from thetajoin.kernels.order import gather
from thetajoin.kernels.search import count_below

# Where many numbers lie in a range of at most this many times as many, all of it is counted once.
TABLE_SHARE = 64


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Row numbers from ``starts[i]`` on have the arrival numbers from ``firsts[i]`` on.

    >>> numbers = Arrivals.concat([Arrivals.dense(10, 3), Arrivals.dense(20, 2)])
    >>> numbers.rows_before(np.array([9, 11, 15, 21, 99])).tolist()
    [0, 1, 3, 4, 5]
    """

    rows: int
    firsts: Int64
    starts: Int64

    @staticmethod
    def dense(first: int, rows: int) -> Arrivals:
        """Rows that arrived one after the other."""
        return Arrivals(rows, np.array([first]), np.zeros(1, np.int64))

    @staticmethod
    def of(numbers: Int64) -> Arrivals:
        """Rows with these arrival numbers, which go up.

        >>> Arrivals.of(np.array([3, 4, 9])).firsts.tolist()
        [3, 9]
        """
        starts = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 2) != 1)
        return Arrivals(len(numbers), numbers[starts], starts)

    @property
    def first(self) -> int:
        """The oldest row's arrival number."""
        return int(self.firsts[0])

    @property
    def last(self) -> int:
        """The newest row's arrival number."""
        return int(self.firsts[-1] + self.rows - 1 - self.starts[-1])

    @property
    def is_dense(self) -> bool:
        """Whether there is no gap."""
        return len(self.firsts) == 1

    def numbers(self) -> Int64:
        """The arrival number of each row."""
        lengths = np.diff(self.starts, append=self.rows)
        return np.arange(self.rows) + np.repeat(self.firsts - self.starts, lengths)

    def rows_before(self, numbers: Int64) -> Any:
        """How many rows have an arrival number below each of `numbers`."""
        if self.is_dense:
            return np.clip(numbers - self.first, 0, self.rows)
        if len(numbers):
            low, high = int(numbers.min()), int(numbers.max())
            if high - low < TABLE_SHARE * len(numbers):
                table = np.empty(high - low + 1, np.int64)
                count_below(self.firsts, self.starts, self.rows, low, table)
                return gather(table, numbers - low)
        piece = np.searchsorted(self.firsts, numbers, side="right") - 1
        ends = np.append(self.starts[1:], self.rows)
        inside = self.starts[piece] + (numbers - self.firsts[piece])
        return np.where(piece < 0, 0, np.minimum(inside, ends[piece]))

    def slice(self, start: int, rows: int) -> Arrivals:
        """The numbers of `rows` rows from row `start` on.

        >>> Arrivals.of(np.array([3, 4, 9, 10])).slice(1, 2).numbers().tolist()
        [4, 9]
        """
        low = int(np.searchsorted(self.starts, start, side="right")) - 1
        high = int(np.searchsorted(self.starts, start + rows, side="left"))
        starts = np.maximum(self.starts[low:high] - start, 0)
        firsts = self.firsts[low:high].copy()
        firsts[0] += max(0, start - int(self.starts[low]))
        return Arrivals(rows, firsts, starts)

    @staticmethod
    def concat(parts: Sequence[Arrivals]) -> Arrivals:
        """The rows of several blocks one after another."""
        if all(part.is_dense for part in parts) and all(
            a.first + a.rows == b.first for a, b in pairwise(parts)
        ):
            return Arrivals.dense(parts[0].first, sum(part.rows for part in parts))
        rows = np.cumsum([0, *(part.rows for part in parts)])
        firsts = np.concatenate([part.firsts for part in parts])
        starts = np.concatenate([p.starts + at for p, at in zip(parts, rows[:-1], strict=True)])
        goes_on = firsts[1:] - starts[1:] == firsts[:-1] - starts[:-1]
        kept = np.flatnonzero(np.append(True, ~goes_on))
        return Arrivals(int(rows[-1]), firsts[kept], starts[kept])

    def bits(self) -> bytes:
        """A bit for each arrival number from the first row's to the last one's."""
        here = np.zeros(self.last - self.first + 1, np.bool_)
        here[self.numbers() - self.first] = True
        return np.packbits(here).tobytes()

    @staticmethod
    def from_bits(first: int, bits: bytes) -> Arrivals:
        """What `bits` was made from, with the first row's number."""
        return Arrivals.of(first + np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8))))
