"""Large arrays in memory that is used again.

Fresh memory is what large arrays cost most: about 1 ms a MiB on a virtual machine that gives free
memory back to its host. A large array here lies in huge pages, and when the last view of it is
gone its memory is kept for the next one, marked so that the kernel may take it back.
"""

from __future__ import annotations

import mmap
import weakref
from collections import defaultdict, deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

HUGE_PAGE = 2 << 20
# Unused memory kept for the next arrays.
SPARE_BYTES = 384 << 20


class _Lease:
    """Memory in use; NumPy keeps it alive for as long as an array lies in it."""

    def __init__(self, memory: mmap.mmap, address: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (address, False),
            "shape": (len(memory),),
            "typestr": "|u1",
        }
        weakref.finalize(self, _give_back, memory, address).atexit = False


# By size. Deques need no lock, which a finalizer could not wait for, and neither does copying it.
_spare: defaultdict[int, deque[tuple[mmap.mmap, int]]] = defaultdict(deque)


def spare_bytes() -> int:
    """Bytes kept for the next arrays."""
    return sum(size * len(kept) for size, kept in _spare.copy().items())


def _give_back(memory: mmap.mmap, address: int) -> None:
    if spare_bytes() + len(memory) <= SPARE_BYTES:
        _advise(memory, "MADV_FREE")
        _spare[len(memory)].append((memory, address))


def _advise(memory: mmap.mmap, advice: str) -> None:
    """Tell the kernel, where it has this advice and takes it."""
    if hasattr(mmap, advice):
        try:
            memory.madvise(getattr(mmap, advice))
        except OSError:
            return


def _fresh(size: int) -> mmap.mmap:
    """Memory of this process alone: a forked one gets a copy. Windows has no forks and no flags."""
    try:
        if hasattr(mmap, "MAP_PRIVATE"):
            return mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return mmap.mmap(-1, size)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"no room for an array of {size} bytes") from error


def large_bytes(size: int) -> NDArray[np.uint8]:
    """Uninitialised memory of at least `size` bytes, in whole huge pages."""
    rounded = -(-max(size, 1) // HUGE_PAGE) * HUGE_PAGE
    try:
        memory, address = _spare[rounded].pop()
    except IndexError:
        memory = _fresh(rounded)
        _advise(memory, "MADV_HUGEPAGE")
        address = np.frombuffer(memory, np.uint8).ctypes.data
    return np.asarray(_Lease(memory, address))


def empty(size: int, dtype: Any) -> NDArray[Any]:
    """An uninitialised array, as NumPy's own if it is small."""
    nbytes = size * np.dtype(dtype).itemsize
    if nbytes < HUGE_PAGE:
        return np.empty(size, dtype)
    return large_bytes(nbytes)[:nbytes].view(dtype)
