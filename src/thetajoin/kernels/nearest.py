"""Picking the rows whose key is nearest to a probe's from ranges of a segment's primary order.

Each probe has a range of rows at or below its key, which is taken from its end, and one of rows
above, which is taken from its start. Rows have to pass the tests of further keys; the extremes of
blocks of 64 rows, of 64 such blocks and so on let the search skip what cannot pass.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thetajoin.kernels.emit import passes, skips
from thetajoin.kernels.jit import double_of, inlined, kernel
from thetajoin.kernels.search import advance

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

# Which of the rows at equal distance to take; outward: those at or below the probe, the last one
# first, then those above it.
FIRST, LAST, ALL, OUTWARD = 0, 1, 2, 3
_MOST = np.int64(np.iinfo(np.int64).max)


class Around(NamedTuple):
    """Probe `p` has the key ``key[p]``, and may take the positions of two ranges.

    Those of ``[below_start[p], below_end[p])`` are at or below its key, those of
    ``[above_start[p], above_end[p])`` at or above it.
    """

    key: Int64
    below_start: Int32
    below_end: Int32
    above_start: Int32
    above_end: Int32


class SegmentRows(NamedTuple):
    """A segment's rows in primary order: their keys and row numbers."""

    key: Int64
    rid: Int32


class Towers(NamedTuple):
    """Extremes of the tested columns over blocks of 64 rows, of 64 such blocks, and so on.

    Level `i` begins at column ``starts[i]``.
    """

    low: Int64
    high: Int64
    starts: Int64


class Wanted(NamedTuple):
    """How many rows a probe wants, which of several at one distance, and if keys are doubles'."""

    k: int
    ties: int
    is_float: bool


@inlined
def _double(key):
    """The double that an ordered key stands for."""
    return double_of(key ^ ((key >> np.int64(63)) & _MOST))


@inlined
def _error(a, b, d):
    """The rounding error of ``d = a - b``."""
    back = a - d
    return (back - b) + (a - (d + back))


@kernel
def nearer(key, below, above, is_float):
    """-1 if `below` is nearer to `key` than `above` is, 1 if it is farther, else 0.

    Exact: the rounded differences of doubles decide, then their rounding errors. Infinite distances
    compare by the number of keys in between.
    """
    down = np.uint64(key) - np.uint64(below)
    up = np.uint64(above) - np.uint64(key)
    if is_float and below != key and above != key:
        x = _double(key)
        a = _double(below)
        b = _double(above)
        d = x - a
        u = b - x
        # A NaN is farther than everything.
        finite_down = d < np.inf
        finite_up = u < np.inf
        if finite_down or finite_up:
            if not finite_up or d < u:
                return -1
            if not finite_down or d > u:
                return 1
            e = _error(x, a, d)
            f = _error(b, x, u)
            return -1 if e < f else (1 if e > f else 0)
    return -1 if down < up else (1 if down > up else 0)


@kernel
def _down(x, stop, p, tests, towers):
    """The last position in ``[stop, x]`` whose row passes, or ``stop - 1``."""
    columns, low, high, negate = tests
    zone_low, zone_high, starts = towers
    if columns.shape[0] == 0:
        return x
    while x >= stop:
        skipped = False
        if x & 63 == 63:
            level = 0
            while level + 1 < starts.size and (x >> (6 * level + 6)) & 63 == 63:
                level += 1
            while level >= 0 and not skipped:
                block = starts[level] + (x >> (6 * level + 6))
                if skips(block, p, zone_low, zone_high, low, high, negate):
                    x -= 64 << (6 * level)
                    skipped = True
                level -= 1
        if not skipped:
            if passes(x, p, columns, low, high, negate):
                return x
            x -= 1
    return stop - 1


@kernel
def _up(x, end, p, tests, towers):
    """The first position in ``[x, end)`` whose row passes, or `end`."""
    columns, low, high, negate = tests
    zone_low, zone_high, starts = towers
    if columns.shape[0] == 0:
        return x
    while x < end:
        skipped = False
        if x & 63 == 0:
            level = 0
            while level + 1 < starts.size and (x >> (6 * level + 6)) & 63 == 0:
                level += 1
            while level >= 0 and not skipped:
                block = starts[level] + (x >> (6 * level + 6))
                if skips(block, p, zone_low, zone_high, low, high, negate):
                    x += 64 << (6 * level)
                    skipped = True
                level -= 1
        if not skipped:
            if passes(x, p, columns, low, high, negate):
                return x
            x += 1
    return end


@kernel
def _first_equal(keys, x, stop):
    """The first position from `stop` on whose key is that of `x`; keys between do not fall."""
    key = keys[x]
    step = 1
    high = x
    while high - step >= stop and keys[high - step] == key:
        high -= step
        step += step
    low = max(stop, high - step)
    while low < high:
        mid = (low + high) >> 1
        if keys[mid] == key:
            high = mid
        else:
            low = mid + 1
    return high


@kernel
def _past_equal(keys, x, end):
    """The position behind the last one before `end` whose key is that of `x`."""
    key = keys[x]
    step = 1
    low = x
    while low + step < end and keys[low + step] == key:
        low += step
        step += step
    high = min(end, low + step)
    low += 1
    while low < high:
        mid = (low + high) >> 1
        if keys[mid] == key:
            low = mid + 1
        else:
            high = mid
    return low


