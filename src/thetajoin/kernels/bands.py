"""Exact ends of a band over floating-point numbers.

A band asks for ``low <= fl(l - r) <= high`` where the subtraction rounds. For a fixed probe the
rounded difference is monotone in the stored number, so the stored numbers that satisfy it form an
interval; its ends are found by galloping over the ordered keys from where exact arithmetic puts
them, nearly always within one step.
"""

from __future__ import annotations

import numpy as np

from thetajoin.kernels.jit import bits_of, double_of, inlined, kernel

KEY_MASK = np.int64(0x7FFFFFFFFFFFFFFF)
# The keys of the two infinities; beyond them there is only NaN.
KEY_INF = np.int64(0x7FF0000000000000)
KEY_NEG_INF = np.int64(-0x7FF0000000000001)
# An infinity's key and this much still fit into an int64.
LONGEST_STEP = 1 << 51


@inlined
def _number(key):
    return double_of(key ^ ((key >> 63) & KEY_MASK))


@inlined
def _key(value):
    bits = bits_of(value + 0.0)
    return bits ^ ((bits >> 63) & KEY_MASK)


@inlined
def _holds(stored, probe, bound, strict, below, left, single):
    """Whether the rounded difference is below (or else above) the bound."""
    if single:
        a, b = np.float32(probe), np.float32(stored)
        difference = np.float64(a - b) if left else np.float64(b - a)
    else:
        difference = probe - stored if left else stored - probe
    if below:
        return difference < bound if strict else difference <= bound
    return difference > bound if strict else difference >= bound


@kernel
def band_end(keys, bound, strict, below, left, single, out):
    """Where the stored keys begin that satisfy one bound of a band, for finite probes.

    `below` says that the difference must be below `bound` (or else above it), `left` that the
    probes are its left operand. Where both or neither are so, the keys from ``out[p]`` upwards
    satisfy it, otherwise the keys from ``out[p]`` downwards; one past an infinity if none does.
    """
    inwards = 1 if below == left else -1
    inmost = KEY_INF if below == left else KEY_NEG_INF
    outmost = KEY_NEG_INF if below == left else KEY_INF
    for p in range(keys.size):
        probe = _number(keys[p])
        guess = _key(probe - bound if left else probe + bound)
        guess = min(max(guess, KEY_NEG_INF), KEY_INF)
        stored = _number(guess)
        holds = _holds(stored, probe, bound, strict, below, left, single)
        # Gallop away from the guess until `good` satisfies the bound and `bad` does not; one past
        # an infinity stands for what every key, or none, does.
        good = guess
        bad = guess
        step = 1
        while True:
            if holds:
                if (bad - inwards * step) * inwards < outmost * inwards:
                    bad = outmost - inwards
                    break
                bad -= inwards * step
                stored = _number(bad)
                if not _holds(stored, probe, bound, strict, below, left, single):
                    break
                good = bad
            else:
                if (good + inwards * step) * inwards > inmost * inwards:
                    good = inmost + inwards
                    break
                good += inwards * step
                stored = _number(good)
                if _holds(stored, probe, bound, strict, below, left, single):
                    break
                bad = good
            step = min(step + step, LONGEST_STEP)
        while good != bad + inwards:
            middle = (good >> 1) + (bad >> 1) + (good & bad & 1)
            stored = _number(middle)
            if _holds(stored, probe, bound, strict, below, left, single):
                good = middle
            else:
                bad = middle
        out[p] = good
