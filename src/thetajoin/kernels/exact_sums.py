"""Exact sums of integers in 128 bits, and sums of doubles that no order of adding changes."""

from __future__ import annotations

import math

import numpy as np

from thetajoin.kernels.jit import inlined, kernel, trailing_zeros

HALF = np.uint64(32)
LOW = np.uint64(0xFFFFFFFF)
UNSIGNED = np.uint64(0x7FFFFFFFFFFFFFFF)
FRACTION = 53  # bits of a double's fraction, the leading one included


@kernel
def sum_running(values, out):
    """The sum of all values before each position, and at the end that of all."""
    total = np.int64(0)
    for i in range(values.size):
        out[i] = total
        total += values[i]
    out[values.size] = total


@kernel
def add_range_sums(sums, starts, ends, out):
    """Add the sum of each range of positions to `out`."""
    for q in range(out.size):
        if starts[q] < ends[q]:
            out[q] += sums[ends[q]] - sums[starts[q]]


@kernel
def unpack_counts(packed, bits, counts, sums):
    """Split packed numbers into counts, in the lowest `bits`, and the sums above them."""
    mask = (np.int64(1) << bits) - 1
    for i in range(packed.size):
        count = packed[i] & mask
        counts[i] = count
        sums[i] = (packed[i] - count) >> bits


@kernel
def add_at(codes, values, shift, high, low):
    """Add ``values[i] << shift`` to the 128-bit number ``codes[i]``; `shift` is below 64."""
    s = np.uint64(shift)
    for i in range(codes.size):
        g = codes[i]
        v = values[i]
        piece = np.uint64(v) << s
        before = low[g]
        low[g] = before + piece
        up = v >> np.int64(63 - shift) >> np.int64(1)
        high[g] += up + np.int64(low[g] < before)


@kernel
def add_products(codes, values, times, unsigned, high, low):
    """Add ``values[i] * times[i]`` to the 128-bit number ``codes[i]``; `times` is not negative.

    With `unsigned` the values' 64 bits are read as a number without a sign.
    """
    for i in range(codes.size):
        t = np.uint64(times[i])
        if t == 0:
            continue
        v = values[i]
        negative = v < 0 and not unsigned
        a = np.uint64(-v) if negative else np.uint64(v)
        cross = (a & LOW) * (t & LOW)
        middle = (a >> HALF) * (t & LOW) + (cross >> HALF)
        other = (a & LOW) * (t >> HALF) + (middle & LOW)
        up = (a >> HALF) * (t >> HALF) + (middle >> HALF) + (other >> HALF)
        down = (other << HALF) | (cross & LOW)
        if negative:
            down = ~down + np.uint64(1)
            up = ~up + np.uint64(down == 0)
        g = codes[i]
        before = low[g]
        low[g] = before + down
        high[g] += np.int64(up) + np.int64(low[g] < before)


@kernel
def add_wide_at(codes, more_high, more_low, high, low):
    """Add 128-bit numbers to the 128-bit numbers of their codes."""
    for i in range(codes.size):
        g = codes[i]
        before = low[g]
        low[g] = before + more_low[i]
        high[g] += more_high[i] + np.int64(low[g] < before)


@kernel
def count_at(codes, values, out):
    """Add ``values[i]`` to ``out[codes[i]]``."""
    for i in range(codes.size):
        out[codes[i]] += values[i]


@kernel
def least_at(codes, values, out):
    """Keep the least of the values of each code."""
    for i in range(codes.size):
        g = codes[i]
        if values[i] < out[g]:
            out[g] = values[i]


@kernel
def find_float_reach(words):
    """The powers of two that all set bits of finite doubles lie between: lowest, past highest."""
    lowest = np.int64(5000)
    highest = np.int64(-5000)
    for i in range(words.size):
        word = words[i] & UNSIGNED
        if word == 0:
            continue
        exponent = np.int64(word >> np.uint64(52))
        fraction = word & np.uint64((1 << 52) - 1)
        if exponent == 0:
            exponent = np.int64(1)
        else:
            fraction |= np.uint64(1 << 52)
        base = exponent - 1075
        first = base + trailing_zeros(fraction)
        if first < lowest:
            lowest = first
        if base + FRACTION > highest:
            highest = base + FRACTION
    return lowest, highest


