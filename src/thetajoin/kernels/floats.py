"""Sums of doubles by group that do not depend on the order of what is added, but for rounding.

A sum is two doubles, the total and what rounding dropped from it. Where finite values add up to
more than a double holds, the total is infinite and the other double is the sum times ``2**-64``, so
that what is added later may bring it back. Where an infinity or NaN was among the values, the total
is what these give and the other double is NaN.
"""

from __future__ import annotations

import math

import numpy as np

from thetajoin.kernels.jit import inlined, kernel

SHRINK, GROW = 2.0**-64, 2.0**64
# Values from here on may overflow when some of them are added up, or one is taken many times.
LARGE = 2.0**900
# The first number that is past the largest double, shrunk.
PAST = 2.0**960
HALF = np.uint64(32)
LOW = np.uint64(0xFFFFFFFF)


@inlined
def _is_special(total, error):
    """Whether a total is that of infinities or NaN, and not of finite values."""
    return not math.isfinite(total) and not abs(error) >= LARGE


@kernel
def _shrunk(total, error):
    """A sum of finite values times ``2**-64``."""
    return error if not math.isfinite(total) else total * SHRINK + error * SHRINK


@kernel
def _grown(shrunk):
    """A sum of finite values from what it is times ``2**-64``."""
    if abs(shrunk) < PAST:
        return shrunk * GROW, 0.0
    return math.copysign(math.inf, shrunk), shrunk


@kernel
def _added(total, error, value):
    """A sum and one more value."""
    if not math.isfinite(value):
        return (total + value if _is_special(total, error) else value), math.nan
    if _is_special(total, error):
        return total, error
    if math.isfinite(total):
        both = total + value
        if math.isfinite(both):
            back = both - total
            return both, error + ((total - (both - back)) + (value - back))
    return _grown(_shrunk(total, error) + value * SHRINK)


@kernel
def _added_shrunk(total, error, shrunk):
    """A sum and one more finite value, given times ``2**-64``."""
    if abs(shrunk) < PAST:
        return _added(total, error, shrunk * GROW)
    if _is_special(total, error):
        return total, error
    return _grown(_shrunk(total, error) + shrunk)


@kernel
def add_products(codes, values, times, totals, errors):
    """Add each value as often as `times` says to the sum of its code."""
    for i in range(codes.size):
        if times[i] <= 0:
            continue
        g, value, often = codes[i], values[i], np.float64(times[i])
        if math.isfinite(value) and abs(value) >= LARGE:
            made = _added_shrunk(totals[g], errors[g], value * SHRINK * often)
        else:
            made = _added(totals[g], errors[g], value * often)
        totals[g], errors[g] = made


@kernel
def add_special(codes, times, special, totals, errors):
    """Add an infinity or NaN to the sums of the codes that have one."""
    for i in range(codes.size):
        if times[i] > 0:
            g = codes[i]
            totals[g], errors[g] = _added(totals[g], errors[g], special)


@kernel
def add_sums(codes, more_totals, more_errors, totals, errors):
    """Add sums to those of their codes."""
    for i in range(codes.size):
        g, total, error = codes[i], more_totals[i], more_errors[i]
        if math.isfinite(total):
            made = _added(totals[g], errors[g], total)
            made = _added(made[0], made[1], error)
        elif _is_special(total, error):
            made = _added(totals[g], errors[g], total)
        else:
            made = _added_shrunk(totals[g], errors[g], error)
        totals[g], errors[g] = made


@kernel
def add_words(high, low, scale, totals, errors):
    """Add 128-bit numbers times ``2**scale`` to the sums, each rounded a part at a time."""
    for g in range(high.size):
        # All parts have the number's sign, so none is larger than the number itself.
        sign, top, rest = 1.0, np.uint64(high[g]), low[g]
        if high[g] < 0:
            sign, rest = -1.0, ~rest + np.uint64(1)
            top = ~top + np.uint64(rest == 0)
        parts = (
            np.float64(top >> HALF) * 2.0**96,
            np.float64(top & LOW) * 2.0**64,
            np.float64(rest >> HALF) * 2.0**32,
            np.float64(rest & LOW),
        )
        for part in parts:
            if part == 0.0:
                continue
            if scale > 800:
                shrunk = math.ldexp(sign * part, scale - 64)
                totals[g], errors[g] = _added_shrunk(totals[g], errors[g], shrunk)
            else:
                value = math.ldexp(sign * part, scale)
                totals[g], errors[g] = _added(totals[g], errors[g], value)
