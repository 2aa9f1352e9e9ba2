"""Sorting int64 keys and keeping where each came from."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thetajoin.arrays import empty, fill, number_rows
from thetajoin.kernels.jit import kernel
from thetajoin.kernels.threads import ALONE, Mapper

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]

# A run of keys that share their packed prefix is mended by insertion up to this length.
INSERTION_RUN = 48
# From this many keys on they are radix-sorted, by digits of at most so many bits.
RADIX_KEYS = 1 << 11
DIGIT_BITS = 9
# How many shares of the work there are for each thread, as not all take equally long.
SHARES = 4
NO_KEYS: Int64 = np.zeros(0, np.int64)


def order_of(keys: Int64, mapper: Mapper = ALONE) -> Int32:
    """The stable ascending order of `keys` as positions, about 10 ns a key.

    The key's leading bits and its position are packed into one integer, so that one array moves
    while it is sorted; what the packing cut off is mended afterwards, run by run.

    >>> order_of(np.array([30, 10, 20, 10])).tolist()
    [1, 3, 2, 0]
    """
    n = keys.size
    if n < 2 or is_sorted(keys):
        return number_rows(n)
    spread = low, key_bits = _spread(keys)
    order = _order_packed(NO_KEYS, (np.uint64(0), 0), keys, spread, mapper)
    if order is None:
        # Many keys share their leading bits: the others first, then the leading ones.
        cut = np.uint64(key_bits + (n - 1).bit_length() - 64)
        distance = keys.view(np.uint64) - low
        lower = (distance & ((np.uint64(1) << cut) - np.uint64(1))).view(np.int64)
        order = order_of(lower, mapper)
        upper = (distance >> cut).view(np.int64)
        order = gather(order, order_of(gather(upper, order, mapper), mapper), mapper)
    return order


def order_of_both(first: Int64, second: Int64, mapper: Mapper = ALONE) -> Int32:
    """The stable order by one key, and by another where that is equal.

    >>> order_of_both(np.array([2, 1, 2, 1]), np.array([5, 9, 4, 8])).tolist()
    [3, 1, 2, 0]
    """
    n = first.size
    if n < 2:
        return number_rows(n)
    order = _order_packed(first, _spread(first), second, _spread(second), mapper)
    if order is None:
        order = order_of(second, mapper)
        order = gather(order, order_of(gather(first, order, mapper), mapper), mapper)
    return order


def _spread(keys: Int64) -> tuple[np.uint64, int]:
    """The smallest key, and how many bits the largest distance from it takes."""
    low, high = int(keys.min()), int(keys.max())
    return np.uint64(low & 0xFFFFFFFFFFFFFFFF), (high - low).bit_length()


def _order_packed(
    first: Int64,
    first_spread: tuple[np.uint64, int],
    second: Int64,
    second_spread: tuple[np.uint64, int],
    mapper: Mapper,
) -> Int32 | None:
    """The order by two keys that are packed into one integer, with the position below them.

    There may be no first key. Bits of the second one that do not fit are compared afterwards; None
    where they are too many.
    """
    n = second.size
    (low, bits), (second_low, second_bits) = first_spread, second_spread
    index_bits = (n - 1).bit_length()
    cut = max(0, bits + second_bits + index_bits - 64)
    if cut >= second_bits > 0 or bits + index_bits > 64:
        return None
    packed = empty(n, np.uint64)
    lows = low, second_low
    shifts = np.uint64(cut), np.uint64(second_bits - cut), np.uint64(index_bits)
    one, two = first.view(np.uint64), second.view(np.uint64)

    def pack(piece: tuple[int, int]) -> None:
        at = slice(*piece)
        _pack(one[at], two[at], lows, shifts, packed[at], np.uint64(piece[0]))

    mapper(pack, mapper.pieces(n))
    order = empty(n, np.int32)
    if n < RADIX_KEYS:
        packed.sort()
        return order if _unpack(packed, index_bits, second, cut > 0, order) else None
    digits, mask = _digits(index_bits, bits + second_bits - cut)
    spare, ends = empty(n, np.uint64), np.array([0, n])
    if len(mapper.pieces(n)) > 1 and digits.size:
        ends = _deal(packed, digits[-1], mask, spare, mapper)
        packed, spare, digits = spare, packed, digits[:-1]

    def finish(some: NDArray[np.int64]) -> bool:
        arrays = packed, spare, some, digits, mask
        done: bool = _sort_buckets(*arrays, index_bits, second, cut > 0, order)
        return done

    return order if all(mapper(finish, _shares(ends, mapper))) else None


def _digits(index_bits: int, key_bits: int) -> tuple[NDArray[np.uint64], np.uint64]:
    """How far each digit of the keys above the positions is shifted, the lowest first; its mask.

    A digit has as many bits as the others; NumPy's sort compares instead, and is about as fast
    with its vector instructions, five times slower without them.
    """
    number = -(-key_bits // DIGIT_BITS)
    width = -(-key_bits // max(1, number))
    return (index_bits + width * np.arange(number)).astype(np.uint64), np.uint64((1 << width) - 1)


def _deal(
    keys: NDArray[np.uint64],
    shift: np.uint64,
    mask: np.uint64,
    out: NDArray[np.uint64],
    mapper: Mapper,
) -> NDArray[np.int64]:
    """Bring keys into the order of their highest digit; where each digit's bucket ends.

    Reading what another thread has written is expensive: with a million keys, two threads that
    shared the work on every digit took longer than one. So they share it for this digit only.
    """
    pieces = mapper.pieces(keys.size)
    counts = np.zeros((len(pieces), int(mask) + 1), np.int64)
    work: list[tuple[Any, ...]]
    work = [(keys[a:b], shift, mask, row) for (a, b), row in zip(pieces, counts, strict=True)]
    mapper(lambda each: _count_digits(*each), work)
    # Of one digit, those of an earlier piece come first.
    starts = np.cumsum(counts.T.ravel()).reshape(-1, len(pieces)).T - counts
    starts = np.ascontiguousarray(starts)
    work = [(keys[a:b], shift, mask, row, out) for (a, b), row in zip(pieces, starts, strict=True)]
    mapper(lambda each: _move(*each), work)
    return np.concatenate([[0], np.cumsum(counts.sum(axis=0))])


def _shares(ends: NDArray[np.int64], mapper: Mapper) -> list[NDArray[np.int64]]:
    """Neighbouring buckets in shares of about as many keys, a few shares for each thread."""
    wanted = SHARES * mapper.threads if len(ends) > 2 else 1
    cuts = np.searchsorted(ends, ends[-1] * np.arange(1, wanted) / wanted)
    at = [0, *cuts.tolist(), len(ends) - 1]
    return [ends[a : b + 1] for a, b in pairwise(at) if a < b]


@kernel
def _count_digits(keys, shift, mask, counts):
    for i in range(keys.size):
        counts[(keys[i] >> shift) & mask] += 1


@kernel
def _move(keys, shift, mask, at, out):
    """Put each key where the next one with its digit goes."""
    for i in range(keys.size):
        key = keys[i]
        digit = (key >> shift) & mask
        out[at[digit]] = key
        at[digit] += 1


@kernel
def _sort_buckets(keys, spare, ends, shifts, mask, index_bits, second, mend, order):
    """Sort each bucket of keys by its digits and take the positions out; False if `_unpack` fails.

    The positions are in order already, so only the keys are compared.
    """
    counts = np.zeros((shifts.size, np.int64(mask) + 1), np.int64)
    for b in range(ends.size - 1):
        begin = ends[b]
        end = ends[b + 1]
        ours = keys[begin:end]
        other = spare[begin:end]
        if end - begin <= INSERTION_RUN:
            for i in range(1, ours.size):
                key = ours[i]
                j = i - 1
                while j >= 0 and ours[j] > key:
                    ours[j + 1] = ours[j]
                    j -= 1
                ours[j + 1] = key
        else:
            counts[:] = 0
            for i in range(ours.size):
                for d in range(shifts.size):
                    counts[d, (ours[i] >> shifts[d]) & mask] += 1
            for d in range(shifts.size):
                at = counts[d]
                if at[(ours[0] >> shifts[d]) & mask] == ours.size:
                    continue
                total = 0
                for digit in range(at.size):
                    number = at[digit]
                    at[digit] = total
                    total += number
                _move(ours, shifts[d], mask, at, other)
                ours, other = other, ours
        if not _unpack(ours, index_bits, second, mend, order[begin:end]):
            return False
    return True


@kernel
def is_sorted(keys):
    """Whether keys never go down."""
    down = 0
    for i in range(1, keys.size):
        down += keys[i] < keys[i - 1]
    return down == 0


@kernel
def _pack(first, second, lows, shifts, packed, base):
    """Two keys' distances from the lowest, one above the other, and the position from `base` on.

    The second one is cut to what leaves room; an empty first one is left out.
    """
    low, second_low = lows
    cut, second_bits, index_bits = shifts
    if first.size:
        for i in range(second.size):
            both = ((first[i] - low) << second_bits) | ((second[i] - second_low) >> cut)
            packed[i] = (both << index_bits) | (np.uint64(i) + base)
    else:
        for i in range(second.size):
            packed[i] = (((second[i] - second_low) >> cut) << index_bits) | (np.uint64(i) + base)


@kernel
def _unpack(packed, index_bits, keys, mend, order):
    """Take positions out of `packed`; mend runs of equal prefixes. False if one is too long."""
    n = packed.size
    bits = np.uint64(index_bits)
    mask = (np.uint64(1) << bits) - np.uint64(1)
    for i in range(n):
        order[i] = np.int32(packed[i] & mask)
    if not mend:
        return True
    start = 0
    while start < n:
        end = start + 1
        prefix = packed[start] >> bits
        while end < n and packed[end] >> bits == prefix:
            end += 1
        if end - start > INSERTION_RUN:
            return False
        for i in range(start + 1, end):
            moving = order[i]
            key = keys[moving]
            j = i - 1
            while j >= start and keys[order[j]] > key:
                order[j + 1] = order[j]
                j -= 1
            order[j + 1] = moving
        start = end
    return True


def sort_ties(second: Int64, run: Int64, first: Int64, order: Int32) -> Int32:
    """An order whose ties are sorted by a second key; long runs of ties stay as they are.

    `run` and `first` are the sorted keys that the order is by; `run` may be empty.

    >>> sort_ties(
    ...     np.array([7, 3, 5]), np.zeros(0, np.int64), np.array([1, 1, 2]), np.array([0, 1, 2])
    ... ).tolist()
    [1, 0, 2]
    """
    if not _count_misplaced(second, run, first, order):
        return order
    order = order.copy()
    _settle_ties(second, run, first, order)
    return order


@kernel
def _count_misplaced(second, run, first, order):
    """How many neighbours tie and stand in the wrong order."""
    wrong = 0
    for i in range(1, order.size):
        if first[i] == first[i - 1] and (run.size == 0 or run[i] == run[i - 1]):
            wrong += second[order[i]] < second[order[i - 1]]
    return wrong


@kernel
def _settle_ties(second, run, first, order):
    start = 0
    while start < order.size:
        end = start + 1
        while (
            end < order.size
            and first[end] == first[start]
            and (run.size == 0 or run[end] == run[start])
        ):
            end += 1
        if end - start <= INSERTION_RUN:
            for i in range(start + 1, end):
                moving = order[i]
                j = i - 1
                while j >= start and second[order[j]] > second[moving]:
                    order[j + 1] = order[j]
                    j -= 1
                order[j + 1] = moving
        start = end


def merge_orders(runs: list[Int64]) -> Int32:
    """What `order_of` gives for sorted runs one after another; about 3 ns a key and merge.

    >>> merge_orders([np.array([10, 30]), np.array([10, 20]), np.array([5])]).tolist()
    [4, 0, 2, 3, 1]
    """
    start = 0
    pieces: list[tuple[Int64, Int32]] = []
    for run in runs:
        pieces.append((run, np.arange(start, start + run.size, dtype=np.int32)))
        start += run.size
    while len(pieces) > 1:
        merged = [_merge_pair(*pair) for pair in zip(pieces[::2], pieces[1::2], strict=False)]
        pieces = [*merged, *pieces[2 * len(merged) :]]
    return pieces[0][1]


def _merge_pair(first: tuple[Int64, Int32], second: tuple[Int64, Int32]) -> tuple[Int64, Int32]:
    size = first[0].size + second[0].size
    keys, order = empty(size, np.int64), empty(size, np.int32)
    _merge(*first, *second, keys, order)
    return keys, order


@kernel
def _merge(a, a_order, b, b_order, keys, order):
    """Two sorted runs as one, the first run's keys first where they are equal."""
    i = 0
    j = 0
    k = 0
    while i < a.size and j < b.size:
        first = a[i] <= b[j]
        keys[k] = a[i] if first else b[j]
        order[k] = a_order[i] if first else b_order[j]
        i += first
        j += not first
        k += 1
    for rest in range(i, a.size):
        keys[k] = a[rest]
        order[k] = a_order[rest]
        k += 1
    for rest in range(j, b.size):
        keys[k] = b[rest]
        order[k] = b_order[rest]
        k += 1


