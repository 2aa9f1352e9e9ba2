"""Byte strings as integers: a hash for equality, a prefix for order."""

from __future__ import annotations

import numpy as np

from thetajoin.kernels.jit import kernel

_BASIS = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x100000001B3)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_BYTE = np.uint64(8)
_SIGN = np.uint64(1 << 63)


@kernel
def hash_bytes(offsets, data, out):
    """FNV-1a of each string, its bits mixed: equal strings get equal integers."""
    for i in range(offsets.size - 1):
        h = _BASIS
        for at in range(offsets[i], offsets[i + 1]):
            h = (h ^ np.uint64(data[at])) * _PRIME
        h = (h ^ (h >> _SHIFT)) * _MIX
        out[i] = np.int64(h ^ (h >> _SHIFT))


@kernel
def prefix_bytes(offsets, data, out):
    """The first eight bytes of each string as an integer: never above a later string's."""
    for i in range(offsets.size - 1):
        start, end = offsets[i], offsets[i + 1]
        h = np.uint64(0)
        for at in range(8):
            h = h << _BYTE
            if start + at < end:
                h |= np.uint64(data[start + at])
        out[i] = np.int64(h ^ _SIGN)
