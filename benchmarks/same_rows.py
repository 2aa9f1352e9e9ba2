"""Are the results of several engines the same rows, in whatever order they come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.harness import TooSlowError

# Odd numbers with their bits well mixed: the finalizer of splitmix64, and a hash for NULL.
MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
NULL = np.uint64(0x9E3779B97F4A7C15)


def check_same_rows(
    name: str,
    results: Mapping[str, Callable[[], Any]],
    columns: Sequence[str],
    too_slow: dict[str, str] | None = None,
) -> int:
    """How many rows all of them gave; an error that names those that gave other rows.

    Each result is anything that Arrow reads; they are made and dropped one after another. One that
    did not come in its time is noted in `too_slow`.
    """
    found = {}
    for who, result in results.items():
        try:
            found[who] = checksum(result(), columns)
        except TooSlowError as slow:
            if too_slow is None:
                raise
            too_slow[who] = str(slow)
    if len(set(found.values())) > 1:
        told = ", ".join(
            f"{who} {rows} rows, checksum {sum_}" for who, (rows, *sum_) in found.items()
        )
        raise RuntimeError(f"{name}: the engines disagree on the rows: {told}")
    return next(iter(found.values()))[0]


def checksum(result: Any, columns: Sequence[str]) -> tuple[int, int, int]:
    """Number of rows, and two sums over the rows' hashes: those of equal multisets are equal."""
    table = pa.table(result)
    # By place: the right side's key may come under the same name.
    table = table.select([table.column_names.index(name) for name in columns])
    hashes = np.zeros(table.num_rows, np.uint64)
    for column in table.columns:
        hashes = _mix(hashes * np.uint64(31) + _hashes(column.combine_chunks()))
    return table.num_rows, int(hashes.sum()), int((hashes * (hashes >> np.uint64(7))).sum())


def _hashes(column: Any) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """A hash for each value; numbers that are equal have one hash whatever their type's width."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    null = pc.is_null(column).to_numpy(zero_copy_only=False)
    if pa.types.is_floating(column.type):
        # Adding zero makes -0.0 the 0.0 that it is equal to.
        bits = (pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy() + 0.0).view(np.uint64)
    elif pa.types.is_integer(column.type):
        bits = pc.fill_null(column, 0).to_numpy().astype(np.int64).view(np.uint64)
    else:
        words = column.cast(pa.large_string()).dictionary_encode()
        taken = [blake2b(str(word).encode(), digest_size=8).digest() for word in words.dictionary]
        places = pc.fill_null(words.indices, 0).to_numpy()
        bits = np.frombuffer(b"".join(taken) or bytes(8), np.uint64)[places]
    return np.where(null, NULL, _mix(bits))


def _mix(bits: np.ndarray[Any, np.dtype[np.uint64]]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    bits = (bits ^ (bits >> np.uint64(30))) * MIX[0]
    bits = (bits ^ (bits >> np.uint64(27))) * MIX[1]
    return bits ^ (bits >> np.uint64(31))
