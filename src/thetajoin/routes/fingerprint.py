"""Fingerprints of rows: 128 bits that depend on a row's values and on nothing else.

Where several tasks must agree on an order of rows, or on where each goes, without talking to each
other, they agree by these. Rows that differ in anything have different fingerprints: a NULL and a
value, `-0.0` and `0.0`, ``([1, 2], [3])`` and ``([1], [2, 3])``, which Spark's own hash takes for
one. Rows with the same fingerprint are the same row twice, and it does not matter which is which.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.kernels.hashes import fold_bytes, fold_lists, fold_words
from thetajoin.kernels.order import gather, order_of

UInt64 = NDArray[np.uint64]
_SEEDS = 0x243F6A8885A308D3, 0x13198A2E03707344


class Fingerprints(NamedTuple):
    """One fingerprint a row, as two lanes."""

    first: UInt64
    second: UInt64

    def order(self) -> NDArray[np.int32]:
        """The rows' order by fingerprint, stable among equal ones.

        >>> batch = pa.record_batch({"a": [1, 2, 1]})
        >>> prints = fingerprints(batch)
        >>> order = prints.order().tolist()
        >>> order.index(2) == order.index(0) + 1
        True
        """
        first, second = self.first.view(np.int64), self.second.view(np.int64)
        order = order_of(first)
        ordered = gather(first, order)
        if not (ordered[1:] == ordered[:-1]).any():
            return order
        by_second = order_of(second)
        both: NDArray[np.int32] = gather(by_second, order_of(gather(first, by_second)))
        return both


def fingerprints(batch: pa.RecordBatch) -> Fingerprints:
    """The fingerprints of a batch's rows; some 5 ns a row and number, a few more for text.

    They do not depend on column names, on where a batch begins, or on how Arrow lays values out.
    """
    lanes = _lanes(batch.num_rows)
    for column in batch.columns:
        _fold(column, lanes)
    return lanes


def _lanes(rows: int) -> Fingerprints:
    return Fingerprints(*(np.full(rows, seed, np.uint64) for seed in _SEEDS))


def _fold(array: pa.Array, into: Fingerprints) -> None:
    """Fold each value of an array into its row's lanes."""
    t, type_ = pa.types, array.type
    if isinstance(array, pa.ExtensionArray):
        return _fold(array.storage, into)
    if t.is_dictionary(type_):
        return _fold(array.dictionary_decode(), into)
    if t.is_run_end_encoded(type_) or t.is_string_view(type_) or t.is_binary_view(type_):
        plain = type_.value_type if t.is_run_end_encoded(type_) else pa.large_binary()
        return _fold(array.cast(plain), into)
    valid = _valid(array)
    if t.is_struct(type_):
        fold_words(np.zeros(len(array), np.uint64), valid, *into)
        for child in array.flatten():
            _fold(child, into)
    elif t.is_list(type_) or t.is_large_list(type_) or t.is_map(type_):
        _fold_lists(array, valid, into)
    elif t.is_fixed_size_list(type_):
        _fold_lists(array.cast(pa.list_(type_.value_type)), valid, into)
    elif _is_text(type_):
        offsets, data = _text(array)
        fold_bytes(offsets, data, valid, *into)
    else:
        for words in _words(array):
            fold_words(words, valid, *into)
    return None


def _fold_lists(array: pa.Array, valid: NDArray[np.bool_], into: Fingerprints) -> None:
    # Where there are no lists, Spark 4.0 leaves the only offset out, and Arrow reads what is there.
    offsets = np.asarray(array.offsets).astype(np.int64) if len(array) else np.zeros(1, np.int64)
    start, end = int(offsets[0]), int(offsets[-1])
    inside = [array.keys, array.items] if pa.types.is_map(array.type) else [array.values]
    inner = _lanes(end - start)
    for values in inside:
        _fold(values.slice(start, end - start), inner)
    fold_lists(offsets - start, valid, *inner, *into)


def _valid(array: pa.Array) -> NDArray[np.bool_]:
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    valid: NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _is_text(type_: pa.DataType) -> bool:
    t = pa.types
    text = t.is_string(type_) or t.is_large_string(type_)
    return bool(text or t.is_binary(type_) or t.is_large_binary(type_))


def _text(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    content = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    if not len(array):
        return np.zeros(1, np.int64), content
    every = np.frombuffer(offsets, np.int64 if wide else np.int32)
    return every[array.offset : array.offset + len(array) + 1].astype(np.int64), content


def _words(array: pa.Array) -> list[UInt64]:
    """A fixed-width array's bits as 64-bit words, one array for each word of a value."""
    rows, type_ = len(array), array.type
    if pa.types.is_null(type_):
        return [np.zeros(rows, np.uint64)]
    if pa.types.is_boolean(type_):
        array = array.cast(pa.uint8())
        type_ = array.type
    width = type_.byte_width
    buffer = array.buffers()[1]
    if not rows or buffer is None:
        return [np.zeros(rows, np.uint64)]
    content = np.frombuffer(buffer, np.uint8)[array.offset * width : (array.offset + rows) * width]
    if width == 8:
        return [content.view(np.uint64)]
    padded = np.zeros((rows, -(-width // 8) * 8), np.uint8)
    padded[:, :width] = content.reshape(rows, width)
    words = padded.view(np.uint64)
    return [np.ascontiguousarray(words[:, at]) for at in range(words.shape[1])]
