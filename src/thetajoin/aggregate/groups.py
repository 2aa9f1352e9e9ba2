"""Numbering rows by their group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thetajoin.batch.keys import Int64
from thetajoin.errors import SchemaError

# Numbers of groups are made dense in a table of this size, and by sorting above it.
DENSE = 1 << 22


@dataclass(frozen=True)
class Grouping:
    """A number for each row, and each group's values."""

    codes: Int64
    keys: list[pa.Array]
    size: int


def group_rows(columns: list[pa.Array], rows: int) -> Grouping:
    """Rows with equal values get one number; NULL is a value, NaN equals NaN, -0.0 equals 0.0.

    >>> group_rows([pa.array(["a", None, "a"])], 3).codes.tolist()
    [0, 1, 0]
    """
    codes, size = np.zeros(rows, np.int64), 1
    if not columns:
        return Grouping(codes, [], 1)
    if len(columns) == 1 and _rises(columns[0]):
        return Grouping(np.arange(rows), columns, rows)
    for column in columns:
        for leaf in _leaves(column):
            found = leaf.dictionary_encode(null_encoding="encode").indices.to_numpy()
            more = int(found.max(initial=0)) + 1
            if size * more > 2**62:
                codes, size = _dense(codes, size)[0], rows
            codes, size = codes * more + found, size * more
    codes, first = _dense(codes, size)
    taken = pa.array(first)
    return Grouping(codes, [column.take(taken) for column in columns], len(first))


def _rises(column: pa.Array) -> bool:
    """Whether each value is above the last, so that every row is a group: a key, as it is often."""
    if not pa.types.is_integer(column.type) or column.null_count or not len(column):
        return False
    values = column.to_numpy()
    return bool((values[1:] > values[:-1]).all())


def _dense(codes: Int64, size: int) -> tuple[Int64, Int64]:
    """The same numbers without gaps, and a row of each."""
    if size > max(DENSE, 2 * codes.size):
        _, first, dense = np.unique(codes, return_index=True, return_inverse=True)
        return dense.astype(np.int64), first.astype(np.int64)
    row = np.full(size, -1, np.int64)
    row[codes[::-1]] = np.arange(codes.size - 1, -1, -1)
    there = row >= 0
    number: Int64 = np.cumsum(there) - 1
    return number[codes], row[there]


def _leaves(column: pa.Array) -> list[pa.Array]:
    """A column as arrays that can be encoded: a struct is its fields and whether it is there."""
    if pa.types.is_struct(column.type):
        parts = [column.is_valid()]
        for field in column.flatten():
            parts += _leaves(field)
        return parts
    if pa.types.is_dictionary(column.type):
        return _leaves(column.dictionary_decode())
    if pa.types.is_nested(column.type):
        raise SchemaError(f"values of type {column.type} cannot be grouped: take a part of them")
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        return [pc.add(column, pa.scalar(0.0, column.type))]
    return [column]
