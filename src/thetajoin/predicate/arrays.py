"""Small helpers over Arrow arrays that several kernels of this package share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute

Array: TypeAlias = pa.Array
pc = pyarrow.compute


def rowwise(function: Callable[..., Any], arrays: Iterable[Array], type_: pa.DataType) -> Array:
    """A Python function of each row's values, NULL where an input is; slow, for rare operations."""
    columns = [array.to_pylist() for array in arrays]
    rows = zip(*columns, strict=True)
    return pa.array([None if None in row else function(*row) for row in rows], type_)


def by_value(function: Callable[[Any], Any], array: Array, type_: pa.DataType) -> Array:
    """A Python function of each distinct value; as slow as there are distinct values."""
    encoded: Any = array.dictionary_encode()
    results = [function(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(results, type_).take(encoded.indices)


def ticks(array: Array) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, Any] | None]:
    """The integers behind a date, timestamp, duration or integer array, and where NULLs are."""
    if pa.types.is_date32(array.type):
        array = array.view(pa.int32())
    integers = array.cast(pa.int64()) if array.type != pa.int64() else array
    if array.null_count == 0:
        return integers.to_numpy(zero_copy_only=False), None
    missing = integers.is_null().to_numpy(zero_copy_only=False)
    return integers.fill_null(0).to_numpy(zero_copy_only=False), missing


def from_ticks(values: Any, missing: Any, type_: pa.DataType) -> Array:
    """An array of a date, timestamp or duration type from its integers."""
    width = pa.int32() if type_.bit_width == 32 else pa.int64()
    return pa.array(values, pa.int64(), mask=missing).cast(width).view(type_)


def divided(array: Array, by: int, type_: pa.DataType, *, up: bool = False) -> Array:
    """The ticks divided by a whole number and rounded down, or up; never overflows."""
    values, missing = ticks(array)
    quotient, rest = np.divmod(values, by)
    return from_ticks(quotient + (rest != 0) if up else quotient, missing, type_)


def spread(array: Array, mask: Array) -> Array:
    """Values for the rows where the mask is true, in order, put back there; NULL elsewhere."""
    chosen = mask.to_numpy(zero_copy_only=False)
    places = np.cumsum(chosen, dtype=np.int64) - 1
    return array.take(pa.array(places, mask=~chosen))


def filled(value: Any, type_: pa.DataType, length: int) -> Array:
    """An array of one value."""
    if value is None:
        return pa.nulls(length, type_)
    return pa.repeat(pa.scalar(value, type_), length)
