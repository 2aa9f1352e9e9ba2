"""Reading rows out of linked blocks: what every tree, table and array is at its lowest level.

A block ``b`` has its rows at ``[begin[b], begin[b] + count[b])`` of the keys `skey` and row numbers
`srid`, and goes on in block ``after[b]`` (-1: nowhere). A probe `p` starts at position ``pos[p]``
of block ``block[p]``.
Where rows are in key order it ends at the first key above ``high[p]``, or at position ``end[p]`` of
its block if that is not negative; otherwise every row is tested until block ``last[p]`` is done.
Further keys are tested in a ring of the window's keys: column ``c`` of row `r` is
``ring[c, r & mask]``.
"""

from __future__ import annotations

import numpy as np

from thetajoin.kernels.emit import passes
from thetajoin.kernels.jit import ALL_ONES, ONE, inlined, kernel, trailing_zeros


@kernel
def emit_linked(order, cursors, asked, in_order, storage, ringed, shown, out):
    """Write the pairs of each probe; the state is ``[index into order, block + 1, position]``."""
    low, high = asked
    ring, mask, ring_low, ring_high, negate = ringed
    see, rid_low, rid_high, once = shown
    out_probe, out_row, state = out
    block, pos, last, end = cursors
    begin, count, after, skey, srid = storage
    room = out_probe.size
    tests = ring.shape[0]
    plain = tests == 0 and not see and not once
    done = 0
    i = state[0]
    while i < order.size:
        p = order[i]
        a = low[p]
        z = high[p]
        if state[1] > 0:
            b = state[1] - 1
            x = state[2]
        else:
            b = np.int64(block[p])
            x = np.int64(pos[p])
        begun = done
        full = False
        while b >= 0:
            base = begin[b]
            stop = np.int64(count[b])
            exact = end[p] >= 0
            if exact:
                stop = np.int64(end[p])
            elif in_order and x < stop and skey[base + stop - 1] <= z:
                exact = True
            over = False
            if plain and (exact or not in_order):
                n = min(stop - x, room - done)
                if exact:
                    for k in range(n):
                        out_row[done + k] = srid[base + x + k]
                    if n > 0:
                        done += n
                        x += n
                elif n > 0:
                    for k in range(x, x + n):
                        v = skey[base + k]
                        out_row[done] = srid[base + k]
                        done += (v >= a) & (v <= z)
                    x += n
                full = x < stop
            else:
                while x < stop:
                    if done == room:
                        full = True
                        break
                    v = skey[base + x]
                    if v > z:
                        if in_order:
                            over = True
                            break
                        x += 1
                        continue
                    row = srid[base + x]
                    x += 1
                    if v < a:
                        continue
                    if see and (row < rid_low[p] or row > rid_high[p]):
                        continue
                    if tests and not passes(row & mask, p, ring, ring_low, ring_high, negate):
                        continue
                    out_row[done] = row
                    done += 1
                    if once:
                        over = True
                        break
            if full or over:
                break
            if b == last[p]:
                break
            b = np.int64(after[b])
            x = 0
        for k in range(begun, done):
            out_probe[k] = p
        if full:
            state[0] = i
            state[1] = b + 1
            state[2] = x
            return done
        state[1] = 0
        i += 1
    state[0] = i
    return done


@kernel
def _walk(p, cursors, low, high, in_order, storage, out):
    """Write the number of every row in one probe's interval; how many there are."""
    block, pos, last, end = cursors
    begin, count, after, skey, srid = storage
    b = np.int64(block[p])
    x = np.int64(pos[p])
    done = 0
    while b >= 0:
        base = begin[b]
        stop = np.int64(count[b])
        if end[p] >= 0:
            stop = np.int64(end[p])
        for k in range(base + x, base + stop):
            v = skey[k]
            if v > high[p]:
                if in_order:
                    return done
                continue
            if v >= low[p]:
                out[done] = srid[k]
                done += 1
        if b == last[p]:
            break
        b = np.int64(after[b])
        x = np.int64(0)
    return done


