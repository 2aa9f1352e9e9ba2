"""Offline sweeps over a permutation: how many points, what sum, which least value in a rectangle.

A point is a row: its place in one order is its x, its place in another its y. `perm` gives the x of
each y. A question is a range of x, asked of the points below some y; questions come sorted by y, so
points are only ever added. Two of them, the second taken from the first, make a rectangle.
"""

from __future__ import annotations

import numpy as np

from thetajoin.kernels.jit import ALL_ONES, ONE, WORD_MASK, inlined, kernel, population

# Places counted or summed up in one entry of each level, as powers of two.
WORD, LOWER, MIDDLE, UPPER, TOP = 6, 5, 9, 14, 19
# Entries of a level in one of the next, but for words in 512 places. It is an argument of kernels:
# a loop of known length is unrolled, and the compiler then uses no vector instructions.
WIDE = 32
_WORD, _LOWER, _MIDDLE, _UPPER, _TOP = map(np.uint64, (WORD, LOWER, MIDDLE, UPPER, TOP))
_NONE32, _NONE64 = np.int32(0), np.int64(0)
# Which of a group's words are before each of them, as masks.
_WORDS = 1 << (MIDDLE - WORD)
_BEFORE = np.tri(_WORDS, k=-1, dtype=np.uint64) * ALL_ONES


@kernel
def list_questions(starts, ends, low, high, n, order, at, asked, signs, whole):
    """Questions for boxes ``[starts, ends) x [low, high)``, in two rising runs if `order` rises.

    A box that reaches the end of y needs no question there: it goes on the list of those that take
    their `whole` range of x. Returns the number of questions and of such boxes.
    """
    found = 0
    ended = 0
    for i in range(order.size):
        q = order[i]
        if starts[q] < ends[q] and low[q] < high[q]:
            if high[q] == n:
                whole[ended] = q
                ended += 1
            else:
                at[found] = high[q]
                asked[found] = q
                signs[found] = 1
                found += 1
    for i in range(order.size):
        q = order[i]
        if low[q] > 0 and starts[q] < ends[q] and low[q] < high[q]:
            at[found] = low[q]
            asked[found] = q
            signs[found] = -1
            found += 1
    return found, ended


@kernel
def largest_before(perm, out):
    """The largest x of the points before each y, and in the end of all."""
    most = np.int32(-1)
    for y in range(perm.size):
        out[y] = most
        most = max(most, perm[y])
    out[perm.size] = most


@kernel
def smallest_from(perm, out):
    """The smallest x of the points from each y on."""
    least = np.int32(perm.size)
    out[perm.size] = least
    for y in range(perm.size - 1, -1, -1):
        least = min(least, perm[y])
        out[y] = least


@kernel
def count_differences(ends, low, largest, first, others, out):
    """Count each run's points before ``ends`` in x that are not before ``low`` in y.

    If all points before `low` are before `ends` as well, the count is a difference. Returns how
    many boxes are not like that; their numbers go on the list of `others`.
    """
    found = 0
    for q in range(ends.size):
        if low[q] > first[q] and largest[low[q]] >= ends[q]:
            others[found] = q
            found += 1
        else:
            out[q] = ends[q] - low[q]
    return found


@kernel
def count_back_differences(high, starts, smallest, last, others, out):
    """As `count_differences`: the points before ``high`` in y that are not before ``starts`` in x.

    It is a difference if no point that is not before `high` is before `starts`.
    """
    found = 0
    for q in range(high.size):
        if high[q] < last[q] and smallest[high[q]] < starts[q]:
            others[found] = q
            found += 1
        else:
            out[q] = high[q] - starts[q]
    return found


