"""Keys of the units: values that Spark's hash sends to partitions of their own.

Spark puts a row into partition ``hash(key) mod P`` (Murmur3 with seed 42). ``UNIT_KEYS[u]`` is the
least whole number whose hash is `u` modulo 28,828,800, which every P up to 16 divides, and 32, 48,
64, 100, 128 and 200 too: with such a P unit `u` is in partition ``u mod P``. With others (17, 19,
23) units may share a partition. Checkpoints have these keys, so they must never be others.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

UNITS = 1024
MODULUS = 2**7 * 3**2 * 5**2 * 7 * 11 * 13
MASK = 0xFFFFFFFF


def _keys_with(hashes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The one key, without a sign, that has each hash: the steps of `spark_hash` backwards."""
    h: Any = (hashes & MASK).astype(np.uint64)
    h ^= h >> 16
    h = h * pow(0xC2B2AE35, -1, 1 << 32) & MASK
    h ^= (h >> 13) ^ (h >> 26)
    h = h * pow(0x85EBCA6B, -1, 1 << 32) & MASK
    h ^= (h >> 16) ^ 4
    h = (h + (1 << 32) - 0xE6546B64) * pow(5, -1, 1 << 32) & MASK
    k = ((h >> 13) | (h << 19)) & MASK ^ 42
    k = k * pow(0x1B873593, -1, 1 << 32) & MASK
    k = ((k >> 15) | (k << 17)) & MASK
    key: NDArray[np.int64] = (k * pow(0xCC9E2D51, -1, 1 << 32) & MASK).astype(np.int64)
    return key


def _unit_keys() -> tuple[int, ...]:
    steps = MODULUS * np.arange(-(1 << 31) // MODULUS, (1 << 31) // MODULUS + 1)
    hashes = np.arange(UNITS)[:, None] + steps
    keys = _keys_with(hashes)
    there = (hashes >= -(1 << 31)) & (hashes < 1 << 31) & (keys < 1 << 31)
    return tuple(np.where(there, keys, 1 << 31).min(axis=1).tolist())


UNIT_KEYS = _unit_keys()
UNIT_OF = {key: unit for unit, key in enumerate(UNIT_KEYS)}


@cache
def keys_of(partitions: int) -> tuple[int, ...]:
    """For each partition the first key that Spark's hash sends there.

    >>> [spark_hash(key) % 3 for key in keys_of(3)]
    [0, 1, 2]
    """
    found: dict[int, int] = {}
    for key in count():
        found.setdefault(spark_hash(key) % partitions, key)
        if len(found) == partitions:
            break
    return tuple(found[partition] for partition in range(partitions))


def spark_hash(key: int) -> int:
    """Spark's hash of an int.

    >>> spark_hash(UNIT_KEYS[3]) % MODULUS
    3
    """

    def rotate(x: int, bits: int) -> int:
        return ((x << bits) | (x >> (32 - bits))) & MASK

    k = rotate(key * 0xCC9E2D51 & MASK, 15) * 0x1B873593 & MASK
    h = (rotate(42 ^ k, 13) * 5 + 0xE6546B64) & MASK
    h ^= 4
    h = (h ^ (h >> 16)) * 0x85EBCA6B & MASK
    h = (h ^ (h >> 13)) * 0xC2B2AE35 & MASK
    h ^= h >> 16
    return h - (1 << 32) if h >= 1 << 31 else h
