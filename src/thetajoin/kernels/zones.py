"""Rows told apart by a few hundred cuts, and what the values between two cuts range over."""

from __future__ import annotations

from thetajoin.kernels.jit import kernel

# Cuts of rows that are told apart at once: a power of two, less one.
CUTS = 255


@kernel
def zones_of(values, cuts, zone, rows):
    """How many of `CUTS` cuts, in order, are at most each value; `rows` of each such number."""
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
    """Lower `low` and raise `high` of each value's zone to take the value in."""
    for row in range(values.size):
        at, value = zone[row], values[row]
        low[at] = min(low[at], value)
        high[at] = max(high[at], value)
