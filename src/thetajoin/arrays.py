"""Memory for large arrays; what is freed is kept for a while for the next ones.

Fresh pages from the system are what large arrays cost most. Allocators give freed memory back
within milliseconds, and some virtual machines then give it back to their host, from which it is
slow to come again. Whoever joins once often joins again soon: a stream's next batch, a cell of a
notebook. So the largest blocks stay here for some seconds.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

# Arrays of at least this many bytes come from Arrow's pool; of at least this many, they are kept.
LARGE_BYTES, KEPT_BYTES = 1 << 16, 1 << 20
# Seconds that a block is kept for, and how much is kept at most.
KEPT_S, MOST_KEPT = 10.0, 512 << 20
# Positions that are counted at once.
_STEP = 1 << 13


class _Kept:
    """Blocks that nobody uses now, by their size; a thread drops those that were not asked for."""

    def __init__(self) -> None:
        # Reentrant, for a collection of garbage inside may give blocks back.
        self._lock = threading.RLock()
        self._blocks: dict[int, list[tuple[float, pa.Buffer]]] = {}
        self._bytes = 0
        self._sweeps = False

    def take(self, size: int) -> pa.Buffer:
        """A block of a size: one that is here, or a new one."""
        with self._lock:
            self._start_to_sweep()
            here = self._blocks.get(size)
            if here:
                self._bytes -= size
                return here.pop()[1]
        try:
            return pa.allocate_buffer(size)
        except MemoryError:
            self.drop(0.0)
            return pa.allocate_buffer(size)

    def give(self, block: pa.Buffer) -> None:
        """Keep a block if there is room, and a thread that will drop it."""
        with self._lock:
            if self._sweeps and self._bytes + block.size <= MOST_KEPT:
                self._blocks.setdefault(block.size, []).append((time.monotonic(), block))
                self._bytes += block.size

    def drop(self, older_s: float) -> bool:
        """Let go of blocks that have been here for longer; whether any stay."""
        last = time.monotonic() - older_s
        with self._lock:
            gone = []
            for size, blocks in self._blocks.items():
                # The last in is the first out, so the oldest come first.
                stay = next((at for at, (since, _) in enumerate(blocks) if since > last), None)
                cut = len(blocks) if stay is None else stay
                gone += blocks[:cut]
                self._bytes -= size * cut
                del blocks[:cut]
            return self._bytes > 0

    def _start_to_sweep(self) -> None:
        if not self._sweeps:
            try:
                threading.Thread(target=self._sweep, name="thetajoin-memory", daemon=True).start()
            except RuntimeError:  # no more threads, or Python is about to end
                return
            self._sweeps = True

    def _sweep(self) -> None:
        idle = 0
        while idle < 2:
            time.sleep(KEPT_S / 2)
            with self._lock:
                idle = 0 if self.drop(KEPT_S) else idle + 1
                self._sweeps = idle < 2


_kept = _Kept()


def drop_kept() -> None:
    """Let go of all that is kept: somebody else's memory has run out."""
    _kept.drop(0.0)
    pa.default_memory_pool().release_unused()


def _forget() -> None:
    """In the child of a fork: its threads and locks are not the parent's."""
    global _kept
    _kept = _Kept()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class _Lent:
    """The owner of an array's memory: when the last view is gone, the block is free."""

    __slots__ = ("__array_interface__", "_block")

    def __init__(self, block: pa.Buffer, size: int, dtype: np.dtype[Any]) -> None:
        self._block = block
        self.__array_interface__ = {
            "data": (block.address, False),
            "shape": (size,),
            "typestr": dtype.str,
            "version": 3,
        }

    def __del__(self) -> None:
        _kept.give(self._block)


def _round_up(nbytes: int) -> int:
    """The size rounded up by at most an eighth, so that other arrays have it too.

    >>> _round_up(1 << 20), _round_up((1 << 20) + 1) / (1 << 20)
    (1048576, 1.125)
    """
    step = 1 << (nbytes.bit_length() - 4)
    return -(-nbytes // step) * step


def empty(size: int, dtype: Any) -> NDArray[Any]:
    """An uninitialised array, as NumPy's own if it is small."""
    dtype = np.dtype(dtype)
    nbytes = size * dtype.itemsize
    if nbytes < LARGE_BYTES:
        return np.empty(size, dtype)
    if nbytes < KEPT_BYTES:
        return np.frombuffer(pa.allocate_buffer(nbytes), dtype)
    return np.asarray(_Lent(_kept.take(_round_up(nbytes)), size, dtype))


def fill(size: int, value: Any, dtype: Any) -> NDArray[Any]:
    """An array of one value."""
    out = empty(size, dtype)
    out.fill(value)
    return out


def number_rows(size: int) -> NDArray[np.int32]:
    """The positions of this many rows, from 0 on.

    >>> number_rows(3).tolist()
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