@kernel
def cut_floats(words, lowest, bits, out):
    """Cut finite doubles, as multiples of ``2**lowest``, into signed pieces of `bits` bits."""
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    for i in range(words.size):
        word = words[i] & UNSIGNED
        exponent = np.int64(word >> np.uint64(52))
        fraction = word & np.uint64((1 << 52) - 1)
        if exponent == 0:
            exponent = np.int64(1)
        else:
            fraction |= np.uint64(1 << 52)
        shift = exponent - 1075 - lowest
        sign = np.int64(1) if words[i] == word else np.int64(-1)
        for k in range(out.shape[0]):
            d = shift - k * bits
            if d >= 64 or d <= -64:
                piece = np.uint64(0)
            elif d >= 0:
                piece = (fraction << np.uint64(d)) & mask
            else:
                piece = (fraction >> np.uint64(-d)) & mask
            out[k, i] = sign * np.int64(piece)


SHRINK, GROW = 2.0**-64, 2.0**64
# Values from here on may overflow when some of them are added up, or one is taken many times.
LARGE = 2.0**900
# The first number that is past the largest double, shrunk.
PAST = 2.0**960


@inlined
def _is_special(total, error):
    """Whether infinities or NaN were added, and not only finite values."""
    return not math.isfinite(total) and not abs(error) >= LARGE


@kernel
def _shrink(total, error):
    """A sum of finite values times ``2**-64``."""
    return error if not math.isfinite(total) else total * SHRINK + error * SHRINK


@kernel
def _grow(shrunk):
    """A sum of finite values from that sum times ``2**-64``."""
    if abs(shrunk) < PAST:
        return shrunk * GROW, 0.0
    return math.copysign(math.inf, shrunk), shrunk


@kernel
def _add(total, error, value):
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
    return _grow(_shrink(total, error) + value * SHRINK)


@kernel
def _add_scaled(total, error, shrunk):
    """A sum and one more finite value, given times ``2**-64``."""
    if abs(shrunk) < PAST:
        return _add(total, error, shrunk * GROW)
    if _is_special(total, error):
        return total, error
    return _grow(_shrink(total, error) + shrunk)


@kernel
def add_float_products(codes, values, times, totals, errors):
    """Add each value to the sum of its code, as many times as `times` says."""
    for i in range(codes.size):
        if times[i] <= 0:
            continue
        g, value, often = codes[i], values[i], np.float64(times[i])
        if math.isfinite(value) and abs(value) >= LARGE:
            made = _add_scaled(totals[g], errors[g], value * SHRINK * often)
        else:
            made = _add(totals[g], errors[g], value * often)
        totals[g], errors[g] = made


@kernel
def add_special_float(codes, times, special, totals, errors):
    """Add an infinity or NaN to the sums of the codes that have one."""
    for i in range(codes.size):
        if times[i] > 0:
            g = codes[i]
            totals[g], errors[g] = _add(totals[g], errors[g], special)


@kernel
def add_float_sums(codes, more_totals, more_errors, totals, errors):
    """Add sums to those of their codes."""
    for i in range(codes.size):
        g, total, error = codes[i], more_totals[i], more_errors[i]
        if math.isfinite(total):
            made = _add(totals[g], errors[g], total)
            made = _add(made[0], made[1], error)
        elif _is_special(total, error):
            made = _add(totals[g], errors[g], total)
        else:
            made = _add_scaled(totals[g], errors[g], error)
        totals[g], errors[g] = made


@kernel
def add_words_to_floats(high, low, scale, totals, errors):
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
                totals[g], errors[g] = _add_scaled(totals[g], errors[g], shrunk)
            else:
                value = math.ldexp(sign * part, scale)
                totals[g], errors[g] = _add(totals[g], errors[g], value)
