"""Ranges of one order as nodes of a binary tree over it, and scans of what is left at the ends."""

from __future__ import annotations

from thetajoin.kernels.jit import kernel

# A range's ends are scanned up to the next multiple of two to this power.
LEAF = 6


@kernel
def count_nodes(starts, ends, per_level):
    """How many nodes of each level the ranges consist of, their ends inside a leaf left out."""
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
    """What the rows at both ends of each range, outside all nodes, add.

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
