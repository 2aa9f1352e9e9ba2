"""Byte strings and rows as integers: hashes, prefixes and 128-bit fingerprints."""

from __future__ import annotations

import numpy as np

from thetajoin.kernels.jit import inlined, kernel

_BASIS = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x100000001B3)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_BYTE = np.uint64(8)
_SIGN = np.uint64(1 << 63)
_ONE = np.uint64(1)
_UPPER, _LOWER = np.uint64(0xFFFFFFFF00000000), np.uint64(0xFFFFFFFF)


@inlined
def _hash(data, start, end):
    """FNV-1a of one string, its bits mixed."""
    h = _BASIS
    for at in range(start, end):
        h = (h ^ np.uint64(data[at])) * _PRIME
    h = (h ^ (h >> _SHIFT)) * _MIX
    return h ^ (h >> _SHIFT)


@kernel
def hash_bytes(offsets, data, out):
    """A hash of each string: equal strings get equal integers."""
    for i in range(offsets.size - 1):
        out[i] = np.int64(_hash(data, offsets[i], offsets[i + 1]))


@kernel
def hash_dictionary(offsets, data, entries):
    """A table of distinct strings by open addressing; its size is a power of two.

    An entry is half of a string's hash and, below it, its number plus one; 0 marks an empty entry.
    """
    mask = np.uint64(entries.size - 1)
    for i in range(offsets.size - 1):
        h = _hash(data, offsets[i], offsets[i + 1])
        at = h & mask
        while entries[at] != 0:
            at = (at + _ONE) & mask
        entries[at] = (h & _UPPER) | np.uint64(i + 1)


@kernel
def find_bytes(dictionary, entries, offsets, data, out):
    """Twice the number of each string in the dictionary; -1 where it is not there."""
    known_offsets, known_data = dictionary
    mask = np.uint64(entries.size - 1)
    for p in range(offsets.size - 1):
        begin = offsets[p]
        length = offsets[p + 1] - begin
        h = _hash(data, begin, begin + length)
        at = h & mask
        found = np.int64(-1)
        while entries[at] != 0:
            if (entries[at] ^ h) & _UPPER == 0:
                number = np.int64(entries[at] & _LOWER) - 1
                known = known_offsets[number]
                same = known_offsets[number + 1] - known == length
                if same:
                    for i in range(length):
                        if known_data[known + i] != data[begin + i]:
                            same = False
                            break
                if same:
                    found = 2 * number
                    break
            at = (at + _ONE) & mask
        out[p] = found


@kernel
def prefix_bytes(offsets, data, out):
    """The first eight bytes of each string as an integer, which never contradicts their order."""
    for i in range(offsets.size - 1):
        start, end = offsets[i], offsets[i + 1]
        h = np.uint64(0)
        for at in range(8):
            h = h << _BYTE
            if start + at < end:
                h |= np.uint64(data[start + at])
        out[i] = np.int64(h ^ _SIGN)


_A = np.uint64(0x9E3779B97F4A7C15)
_B = np.uint64(0xC2B2AE3D27D4EB4F)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_NULL = np.uint64(0xA0761D6478BD642F)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)


@inlined
def _mix(x):
    x = (x ^ (x >> _S30)) * _M1
    x = (x ^ (x >> _S27)) * _M2
    return x ^ (x >> _S31)


@inlined
def _fold_first(lane, word):
    return _mix(lane * _A + (word ^ _M2))


@inlined
def _fold_second(lane, word):
    return _mix(lane * _B + (word ^ _M1))


@inlined
def _fold_first_null(lane):
    return _fold_first(lane, _NULL)


@inlined
def _fold_second_null(lane):
    # No value gives this and the first lane's too: there the word would have to be another.
    return _fold_second(lane, ~_NULL)


@kernel
def fold_words(words, valid, first, second):
    """Fold one 64-bit word a row into both lanes; NULL folds differently from every value."""
    for i in range(words.size):
        if valid[i]:
            first[i] = _fold_first(first[i], words[i])
            second[i] = _fold_second(second[i], words[i])
        else:
            first[i] = _fold_first_null(first[i])
            second[i] = _fold_second_null(second[i])


@kernel
def fold_bytes(offsets, data, valid, first, second):
    """Fold one byte string a row: its length, then eight bytes at a time."""
    for i in range(offsets.size - 1):
        if not valid[i]:
            first[i] = _fold_first_null(first[i])
            second[i] = _fold_second_null(second[i])
            continue
        start, end = offsets[i], offsets[i + 1]
        length = np.uint64(end - start)
        a, b = _fold_first(first[i], length), _fold_second(second[i], length)
        at = start
        while at < end:
            word = np.uint64(0)
            for byte in range(at, min(at + 8, end)):
                word = (word << _BYTE) | np.uint64(data[byte])
            a, b = _fold_first(a, word), _fold_second(b, word)
            at += 8
        first[i], second[i] = a, b


@kernel
def fold_lists(offsets, valid, inner_first, inner_second, first, second):
    """Fold one list a row: its length, then the lanes of its values."""
    for i in range(offsets.size - 1):
        if not valid[i]:
            first[i] = _fold_first_null(first[i])
            second[i] = _fold_second_null(second[i])
            continue
        start, end = offsets[i], offsets[i + 1]
        length = np.uint64(end - start)
        a, b = _fold_first(first[i], length), _fold_second(second[i], length)
        for at in range(start, end):
            a, b = _fold_first(a, inner_first[at]), _fold_second(b, inner_second[at])
        first[i], second[i] = a, b
