"""Exact ends of a band over floating-point numbers.

A band asks for ``low <= fl(l - r) <= high`` where the subtraction rounds. For a fixed probe the
rounded difference is monotone in the stored number, so the stored numbers that satisfy it form an
interval; its ends are found by galloping over the ordered keys from where exact arithmetic puts
them, nearly always within one step.
"""

from __future__ import annotations

import numpy as np

from thetajoin.kernels.jit import inlined, kernel

KEY_MASK = np.int64(0x7FFFFFFFFFFFFFFF)
# The keys of the two infinities; beyond them there is only NaN.
KEY_INF = np.int64(0x7FF0000000000000)
KEY_NEG_INF = np.int64(-0x7FF0000000000001)
# An infinity's key and this much still fit into an int64.
LONGEST_STEP = 1 << 51


@inlined
def _number(key, scratch_int, scratch_float):
    scratch_int[0] = key ^ ((key >> 63) & KEY_MASK)
    return scratch_float[0]


@inlined
def _key(value, scratch_int, scratch_float):
    scratch_float[0] = value + 0.0
    bits = scratch_int[0]
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
    scratch_int = np.empty(1, np.int64)
    scratch_float = scratch_int.view(np.float64)
    inwards = 1 if below == left else -1
    inmost = KEY_INF if below == left else KEY_NEG_INF
    outmost = KEY_NEG_INF if below == left else KEY_INF
    for p in range(keys.size):
        probe = _number(keys[p], scratch_int, scratch_float)
        guess = _key(probe - bound if left else probe + bound, scratch_int, scratch_float)
        guess = min(max(guess, KEY_NEG_INF), KEY_INF)
        stored = _number(guess, scratch_int, scratch_float)
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
                stored = _number(bad, scratch_int, scratch_float)
                if not _holds(stored, probe, bound, strict, below, left, single):
                    break
                good = bad
            else:
                if (good + inwards * step) * inwards > inmost * inwards:
                    good = inmost + inwards
                    break
                good += inwards * step
                stored = _number(good, scratch_int, scratch_float)
                if _holds(stored, probe, bound, strict, below, left, single):
                    break
                bad = good
            step = min(step + step, LONGEST_STEP)
        while good != bad + inwards:
            middle = (good >> 1) + (bad >> 1) + (good & bad & 1)
            stored = _number(middle, scratch_int, scratch_float)
            if _holds(stored, probe, bound, strict, below, left, single):
                good = middle
            else:
                bad = middle
        out[p] = good
