"""Values as integers that can be added up exactly, or as ranks of which the least is taken."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.aggregate.spec import Term
from thetajoin.batch.keys import BytesKey, Int64, encode
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
    lowest, highest = exact_sums.float_reach(words)
    if lowest > highest:
        return pieces
    bits = 62 - max(rows, 1).bit_length()
    count = -(-(highest - lowest) // bits)
    if count > MOST_PIECES:
        return None
    cut = np.empty((count, values.size), np.int64)
    exact_sums.cut_floats(words, lowest, bits, cut)
    return [*pieces, *(Piece(cut[at], lowest + at * bits) for at in range(count))]


def ranks_of(array: pa.Array, *, largest: bool) -> tuple[Int64, Int64]:
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
