"""Memory for output columns, cut from large pieces that are used again (`kernels.memory`)."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.kernels.memory import large_bytes
from thetajoin.kernels.order import gather_into

PIECE_BYTES = 64 << 20
# A smaller chunk is not worth it.
WORTH_BYTES = 1 << 20
ALIGNMENT = 64
_WIDEST = 8
_WIDTHS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


class Slab:
    """Hands out memory for the columns of one result, one after the other."""

    def __init__(self) -> None:
        """Nothing is allocated before the first column."""
        self._free: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._lock = threading.Lock()

    def bytes(self, size: int) -> NDArray[np.uint8]:
        """Uninitialised memory, aligned as Arrow likes it."""
        padded = -(-size // ALIGNMENT) * ALIGNMENT
        with self._lock:
            if self._free.size < padded:
                piece = large_bytes(max(padded, PIECE_BYTES))
                self._free = piece
            taken, self._free = self._free[:size], self._free[padded:]
        return taken

    def take(self, columns: list[pa.Array], rows: NDArray[np.int32]) -> list[pa.Array]:
        """The rows of every column; row numbers are known to be in range."""
        if _WIDEST * len(columns) * rows.size < WORTH_BYTES:
            indices = pa.array(rows)
            return [column.take(indices) for column in columns]
        plain = [_plain(column) for column in columns]
        width = sum(values.itemsize for values in plain if values is not None)
        indices = None
        result = []
        for column, values in zip(columns, plain, strict=True):
            if values is None or width * rows.size < WORTH_BYTES:
                indices = pa.array(rows) if indices is None else indices
                result.append(column.take(indices))
                continue
            out = self.bytes(values.itemsize * rows.size)
            gather_into(values, rows, out.view(values.dtype))
            buffers = [None, pa.py_buffer(out)]
            result.append(pa.Array.from_buffers(column.type, rows.size, buffers, 0))
        return result


def _plain(column: pa.Array) -> NDArray[Any] | None:
    """A column's values as integers of its width; None if it has NULLs or no fixed width."""
    if not pa.types.is_primitive(column.type) or column.null_count:
        return None
    dtype = _WIDTHS.get(column.type.bit_width)
    buffer = column.buffers()[1]
    if dtype is None or buffer is None:
        return None
    end = column.offset + len(column)
    return np.frombuffer(buffer, dtype, count=end)[column.offset :]