@kernel
def sweep_count(perm, at, asked, signs, starts, ends, wide, out):
    """Add ``signs[i]`` times the number of points with y below ``at[i]`` to ``out[asked[i]]``.

    Points are bits, counted in groups of 512, 2**14 and 2**19 places: adding a point writes to
    four places, and a question reads a cache line or two of each level.
    """
    n = perm.size
    bits = np.zeros(((n >> MIDDLE) + 1) << (MIDDLE - WORD), np.uint64)
    middle = np.zeros(((n >> UPPER) + 1) << (UPPER - MIDDLE), np.int32)
    upper = np.zeros(((n >> TOP) + 1) << (TOP - UPPER), np.int32)
    top = np.zeros((n >> TOP) + 1, np.int64)
    lanes = np.uint64(wide)
    y = 0
    for i in range(at.size):
        until = at[i]
        while y < until:
            x = np.uint64(perm[np.uint64(y)])
            bits[x >> _WORD] |= ONE << (x & WORD_MASK)
            middle[x >> _MIDDLE] += np.int32(1)
            upper[x >> _UPPER] += np.int32(1)
            top[x >> _TOP] += 1
            y += 1
        q = asked[i]
        found = np.int64(y)
        if ends[q] < n:
            found = _bits_below(bits, middle, upper, top, lanes, np.uint64(ends[q]))
        if starts[q] > 0:
            found -= _bits_below(bits, middle, upper, top, lanes, np.uint64(starts[q]))
        out[q] += signs[i] * found


@inlined
def _bits_below(bits, middle, upper, top, lanes, x):
    """Set bits before a place."""
    total = np.int64(0)
    for t in range(x >> _TOP):
        total += top[t]
    first = (x >> _TOP) << (_TOP - _UPPER)
    last = np.int32((x >> _UPPER) - first)
    some = np.int32(0)
    for k in range(lanes):
        some = np.int32(some + (upper[first + k] if np.int32(k) < last else _NONE32))
    first = (x >> _UPPER) << (_UPPER - _MIDDLE)
    last = np.int32((x >> _MIDDLE) - first)
    for k in range(lanes):
        some = np.int32(some + (middle[first + k] if np.int32(k) < last else _NONE32))
    first = (x >> _MIDDLE) << (_MIDDLE - _WORD)
    word = (x >> _WORD) - first
    for k in range(np.uint64(_WORDS)):
        total += population(bits[first + k] & _BEFORE[word, k])
    total += population(bits[first + word] & ((ONE << (x & WORD_MASK)) - ONE))
    return total + np.int64(some)


@kernel
def sweep_sum(perm, values, at, asked, signs, starts, ends, wide, out):
    """As `sweep_count`, for the sum of the points' values (by x) in place of their number."""
    n = perm.size
    cells = np.zeros(((n >> LOWER) + 1) << LOWER, np.int64)
    lower = np.zeros(((n >> MIDDLE) + 1) << (MIDDLE - LOWER), np.int64)
    middle = np.zeros(((n >> UPPER) + 1) << (UPPER - MIDDLE), np.int64)
    upper = np.zeros(((n >> TOP) + 1) << (TOP - UPPER), np.int64)
    top = np.zeros((n >> TOP) + 1, np.int64)
    lanes = np.uint64(wide)
    whole = np.int64(0)
    y = 0
    for i in range(at.size):
        until = at[i]
        while y < until:
            x = np.uint64(perm[np.uint64(y)])
            v = values[x]
            whole += v
            cells[x] = v
            lower[x >> _LOWER] += v
            middle[x >> _MIDDLE] += v
            upper[x >> _UPPER] += v
            top[x >> _TOP] += v
            y += 1
        q = asked[i]
        found = whole
        if ends[q] < n:
            found = _sum_below(cells, lower, middle, upper, top, lanes, np.uint64(ends[q]))
        if starts[q] > 0:
            found -= _sum_below(cells, lower, middle, upper, top, lanes, np.uint64(starts[q]))
        out[q] += signs[i] * found


@inlined
def _sum_below(cells, lower, middle, upper, top, lanes, x):
    """The sum of the cells before a place."""
    total = np.int64(0)
    for t in range(x >> _TOP):
        total += top[t]
    first = (x >> _TOP) << (_TOP - _UPPER)
    rest = (x >> _UPPER) - first
    for k in range(lanes):
        total += upper[first + k] if k < rest else _NONE64
    first = (x >> _UPPER) << (_UPPER - _MIDDLE)
    rest = (x >> _MIDDLE) - first
    for k in range(lanes):
        total += middle[first + k] if k < rest else _NONE64
    first = (x >> _MIDDLE) << (_MIDDLE - _LOWER)
    rest = (x >> _LOWER) - first
    for k in range(lanes >> np.uint64(1)):
        total += lower[first + k] if k < rest else _NONE64
    first = (x >> _LOWER) << _LOWER
    rest = x - first
    for k in range(lanes):
        total += cells[first + k] if k < rest else _NONE64
    return total


