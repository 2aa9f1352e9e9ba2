"""What a probe asks of one key: an inclusive interval of int64 keys for each probe row.

This is the one place where operators and strictness live. ``probe < stored`` means the stored key
is at least the probe's plus one. An end beyond the last key is open if that allows more rows, and
makes the interval empty if it allows fewer: it is never clamped to the last key.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from thetajoin.arrays import empty
from thetajoin.batch.keys import INT64_MAX, INT64_MIN, BytesKey, Int64
from thetajoin.kernels.hashes import find_bytes, hash_dictionary
from thetajoin.kernels.order import gather, gather_into, step_keys
from thetajoin.kernels.search import rank_bytes
from thetajoin.kernels.threads import ALONE, Mapper
from thetajoin.limits import limits

Positions = NDArray[np.int64] | NDArray[np.int32]


@dataclass(frozen=True)
class Interval:
    """``low[p] <= stored <= high[p]`` for probe row `p`; None leaves that end open."""

    low: Int64 | None
    high: Int64 | None

    def __and__(self, other: Interval) -> Interval:
        """Both at once."""
        return Interval(
            _tighten(self.low, other.low, np.maximum), _tighten(self.high, other.high, np.minimum)
        )

    def against(self, dictionary: Dictionary | None, mapper: Mapper = ALONE) -> Interval:
        """Itself: integer keys mean the same in every segment."""
        return self

    def take(self, rows: Positions) -> Interval:
        """The intervals of some probe rows."""
        return Interval(
            None if self.low is None else gather(self.low, rows),
            None if self.high is None else gather(self.high, rows),
        )


def _tighten(a: Int64 | None, b: Int64 | None, choose: np.ufunc) -> Int64 | None:
    if a is None or b is None:
        return b if a is None else a
    tighter: Int64 = choose(a, b)
    return tighter


def interval_of(op: str, keys: Int64) -> Interval:
    """The stored keys `s` with ``key op s``; ``!=`` gives the interval to stay out of.

    >>> interval_of("<", np.array([4]))
    Interval(low=array([5]), high=None)
    """
    return interval_around(op, keys, keys)


def interval_around(op: str, least: Int64, most: Int64) -> Interval:
    """The stored keys that any key between two asks for."""
    if op in ("=", "!="):
        return Interval(least, most)
    if op == "<=":
        return Interval(least, None)
    if op == ">=":
        return Interval(None, most)
    if op == "<":
        return shift_interval(least, most, 1, None)
    if op == ">":
        return shift_interval(least, most, None, -1)
    raise ValueError(op)


def shift_interval(least: Int64, most: Int64, low: int | None, high: int | None) -> Interval:
    """``least + low <= stored <= most + high`` in exact arithmetic; None leaves an end open.

    >>> shift_interval(np.array([INT64_MAX, 7]), np.array([INT64_MAX, 7]), -1, None).low.tolist()[1]
    6
    """
    first, past_first = (None, None) if low is None else _shift_keys(least, low)
    last, past_last = (None, None) if high is None else _shift_keys(most, high)
    if past_first is None and past_last is None:
        return Interval(first, last)
    nothing = np.zeros(least.size, np.bool_)
    if past_first is not None:
        nothing |= past_first > 0
    if past_last is not None:
        nothing |= past_last < 0
    if not nothing.any():
        return Interval(first, last)
    return Interval(
        np.where(nothing, INT64_MAX, INT64_MIN if first is None else first),
        np.where(nothing, INT64_MIN, INT64_MAX if last is None else last),
    )


def _shift_keys(keys: Int64, step: int) -> tuple[Int64, NDArray[np.int8] | None]:
    """``key + step`` clamped to int64, and where that was needed: -1 below its range, 1 above."""
    first, last = max(INT64_MIN, INT64_MIN - step), min(INT64_MAX, INT64_MAX - step)
    out = empty(keys.size, np.int64)
    wrapped = np.uint64(step % 2**64).view(np.int64)
    if first <= last and not step_keys(keys, wrapped, first, last, out):
        return out, None
    past = (keys > last).astype(np.int8) - (keys < first).astype(np.int8)
    if first > last:
        past[:] = 1 if step > 0 else -1
    out[past > 0], out[past < 0] = INT64_MAX, INT64_MIN
    return out, past


@dataclass(frozen=True)
class Dictionary(BytesKey):
    """A segment's distinct strings, sorted."""

    @staticmethod
    def of(strings: BytesKey) -> Dictionary:
        """Strings that are distinct and sorted already."""
        return Dictionary(strings.offsets, strings.data)

    def rank_strings(self, op: str, key: BytesKey, mapper: Mapper = ALONE) -> Int64:
        """Keys of strings here: twice the rank if present, odd in between.

        If only equality matters, any odd number will do for strings that are not present.
        """
        out = empty(len(key), np.int64)
        hashed = op in ("=", "!=") and len(key) * limits.passed_over >= len(self)
        entries = self._entries if hashed else None

        def rank(piece: tuple[int, int]) -> None:
            a, b = piece
            offsets = key.offsets[a : b + 1]
            if entries is not None:
                find_bytes((self.offsets, self.data), entries, offsets, key.data, out[a:b])
            else:
                rank_bytes(self.offsets, self.data, offsets, key.data, out[a:b])

        mapper(rank, mapper.pieces(len(key)))
        return out

    @cached_property
    def _entries(self) -> NDArray[np.uint64]:
        """The strings' numbers by their hash."""
        entries = np.zeros(2 << len(self).bit_length(), np.uint64)
        hash_dictionary(self.offsets, self.data, entries)
        return entries


