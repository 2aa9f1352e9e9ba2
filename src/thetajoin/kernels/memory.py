"""Memory for large arrays: from Arrow's pool, which keeps what is freed for the next ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

# Fresh memory from the system is what large arrays cost most, and small ones never ask for it.
LARGE_BYTES = 1 << 16


def empty(size: int, dtype: Any) -> NDArray[Any]:
    """An uninitialised array, as NumPy's own if it is small."""
    nbytes = size * np.dtype(dtype).itemsize
    if nbytes < LARGE_BYTES:
        return np.empty(size, dtype)
    return np.frombuffer(pa.allocate_buffer(nbytes), dtype)
