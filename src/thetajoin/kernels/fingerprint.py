"""Folding values into 128-bit fingerprints of rows, as two lanes of 64 bits.

Every step is a bijection of a lane for a given value and of the value for a given lane, and the
lanes use different constants: two rows agree in both lanes only if 128 bits collide by chance.
"""

from __future__ import annotations

import numpy as np

from thetajoin.kernels.jit import inlined, kernel

_A = np.uint64(0x9E3779B97F4A7C15)
_B = np.uint64(0xC2B2AE3D27D4EB4F)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_NULL = np.uint64(0xA0761D6478BD642F)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)
_BYTE = np.uint64(8)


@inlined
def _mixed(x):
    x = (x ^ (x >> _S30)) * _M1
    x = (x ^ (x >> _S27)) * _M2
    return x ^ (x >> _S31)


@inlined
def _first(lane, word):
    return _mixed(lane * _A + (word ^ _M2))


@inlined
def _second(lane, word):
    return _mixed(lane * _B + (word ^ _M1))


@inlined
def _first_null(lane):
    return _first(lane, _NULL)


@inlined
def _second_null(lane):
    # No value gives both this and what the first lane has: there the word would be another.
    return _second(lane, ~_NULL)


@kernel
def fold_words(words, valid, first, second):
    """Fold one 64-bit word a row into both lanes; a NULL is folded as no value is."""
    for i in range(words.size):
        if valid[i]:
            first[i] = _first(first[i], words[i])
            second[i] = _second(second[i], words[i])
        else:
            first[i] = _first_null(first[i])
            second[i] = _second_null(second[i])


@kernel
def fold_bytes(offsets, data, valid, first, second):
    """Fold one byte string a row: its length, then eight bytes at a time."""
    for i in range(offsets.size - 1):
        if not valid[i]:
            first[i] = _first_null(first[i])
            second[i] = _second_null(second[i])
            continue
        start, end = offsets[i], offsets[i + 1]
        length = np.uint64(end - start)
        a, b = _first(first[i], length), _second(second[i], length)
        at = start
        while at < end:
            word = np.uint64(0)
            for byte in range(at, min(at + 8, end)):
                word = (word << _BYTE) | np.uint64(data[byte])
            a, b = _first(a, word), _second(b, word)
            at += 8
        first[i], second[i] = a, b


@kernel
def fold_lists(offsets, valid, inner_first, inner_second, first, second):
    """Fold one list a row: its length, then the lanes of its values."""
    for i in range(offsets.size - 1):
        if not valid[i]:
            first[i] = _first_null(first[i])
            second[i] = _second_null(second[i])
            continue
        start, end = offsets[i], offsets[i + 1]
        length = np.uint64(end - start)
        a, b = _first(first[i], length), _second(second[i], length)
        for at in range(start, end):
            a, b = _first(a, inner_first[at]), _second(b, inner_second[at])
        first[i], second[i] = a, b
