"""Writing pairs: one probe after another into a bounded buffer, resumable at any probe.

All emitters take the same named tuples. Positions are those of a
segment's rows in primary order. Emitters return the number of pairs written; they have finished
when ``state[0]`` is the number of probes. Blocks of 64 rows are written whole, so the buffers need
room for at least that many pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thetajoin.kernels.jit import ALL_ONES, ONE, WORD_MASK, inlined, kernel, trailing_zeros

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Words = NDArray[np.uint64]

BLOCK = 64
SIX, TWELVE, EIGHTEEN = np.uint64(6), np.uint64(12), np.uint64(18)


class Reach(NamedTuple):
    """Probe `p` reaches the positions ``[starts[p], ends[p])``; `rid` has their row numbers.

    order: the probes, in the order in which they are taken.
    """

    order: Int32
    starts: Int32
    ends: Int32
    rid: Int32


class Tests(NamedTuple):
    """Further columns, tested row by row.

    Column ``c`` of row ``x`` passes if ``low[c, p] <= columns[c, x] <= high[c, p]``, or if it does
    not where ``negate[c]``.
    """

    columns: Int64
    low: Int64
    high: Int64
    negate: NDArray[np.bool_]


class Extremes(NamedTuple):
    """The extremes of the tested columns in each block of 64 rows."""

    low: Int64
    high: Int64


class Shown(NamedTuple):
    """With `see`, a probe sees only row numbers in ``[low[p], high[p]]``.

    once: a probe stops at its first pair.
    """

    see: bool
    low: Int64
    high: Int64
    once: bool


class Bits(NamedTuple):
    """Probe `p` satisfies a key at ``[begins[p], finishes[p])`` of that key's own order.

    perm: from there to primary order (SPO-Join, Algorithm 2). bits: one a row, in primary order;
    summary: one for each word of bits; top: one for each word of the summary.
    """

    begins: Int32
    finishes: Int32
    perm: Int32
    bits: Words
    summary: Words
    top: Words


class Out(NamedTuple):
    """Buffers for pairs, and where to go on.

    state: the next index into the probes' order, the position to go on from, and the start and end
    of the bitmap's window.
    """

    probe: Int32
    row: Int32
    state: Int64

    @staticmethod
    def of(room: int) -> Out:
        """Empty buffers with room for that many pairs."""
        return Out(np.empty(room, np.int32), np.empty(room, np.int32), np.zeros(4, np.int64))


@inlined
def passes(x, p, columns, low, high, negate):
    """Whether a row passes every test of a probe."""
    for c in range(columns.shape[0]):
        v = columns[c, x]
        if (v >= low[c, p] and v <= high[c, p]) == negate[c]:
            return False
    return True


@inlined
def skips(block, p, zone_low, zone_high, low, high, negate):
    """Whether a block's extremes show that none of its rows passes."""
    for c in range(zone_low.shape[0]):
        a = zone_low[c, block]
        b = zone_high[c, block]
        if negate[c]:
            if a >= low[c, p] and b <= high[c, p]:
                return True
        elif b < low[c, p] or a > high[c, p]:
            return True
    return False


@kernel
def emit_ranges(reach, shown, out):
    """One predicate: every row of the range matches, so pairs are copied (PanJoin's records)."""
    order, starts, ends, rid = reach
    see, rid_low, rid_high, once = shown
    out_probe, out_row, state = out
    room = out_probe.size
    done = 0
    i = state[0]
    while i < order.size:
        p = order[i]
        x = max(starts[p], state[1])
        end = ends[p]
        if not see:
            if once and x < end:
                end = x + 1
            count = min(end - x, room - done)
            for k in range(count):
                out_row[done + k] = rid[x + k]
            for k in range(count):
                out_probe[done + k] = p
            if count > 0:
                done += count
                x += count
        else:
            first = rid_low[p]
            last = rid_high[p]
            while x < end and done < room:
                row = rid[x]
                x += 1
                if row >= first and row <= last:
                    out_row[done] = row
                    out_probe[done] = p
                    done += 1
                    if once:
                        x = end
        if x < end:
            state[0] = i
            state[1] = x
            return done
        state[1] = 0
        i += 1
    state[0] = i
    return done


