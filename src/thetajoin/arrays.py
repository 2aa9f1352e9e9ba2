"""Memory for large arrays: from Arrow's pool, which keeps what is freed for the next ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

# Fresh memory from the system is what large arrays cost most, and small ones never ask for it.
LARGE_BYTES = 1 << 16
# Positions that are counted at once.
_STEP = 1 << 13


def empty(size: int, dtype: Any) -> NDArray[Any]:
    """An uninitialised array, as NumPy's own if it is small."""
    nbytes = size * np.dtype(dtype).itemsize
    if nbytes < LARGE_BYTES:
        return np.empty(size, dtype)
    return np.frombuffer(pa.allocate_buffer(nbytes), dtype)


def filled(size: int, value: Any, dtype: Any) -> NDArray[Any]:
    """An array of one value."""
    out = empty(size, dtype)
    out.fill(value)
    return out


def numbered(size: int) -> NDArray[np.int32]:
    """The positions of so many rows, from 0 on.

    >>> numbered(3).tolist()
    [0, 1, 2]
    """
    if size <= _STEP:
        return np.arange(size, dtype=np.int32)
    out = empty(size, np.int32)
    first = np.arange(_STEP, dtype=np.int32)
    for start in range(0, size, _STEP):
        piece = out[start : start + _STEP]
        np.add(first[: piece.size], np.int32(start), out=piece)
    return out