def gather(values: Any, positions: Any, mapper: Mapper = ALONE) -> Any:
    """``values[positions]`` without bounds checks; about 2 ns a value."""
    out = empty(positions.size, values.dtype)
    if mapper.pool is None:
        gather_into(values, positions, out)
    else:
        gather_all(values, positions, out, mapper)
    return out


def gather_all(values: Any, positions: Any, out: Any, mapper: Mapper) -> None:
    """``out[:] = values[positions]``, shared by threads; positions are not negative."""
    mapper(
        lambda piece: gather_into(values, positions[slice(*piece)], out[slice(*piece)]),
        mapper.pieces(positions.size),
    )


@kernel
def gather_into(values, positions, out):
    """``out[:] = values[positions]``; positions are not negative."""
    for i in range(positions.size):
        out[i] = values[np.uint64(positions[i])]


@kernel
def _invert(order, out):
    for i in range(order.size):
        out[np.uint64(order[i])] = np.int32(i)


def invert(order: Int32) -> Int32:
    """Where each position stands in `order`."""
    out = empty(order.size, np.int32)
    _invert(order, out)
    return out


def order_among(order: Int32, some: Int32) -> Int32:
    """The order of some positions, given in rising order, taken from the order of all.

    >>> order_among(np.array([2, 0, 3, 1], np.int32), np.array([1, 2], np.int32)).tolist()
    [1, 0]
    """
    out = empty(some.size, np.int32)
    _choose(order, some, fill(order.size, -1, np.int32), out)
    return out


@kernel
def _choose(order, some, places, out):
    for i in range(some.size):
        places[np.uint64(some[i])] = np.int32(i)
    done = 0
    for i in range(order.size):
        place = places[np.uint64(order[i])]
        if place >= 0:
            out[done] = place
            done += 1


@kernel
def step_keys(keys, step, first, last, out):
    """Each key plus `step`, which may wrap around; returns how many keys were out of range."""
    beyond = 0
    for i in range(keys.size):
        beyond += (keys[i] < first) | (keys[i] > last)
        out[i] = keys[i] + step
    return beyond
