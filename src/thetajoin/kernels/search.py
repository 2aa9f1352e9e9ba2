"""Binary searches of many values, in an order that lets each start where the last one ended.

PanJoin calls this the rebounding binary search (Section III-E): the search doubles its step away
from the previous position, in either direction, and then halves the bracket it found.
"""

from __future__ import annotations

import numpy as np

from thetajoin.kernels.jit import ONE, bits_of, double_of, inlined, kernel

# Keys that a merge skips at once: a cache line of them.
STEP = 8
# Beyond this many keys the steps double.
FAR = 8 * STEP
# Among this few keys, those below a value are counted instead of searched for.
COMPARED = np.uint64(16)
LOWEST, HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@kernel
def first_at_least(keys, values, order, out):
    """For each value, in `order`, the first position of sorted `keys` that is not below it."""
    n = keys.size
    at = 0
    for i in range(order.size):
        p = order[i]
        v = values[p]
        # Invariant of the bracket: keys[low - 1] < v <= keys[high].
        if at < n and keys[at] < v:
            low = at + 1
            step = 1
            high = low + step
            while high < n and keys[high] < v:
                low = high + 1
                step += step
                high = low + step
            if high > n:
                high = n
        else:
            high = at
            step = 1
            low = high - step
            while low > 0 and keys[low - 1] >= v:
                high = low - 1
                step += step
                low = high - step
            if low < 0:
                low = 0
        while low < high:
            mid = (low + high) >> 1
            if keys[mid] < v:
                low = mid + 1
            else:
                high = mid
        at = low
        out[p] = low


@kernel
def first_above(keys, values, order, out):
    """For each value, in `order`, the first position of sorted `keys` that is above it."""
    n = keys.size
    at = 0
    for i in range(order.size):
        p = order[i]
        v = values[p]
        if at < n and keys[at] <= v:
            low = at + 1
            step = 1
            high = low + step
            while high < n and keys[high] <= v:
                low = high + 1
                step += step
                high = low + step
            if high > n:
                high = n
        else:
            high = at
            step = 1
            low = high - step
            while low > 0 and keys[low - 1] > v:
                high = low - 1
                step += step
                low = high - step
            if low < 0:
                low = 0
        while low < high:
            mid = (low + high) >> 1
            if keys[mid] <= v:
                low = mid + 1
            else:
                high = mid
        at = low
        out[p] = low


@kernel
def merge_at_least(keys, values, order, out):
    """As `first_at_least` for values that rise, of which ``out[order[j]]`` is the j-th.

    One pass over both: keys are skipped `STEP` at a time, and counted where they are not.
    """
    n = keys.size
    full = n - STEP
    at = 0
    for j in range(values.size):
        v = values[j]
        while at <= full and keys[np.uint64(at + STEP - 1)] < v:
            at += STEP
        found = 0
        if at <= full:
            for k in range(np.uint64(STEP)):
                found += keys[np.uint64(at) + k] < v
        else:
            for k in range(at, n):
                found += keys[k] < v
        out[np.uint64(order[j])] = np.int32(at + found)


@kernel
def merge_above(keys, values, order, out):
    """As `merge_at_least`, for the first position above each value."""
    n = keys.size
    full = n - STEP
    at = 0
    for j in range(values.size):
        v = values[j]
        while at <= full and keys[np.uint64(at + STEP - 1)] <= v:
            at += STEP
        found = 0
        if at <= full:
            for k in range(np.uint64(STEP)):
                found += keys[np.uint64(at) + k] <= v
        else:
            for k in range(at, n):
                found += keys[k] <= v
        out[np.uint64(order[j])] = np.int32(at + found)


@inlined
def _place(keys, value, start, end, above):
    """The first position of a sorted range that is not below a value, or that is `above` it.

    Few keys are compared all at once: that costs less than guessing which half they are in.
    """
    at = np.uint64(start)
    rows = np.uint64(max(end - start, 0))
    while rows > COMPARED:
        half = rows >> ONE
        key = keys[at + half - ONE]
        if key < value or (above and key == value):
            at += half
        rows -= half
    found = 0
    if above:
        for i in range(rows):
            found += keys[at + i] <= value
    else:
        for i in range(rows):
            found += keys[at + i] < value
    return np.int64(at) + found


