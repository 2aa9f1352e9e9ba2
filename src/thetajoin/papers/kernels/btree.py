"""B+-trees in flat arrays: many trees may share one pool of nodes and one linked list of leaves.

A leaf has `F` slots of keys and row numbers; an inner node has up to `F` children, and between two
of them the smallest key and row number of the right one. Several threads may insert into different
trees of a pool at once, as long as none deletes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thetajoin.kernels.jit import inlined, kernel
from thetajoin.papers.kernels.atomic import fetch_add
from thetajoin.papers.kernels.bisect import below, upto

# Levels that a tree may have: fan-outs of at least four and 2^31 rows stay far below.
DEPTH = 32

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]


class Leaves(NamedTuple):
    """The leaves of a pool, linked both ways in key order."""

    keys: Int64
    rids: Int32
    counts: Int32
    after: Int32
    before: Int32


class Inners(NamedTuple):
    """The inner nodes of a pool."""

    keys: Int64
    rids: Int32
    children: Int32
    counts: Int32


def inner_nodes(count: int, F: int, kept: Inners | None = None) -> Inners:
    """Room for inner nodes of `F` children, of which the first exist already."""
    slots = count * F
    made = Inners(
        np.empty(slots, np.int64),
        np.empty(slots, np.int32),
        np.empty(slots, np.int32),
        np.zeros(count, np.int32),
    )
    if kept is not None:
        made.keys[: kept.keys.size] = kept.keys
        made.rids[: kept.rids.size] = kept.rids
        made.children[: kept.children.size] = kept.children
        made.counts[: kept.counts.size] = kept.counts
    return made


class Pool(NamedTuple):
    """Trees and the inner nodes that they share, each with room for `F` children.

    ``trees[t]`` is ``[root, height]``; a tree of height 0 is one leaf. `alloc` is ``[leaves used,
    inner nodes used, first free leaf, first free inner node]``, the free ones linked through a
    leaf's `after` and an inner node's first child.
    """

    trees: Int64
    inners: Inners
    alloc: Int64
    F: int


class Way(NamedTuple):
    """The inner nodes passed on the way to a leaf, and which child was taken in each."""

    path: Int64
    at: Int64


@inlined
def _exact_child(inners, F, node, key, rid):
    """The child that holds one row: how many separators are not above its key and number."""
    ikey, irid, ichild, icount = inners
    a = node * F
    z = a + icount[node] - 1
    start = a
    while a < z:
        mid = (a + z) >> 1
        if ikey[mid] < key or (ikey[mid] == key and irid[mid] <= rid):
            a = mid + 1
        else:
            z = mid
    return a - start


@inlined
def take_leaf(after, alloc):
    """A leaf from the pool."""
    node = alloc[2]
    if node >= 0:
        alloc[2] = after[node]
        return node
    return fetch_add(alloc, 0, 1)


@inlined
def _take_inner(ichild, alloc, F):
    node = alloc[3]
    if node >= 0:
        alloc[3] = ichild[node * F]
        return node
    return fetch_add(alloc, 1, 1)


@kernel
def grow(pool, t, way, key, rid, child):
    """Put a new child and its separator into the nodes of `way`, splitting those that are full."""
    trees, inners, alloc, F = pool
    path, at = way
    ikey, irid, ichild, icount = inners
    d = trees[t, 1] - 1
    while d >= 0:
        node = path[d]
        j = at[d]
        n = icount[node]
        base = node * F
        if n < F:
            for k in range(n - 1, j, -1):
                ikey[base + k] = ikey[base + k - 1]
                irid[base + k] = irid[base + k - 1]
            for k in range(n, j + 1, -1):
                ichild[base + k] = ichild[base + k - 1]
            ikey[base + j] = key
            irid[base + j] = rid
            ichild[base + j + 1] = child
            icount[node] = n + 1
            return
        # The right half of the children moves; the separator before it goes up.
        right = _take_inner(ichild, alloc, F)
        other = right * F
        half = (F + 1) >> 1
        if j + 1 == F:
            half = F - 1  # a growing end: leave the left node nearly full
        up_key = ikey[base + half - 1]
        up_rid = irid[base + half - 1]
        for k in range(half, F):
            ichild[other + k - half] = ichild[base + k]
        for k in range(half, F - 1):
            ikey[other + k - half] = ikey[base + k]
            irid[other + k - half] = irid[base + k]
        icount[node] = half
        icount[right] = F - half
        target = base
        n = half
        if j + 1 > half:
            target = other
            n = F - half
            j -= half
            icount[right] = n + 1
        else:
            icount[node] = n + 1
        for k in range(n - 1, j, -1):
            ikey[target + k] = ikey[target + k - 1]
            irid[target + k] = irid[target + k - 1]
        for k in range(n, j + 1, -1):
            ichild[target + k] = ichild[target + k - 1]
        ikey[target + j] = key
        irid[target + j] = rid
        ichild[target + j + 1] = child
        key = up_key
        rid = up_rid
        child = right
        d -= 1
    root = _take_inner(ichild, alloc, F)
    ichild[root * F] = trees[t, 0]
    ichild[root * F + 1] = child
    ikey[root * F] = key
    irid[root * F] = rid
    icount[root] = 2
    trees[t, 0] = root
    trees[t, 1] += 1


@inlined
def insert_one(t, key, rid, pool, leaves, way, hint):
    """Insert one row; `hint` is the leaf used last, its tree, and whether it has fences, with them.

    Where the key lies within that leaf's fences the tree is not descended at all.
    """
    trees, inners, alloc, F = pool
    path, at = way
    lkey, lrid, lcount, after, before = leaves
    ikey, irid, ichild, icount = inners
    leaf = hint[0]
    near = (
        leaf >= 0
        and hint[1] == t
        and lcount[leaf] < F
        and (hint[2] == 0 or key >= hint[3])
        and (hint[4] == 0 or key < hint[5])
    )
    if not near:
        node = trees[t, 0]
        hint[2] = 0
        hint[4] = 0
        for d in range(trees[t, 1]):
            j = upto(ikey, node * F, icount[node] - 1, key)
            path[d] = node
            at[d] = j
            if j > 0:
                hint[2] = 1
                hint[3] = ikey[node * F + j - 1]
            if j < icount[node] - 1:
                hint[4] = 1
                hint[5] = ikey[node * F + j]
            node = ichild[node * F + j]
        leaf = node
    base = leaf * F
    n = np.int64(lcount[leaf])
    x = upto(lkey, base, n, key)
    if n == F:
        right = take_leaf(after, alloc)
        half = F >> 1
        if x == F and hint[4] == 0:
            half = F  # keys that grow: leave full leaves behind
        other = right * F
        for k in range(half, F):
            lkey[other + k - half] = lkey[base + k]
            lrid[other + k - half] = lrid[base + k]
        lcount[leaf] = half
        lcount[right] = F - half
        follower = after[leaf]
        after[right] = follower
        before[right] = leaf
        after[leaf] = right
        if follower >= 0:
            before[follower] = right
        to_right = x > half or half == F
        if half == F:
            separator, separator_rid = key, rid
        else:
            separator, separator_rid = lkey[other], lrid[other]
        grow(pool, t, way, separator, separator_rid, right)
        if to_right:
            leaf = right
            x -= half
            hint[2] = 1
            hint[3] = separator
        else:
            hint[4] = 1
            hint[5] = separator
        base = leaf * F
        n = np.int64(lcount[leaf])
    for k in range(base + n, base + x, -1):
        lkey[k] = lkey[k - 1]
        lrid[k] = lrid[k - 1]
    lkey[base + x] = key
    lrid[base + x] = rid
    lcount[leaf] = n + 1
    hint[0] = leaf
    hint[1] = t


@kernel
def insert(order, begin, keys, rid, tree_of, pool, leaves):
    """Insert rows from ``order[begin]`` on; where the pool runs low, the index to go on from."""
    way = Way(np.empty(DEPTH, np.int64), np.empty(DEPTH, np.int64))
    hint = np.zeros(6, np.int64)
    hint[0] = -1
    alloc = pool.alloc
    spare_leaves = leaves.counts.size - 1
    spare_inners = pool.inners.counts.size - DEPTH
    for i in range(begin, order.size):
        if alloc[0] >= spare_leaves or alloc[1] >= spare_inners:
            return i
        r = order[i]
        t = np.int64(tree_of[r]) if tree_of.size else 0
        insert_one(t, keys[r], rid[r], pool, leaves, way, hint)
    return order.size


@kernel
def delete(keys, rid, pool, leaves):
    """Take rows out of the first tree one by one; a node is freed when it is empty.

    Nodes are not joined at half their size: a window that refills them soon gains nothing from it.
    """
    trees, inners, alloc, F = pool
    lkey, lrid, lcount, after, before = leaves
    ikey, irid, ichild, icount = inners
    path = np.empty(DEPTH, np.int64)
    at = np.empty(DEPTH, np.int64)
    missing = 0
    for i in range(keys.size):
        key = keys[i]
        row = rid[i]
        node = trees[0, 0]
        height = trees[0, 1]
        for d in range(height):
            j = _exact_child(inners, F, node, key, row)
            path[d] = node
            at[d] = j
            node = ichild[node * F + j]
        base = node * F
        n = np.int64(lcount[node])
        x = np.int64(0)
        z = n
        while x < z:
            mid = (x + z) >> 1
            if lkey[base + mid] < key or (lkey[base + mid] == key and lrid[base + mid] < row):
                x = mid + 1
            else:
                z = mid
        if x == n or lrid[base + x] != row or lkey[base + x] != key:
            missing += 1
            continue
        for k in range(base + x, base + n - 1):
            lkey[k] = lkey[k + 1]
            lrid[k] = lrid[k + 1]
        lcount[node] = n - 1
        if n > 1 or height == 0:
            continue
        left = before[node]
        right = after[node]
        if left < 0 and right < 0:
            # The last row of all: its leaf is the whole tree again.
            for d in range(height):
                ichild[path[d] * F] = alloc[3]
                alloc[3] = path[d]
            trees[0, 0] = node
            trees[0, 1] = 0
            continue
        if left >= 0:
            after[left] = right
        if right >= 0:
            before[right] = left
        after[node] = alloc[2]
        alloc[2] = node
        d = height - 1
        while d >= 0:
            parent = path[d]
            j = at[d]
            first = parent * F
            m = icount[parent]
            for k in range(max(j - 1, 0), m - 2):
                ikey[first + k] = ikey[first + k + 1]
                irid[first + k] = irid[first + k + 1]
            for k in range(j, m - 1):
                ichild[first + k] = ichild[first + k + 1]
            icount[parent] = m - 1
            if m > 1:
                break
            ichild[first] = alloc[3]
            alloc[3] = parent
            d -= 1
        while trees[0, 1] > 0 and icount[trees[0, 0]] == 1:
            root = trees[0, 0]
            trees[0, 0] = ichild[root * F]
            trees[0, 1] -= 1
            ichild[root * F] = alloc[3]
            alloc[3] = root
    return missing


@kernel
def locate(order, values, tree_of, pool, leaves, block, pos):
    """Where in which leaf each probe's first key that is not below its value would be."""
    trees, inners, alloc, F = pool
    lkey, lcount = leaves.keys, leaves.counts
    ikey, irid, ichild, icount = inners
    for i in range(order.size):
        p = order[i]
        t = np.int64(tree_of[p]) if tree_of.size else 0
        key = values[p]
        node = trees[t, 0]
        for _ in range(trees[t, 1]):
            node = ichild[node * F + below(ikey, node * F, icount[node] - 1, key)]
        base = node * F
        block[p] = node
        pos[p] = below(lkey, base, np.int64(lcount[node]), key)


@kernel
def drain(first, leaves, F, keys, rid):
    """Copy a linked list of leaves out, in key order; the number of rows."""
    lkey, lrid, lcount, after, before = leaves
    done = 0
    b = np.int64(first)
    while b >= 0:
        base = b * F
        for k in range(lcount[b]):
            keys[done] = lkey[base + k]
            rid[done] = lrid[base + k]
            done += 1
        b = np.int64(after[b])
    return done
