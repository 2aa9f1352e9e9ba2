"""PanJoin's linked list adaptive table, and the two structures that keep their rows in one.

An entry has room for `W` rows. A partition begins with an entry and goes on in reserved ones when
it is full; `after` leads from a partition's last entry to the next partition's first, so that a
range of partitions is one walk. ``tail[i]`` is the last entry of the partition that begins at entry
`i`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thetajoin.kernels.jit import inlined, kernel
from thetajoin.papers.kernels.btree import DEPTH, Way, grow


class Entries(NamedTuple):
    """The entries: their rows as linked blocks, and how many are used.

    storage: `begin`, `count`, `after`, keys and row numbers, as `linked` reads them.
    """

    storage: tuple[NDArray[np.int64] | NDArray[np.int32], ...]
    tail: NDArray[np.int32]
    used: NDArray[np.int64]
    W: int


class Histograms(NamedTuple):
    """How many rows each partition has, and their smallest and largest key."""

    counts: NDArray[np.int64]
    lows: NDArray[np.int64]
    highs: NDArray[np.int64]


@inlined
def _append(entry, key, rid, entries):
    begin, count, after, skey, srid = entries.storage
    at = entry * entries.W + count[entry]
    skey[at] = key
    srid[at] = rid
    count[entry] += 1


@kernel
def rap_insert(order, keys, rid, splitters, entries, histograms):
    """Insert rows in key order, each search starting at the last one's partition (PanJoin III-E).

    Partition `i` has the keys above ``splitters[i - 1]`` and not above ``splitters[i]``.
    """
    storage, tail, used, W = entries
    begin, count, after, skey, srid = storage
    counts, lows, highs = histograms
    m = splitters.size
    at = np.int64(0)
    for i in range(order.size):
        r = order[i]
        v = keys[r]
        low = at
        jump = 1
        high = low
        while high < m and splitters[high] < v:
            low = high + 1
            high = low + jump
            jump += jump
        high = min(high, m)
        while low < high:
            mid = (low + high) >> 1
            if splitters[mid] < v:
                low = mid + 1
            else:
                high = mid
        at = low
        entry = tail[at]
        if count[entry] == W:
            # The paper links a reserved entry as soon as one is full; here when one is needed.
            fresh = used[0]
            used[0] += 1
            after[fresh] = after[entry]
            after[entry] = fresh
            tail[at] = fresh
            entry = fresh
        _append(entry, v, rid[r], entries)
        counts[at] += 1
        lows[at] = min(lows[at], v)
        highs[at] = max(highs[at], v)


@kernel
def adjust_splitters(histograms, out):
    """Algorithm 1 of PanJoin: new splitters from a sub-window's histograms.

    The paper's formula in line 7 leaves out the partition's smallest value, without which every
    splitter would lie next to zero; `tests/lab/test_rap_table.py` shows it.
    """
    counts, lows, highs = histograms
    parts = counts.size
    total = 0
    for i in range(parts):
        total += counts[i]
    before = 0
    j = 1
    for i in range(parts):
        c = counts[i]
        while j < parts and total * j <= (before + c) * parts:
            share = (total * j / parts - before) / max(c, 1)
            if c == 0:
                value = out[j - 2] if j > 1 else lows[i]
            else:
                span = np.float64(highs[i]) - np.float64(lows[i])
                if span < 9.0e15:
                    value = lows[i] + np.int64(share * span)
                else:
                    near = np.float64(lows[i]) + share * span
                    value = highs[i] if near >= np.float64(highs[i]) else np.int64(near)
                    value = max(value, lows[i])
            out[j - 1] = value
            j += 1
        before += c
    for k in range(j - 1, parts - 1):
        out[k] = out[k - 1] if k > 0 else highs[0]


@kernel
def _bounds(order, splitters, values, out):
    """The partition of each value."""
    for i in range(order.size):
        p = order[i]
        low = 0
        high = splitters.size
        while low < high:
            mid = (low + high) >> 1
            if splitters[mid] < values[p]:
                low = mid + 1
            else:
                high = mid
        out[p] = low


@kernel
def rap_locate(order, splitters, low, high, tail, block, pos, last):
    """The first entry and the last one of the partitions that each probe must look at."""
    _bounds(order, splitters, low, block)
    _bounds(order, splitters, high, last)
    for i in range(order.size):
        p = order[i]
        if low[p] > high[p]:
            block[p] = -1
        else:
            last[p] = tail[last[p]]
        pos[p] = 0


@inlined
def _leaf_of(key, pool, way, fences):
    """Descend to a leaf; `fences` becomes ``[has low, low, has high, high]``."""
    trees, inners, alloc, F = pool
    path, at = way
    ikey, irid, ichild, icount = inners
    node = trees[0, 0]
    fences[0] = 0
    fences[2] = 0
    for d in range(trees[0, 1]):
        a = node * F
        z = a + icount[node] - 1
        start = a
        end = z
        while a < z:
            mid = (a + z) >> 1
            if ikey[mid] <= key:
                a = mid + 1
            else:
                z = mid
        path[d] = node
        at[d] = a - start
        if a > start:
            fences[0] = 1
            fences[1] = ikey[a - 1]
        if a < end:
            fences[2] = 1
            fences[3] = ikey[a]
        node = ichild[node * F + a - start]
    return node


@kernel
def _split(leaf, pool, entries, way):
    """Sort a full leaf and move its upper half to a new one, never parting equal keys."""
    storage, tail, used, W = entries
    begin, count, after, skey, srid = storage
    rows = 0
    entry = leaf
    while True:
        rows += count[entry]
        if entry == tail[leaf]:
            break
        entry = after[entry]
    keys = np.empty(rows, np.int64)
    rids = np.empty(rows, np.int32)
    done = 0
    entry = leaf
    while True:
        for k in range(entry * W, entry * W + count[entry]):
            keys[done] = skey[k]
            rids[done] = srid[k]
            done += 1
        if entry == tail[leaf]:
            break
        entry = after[entry]
    order = np.argsort(keys)
    middle = keys[order[rows >> 1]]
    cut = rows >> 1
    while cut > 0 and keys[order[cut - 1]] == middle:
        cut -= 1
    if cut == 0:
        cut = rows >> 1
        while cut < rows and keys[order[cut]] == middle:
            cut += 1
        if cut == rows:
            return False
    # The leaf's own entries take the rows back; what is too much for them goes to fresh ones.
    follower = after[tail[leaf]]
    spare = after[leaf]
    stop = follower
    if tail[leaf] == leaf:
        spare = stop
    entry = leaf
    count[entry] = 0
    right = np.int64(-1)
    for i in range(rows):
        if i == cut or count[entry] == W:
            if spare != stop:
                fresh = np.int64(spare)
                spare = after[fresh]
            else:
                fresh = used[0]
                used[0] += 1
            count[fresh] = 0
            after[entry] = fresh
            if i == cut:
                tail[leaf] = entry
                right = fresh
            entry = fresh
        x = order[i]
        _append(entry, keys[x], rids[x], entries)
    after[entry] = follower
    tail[right] = entry
    separator = keys[order[cut]]
    grow(pool, np.int64(0), way, separator, rids[order[cut]], right)
    return True


@kernel
def wib_insert(order, begun, keys, rid, pool, entries, pure):
    """Insert rows into wide, unsorted leaves; where the pools run low, the index to go on from.

    ``pure[leaf]`` says that all keys of a leaf are equal: such a leaf cannot be split and grows by
    reserved entries.
    """
    storage, tail, used, W = entries
    begin, count, after, skey, srid = storage
    spare_inners = pool.inners.counts.size - DEPTH
    way = Way(np.empty(DEPTH, np.int64), np.empty(DEPTH, np.int64))
    fences = np.zeros(4, np.int64)
    leaf = np.int64(-1)
    for i in range(begun, order.size):
        r = order[i]
        v = keys[r]
        known = (
            leaf >= 0 and (fences[0] == 0 or v >= fences[1]) and (fences[2] == 0 or v < fences[3])
        )
        if not known:
            leaf = np.int64(_leaf_of(v, pool, way, fences))
        entry = tail[leaf]
        if count[entry] == W:
            if used[0] >= used[1] or pool.alloc[1] >= spare_inners:
                return i
            if pure[leaf] == 0:
                leaf = np.int64(_leaf_of(v, pool, way, fences))
                if _split(leaf, pool, entries, way):
                    right = after[tail[leaf]]
                    pure[leaf] = _is_pure(leaf, entries)
                    pure[right] = _is_pure(right, entries)
                    leaf = np.int64(_leaf_of(v, pool, way, fences))
                else:
                    pure[leaf] = 1
            entry = tail[leaf]
            if count[entry] == W:
                fresh = used[0]
                used[0] += 1
                count[fresh] = 0
                after[fresh] = after[entry]
                after[entry] = fresh
                tail[leaf] = fresh
                entry = fresh
        if pure[leaf] and count[leaf] > 0 and skey[leaf * W] != v:
            pure[leaf] = 0
        _append(entry, v, rid[r], entries)
    return order.size


@kernel
def _is_pure(leaf, entries):
    """Whether all keys of a leaf are equal."""
    storage, tail, used, W = entries
    begin, count, after, skey, srid = storage
    value = skey[leaf * W]
    entry = np.int64(leaf)
    while True:
        for k in range(entry * W, entry * W + count[entry]):
            if skey[k] != value:
                return 0
        if entry == tail[leaf]:
            return 1
        entry = np.int64(after[entry])


@kernel
def wib_locate(order, low, high, pool, tail, block, pos, last):
    """The first entry and the last one of the leaves that each probe must look at."""
    way = Way(np.empty(DEPTH, np.int64), np.empty(DEPTH, np.int64))
    fences = np.zeros(4, np.int64)
    for i in range(order.size):
        p = order[i]
        pos[p] = 0
        if low[p] > high[p]:
            block[p] = -1
            continue
        # All rows of one key are in one leaf, so both ends are found the same way.
        block[p] = _leaf_of(low[p], pool, way, fences)
        if fences[2] == 0 or high[p] < fences[3]:
            last[p] = tail[block[p]]
        else:
            last[p] = tail[_leaf_of(high[p], pool, way, fences)]
