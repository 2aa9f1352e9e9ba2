"""Key encoding: every compared value becomes an int64 whose order is the order of the values.

Floats too: their bits, mirrored below zero, sort as the numbers do, with NaN above everything (or
below, where a subtraction needs it there). So strictness is always "one more" or "one less" of
an integer, ties are decided in one place, and there is one kernel for all types. Values that do not
fit (strings, binary, decimals past 18 digits) become byte strings in memcmp order; a segment ranks
them against its own dictionary (`index.interval`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from thetajoin.arrays import empty
from thetajoin.errors import SchemaError

Int64 = NDArray[np.int64]
INT64_MIN, INT64_MAX = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_SIGN = np.uint64(1 << 63)
_MIX = np.uint64(0x9E3779B97F4A7C15)
# Rows worked on at a time, so that intermediate results stay in the cache. With smaller pieces two
# threads wait for each other to release Python's lock.
_PIECE = 1 << 16
_KEY_INF = 0x7FF0000000000000


@dataclass(frozen=True)
class BytesKey:
    """Byte strings as one buffer and offsets, without NULLs."""

    offsets: Int64
    data: NDArray[np.uint8]

    def __len__(self) -> int:
        return self.offsets.size - 1

    @property
    def nbytes(self) -> int:
        """Bytes of both buffers."""
        return self.offsets.nbytes + self.data.nbytes

    def to_arrow(self) -> pa.LargeBinaryArray:
        """The same strings as an Arrow array, without a copy."""
        return pa.LargeBinaryArray.from_buffers(
            pa.large_binary(),
            len(self),
            [None, pa.py_buffer(self.offsets), pa.py_buffer(self.data)],
        )

    @staticmethod
    def from_arrow(array: pa.Array) -> BytesKey:
        """Read a large_binary array without NULLs."""
        _, offsets, data = array.buffers()
        window = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
        content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        return BytesKey(window, content)

    def take(self, rows: NDArray[np.int64] | NDArray[np.int32]) -> BytesKey:
        """The strings at `rows`."""
        return BytesKey.from_arrow(self.to_arrow().take(pa.array(rows)))

    def slice(self, start: int, end: int) -> BytesKey:
        """The strings ``[start, end)``, without a copy."""
        return BytesKey(self.offsets[start : end + 1], self.data)

    def dictionary(self) -> tuple[BytesKey, Int64]:
        """The sorted distinct strings, and each string's key: twice its rank among them."""
        encoded = self.to_arrow().dictionary_encode()
        distinct = encoded.dictionary
        order = pc.array_sort_indices(distinct).to_numpy()
        rank = np.empty(len(distinct), np.int64)
        rank[order] = np.arange(len(distinct), dtype=np.int64) * 2
        sorted_distinct = BytesKey.from_arrow(distinct.take(pa.array(order)))
        return sorted_distinct, rank[encoded.indices.to_numpy()]

    @staticmethod
    def concat(parts: list[BytesKey]) -> BytesKey:
        """One array of all parts' strings."""
        return BytesKey.from_arrow(pa.concat_arrays([part.to_arrow() for part in parts]))


Key = Int64 | BytesKey


def is_bytes_type(type_: pa.DataType) -> bool:
    """Whether values of this type need more than 64 bits to order."""
    t = pa.types
    wide = t.is_decimal(type_) and type_.precision > 18
    return bool(wide or t.is_string(type_) or t.is_large_string(type_) or _is_binary(type_))


def _is_binary(type_: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_binary(type_) or t.is_large_binary(type_) or t.is_fixed_size_binary(type_))


def is_key_type(type_: pa.DataType) -> bool:
    """Whether values of this type have an order that a key can carry."""
    t = pa.types
    plain = t.is_integer(type_) or t.is_floating(type_) or t.is_boolean(type_)
    return bool(plain or t.is_temporal(type_) or t.is_decimal(type_) or is_bytes_type(type_))