@kernel
def sweep_sum_often(perm, values, at, asked, signs, starts, ends, wide, out):
    """As `sweep_sum`, for many questions: a point is added to all places behind it in its groups.

    That takes as many steps as a question takes in `sweep_sum`, and here a question reads only one
    place of each level.
    """
    n = perm.size
    cells = np.zeros(((n >> LOWER) + 1) << LOWER, np.int64)
    lower = np.zeros(((n >> MIDDLE) + 1) << (MIDDLE - LOWER), np.int64)
    middle = np.zeros(((n >> UPPER) + 1) << (UPPER - MIDDLE), np.int64)
    upper = np.zeros((n >> UPPER) + 1, np.int64)
    lanes = np.uint64(wide)
    whole = np.int64(0)
    y = 0
    for i in range(at.size):
        until = at[i]
        while y < until:
            x = np.uint64(perm[np.uint64(y)])
            v = values[x]
            whole += v
            _add_behind(cells, (x >> _LOWER) << _LOWER, x, lanes, v)
            first = (x >> _MIDDLE) << (_MIDDLE - _LOWER)
            _add_behind(lower, first, x >> _LOWER, lanes >> np.uint64(1), v)
            first = (x >> _UPPER) << (_UPPER - _MIDDLE)
            _add_behind(middle, first, x >> _MIDDLE, lanes, v)
            for k in range((x >> _UPPER) + np.uint64(1), np.uint64(upper.size)):
                upper[k] += v
            y += 1
        q = asked[i]
        found = whole
        if ends[q] < n:
            found = _behind(cells, lower, middle, upper, np.uint64(ends[q]))
        if starts[q] > 0:
            found -= _behind(cells, lower, middle, upper, np.uint64(starts[q]))
        out[q] += signs[i] * found


@inlined
def _add_behind(places, first, at, lanes, v):
    """Add to all places of a group behind one of them."""
    rest = at - first
    for k in range(lanes):
        places[first + k] += v if k > rest else _NONE64


@inlined
def _behind(cells, lower, middle, upper, x):
    """The sum of the points before a place."""
    return cells[x] + lower[x >> _LOWER] + middle[x >> _MIDDLE] + upper[x >> _UPPER]


@kernel
def sweep_least(perm, ranks, at, asked, starts, ends, out):
    """The least rank of the points with y below ``at[i]`` and x in the range, kept in `out`.

    A segment tree over x; a point is written upwards only as long as it is the least.
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


_NOTHING = np.int64(0)


@kernel
def build_grid(place, values, weighted, shift, grid):
    """Fill `grid`; ``place[x]`` is a point's y, each counts its value or, unweighted, one."""
    for x in range(place.size):
        grid[(x >> shift) + 1, (place[x] >> shift) + 1] += values[x] if weighted else 1
    for i in range(1, grid.shape[0]):
        along = np.int64(0)
        for j in range(1, grid.shape[1]):
            along += grid[i, j]
            grid[i, j] = grid[i - 1, j] + along


@inlined
def _count_corner(place, perm, shift, grid, x, y):
    """Points left of `x` and below `y`."""
    # Unsigned positions let the compiler use vector instructions.
    i = np.uint64(x) >> np.uint64(shift)
    j = np.uint64(y) >> np.uint64(shift)
    edge = i << np.uint64(shift)
    left = np.int32(edge)
    below = np.int32(y)
    found = np.int32(0)
    for k in range(edge, np.uint64(x)):
        found = np.int32(found + np.int32(place[k] < below))
    for k in range(j << np.uint64(shift), np.uint64(y)):
        found = np.int32(found + np.int32(perm[k] < left))
    return np.int64(grid[i, j]) + np.int64(found)


@kernel
def count_in_grid(place, perm, shift, grid, box, out):
    """Points of each rectangle ``[x0, x1) x [y0, y1)``, added to `out`."""
    x0, x1, y0, y1 = box
    for q in range(out.size):
        if x0[q] >= x1[q] or y0[q] >= y1[q]:
            continue
        total = _count_corner(place, perm, shift, grid, x1[q], y1[q])
        if x0[q] > 0:
            total -= _count_corner(place, perm, shift, grid, x0[q], y1[q])
        if y0[q] > 0:
            total -= _count_corner(place, perm, shift, grid, x1[q], y0[q])
            if x0[q] > 0:
                total += _count_corner(place, perm, shift, grid, x0[q], y0[q])
        out[q] += total


