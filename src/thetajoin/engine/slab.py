"""Memory for output columns, cut from large pieces that are used again.

A result is written once, and most of what a large one costs is the kernel handing out memory the
process does not have yet: about 1 ms a MiB on a virtual machine that gives free memory back to its
host. So output columns that are filled by us are cut from large pieces, in huge pages, and a few
pieces that nobody reads any more are kept for the next results; the kernel may take those back.
"""

from __future__ import annotations

import mmap
import threading
import weakref
from collections import deque
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.kernels.order import gather_into

PIECE_BYTES = 64 << 20
# Unused pieces kept for the next result.
SPARE_PIECES = 4
# A smaller chunk is not worth it.
WORTH_BYTES = 1 << 20
ALIGNMENT = 64
_WIDTHS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


class _Piece:
    """A piece in use; NumPy keeps it alive for as long as an array lies in it."""

    def __init__(self, memory: mmap.mmap, address: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (address, False),
            "shape": (len(memory),),
            "typestr": "|u1",
        }
        weakref.finalize(self, _give_back, memory, address).atexit = False


# A deque needs no lock, which a finalizer could not wait for.
_spare: deque[tuple[mmap.mmap, int]] = deque()


def _give_back(memory: mmap.mmap, address: int) -> None:
    if len(_spare) < SPARE_PIECES:
        _advise(memory, "MADV_FREE")
        _spare.append((memory, address))


def _advise(memory: mmap.mmap, advice: str) -> None:
    """Tell the kernel, where it has this advice and takes it."""
    if hasattr(mmap, advice):
        try:
            memory.madvise(getattr(mmap, advice))
        except OSError:
            return


def _piece(size: int) -> NDArray[np.uint8]:
    """Uninitialised memory of at least `size` bytes."""
    if size > PIECE_BYTES:
        return np.empty(size + ALIGNMENT, np.uint8)
    try:
        memory, address = _spare.pop()
    except IndexError:
        memory = mmap.mmap(-1, PIECE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        _advise(memory, "MADV_HUGEPAGE")
        address = np.frombuffer(memory, np.uint8).ctypes.data
    return np.asarray(_Piece(memory, address))


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
                piece = _piece(padded)
                self._free = piece[-piece.ctypes.data % ALIGNMENT :]
            taken, self._free = self._free[:size], self._free[padded:]
        return taken

    def take(self, columns: list[pa.Array], rows: NDArray[np.int32]) -> list[pa.Array]:
        """The rows of every column; row numbers are known to be in range."""
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
