"""A tree of boxes over a few keys: which box a row lies in, and which boxes an interval reaches."""

from __future__ import annotations

import numpy as np

from thetajoin.kernels.jit import kernel

# How many nodes may wait while one is visited: each level halves the tree.
DEEPEST = 128


@kernel
def find_boxes(values, axis, cuts, left, right, box_low, box_high, out):
    """The leaf of each column of `values` (a row for each key), or -1 if it is not in its box.

    A node with ``axis < 0`` is a leaf; otherwise keys below its cut are to its left.
    """
    keys = values.shape[0]
    for row in range(values.shape[1]):
        node = 0
        while axis[node] >= 0:
            node = left[node] if values[axis[node], row] < cuts[node] else right[node]
        inside = True
        for key in range(keys):
            value = values[key, row]
            inside &= box_low[key, node] <= value <= box_high[key, node]
        out[row] = node if inside else -1


@kernel
def reach_boxes(low, high, axis, left, right, box_low, box_high, count, found):
    """The leaves whose boxes each row's intervals reach, all of row 0, then of row 1, and so on.

    ``count[row]`` is how many there are. `found` is filled as far as it goes; returns the total.
    """
    keys = low.shape[0]
    waiting = np.empty(DEEPEST, np.int32)
    total = 0
    for row in range(low.shape[1]):
        before = total
        waiting[0] = 0
        depth = 1
        while depth:
            depth -= 1
            node = waiting[depth]
            reaches = True
            for key in range(keys):
                if low[key, row] > box_high[key, node] or high[key, row] < box_low[key, node]:
                    reaches = False
                    break
            if not reaches:
                continue
            if axis[node] < 0:
                if total < found.size:
                    found[total] = node
                total += 1
            else:
                waiting[depth] = right[node]
                waiting[depth + 1] = left[node]
                depth += 2
        count[row] = total - before
    return total


# Cuts that rows are compared with at once: a power of two, less one.
CUTS = 255


@kernel
def find_zones(values, cuts, zone, rows):
    """The zone of each value, the number of sorted cuts that are not above it; counts `rows`."""
    for row in range(values.size):
        value = values[row]
        found = 0
        half = (CUTS + 1) // 2
        while half:
            found += half * (cuts[found + half - 1] <= value)
            half >>= 1
        zone[row] = found
        rows[found] += 1


@kernel
def fold_zones(values, zone, low, high):
    """Widen each value's zone, from `low` to `high`, so that it includes the value."""
    for row in range(values.size):
        at, value = zone[row], values[row]
        low[at] = min(low[at], value)
        high[at] = max(high[at], value)