@kernel
def emit_bitsets(order, sets, negate, first, rows, shown, bits, result, out):
    """One bitset a predicate, then their AND (SPO-Join Section 4.1).

    Bit `i` is row ``first + i``; `bits` and `result` have a bit for each of `rows` rows.
    """
    cursors, lows, highs, in_order, storages = sets
    see, rid_low, rid_high, once = shown
    out_probe, out_row, state = out
    room = out_probe.size
    words = (rows + 63) >> 6
    inside = np.empty(rows, np.int32)
    done = 0
    i = state[0]
    while i < order.size:
        p = np.int64(order[i])
        if state[1] == 0:
            for w in range(words):
                result[w] = ALL_ONES
            for c in range(len(cursors)):
                for w in range(words):
                    bits[w] = np.uint64(0)
                n = _walk(p, cursors[c], lows[c], highs[c], in_order, storages[c], inside)
                for k in range(n):
                    at = np.uint64(inside[k] - first)
                    bits[at >> np.uint64(6)] |= ONE << (at & np.uint64(63))
                if negate[c]:
                    for w in range(words):
                        result[w] &= ~bits[w]
                else:
                    for w in range(words):
                        result[w] &= bits[w]
            if rows & 63:
                result[words - 1] &= (ONE << np.uint64(rows & 63)) - ONE
        w = state[1]
        begun = done
        found = False
        while w < words and room - done >= 64 and not found:
            word = result[w]
            while word != 0:
                row = first + (w << 6) + trailing_zeros(word)
                word &= word - ONE
                if not see or (row >= rid_low[p] and row <= rid_high[p]):
                    out_row[done] = row
                    done += 1
                    if once:
                        found = True
                        break
            w += 1
        for k in range(begun, done):
            out_probe[k] = p
        if w < words and not found:
            state[0] = i
            state[1] = w
            return done
        state[1] = 0
        i += 1
    state[0] = i
    return done


@inlined
def _slot(table, row):
    """Where a row number is in a hash set, or the empty slot where it would go."""
    mask = table.size - 1
    at = ((np.uint64(row) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & np.uint64(mask)
    while table[at] != -1 and table[at] != row:
        at = (at + ONE) & np.uint64(mask)
    return at


@inlined
def _set_add(table, size, row):
    """Add a row number to a hash set that doubles at load 3/4; the set and its size."""
    at = _slot(table, row)
    if table[at] == row:
        return table, size
    if 4 * (size + 1) > 3 * table.size:
        larger = np.full(2 * table.size, -1, np.int64)
        for k in range(table.size):
            if table[k] != -1:
                larger[_slot(larger, table[k])] = table[k]
        table = larger
        at = _slot(table, row)
    table[at] = row
    return table, size + 1


@inlined
def _row_set(rows, n, initial):
    """The hash set of the first `n` row numbers, which grows from `initial` slots, and its size."""
    table = np.full(initial, -1, np.int64)
    size = 0
    for k in range(n):
        table, size = _set_add(table, size, np.int64(rows[k]))
    return table, size


@kernel
def intersect_sets(p, cursors, lows, highs, in_order, storages, negate, initial):
    """The rows of one probe: a hash set a predicate, intersected one after another.

    Every set starts with `initial` slots and doubles as it fills. At least one predicate must not
    be negated, and that one must be the first.
    """
    inside = np.empty(storages[0][4].size, np.int32)
    n = _walk(p, cursors[0], lows[0], highs[0], in_order, storages[0], inside)
    table, size = _row_set(inside, n, initial)
    for c in range(1, len(cursors)):
        n = _walk(p, cursors[c], lows[c], highs[c], in_order, storages[c], inside)
        other, n = _row_set(inside, n, initial)
        kept = np.full(initial, -1, np.int64)
        size = 0
        for k in range(table.size):
            row = table[k]
            if row != -1 and (other[_slot(other, row)] == row) != negate[c]:
                kept, size = _set_add(kept, size, row)
        table = kept
    out = np.empty(size, np.int32)
    at = 0
    for k in range(table.size):
        if table[k] != -1:
            out[at] = table[k]
            at += 1
    return out


@kernel
def put_ring(ring, mask, values, rid, column):
    """Put one key of new rows where their row numbers say."""
    for i in range(rid.size):
        ring[column, rid[i] & mask] = values[i]


@kernel
def deal(probes, rows, starts, out_probe, out_row, ends):
    """Pairs by the piece that holds the row: piece `i` has the rows from ``starts[i]`` on.

    Pairs of piece `i` end at ``ends[i]`` of the output, with row numbers from the piece's start.
    """
    pieces = ends.size
    holder = np.empty(rows.size, np.uint16)
    ends[:] = 0
    for k in range(rows.size):
        low = 0
        high = pieces
        while high - low > 1:
            middle = (low + high) >> 1
            if starts[middle] <= rows[k]:
                low = middle
            else:
                high = middle
        holder[k] = low
        ends[low] += 1
    total = 0
    for i in range(pieces):
        total += ends[i]
        ends[i] = total - ends[i]
    for k in range(rows.size):
        i = holder[k]
        at = ends[i]
        out_probe[at] = probes[k]
        out_row[at] = rows[k] - starts[i]
        ends[i] = at + 1