def dictionary_of(strings: BytesKey, mapper: Mapper) -> tuple[Dictionary, Int64]:
    """The sorted distinct strings, and each string's key: twice its rank among them."""
    pieces = mapper.pieces(len(strings))
    if len(pieces) == 1:
        distinct, ranks = strings.dictionary()
        return Dictionary.of(distinct), ranks
    encoded = mapper(lambda at: strings.slice(*at).to_arrow().dictionary_encode(), pieces)
    known = [BytesKey.from_arrow(piece.dictionary) for piece in encoded]
    distinct, all_ranks = BytesKey.concat(known).dictionary()
    ends = np.cumsum([0, *map(len, known)])
    out = empty(len(strings), np.int64)

    def rank(number: int) -> None:
        (a, b), of_piece = pieces[number], all_ranks[ends[number] :]
        gather_into(of_piece, encoded[number].indices.to_numpy(), out[a:b])

    mapper(rank, range(len(pieces)))
    return Dictionary.of(distinct), out


@dataclass(frozen=True)
class BytesInterval:
    """Comparisons with byte strings, which become integers against a segment's dictionary."""

    parts: tuple[tuple[str, BytesKey], ...]

    def __and__(self, other: BytesInterval) -> BytesInterval:
        """Both at once."""
        return BytesInterval(self.parts + other.parts)

    def against(self, dictionary: Dictionary | None, mapper: Mapper = ALONE) -> Interval:
        """The integer intervals among a segment's ranks."""
        assert dictionary is not None
        result = Interval(None, None)
        for op, key in self.parts:
            result = result & interval_of(op, dictionary.rank_strings(op, key, mapper))
        return result

    def take(self, rows: Positions) -> BytesInterval:
        """The intervals of some probe rows."""
        return BytesInterval(tuple((op, key.take(rows)) for op, key in self.parts))


AnyInterval = Interval | BytesInterval


def stack(
    intervals: list[Interval], dims: tuple[int, ...], size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ends of several keys' intervals as two matrices, open ends as the extremes."""
    low = np.full((len(dims), size), INT64_MIN, np.int64)
    high = np.full((len(dims), size), INT64_MAX, np.int64)
    for at, dim in enumerate(dims):
        asked = intervals[dim]
        if asked.low is not None:
            low[at] = asked.low
        if asked.high is not None:
            high[at] = asked.high
    return low, high
