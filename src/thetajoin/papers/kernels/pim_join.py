"""Kernels of the parallel join over one shared PIM-Tree: a spin lock for each partition of T_I.

A lock is held for one descent and a walk of a few leaves, some hundred nanoseconds, so waiting in
place costs less than any lock of the operating system. T_S never changes and needs none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thetajoin.kernels.jit import inlined, kernel
from thetajoin.papers.kernels.atomic import exchange, give_way
from thetajoin.papers.kernels.bisect import below
from thetajoin.papers.kernels.btree import DEPTH, Leaves, Pool, Way, insert_one
from thetajoin.papers.kernels.css import descend, search_one

# Up to this many rows that are not indexed yet are scanned; more are sorted once for a task.
BLOCK = 64
# Tries before a thread that waits lets another one run: the holder of a lock may be off its core.
SPINS = 200

Int64 = NDArray[np.int64]


class Tree(NamedTuple):
    """T_S: its rows in key order, and the directory over them, of `F` keys a node."""

    keys: Int64
    rid: NDArray[np.int32]
    directory: Int64
    offsets: Int64
    F: int


class Parts(NamedTuple):
    """T_I: the trees under the nodes of T_S at a depth, and their locks."""

    pool: Pool
    leaves: Leaves
    locks: Int64
    depth: int


class Seen(NamedTuple):
    """Rows ``[first, last)`` of a stream; from `edge` on they are only in its window.

    Row `r` has the key ``ring[r & mask]``.
    """

    first: int
    last: int
    edge: int
    ring: Int64
    mask: int


@inlined
def _lock(locks, i):
    tries = 0
    while exchange(locks, i, 1) != 0:
        tries += 1
        if tries == SPINS:
            give_way()
            tries = 0


@inlined
def _unindexed(seen, begin):
    """Keys and numbers of the rows from `begin` on, in key order if there are many."""
    n = max(seen.last - begin, 0)
    keys = np.empty(n, np.int64)
    for i in range(n):
        keys[i] = seen.ring[(begin + i) & seen.mask]
    if n <= BLOCK:
        return keys, np.arange(n)
    order = np.argsort(keys)
    return keys[order], order


@kernel
def shared_probe(low, high, seen, tree, layers, out_probe, out_row):
    """Matches of a task's tuples among the rows seen of the other stream; -1 if no room.

    Rows before the edge tuple are looked up in the index, those from it on in the window itself
    (PIM-Tree Section 4.1, result generation). `layers` are one or two T_I's under the same T_S.
    """
    keys, rid, directory, offsets, F = tree
    room = out_probe.size
    first = seen.first
    indexed = min(seen.edge, seen.last)
    begin = max(seen.edge, first)
    tail, order = _unindexed(seen, begin)
    done = 0
    for p in range(low.size):
        a = low[p]
        z = high[p]
        if a > z:
            continue
        x = search_one(keys, directory, offsets, F, a, False)
        while x < keys.size and keys[x] <= z:
            row = rid[x]
            x += 1
            if row >= first and row < indexed:
                if done == room:
                    return -1
                out_probe[done] = p
                out_row[done] = row
                done += 1
        for parts in layers:
            pool, leaves, locks, depth = parts
            trees, inners, alloc, f_b = pool
            lkey, lrid, lcount, after, before = leaves
            ikey, irid, ichild, icount = inners
            partitions = trees.shape[0]
            part = descend(directory, offsets, depth, F, a, False)
            end = descend(directory, offsets, depth, F, z, True)
            while part <= end:
                _lock(locks, part)
                node = trees[part, 0]
                for _ in range(trees[part, 1]):
                    node = ichild[node * f_b + below(ikey, node * f_b, icount[node] - 1, a)]
                at = below(lkey, node * f_b, np.int64(lcount[node]), a)
                b = np.int64(node)
                over = False
                while not over:
                    for k in range(b * f_b + at, b * f_b + lcount[b]):
                        if lkey[k] > z:
                            over = True
                            break
                        row = lrid[k]
                        if row >= first and row < indexed:
                            if done == room:
                                exchange(locks, part, 0)
                                return -1
                            out_probe[done] = p
                            out_row[done] = row
                            done += 1
                    at = np.int64(0)
                    b = np.int64(after[b])
                    # A partition's first leaf has its number: this is where the next one begins.
                    if b < 0 or (b < partitions and b != part):
                        break
                exchange(locks, part, 0)
                if over:
                    break
                part += 1
        x = 0
        if tail.size > BLOCK:
            x = np.searchsorted(tail, a)
        while x < tail.size:
            v = tail[x]
            if v > z and tail.size > BLOCK:
                break
            if v >= a and v <= z:
                if done == room:
                    return -1
                out_probe[done] = p
                out_row[done] = begin + order[x]
                done += 1
            x += 1
    return done


@kernel
def shared_insert(keys, first, tree, parts):
    """Insert a task's tuples, numbered from `first`."""
    pool, leaves, locks, depth = parts
    way = Way(np.empty(DEPTH, np.int64), np.empty(DEPTH, np.int64))
    hint = np.zeros(6, np.int64)
    for i in range(keys.size):
        part = descend(tree.directory, tree.offsets, depth, tree.F, keys[i], True)
        hint[0] = -1
        _lock(locks, part)
        insert_one(part, keys[i], np.int32(first + i), pool, leaves, way, hint)
        exchange(locks, part, 0)