@kernel
def narrow(keys, low_values, high_values, has_low, has_high, starts, ends):
    """Narrow each range ``[starts, ends)`` of `keys`, sorted inside it, to a closed interval."""
    for p in range(starts.size):
        start = np.int64(starts[p])
        end = np.int64(ends[p])
        if has_low:
            start = _place(keys, low_values[p], start, end, False)
        if has_high:
            end = _place(keys, high_values[p], start, end, True)
        starts[p] = start
        ends[p] = end


@inlined
def _leap(keys, value, at, end, above):
    """As `_place`, for a position not far behind `at`: the step doubles until it has gone past."""
    step = 1
    low = at
    high = at
    while high < end and (keys[high] < value or (above and keys[high] == value)):
        low = high + 1
        high += step
        step += step
    high = min(high, end)
    while low < high:
        mid = (low + high) >> 1
        if keys[mid] < value or (above and keys[mid] == value):
            low = mid + 1
        else:
            high = mid
    return low


@inlined
def advance(keys, value, at, end, above):
    """As `_place`, for a position not far behind `at`, given as where to go on from and a distance.

    Keys are skipped `STEP` at a time, and counted where they are not.
    """
    full = end - STEP
    far = min(full, at + FAR)
    if above:
        while at <= far and keys[np.uint64(at + STEP - 1)] <= value:
            at += STEP
    else:
        while at <= far and keys[np.uint64(at + STEP - 1)] < value:
            at += STEP
    if far < at <= full:
        at = _leap(keys, value, at, end, above)
    found = 0
    if at > full:
        for k in range(at, end):
            found += (keys[k] < value) | (above & (keys[k] == value))
    elif above:
        for k in range(np.uint64(STEP)):
            found += keys[np.uint64(at) + k] <= value
    else:
        for k in range(np.uint64(STEP)):
            found += keys[np.uint64(at) + k] < value
    return at, found


@kernel
def narrow_in_order(keys, order, bounds, runs, starts, ends):
    """As `narrow`, for probes of which those of one run follow each other, their bounds rising.

    So each search goes on where the last one ended. Bounds and runs are in this order; the result
    of the i-th probe goes to ``order[i]``. An empty array of bounds leaves that end open.
    """
    low_values, high_values = bounds
    run_starts, run_ends = runs
    by_low = low_values.size > 0
    last = np.int64(-1)
    at = np.int64(0)
    found = np.int64(0)
    for i in range(order.size):
        start = np.int64(run_starts[i])
        end = np.int64(run_ends[i])
        p = np.uint64(order[i])
        if start >= end:  # may begin where another run does
            starts[p] = start
            ends[p] = start
            continue
        if start != last:
            last = start
            at = start
        if by_low:
            at, found = advance(keys, low_values[i], at, end, False)
            start = at + found
            if high_values.size > 0:
                behind, found = advance(keys, high_values[i], start, end, True)
                end = behind + found
        else:
            at, found = advance(keys, high_values[i], at, end, True)
            end = at + found
        starts[p] = start
        ends[p] = end


@kernel
def rank_bytes(dict_offsets, dict_data, offsets, data, out):
    """Twice the rank of each byte string in a sorted dictionary; one less if it is not in it."""
    d = dict_offsets.size - 1
    for p in range(offsets.size - 1):
        begin = offsets[p]
        length = offsets[p + 1] - begin
        low = 0
        high = d
        found = False
        while low < high:
            mid = (low + high) >> 1
            other = dict_offsets[mid]
            other_length = dict_offsets[mid + 1] - other
            shorter = min(length, other_length)
            sign = 0
            for i in range(shorter):
                x = dict_data[other + i]
                y = data[begin + i]
                if x != y:
                    sign = -1 if x < y else 1
                    break
            if sign == 0 and other_length != length:
                sign = -1 if other_length < length else 1
            if sign < 0:
                low = mid + 1
            else:
                if sign == 0:
                    found = True
                high = mid
        out[p] = 2 * low if found else 2 * low - 1
    return np.int64(d)


@kernel
def clear_unreached(low, high, smallest, largest, touched):
    """Clear bit `z` (modulo 64) of each interval that meets none of the ranges with that number.

    `smallest` and `largest` are the ranges' ends. An empty `low` or `high` leaves that end open.
    """
    zones = min(smallest.size, 64)
    floor = smallest.copy()
    ceiling = largest.copy()
    for z in range(64, smallest.size):
        floor[z & 63] = min(floor[z & 63], smallest[z])
        ceiling[z & 63] = max(ceiling[z & 63], largest[z])
    floor = floor[:zones]
    ceiling = ceiling[:zones]
    all_low = ceiling.min()
    all_high = floor.max()
    none_low = ceiling.max()
    none_high = floor.min()
    for p in range(touched.size):
        from_here = low[p] if low.size else LOWEST
        to_here = high[p] if high.size else HIGHEST
        if from_here <= all_low and to_here >= all_high:
            continue
        if from_here > none_low or to_here < none_high:
            touched[p] = 0
            continue
        word = touched[p]
        for z in range(zones):
            if from_here > ceiling[z] or to_here < floor[z]:
                word &= ~(ONE << np.uint64(z))
        touched[p] = word


