"""Where the run of an equal key begins and ends, looked up by the key instead of searched for.

Keys that lie close together number the entries of a table; others are hashed to one. Probes need
not be sorted for either.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thetajoin.arrays import empty
from thetajoin.kernels.jit import inlined, kernel

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]

# A table by number may have this many entries for each row; one that is hashed has at least two
# for each distinct key, of four times the size.
DENSE_ENTRIES = 4
_MIX = np.uint64(0xFF51AFD7ED558CCD)
_MIX_AGAIN = np.uint64(0xC4CEB9FE1A85EC53)
_HALF = np.uint64(32)


class Dense(NamedTuple):
    """The run of key ``low + i`` is at ``[firsts[i], firsts[i + 1])``."""

    firsts: Int32
    low: np.uint64


class Hashed(NamedTuple):
    """Open addressing: a key in one column, its run's start and end in the other; 0 is no run.

    shift: of a hash, to the number of an entry.
    """

    entries: Int64
    shift: np.uint64


RunTable = Dense | Hashed


def build_table(run: Int64) -> RunTable:
    """A table of the runs of equal keys in a sorted array that is not empty; about 3 ns a key.

    >>> starts, ends = look_up(build_table(np.array([3, 3, 9])), np.array([9, 3, 4]))
    >>> list(zip(starts.tolist(), ends.tolist()))
    [(2, 3), (0, 2), (2, 2)]
    """
    low, high = int(run[0]), int(run[-1])
    if high - low < DENSE_ENTRIES * run.size:
        firsts = empty(high - low + 2, np.int32)
        base = np.uint64(low & 0xFFFFFFFFFFFFFFFF)
        _number(run.view(np.uint64), base, firsts)
        return Dense(firsts, base)
    bits = int(count_distinct(run)).bit_length() + 1
    entries = np.zeros((1 << bits, 2), np.int64)
    shift = np.uint64(64 - bits)
    _hash_runs(run, shift, entries)
    return Hashed(entries, shift)


def look_up(table: RunTable, keys: Int64) -> tuple[Int32, Int32]:
    """Where each key's run begins and ends; both are equal if there is none."""
    starts, ends = empty(keys.size, np.int32), empty(keys.size, np.int32)
    if isinstance(table, Dense):
        _look_up_dense(table.firsts, table.low, keys.view(np.uint64), starts, ends)
    else:
        _look_up_hashed(table.entries, table.shift, keys, starts, ends)
    return starts, ends


@kernel
def _number(run, low, firsts):
    at = 0
    for i in range(firsts.size - 1):
        firsts[i] = at
        while at < run.size and run[at] - low == np.uint64(i):
            at += 1
    firsts[firsts.size - 1] = at


@kernel
def count_distinct(run):
    """How many runs of equal keys there are; at least one."""
    distinct = 1
    for i in range(1, run.size):
        distinct += run[i] != run[i - 1]
    return distinct


@inlined
def _entry(key, shift):
    """The entry to look at first: the last step of MurmurHash3, which mixes all bits well."""
    x = np.uint64(key)
    x ^= x >> _HALF
    x *= _MIX
    x ^= x >> _HALF
    x *= _MIX_AGAIN
    return x >> shift


@kernel
def _hash_runs(run, shift, entries):
    mask = np.uint64(entries.shape[0] - 1)
    start = 0
    while start < run.size:
        key = run[start]
        end = start + 1
        while end < run.size and run[end] == key:
            end += 1
        at = _entry(key, shift)
        while entries[at, 1] != 0:
            at = (at + np.uint64(1)) & mask
        entries[at, 0] = key
        entries[at, 1] = (np.int64(start) << 32) | np.int64(end)
        start = end


@kernel
def _look_up_dense(firsts, low, keys, starts, ends):
    numbers = np.uint64(firsts.size - 1)
    for i in range(keys.size):
        # Keys below the lowest wrap around, and are too large as well.
        number = keys[i] - low
        if number < numbers:
            starts[i] = firsts[number]
            ends[i] = firsts[number + np.uint64(1)]
        else:
            starts[i] = 0
            ends[i] = 0


@kernel
def _look_up_hashed(entries, shift, keys, starts, ends):
    mask = np.uint64(entries.shape[0] - 1)
    for i in range(keys.size):
        key = keys[i]
        at = _entry(key, shift)
        run = entries[at, 1]
        while run != 0 and entries[at, 0] != key:
            at = (at + np.uint64(1)) & mask
            run = entries[at, 1]
        starts[i] = np.int32(run >> 32)
        ends[i] = np.int32(run & 0xFFFFFFFF)


@kernel
def rises_in_runs(column, run):
    """Whether a column never goes down inside a run of equal keys; no keys are one run."""
    for i in range(1, column.size):
        if column[i] < column[i - 1] and (run.size == 0 or run[i] == run[i - 1]):
            return False
    return True


@kernel
def same_in_runs(column, run):
    """Whether a column has one value in each run of equal keys."""
    for i in range(1, column.size):
        if column[i] != column[i - 1] and run[i] == run[i - 1]:
            return False
    return True