@kernel
def emit_scan(reach, tested, zones, shown, out):
    """Scan the range and test every other predicate, skipping blocks whose extremes rule it out."""
    order, starts, ends, rid = reach
    columns, low, high, negate = tested
    zone_low, zone_high = zones
    see, rid_low, rid_high, once = shown
    out_probe, out_row, state = out
    room = out_probe.size
    tests = columns.shape[0]
    done = 0
    i = state[0]
    while i < order.size:
        p = order[i]
        x = max(starts[p], state[1])
        end = ends[p]
        begun = done
        while x < end:
            block = x >> 6
            stop = min(end, (block + 1) << 6)
            if skips(block, p, zone_low, zone_high, low, high, negate):
                x = stop
                continue
            if room - done < BLOCK:
                break
            if tests == 1 and not see and not negate[0] and not once:
                a = low[0, p]
                b = high[0, p]
                for y in range(x, stop):
                    out_row[done] = rid[y]
                    v = columns[0, y]
                    done += (v >= a) & (v <= b)
            else:
                for y in range(x, stop):
                    if passes(y, p, columns, low, high, negate):
                        row = rid[y]
                        if not see or (row >= rid_low[p] and row <= rid_high[p]):
                            out_row[done] = row
                            done += 1
                            if once:
                                stop = end
                                break
            x = stop
        for k in range(begun, done):
            out_probe[k] = p
        if x < end:
            state[0] = i
            state[1] = x
            return done
        state[1] = 0
        i += 1
    state[0] = i
    return done


@kernel
def count_blocks(starts, ends, zone_low, zone_high, low, high, negate):
    """How many blocks a scan of these ranges could not skip."""
    touched = 0
    for p in range(starts.size):
        if starts[p] >= ends[p]:
            continue
        for block in range(starts[p] >> 6, ((ends[p] - 1) >> 6) + 1):
            touched += not skips(block, p, zone_low, zone_high, low, high, negate)
    return touched


@inlined
def _set_bits(perm, begin, end, bits, summary, top):
    for q in range(begin, end):
        x = np.uint64(perm[q])
        bits[x >> SIX] |= ONE << (x & WORD_MASK)
        words = summary[x >> TWELVE]
        if words == 0:
            top[x >> EIGHTEEN] |= ONE << ((x >> TWELVE) & WORD_MASK)
        summary[x >> TWELVE] = words | (ONE << ((x >> SIX) & WORD_MASK))


@inlined
def _clear_bits(perm, begin, end, bits, summary, top):
    for q in range(begin, end):
        x = np.uint64(perm[q])
        word = bits[x >> SIX] & ~(ONE << (x & WORD_MASK))
        bits[x >> SIX] = word
        if word == 0:
            words = summary[x >> TWELVE] & ~(ONE << ((x >> SIX) & WORD_MASK))
            summary[x >> TWELVE] = words
            if words == 0:
                top[x >> EIGHTEEN] &= ~(ONE << ((x >> TWELVE) & WORD_MASK))


@inlined
def _reach(perm, begin, end, lowest, highest):
    """The extremes of two positions and of all that a part of the permutation names."""
    for q in range(begin, end):
        x = np.int64(perm[q])
        lowest = min(lowest, x)
        highest = max(highest, x)
    return lowest, highest


@inlined
def _between(word, at, first, last):
    """The word at position `at` with only the bits between two bit positions, ends included."""
    if at == first >> 6:
        word &= ALL_ONES << np.uint64(first & 63)
    if at == last >> 6:
        word &= ALL_ONES >> np.uint64(63 - (last & 63))
    return word


@kernel
def count_reached(starts, ends):
    """How many rows all ranges hold together."""
    total = 0
    for p in range(starts.size):
        total += max(0, np.int64(ends[p]) - starts[p])
    return total


@kernel
def estimate_bits(starts, ends, begins, finishes, run_starts, run_ends):
    """How many set bits all ranges are expected to hold if the two keys are independent."""
    total = 0.0
    for p in range(starts.size):
        rows = np.int64(run_ends[p]) - run_starts[p]
        if rows > 0:
            held = max(0, np.int64(ends[p]) - starts[p])
            set_bits = max(0, np.int64(finishes[p]) - begins[p])
            total += held * (set_bits / rows)
    return total


@kernel
def count_moves(order, begins, finishes):
    """How many bits `emit_bitmap` will set and clear for these windows."""
    total = 0
    left = 0
    right = 0
    for i in range(order.size):
        p = order[i]
        b = begins[p]
        f = finishes[p]
        if b >= f:
            continue
        if b >= right or f <= left:
            total += (right - left) + (f - b)
        else:
            total += abs(b - left) + abs(f - right)
        left = b
        right = f
    return total