@kernel
def drop_own(own, probes, rows):
    """Move the pairs of a probe and a row not its own to the front; returns how many there are."""
    kept = 0
    for i in range(probes.size):
        p = probes[i]
        row = rows[i]
        probes[kept] = p
        rows[kept] = row
        kept += own[p] != row
    return kept


@kernel
def count_below(firsts, starts, rows, low, out):
    """How many members of a set lie below `low`, ``low + 1`` and so on.

    Members are numbered from 0 as they go up; from number ``starts[i]`` on they are ``firsts[i]``
    and those that follow it.
    """
    piece = np.searchsorted(firsts, low, side="right") - 1
    for i in range(out.size):
        number = low + i
        while piece + 1 < firsts.size and firsts[piece + 1] <= number:
            piece += 1
        if piece < 0:
            out[i] = 0
            continue
        end = starts[piece + 1] if piece + 1 < starts.size else rows
        out[i] = min(starts[piece] + number - firsts[piece], end)


KEY_MASK = np.int64(0x7FFFFFFFFFFFFFFF)
# The keys of the two infinities; beyond them there is only NaN.
KEY_INF = np.int64(0x7FF0000000000000)
KEY_NEG_INF = np.int64(-0x7FF0000000000001)
# An infinity's key and this much still fit into an int64.
LONGEST_STEP = 1 << 51


@inlined
def _number(key):
    return double_of(key ^ ((key >> 63) & KEY_MASK))


@inlined
def _key(value):
    bits = bits_of(value + 0.0)
    return bits ^ ((bits >> 63) & KEY_MASK)


@inlined
def _holds(stored, probe, bound, strict, below, left, single):
    """Whether the rounded difference is below (or else above) the bound."""
    if single:
        a, b = np.float32(probe), np.float32(stored)
        difference = np.float64(a - b) if left else np.float64(b - a)
    else:
        difference = probe - stored if left else stored - probe
    if below:
        return difference < bound if strict else difference <= bound
    return difference > bound if strict else difference >= bound


@kernel
def find_band_end(keys, bound, strict, below, left, single, out):
    """Where the stored keys begin that satisfy one bound of a band, for finite probes.

    `below`: the difference must be below `bound`, not above it. `left`: the probes are its left
    operand. If both or neither hold, the keys from ``out[p]`` upwards satisfy the bound, otherwise
    the keys from ``out[p]`` downwards; one past an infinity if none does.
    """
    inwards = 1 if below == left else -1
    inmost = KEY_INF if below == left else KEY_NEG_INF
    outmost = KEY_NEG_INF if below == left else KEY_INF
    for p in range(keys.size):
        probe = _number(keys[p])
        guess = _key(probe - bound if left else probe + bound)
        guess = min(max(guess, KEY_NEG_INF), KEY_INF)
        stored = _number(guess)
        holds = _holds(stored, probe, bound, strict, below, left, single)
        # Gallop away from the guess until `good` satisfies the bound and `bad` does not; one past
        # an infinity means that every key satisfies it, or none.
        good = guess
        bad = guess
        step = 1
        while True:
            if holds:
                if (bad - inwards * step) * inwards < outmost * inwards:
                    bad = outmost - inwards
                    break
                bad -= inwards * step
                stored = _number(bad)
                if not _holds(stored, probe, bound, strict, below, left, single):
                    break
                good = bad
            else:
                if (good + inwards * step) * inwards > inmost * inwards:
                    good = inmost + inwards
                    break
                good += inwards * step
                stored = _number(good)
                if _holds(stored, probe, bound, strict, below, left, single):
                    break
                bad = good
            step = min(step + step, LONGEST_STEP)
        while good != bad + inwards:
            middle = (good >> 1) + (bad >> 1) + (good & bad & 1)
            stored = _number(middle)
            if _holds(stored, probe, bound, strict, below, left, single):
                good = middle
            else:
                bad = middle
        out[p] = good
