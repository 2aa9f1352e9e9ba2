"""The immutable B+-tree (CSS-tree): a sorted array and a directory whose children need no pointers.

Entry `i` of a level is the largest key of entries ``[i * F, (i + 1) * F)`` of the level below; the
lowest directory level describes the sorted array itself. Levels lie one after another in
`directory`, the top one first, `offsets` says where each begins.
"""

from __future__ import annotations

import numpy as np

from thetajoin.kernels.jit import inlined, kernel
from thetajoin.papers.kernels.bisect import below, upto


@kernel
def build_directory(keys, F):
    """The directory of a sorted array, and where its levels begin (top first, then the end)."""
    sizes = np.empty(64, np.int64)
    levels = 0
    n = keys.size
    while n > F:
        n = (n + F - 1) // F
        sizes[levels] = n
        levels += 1
    offsets = np.zeros(levels + 1, np.int64)
    for level in range(levels):
        offsets[level + 1] = offsets[level] + sizes[levels - 1 - level]
    directory = np.empty(offsets[levels], np.int64)
    below_size = keys.size
    for level in range(levels - 1, -1, -1):
        for i in range(offsets[level + 1] - offsets[level]):
            last = min((i + 1) * F, below_size) - 1
            if level == levels - 1:
                directory[offsets[level] + i] = keys[last]
            else:
                directory[offsets[level] + i] = directory[offsets[level + 1] + last]
        below_size = offsets[level + 1] - offsets[level]
    return directory, offsets


@inlined
def descend(directory, offsets, levels, F, v, above):
    """The entry, `levels` levels down, where the first key not below (or above) `v` would be."""
    entry = np.int64(0)
    for level in range(levels):
        start = offsets[level]
        size = offsets[level + 1] - start
        a = entry * F if level else np.int64(0)
        n = min(F, size - a) if level else size
        if above:
            a += min(upto(directory, start + a, n, v), n - 1)
        else:
            a += min(below(directory, start + a, n, v), n - 1)
        # Past every key of this node: only the last entry of all has no larger one to its right.
        entry = a
    return entry


@inlined
def search_one(keys, directory, offsets, F, v, above):
    """The first position that is not below `v`; with `above`, the first that is above it."""
    levels = offsets.size - 1
    a = np.int64(0)
    n = np.int64(keys.size)
    if levels:
        a = descend(directory, offsets, levels, F, v, above) * F
        n = min(F, n - a)
    return a + (upto(keys, a, n, v) if above else below(keys, a, n, v))


@kernel
def spans(order, keys, directory, offsets, F, low, high, start, end):
    """The positions ``[start, end)`` of the keys between two values, for each probe.

    The end is looked for from the start on, in steps that double: it is near if matches are few.
    """
    n = np.int64(keys.size)
    for i in range(order.size):
        p = order[i]
        v = high[p]
        a = search_one(keys, directory, offsets, F, low[p], False)
        start[p] = a
        step = np.int64(8)
        z = min(a + step, n)
        while z < n and keys[z - 1] <= v:
            a = z
            step += step
            z = min(a + step, n)
        end[p] = a + upto(keys, a, z - a, v)


@kernel
def partitions(order, directory, offsets, F, depth, values, above, out):
    """Which node at `depth` is responsible for each value (PIM-Tree Section 3.3.1).

    Of several nodes that hold a value, `above` gives the last and otherwise the first.
    """
    for i in range(order.size):
        p = order[i]
        out[p] = descend(directory, offsets, depth, F, values[p], above)


@kernel
def merge_sorted(keys_a, rid_a, keys_b, rid_b, first, keys, rid):
    """Merge two sorted arrays, leaving out row numbers below `first`; the number of rows kept."""
    i = 0
    j = 0
    done = 0
    while i < keys_a.size and j < keys_b.size:
        if keys_a[i] <= keys_b[j]:
            keys[done] = keys_a[i]
            rid[done] = rid_a[i]
            done += rid_a[i] >= first
            i += 1
        else:
            keys[done] = keys_b[j]
            rid[done] = rid_b[j]
            done += rid_b[j] >= first
            j += 1
    while i < keys_a.size:
        keys[done] = keys_a[i]
        rid[done] = rid_a[i]
        done += rid_a[i] >= first
        i += 1
    while j < keys_b.size:
        keys[done] = keys_b[j]
        rid[done] = rid_b[j]
        done += rid_b[j] >= first
        j += 1
    return done


@kernel
def search_indexed(order, keys, samples, step, values, above, out):
    """BI-Sort's search: rebounding on the index array, then inside one partition (PanJoin III-D).

    ``samples[i]`` is ``keys[i * step]``. Probes come in the order of their values, so each search
    of the index array starts where the last one ended.
    """
    n = keys.size
    m = samples.size
    at = np.int64(0)
    for i in range(order.size):
        p = order[i]
        v = values[p]
        # The number of samples that are below `v` (or not above it).
        if at < m and (samples[at] < v or (above and samples[at] == v)):
            low = at + 1
            jump = 1
            high = low + jump
            while high < m and (samples[high] < v or (above and samples[high] == v)):
                low = high + 1
                jump += jump
                high = low + jump
            high = min(high, m)
        else:
            high = at
            jump = 1
            low = high - jump
            while low > 0 and not (samples[low - 1] < v or (above and samples[low - 1] == v)):
                high = low - 1
                jump += jump
                low = high - jump
            low = max(low, np.int64(0))
        while low < high:
            mid = (low + high) >> 1
            if samples[mid] < v or (above and samples[mid] == v):
                low = mid + 1
            else:
                high = mid
        at = low
        a = max(low - 1, 0) * step
        z = min(low * step, n)
        while a < z:
            mid = (a + z) >> 1
            if keys[mid] < v or (above and keys[mid] == v):
                a = mid + 1
            else:
                z = mid
        out[p] = a
