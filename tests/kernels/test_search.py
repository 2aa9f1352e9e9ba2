"""Searches of many values agree with NumPy's, whichever way they go about it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from thetajoin.kernels.order import order_of
from thetajoin.kernels.search import (
    first_above,
    first_at_least,
    merge_above,
    merge_at_least,
    narrow,
)

EXTREMES = [-(2**63), -1, 0, 1, 2**63 - 1]
integers = st.one_of(st.integers(-4, 4), st.sampled_from(EXTREMES))
arrays = st.lists(integers, max_size=40).map(lambda values: np.array(values, np.int64))


@given(arrays, arrays)
def test_rebounding_search(keys: np.ndarray, values: np.ndarray) -> None:
    keys = np.sort(keys)
    for search, side in ((first_at_least, "left"), (first_above, "right")):
        out = np.full(values.size, -1, np.int32)
        search(keys, values, order_of(values), out)
        assert out.tolist() == np.searchsorted(keys, values, side=side).tolist()


@given(arrays, arrays)
def test_merge_of_sorted_values(keys: np.ndarray, values: np.ndarray) -> None:
    keys, order = np.sort(keys), order_of(values)
    for merge, side in ((merge_at_least, "left"), (merge_above, "right")):
        out = np.full(values.size, -1, np.int32)
        merge(keys, values[order], order, out)
        assert out.tolist() == np.searchsorted(keys, values, side=side).tolist()


@given(arrays, arrays, st.integers(1, 5), st.booleans(), st.booleans())
def test_narrowed_ranges(
    keys: np.ndarray, values: np.ndarray, cuts: int, has_low: bool, has_high: bool
) -> None:
    """Each value's range is one of several sorted runs, some of them past what is counted."""
    keys = np.concatenate([np.sort(run) for run in np.array_split(np.tile(keys, 3), cuts)])
    ends = np.cumsum([len(run) for run in np.array_split(keys, cuts)])
    which = np.arange(values.size) % cuts
    high = values + (values < 3)
    starts, finishes = np.append(0, ends[:-1])[which], ends[which]
    found = starts.astype(np.int32), finishes.astype(np.int32)
    narrow(keys, values, high, has_low, has_high, *found)
    for p, (start, end) in enumerate(zip(starts, finishes, strict=True)):
        inside = [
            x
            for x in range(start, end)
            if (not has_low or keys[x] >= values[p]) and (not has_high or keys[x] <= high[p])
        ]
        assert list(range(found[0][p], found[1][p])) == inside
