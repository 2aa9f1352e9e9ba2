"""A summed-area table over a permutation: sums of rectangles without a sweep.

The plane of points (see `kernels.sweep`) is cut into square cells of ``2**shift`` places a side.
``grid[i, j]`` is the sum over points left of column `i` and below row `j`. What lies below a corner
is the grid's entry at the cell's edge and two strips, less than a cell wide, that are scanned.
"""

from __future__ import annotations

import numpy as np

from thetajoin.kernels.jit import inlined, kernel

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
    # Positions without a sign let the compiler use vector instructions.
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
