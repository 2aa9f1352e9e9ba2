"""Kernels of the parallel join over one shared PIM-Tree: a spin lock for each partition of T_I.

A lock is held for one descent and a walk of a few leaves, some hundred nanoseconds, so waiting in
place costs less than any lock of the operating system. T_S never changes and needs none.
"""

from __future__ import annotations

import numpy as np

from thetajoin.kernels.jit import inlined, kernel
from thetajoin.lab.kernels.atomic import exchange, give_way
from thetajoin.lab.kernels.bisect import below
from thetajoin.lab.kernels.btree import DEPTH, insert_one
from thetajoin.lab.kernels.css import descend, search_one

# Up to this many rows that are not indexed yet are scanned; more are sorted once for a task.
BLOCK = 64
# Tries before a thread that waits lets another one run: the holder of a lock may be off its core.
SPINS = 200


@inlined
def _lock(locks, i):
    tries = 0
    while exchange(locks, i, 1) != 0:
        tries += 1
        if tries == SPINS:
            give_way()
            tries = 0


@inlined
def _unindexed(ring, mask, begin, end):
    """Keys and numbers of the rows in ``[begin, end)``, in key order if there are many."""
    n = max(end - begin, 0)
    keys = np.empty(n, np.int64)
    for i in range(n):
        keys[i] = ring[(begin + i) & mask]
    if n <= BLOCK:
        return keys, np.arange(n)
    order = np.argsort(keys)
    return keys[order], order


@kernel
def shared_probe(low, high, first, last, edge, tree, layers, ring, mask, out_probe, out_row):
    """Matches of a task's tuples among rows ``[first, last)`` of the other stream; -1 if no room.

    Rows before the edge tuple are looked up in the index, those from it on in the window itself
    (PIM-Tree Section 4.1, result generation). `layers` are one or two T_I's under the same T_S.
    """
    keys, rid, directory, offsets, F = tree
    room = out_probe.size
    indexed = min(edge, last)
    begin = max(edge, first)
    tail, order = _unindexed(ring, mask, begin, last)
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
            trees, leaves, inners, locks, f_b, depth = parts
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
def shared_insert(keys, first, tree, parts, alloc):
    """Insert a task's tuples, numbered from `first`."""
    directory, offsets, F = tree[2], tree[3], tree[4]
    trees, leaves, inners, locks, f_b, depth = parts
    path = np.empty(DEPTH, np.int64)
    at = np.empty(DEPTH, np.int64)
    hint = np.zeros(6, np.int64)
    for i in range(keys.size):
        part = descend(directory, offsets, depth, F, keys[i], True)
        hint[0] = -1
        _lock(locks, part)
        insert_one(
            part,
            keys[i],
            np.int32(first + i),
            trees,
            leaves,
            inners,
            alloc,
            f_b,
            f_b,
            path,
            at,
            hint,
        )
        exchange(locks, part, 0)