def encode(array: pa.Array, *, nan_low: bool = False) -> Key:
    """The ordered keys of an array without NULLs; O(n), a few ns a value.

    >>> encode(pa.array([-1.5, float("nan"), 0.0])).argsort().tolist()
    [0, 2, 1]
    """
    type_ = array.type
    t = pa.types
    if t.is_floating(type_):
        return _encode_float(array, nan_low)
    if t.is_boolean(type_):
        return np.asarray(array.cast(pa.int8())).astype(np.int64)
    if t.is_uint64(type_):
        flipped: Int64 = (_values(array, np.uint64) ^ _SIGN).view(np.int64)
        return flipped
    if t.is_integer(type_):
        return _values(array, type_.to_pandas_dtype()).astype(np.int64, copy=False)
    if t.is_temporal(type_):
        if t.is_date64(type_):
            return _values(array.cast(pa.date32()), np.int32).astype(np.int64)
        narrow = np.int32 if type_.bit_width == 32 else np.int64
        return _values(array, narrow).astype(np.int64, copy=False)
    if t.is_decimal(type_):
        return _encode_decimal(array)
    if t.is_string(type_) or t.is_large_string(type_) or _is_binary(type_):
        return BytesKey.from_arrow(_large_binary(array))
    raise SchemaError(f"values of type {type_} have no order that a join could use")


def _values(array: pa.Array, dtype: type) -> NDArray[Any]:
    """The fixed-width values as NumPy sees them, without a copy."""
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(len(array), dtype)
    return np.frombuffer(buffer, dtype)[array.offset : array.offset + len(array)]


def _encode_float(array: pa.Array, nan_low: bool) -> Int64:
    if array.type != pa.float64():
        array = array.cast(pa.float64())
    values = _values(array, np.float64)
    keys: Int64 = empty(values.size, np.int64)
    np.add(values, 0.0, out=keys.view(np.float64))  # adding zero turns -0.0 into 0.0
    for start in range(0, keys.size, _PIECE):
        piece = keys[start : start + _PIECE]
        negative = piece >> 63
        negative &= INT64_MAX
        piece ^= negative
        if piece.max() > _KEY_INF or piece.min() < ~_KEY_INF:
            nan = np.isnan(values[start : start + _PIECE])
            piece[nan] = INT64_MIN if nan_low else INT64_MAX
    return keys


def float_keys(values: NDArray[np.float64]) -> Int64:
    """Keys of plain doubles (bounds computed from other keys); NaN is above everything."""
    return _encode_float(pa.array(values, pa.float64(), from_pandas=False), False)


def float_values(keys: Int64) -> NDArray[np.float64]:
    """The doubles that keys stand for; NaN becomes infinite, on the side where it was put.

    >>> float_values(float_keys(np.array([-1.5, 0.0, float("nan")]))).tolist()
    [-1.5, 0.0, inf]
    """
    numbers = np.clip(keys, ~_KEY_INF, _KEY_INF)
    mirrored: Int64 = numbers ^ ((numbers >> 63) & INT64_MAX)
    return mirrored.view(np.float64)


def _encode_decimal(array: pa.Array) -> Key:
    type_ = array.type
    if type_.precision <= 18:
        if type_.bit_width != 128:
            array = array.cast(pa.decimal128(type_.precision, type_.scale))
        return np.ascontiguousarray(_words(array, 2)[:, 0]).view(np.int64)
    if type_.bit_width < 128:
        array = array.cast(pa.decimal128(type_.precision, type_.scale))
    words = array.type.bit_width // 64
    big = _words(array, words)[:, ::-1].copy()
    big[:, 0] ^= _SIGN
    data = big.astype(">u8").view(np.uint8).reshape(-1)
    offsets = np.arange(len(array) + 1, dtype=np.int64) * (words * 8)
    return BytesKey(offsets, data)


def _words(array: pa.Array, words: int) -> NDArray[np.uint64]:
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros((len(array), words), np.uint64)
    all_words = np.frombuffer(buffer, np.uint64).reshape(-1, words)
    return all_words[array.offset : array.offset + len(array)]


def _large_binary(array: pa.Array) -> pa.Array:
    if pa.types.is_string(array.type):
        array = array.cast(pa.large_string())
    return array.cast(pa.large_binary())


def hash_columns(columns: Sequence[Int64]) -> Int64:
    """A hash of the rows of some columns."""
    out = np.zeros(columns[0].size, np.uint64)
    for column in columns:
        out ^= column.view(np.uint64)
        out *= _MIX
        out ^= out >> np.uint64(29)
    return out.view(np.int64)
