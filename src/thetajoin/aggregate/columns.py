"""Values as integers that add up exactly, or as ranks; rows numbered by their group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from thetajoin.aggregate.spec import Term
from thetajoin.batch.keys import BytesKey, Int64, encode
from thetajoin.errors import SchemaError
from thetajoin.kernels import exact_sums
from thetajoin.kernels.order import order_of

Bools = NDArray[np.bool_]
NONE = np.iinfo(np.int64).max
# Doubles of one segment are cut into at most this many pieces; wider ones need the pairs.
MOST_PIECES = 4


@dataclass(frozen=True)
class Piece:
    """A part of a term's values: add its sum, times ``2**shift``, to the term's word number `word`.

    A special piece counts the values that are `special`: an infinity, or NaN.
    """

    values: Int64
    shift: int
    word: int = 0
    special: float | None = None


def words_of(term: Term) -> int:
    """How many 128-bit numbers hold the sum: one, two for wide decimals, none for floats."""
    if pa.types.is_floating(term.expr.type):
        return 0
    return 2 if _is_wide(term.expr.type) else 1


def _is_wide(type_: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(type_) and type_.precision > 18)


def present(array: pa.Array) -> Bools:
    """Which values are not NULL."""
    mask: Bools = array.is_valid().to_numpy(zero_copy_only=False)
    return mask


def whole_words(array: pa.Array) -> list[Int64]:
    """Integers and decimals as one or two 64-bit words, lowest first; NULL is 0."""
    type_ = array.type
    if pa.types.is_decimal(type_):
        array = array.cast(pa.decimal128(type_.precision, type_.scale)).fill_null(0)
        buffer = array.buffers()[1]
        both = np.frombuffer(buffer, np.int64) if buffer is not None else np.zeros(0, np.int64)
        both = both.reshape(-1, 2)[array.offset : array.offset + len(array)]
        wanted = 2 if _is_wide(type_) else 1
        return [np.ascontiguousarray(both[:, at]) for at in range(wanted)]
    return [array.cast(pa.int64()).fill_null(0).to_numpy()]


def doubles(array: pa.Array) -> NDArray[np.float64]:
    """Floats as doubles; NULL is 0."""
    values: NDArray[np.float64] = array.cast(pa.float64()).fill_null(0.0).to_numpy()
    return values


def pieces_of(array: pa.Array, rows: int) -> list[Piece] | None:
    """Values cut so that sums over `rows` of them fit; None for floats that are too far apart."""
    if pa.types.is_floating(array.type):
        return _float_pieces(doubles(array), rows)
    words = whole_words(array)
    if len(words) == 1:
        values = words[0]
        largest = max(abs(int(values.min())), abs(int(values.max()))) if values.size else 0
        if largest * max(rows, 1) < 2**62:
            return [Piece(values, 0)]
        return _halves(values, 0, signed=True)
    return [*_halves(words[0], 0, signed=False), *_halves(words[1], 1, signed=True)]


def _halves(values: Int64, word: int, *, signed: bool) -> list[Piece]:
    high = values >> 32 if signed else (values.view(np.uint64) >> np.uint64(32)).view(np.int64)
    return [Piece(values & 0xFFFFFFFF, 0, word), Piece(high, 32, word)]


def _float_pieces(values: NDArray[np.float64], rows: int) -> list[Piece] | None:
    pieces = []
    finite = np.isfinite(values)
    if not finite.all():
        for special in (np.inf, -np.inf, np.nan):
            mask = np.isnan(values) if np.isnan(special) else values == special
            if mask.any():
                pieces.append(Piece(mask.astype(np.int64), 0, special=special))
        values = np.where(finite, values, 0.0)
    words = np.ascontiguousarray(values).view(np.uint64)
    lowest, highest = exact_sums.find_float_reach(words)
    if lowest > highest:
        return pieces
    bits = 62 - max(rows, 1).bit_length()
    count = -(-(highest - lowest) // bits)
    if count > MOST_PIECES:
        return None
    cut = np.empty((count, values.size), np.int64)
    exact_sums.cut_floats(words, lowest, bits, cut)
    return [*pieces, *(Piece(cut[at], lowest + at * bits) for at in range(count))]


def rank_values(array: pa.Array, *, largest: bool) -> tuple[Int64, Int64]:
    """Each row's rank, the best first, and the rows by rank; NULL has the rank `NONE`."""
    rows = np.flatnonzero(present(array))
    keys = encode(array.drop_null())
    if isinstance(keys, BytesKey):
        keys = keys.dictionary()[1]
    order = order_of(keys)
    if largest:
        order = order[::-1]
    ranks = np.full(len(array), NONE, np.int64)
    by_rank = rows[order]
    ranks[by_rank] = np.arange(rows.size)
    return ranks, by_rank


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
    """Whether values only rise, as keys often do: then each row is a group."""
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
    """A column as arrays that can be encoded; of a struct, its fields and whether it is NULL."""
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