@inlined
def _sum_corner(place, perm, by_x, by_y, shift, grid, x, y):
    i = np.uint64(x) >> np.uint64(shift)
    j = np.uint64(y) >> np.uint64(shift)
    edge = i << np.uint64(shift)
    left = np.int32(edge)
    below = np.int32(y)
    total = grid[i, j]
    for k in range(edge, np.uint64(x)):
        total += by_x[k] if place[k] < below else _NOTHING
    for k in range(j << np.uint64(shift), np.uint64(y)):
        total += by_y[k] if perm[k] < left else _NOTHING
    return total


@kernel
def sum_in_grid(place, perm, by_x, by_y, shift, grid, box, out):
    """As `count_in_grid`, for the sum of values, given in both orders."""
    x0, x1, y0, y1 = box
    for q in range(out.size):
        if x0[q] >= x1[q] or y0[q] >= y1[q]:
            continue
        total = _sum_corner(place, perm, by_x, by_y, shift, grid, x1[q], y1[q])
        if x0[q] > 0:
            total -= _sum_corner(place, perm, by_x, by_y, shift, grid, x0[q], y1[q])
        if y0[q] > 0:
            total -= _sum_corner(place, perm, by_x, by_y, shift, grid, x1[q], y0[q])
            if x0[q] > 0:
                total += _sum_corner(place, perm, by_x, by_y, shift, grid, x0[q], y0[q])
        out[q] += total


# A range's ends are scanned up to the next multiple of two to this power.
LEAF = 6


@kernel
def count_nodes(starts, ends, per_level):
    """How many nodes of each level the ranges consist of, without parts of leaves at the ends."""
    for q in range(starts.size):
        a = (starts[q] + (1 << LEAF) - 1) >> LEAF
        b = ends[q] >> LEAF
        level = 0
        while a < b:
            if a & 1:
                per_level[level] += 1
                a += 1
            if b & 1:
                b -= 1
                per_level[level] += 1
            a >>= 1
            b >>= 1
            level += 1


@kernel
def list_nodes(starts, ends, wanted, nodes, asked):
    """The nodes of one level, and who asks for them."""
    at = 0
    for q in range(starts.size):
        a = (starts[q] + (1 << LEAF) - 1) >> LEAF
        b = ends[q] >> LEAF
        level = 0
        while a < b and level <= wanted:
            if a & 1:
                if level == wanted:
                    nodes[at] = a
                    asked[at] = q
                    at += 1
                a += 1
            if b & 1:
                b -= 1
                if level == wanted:
                    nodes[at] = b
                    asked[at] = q
                    at += 1
            a >>= 1
            b >>= 1
            level += 1


@kernel
def place_in_runs(keys, run_starts, run_ends, values, out):
    """The first position of each run of sorted keys that is not below the value."""
    for q in range(values.size):
        a = run_starts[q]
        b = run_ends[q]
        v = values[q]
        while a < b:
            mid = (a + b) >> 1
            if keys[mid] < v:
                a = mid + 1
            else:
                b = mid
        out[q] = a


@kernel
def scan_ends(order, starts, ends, places, low, high, sums, ranks, totals, least):
    """Add the rows at both ends of each range, outside all nodes.

    ``order`` are rows in the range's order; row `x` counts for question `q` where
    ``low[d, q] <= places[d, x] < high[d, q]`` for all `d`.
    """
    step = 1 << LEAF
    for q in range(starts.size):
        start = starts[q]
        end = ends[q]
        if start >= end:
            continue
        first = min(end, ((start + step - 1) >> LEAF) << LEAF)
        last = max(first, (end >> LEAF) << LEAF)
        for part in range(2):
            a = start if part == 0 else last
            b = first if part == 0 else end
            for z in range(a, b):
                x = order[z]
                inside = True
                for d in range(places.shape[0]):
                    y = places[d, x]
                    inside &= (y >= low[d, q]) & (y < high[d, q])
                if inside:
                    totals[0, q] += 1
                    for k in range(sums.shape[0]):
                        totals[k + 1, q] += sums[k, x]
                    for k in range(ranks.shape[0]):
                        least[k, q] = min(least[k, q], ranks[k, x])


@kernel
def mark_at(positions, out):
    """Set a flag at each position."""
    for i in range(positions.size):
        out[positions[i]] = True
