"""A summed-area table over a permutation: sums of rectangles without a sweep.

The plane of points (see `kernels.sweep`) is cut into square cells of ``2**shift`` places a side.
``grid[i, j]`` is the sum over points left of column `i` and below row `j`. What lies below a corner
is the grid's entry at the cell's edge and two strips, less than a cell wide, that are scanned.
"""

from __future__ import annotations

import numpy as np

from thetajoin.kernels.jit import kernel


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


@kernel
def _count_corner(place, perm, shift, grid, x, y):
    """Points left of `x` and below `y`."""
    i = x >> shift
    j = y >> shift
    total = np.int64(grid[i, j])
    edge = i << shift
    found = np.int32(0)
    for k in range(edge, x):
        found += np.int32(place[k] < y)
    for k in range(j << shift, y):
        found += np.int32(perm[k] < edge)
    return total + found


@kernel
def count_in_grid(place, perm, shift, grid, x0, x1, y0, y1, out):
    """Points of each rectangle ``[x0, x1) x [y0, y1)``, added to `out`."""
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


@kernel
def _sum_corner(place, perm, by_x, by_y, shift, grid, x, y):
    # A mask in place of a branch, which lets the compiler use vector instructions.
    i = x >> shift
    j = y >> shift
    total = grid[i, j]
    edge = i << shift
    for k in range(edge, x):
        total += by_x[k] & -np.int64(place[k] < y)
    for k in range(j << shift, y):
        total += by_y[k] & -np.int64(perm[k] < edge)
    return total


@kernel
def sum_in_grid(place, perm, by_x, by_y, shift, grid, x0, x1, y0, y1, out):
    """As `count_in_grid`, for the sum of values, given in both orders."""
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
