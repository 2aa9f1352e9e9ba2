"""Offline sweeps over a permutation: how many points, what sum, which least value in a rectangle.

A point is a row: its place in one order is its x, its place in another its y. `perm` gives the x of
each y. A question is a range of x, asked of the points below some y; questions come sorted by y, so
points are only ever added. Two of them, the second taken from the first, make a rectangle.
"""

from __future__ import annotations

import numpy as np

from thetajoin.kernels.jit import ONE, WORD_MASK, kernel, population

# Places summed up in one entry of each level, as powers of two: in cells, and in bits.
LOWER, MIDDLE, UPPER = 5, 9, 14


@kernel
def sweep_count(perm, at, asked, signs, starts, ends, out):
    """Add ``signs[i]`` times the number of points with y below ``at[i]`` to ``out[asked[i]]``.

    Points are bits, counted in groups of 512 places and in a Fenwick tree over 32 of these, so that
    adding a point writes to few places.
    """
    n = perm.size
    bits = np.zeros((n >> 6) + 1, np.uint64)
    middle = np.zeros((n >> MIDDLE) + 1, np.int64)
    blocks = np.zeros((n >> UPPER) + 2, np.int64)
    y = 0
    for i in range(at.size):
        while y < at[i]:
            x = perm[y]
            bits[x >> 6] |= ONE << (np.uint64(x) & WORD_MASK)
            middle[x >> MIDDLE] += 1
            b = (x >> UPPER) + 1
            while b < blocks.size:
                blocks[b] += 1
                b += b & -b
            y += 1
        q = asked[i]
        found = np.int64(y) if ends[q] == n else _bits_below(bits, middle, blocks, ends[q])
        if starts[q] > 0:
            found -= _bits_below(bits, middle, blocks, starts[q])
        out[q] += signs[i] * found


@kernel
def _bits_below(bits, middle, blocks, x):
    total = 0
    b = x >> UPPER
    first = b << (UPPER - MIDDLE)
    while b > 0:
        total += blocks[b]
        b -= b & -b
    group = x >> MIDDLE
    for m in range(first, group):
        total += middle[m]
    last = x >> 6
    for w in range(group << (MIDDLE - 6), last):
        total += population(bits[w])
    rest = np.uint64(x) & WORD_MASK
    if rest:
        total += population(bits[last] & ((ONE << rest) - ONE))
    return total


@kernel
def sweep_sum(perm, values, at, asked, signs, starts, ends, out):
    """As `sweep_count`, for the sum of the points' values (by x) in place of their number."""
    n = perm.size
    cells = np.zeros(n + 1, np.int64)
    words = np.zeros((n >> LOWER) + 1, np.int64)
    middle = np.zeros((n >> MIDDLE) + 1, np.int64)
    blocks = np.zeros((n >> UPPER) + 2, np.int64)
    whole = np.int64(0)
    y = 0
    for i in range(at.size):
        while y < at[i]:
            x = perm[y]
            v = values[x]
            whole += v
            cells[x] = v
            words[x >> LOWER] += v
            middle[x >> MIDDLE] += v
            b = (x >> UPPER) + 1
            while b < blocks.size:
                blocks[b] += v
                b += b & -b
            y += 1
        q = asked[i]
        found = whole if ends[q] == n else _sum_below(cells, words, middle, blocks, ends[q])
        if starts[q] > 0:
            found -= _sum_below(cells, words, middle, blocks, starts[q])
        out[q] += signs[i] * found


@kernel
def _sum_below(cells, words, middle, blocks, x):
    total = np.int64(0)
    b = x >> UPPER
    first = b << (UPPER - MIDDLE)
    while b > 0:
        total += blocks[b]
        b -= b & -b
    group = x >> MIDDLE
    for m in range(first, group):
        total += middle[m]
    last = x >> LOWER
    for w in range(group << (MIDDLE - LOWER), last):
        total += words[w]
    for c in range(last << LOWER, x):
        total += cells[c]
    return total


@kernel
def sweep_least(perm, ranks, at, asked, starts, ends, out):
    """The least rank of the points with y below ``at[i]`` and x in the range, kept in `out`.

    A segment tree over x; a point is written upwards only as far as it is the least.
    """
    n = perm.size
    tree = np.full(2 * n, np.iinfo(np.int64).max, np.int64)
    y = 0
    for i in range(at.size):
        while y < at[i]:
            x = perm[y]
            rank = ranks[x]
            node = x + n
            while node > 0 and tree[node] > rank:
                tree[node] = rank
                node >>= 1
            y += 1
        q = asked[i]
        out[q] = min(out[q], _least(tree, n, starts[q], ends[q]))


@kernel
def _least(tree, n, start, end):
    best = np.iinfo(np.int64).max
    a = start + n
    b = end + n
    while a < b:
        if a & 1:
            best = min(best, tree[a])
            a += 1
        if b & 1:
            b -= 1
            best = min(best, tree[b])
        a >>= 1
        b >>= 1
    return best


@kernel
def least_in_ranges(ranks, starts, ends, out):
    """The least rank in each range of positions; O(n) and a logarithm a range."""
    n = ranks.size
    tree = np.empty(2 * n, np.int64)
    tree[n:] = ranks
    for i in range(n - 1, 0, -1):
        tree[i] = min(tree[2 * i], tree[2 * i + 1])
    for q in range(starts.size):
        if starts[q] < ends[q]:
            out[q] = min(out[q], _least(tree, n, starts[q], ends[q]))
