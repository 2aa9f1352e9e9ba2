"""What a probe asks of one key: an inclusive interval of int64 keys for each probe row.

This is the one place where operators and strictness live. ``probe < stored`` means the stored key
is at least the probe's plus one; a key with no successor gives an empty interval.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from thetajoin.batch.keys import INT64_MAX, INT64_MIN, BytesKey, Int64
from thetajoin.kernels.memory import empty
from thetajoin.kernels.order import gather, step_keys
from thetajoin.kernels.search import rank_bytes

Rows = NDArray[np.int64] | NDArray[np.int32]


@dataclass(frozen=True)
class Interval:
    """``low[p] <= stored <= high[p]`` for probe row `p`; None leaves that end open."""

    low: Int64 | None
    high: Int64 | None

    def __and__(self, other: Interval) -> Interval:
        """Both at once."""
        return Interval(
            _tighter(self.low, other.low, np.maximum), _tighter(self.high, other.high, np.minimum)
        )

    def against(self, dictionary: BytesKey | None) -> Interval:
        """Itself: integer keys mean the same in every segment."""
        return self

    def take(self, rows: Rows) -> Interval:
        """The intervals of some probe rows."""
        return Interval(
            None if self.low is None else gather(self.low, rows),
            None if self.high is None else gather(self.high, rows),
        )


def _tighter(a: Int64 | None, b: Int64 | None, choose: np.ufunc) -> Int64 | None:
    if a is None or b is None:
        return b if a is None else a
    tighter: Int64 = choose(a, b)
    return tighter


def interval_of(op: str, keys: Int64) -> Interval:
    """The stored keys `s` with ``key op s``; ``!=`` gives the interval to stay out of.

    >>> interval_of("<", np.array([4]))
    Interval(low=array([5]), high=None)
    """
    if op in ("=", "!="):
        return Interval(keys, keys)
    if op == "<=":
        return Interval(keys, None)
    if op == ">=":
        return Interval(None, keys)
    if op == "<":
        return _strict(keys, INT64_MAX, 1)
    if op == ">":
        mirrored = _strict(keys, INT64_MIN, -1)
        return Interval(mirrored.high, mirrored.low)
    raise ValueError(op)


def _strict(keys: Int64, last: int, step: int) -> Interval:
    """The next keys as an end, and where there is none an impossible other end."""
    end = empty(keys.size, np.int64)
    if not step_keys(keys, last, step, end):
        return Interval(end, None)
    at_end = keys == last
    other = INT64_MIN if last == INT64_MAX else INT64_MAX
    end = np.where(at_end, last, keys) + np.where(at_end, 0, step)
    return Interval(end, np.where(at_end, other, last))


@dataclass(frozen=True)
class BytesInterval:
    """Comparisons with byte strings, which become integers against a segment's dictionary."""

    parts: tuple[tuple[str, BytesKey], ...]

    def __and__(self, other: BytesInterval) -> BytesInterval:
        """Both at once."""
        return BytesInterval(self.parts + other.parts)

    def against(self, dictionary: BytesKey | None) -> Interval:
        """The integer intervals among a segment's ranks."""
        assert dictionary is not None
        result = Interval(None, None)
        for op, key in self.parts:
            result = result & interval_of(op, ranked(key, dictionary))
        return result

    def take(self, rows: Rows) -> BytesInterval:
        """The intervals of some probe rows."""
        return BytesInterval(tuple((op, key.take(rows)) for op, key in self.parts))


AnyInterval = Interval | BytesInterval


def ranked(key: BytesKey, dictionary: BytesKey) -> Int64:
    """Keys of strings among a sorted dictionary: twice the rank if present, odd in between."""
    out = np.empty(len(key), np.int64)
    rank_bytes(dictionary.offsets, dictionary.data, key.offsets, key.data, out)
    return out
