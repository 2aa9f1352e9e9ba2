"""Hash routing (BiStream, Section 3.2): rows that are equal in a key go to one unit.

Each unit is then a join of its own: both rows of a pair are in the unit of their key, and no row is
in two units. So units need not agree on anything, and any kind of join is exact.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from thetajoin.batch.keys import BytesKey, Key
from thetajoin.kernels.hashes import fold_bytes, fold_words

Int32 = NDArray[np.int32]
UInt64 = NDArray[np.uint64]
_SEEDS = 0x452821E638D01377, 0xBE5466CF34E90C6C


def hashes_of(keys: Sequence[Key], rows: int) -> UInt64:
    """A hash of each row's keys: equal keys, of whatever columns, give the same hash.

    >>> first, other, again = hashes_of([np.array([7, 8, 7])], 3)
    >>> bool(first == again != other)
    True
    """
    lanes = tuple(np.full(rows, seed, np.uint64) for seed in _SEEDS)
    there = np.ones(rows, np.bool_)
    for key in keys:
        if isinstance(key, BytesKey):
            fold_bytes(key.offsets, key.data, there, *lanes)
        else:
            fold_words(key.view(np.uint64), there, *lanes)
    return lanes[0]


def units_of(hashes: UInt64, units: int) -> Int32:
    """Units that share all hashes evenly."""
    return (hashes % np.uint64(units)).astype(np.int32)