@kernel
def pick(around, rows, tests, towers, wanted, out):
    """Write each probe's nearest rows, nearest first, as pairs of a probe and a position.

    Starts with probe ``state[0]`` and stops before one that the buffers have no room for. Returns
    the number of pairs.
    """
    key, below_start, below_end, above_start, above_end = around
    keys, rid = rows
    columns, low, high, negate = tests
    k, ties, is_float = wanted
    out_probe, out_row, state = out
    room = out_probe.size
    done = 0
    for p in range(state[0], key.size):
        begun = done
        stop = below_start[p]
        end = above_end[p]
        i = np.int64(below_end[p]) - 1
        j = np.int64(above_start[p])
        if i >= stop and not passes(i, p, columns, low, high, negate):
            i = _down(i - 1, stop, p, tests, towers)
        if j < end and not passes(j, p, columns, low, high, negate):
            j = _up(j + 1, end, p, tests, towers)
        while (i >= stop or j < end) and done - begun < k:
            sign = 0
            if i < stop:
                sign = 1
            elif j >= end:
                sign = -1
            else:
                sign = nearer(key[p], keys[i], keys[j], is_float)
            # Rows at equal distance: positions [a, b) below, and [c, d) above.
            a = b = c = d = np.int64(0)
            if sign <= 0:
                a = _first_equal(keys, i, stop)
                b = i + 1
                i = a - 1
            if sign >= 0:
                c = j
                d = _past_equal(keys, j, end)
                j = d
            while (a < b or c < d) and (ties == ALL or done - begun < k):
                if ties == OUTWARD:
                    x = b - 1 if a < b else c
                    if a < b:
                        b -= 1
                    else:
                        c += 1
                elif ties == LAST:
                    x = b - 1 if c >= d or (a < b and rid[b - 1] > rid[d - 1]) else d - 1
                    if a < b and x == b - 1:
                        b -= 1
                    else:
                        d -= 1
                else:
                    x = a if c >= d or (a < b and rid[a] < rid[c]) else c
                    if a < b and x == a:
                        a += 1
                    else:
                        c += 1
                if passes(x, p, columns, low, high, negate):
                    if done == room:
                        state[0] = p
                        return begun
                    out_probe[done] = p
                    out_row[done] = x
                    done += 1
            if done - begun < k:
                i = _down(i, stop, p, tests, towers)
                j = _up(j, end, p, tests, towers)
        if room - done < k and ties != ALL:
            state[0] = p + 1
            return done
    state[0] = key.size
    return done


@kernel
def pick_in_order(keys, order, bounds, runs, backward, ties, out):
    """Each probe's nearest position to one side, where there is nothing to test; -1 if none is.

    Bounds and runs are as for `narrow_in_order`. The bound that is searched for rises: the high one
    backward, the low one forward. Of rows at equal distance the first or the last is taken.
    """
    low, high = bounds
    starts, ends = runs
    last = np.int64(-1)
    at = np.int64(0)
    found = np.int64(0)
    for i in range(order.size):
        start = np.int64(starts[i])
        end = np.int64(ends[i])
        p = np.uint64(order[i])
        if start >= end:  # may begin where another run does
            out[p] = -1
            continue
        if start != last:
            last = start
            at = start
        if backward:
            at, found = advance(keys, high[i], at, end, True)
            x = at + found - 1
            inside = x >= start and (low.size == 0 or keys[np.uint64(x)] >= low[i])
            if ties == FIRST and x > start and keys[np.uint64(x - 1)] == keys[np.uint64(x)]:
                x = _first_equal(keys, x, start)
        else:
            at, found = advance(keys, low[i], at, end, False)
            x = at + found
            inside = x < end and (high.size == 0 or keys[np.uint64(x)] <= high[i])
            if ties == LAST and x + 1 < end and keys[np.uint64(x + 1)] == keys[np.uint64(x)]:
                x = _past_equal(keys, x, end) - 1
        out[p] = x if inside else -1


@kernel
def pick_one(around, rows, ties, is_float, out):
    """Each probe's one nearest position where there is nothing to test; -1 if there is none.

    Of rows at equal distance the first, the last, or the first outward is taken.
    """
    key, below_start, below_end, above_start, above_end = around
    keys, rid = rows
    for p in range(key.size):
        i = below_end[p] - 1
        j = above_start[p]
        has_below = i >= below_start[p]
        has_above = j < above_end[p]
        sign = 0
        if not has_above:
            sign = -1
        elif not has_below:
            sign = 1
        else:
            sign = nearer(key[p], keys[i], keys[j], is_float)
        if not has_below and not has_above:
            out[p] = -1
            continue
        if sign <= 0 and ties == FIRST and i > below_start[p] and keys[i - 1] == keys[i]:
            i = _first_equal(keys, i, below_start[p])
        if sign >= 0 and ties == LAST and j + 1 < above_end[p] and keys[j + 1] == keys[j]:
            j = _past_equal(keys, j, above_end[p]) - 1
        if sign == 0:
            sign = -1 if ties == OUTWARD or (rid[i] < rid[j]) == (ties == FIRST) else 1
        out[p] = i if sign < 0 else j