@kernel
def emit_bitmap(reach, window, tested, shown, out):
    """Two predicates (SPO-Join Section 4.3, for a batch): one moves a window of bits, one scans.

    The rows that satisfy a probe's second predicate have their bits set. The bits of the previous
    probe stay, so over sorted probes a bit is set once a batch and not once a probe. The summary
    levels let a scan cost what it finds.
    """
    order, starts, ends, rid = reach
    begins, finishes, perm, bits, summary, top = window
    columns, low, high, negate = tested
    see, rid_low, rid_high, once = shown
    out_probe, out_row, state = out
    room = out_probe.size
    tests = columns.shape[0]
    done = 0
    i = state[0]
    left = state[2]
    right = state[3]
    # No bit is set outside of these two: most probes find nothing, and this shows it at once.
    lowest = np.int64(0)
    highest = np.int64(rid.size - 1 if left < right else -1)
    while i < order.size:
        p = order[i]
        begin = begins[p]
        finish = finishes[p]
        start = max(starts[p], state[1])
        end = ends[p]
        if begin >= finish or start >= end:
            state[1] = 0
            i += 1
            continue
        if begin >= right or finish <= left:
            _clear_bits(perm, left, right, bits, summary, top)
            _set_bits(perm, begin, finish, bits, summary, top)
            lowest, highest = _reach(perm, begin, finish, rid.size, -1)
        else:
            _clear_bits(perm, left, begin, bits, summary, top)
            _set_bits(perm, begin, left, bits, summary, top)
            _clear_bits(perm, finish, right, bits, summary, top)
            _set_bits(perm, right, finish, bits, summary, top)
            lowest, highest = _reach(perm, begin, left, lowest, highest)
            lowest, highest = _reach(perm, right, finish, lowest, highest)
        left = begin
        right = finish
        if start > highest or end <= lowest:
            state[1] = 0
            i += 1
            continue
        begun = done
        last = end - 1
        stopped = -1
        found = False
        for t in range(start >> 18, (last >> 18) + 1):
            groups = _between(top[t], t, start >> 12, last >> 12)
            while groups != 0 and stopped < 0 and not found:
                s = (t << 6) + trailing_zeros(groups)
                groups &= groups - ONE
                words = _between(summary[s], s, start >> 6, last >> 6)
                while words != 0:
                    w = (s << 6) + trailing_zeros(words)
                    words &= words - ONE
                    base = w << 6
                    if room - done < BLOCK:
                        stopped = base
                        break
                    word = _between(bits[w], w, start, last)
                    if tests == 0 and not see and not once:
                        if word == ALL_ONES:
                            for k in range(64):
                                out_row[done + k] = rid[base + k]
                            done += 64
                        else:
                            # Unsigned positions spare the check for negative ones.
                            origin = np.uint64(base)
                            at = np.uint64(done)
                            while word != 0:
                                out_row[at] = rid[origin + np.uint64(trailing_zeros(word))]
                                at += ONE
                                word &= word - ONE
                            done = np.int64(at)  # type: ignore[assignment]
                    else:
                        while word != 0:
                            x = base + trailing_zeros(word)
                            word &= word - ONE
                            if passes(x, p, columns, low, high, negate):
                                row = rid[x]
                                if not see or (row >= rid_low[p] and row <= rid_high[p]):
                                    out_row[done] = row
                                    done += 1
                                    if once:
                                        found = True
                                        break
                    if found:
                        break
            if stopped >= 0 or found:
                break
        for k in range(begun, done):
            out_probe[k] = p
        # Clearing bits does not move the extremes; a scan that found nothing does.
        if done == begun and stopped < 0 and tests == 0 and not see:
            if start <= lowest:
                lowest = max(lowest, end)
            if last >= highest:
                highest = start - 1
        if stopped >= 0:
            state[0] = i
            state[1] = max(start, stopped)
            state[2] = left
            state[3] = right
            return done
        state[1] = 0
        i += 1
    state[0] = i
    state[2] = left
    state[3] = right
    return done


@kernel
def emit_head(order, rows, rid, tested, shown, out):
    """The mutable head (SPO-Join Section 4.1): one bitset a predicate, then their AND.

    Rows stand in arrival order; ``keys[c, x]`` is tested by every probe. A block of 64 rows is one
    word of each predicate's bitset, so the bitsets never leave the registers.
    """
    keys, low, high, negate = tested
    see, rid_low, rid_high, once = shown
    out_probe, out_row, state = out
    room = out_probe.size
    predicates = keys.shape[0]
    done = 0
    i = state[0]
    while i < order.size:
        p = order[i]
        begun = done
        x = state[1]
        while x < rows:
            if room - done < BLOCK:
                break
            stop = min(rows, x + BLOCK)
            both = ALL_ONES
            for c in range(predicates):
                a = low[c, p]
                b = high[c, p]
                bitset = np.uint64(0)
                for y in range(x, stop):
                    v = keys[c, y]
                    bitset |= np.uint64((v >= a) & (v <= b)) << np.uint64(y - x)
                if negate[c]:
                    bitset = ~bitset
                both &= bitset
                if both == 0:
                    break
            if stop - x < BLOCK:
                both &= (ONE << np.uint64(stop - x)) - ONE
            while both != 0:
                row = rid[x + trailing_zeros(both)]
                both &= both - ONE
                if not see or (row >= rid_low[p] and row <= rid_high[p]):
                    out_row[done] = row
                    done += 1
                    if once:
                        stop = rows
                        break
            x = stop
        for k in range(begun, done):
            out_probe[k] = p
        if x < rows:
            state[0] = i
            state[1] = x
            return done
        state[1] = 0
        i += 1
    state[0] = i
    return done
