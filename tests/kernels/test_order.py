"""Sorting and searching against NumPy's own, on keys that make packing and galloping hard."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from thetajoin.kernels.order import merged_order, order_of
from thetajoin.kernels.search import first_above, first_at_least

LIMITS = np.iinfo(np.int64)
keys = st.lists(
    st.one_of(
        st.integers(-3, 3),
        st.integers(LIMITS.min, LIMITS.max),
        st.sampled_from([LIMITS.min, LIMITS.min + 1, LIMITS.max - 1, LIMITS.max]),
    ),
    max_size=200,
)


@given(keys)
def test_order_is_numpys_stable_order(values: list[int]) -> None:
    array = np.array(values, np.int64)
    assert order_of(array).tolist() == np.argsort(array, kind="stable").tolist()


@given(st.lists(keys, min_size=1, max_size=6))
def test_merged_order_is_the_stable_order_of_the_runs(runs: list[list[int]]) -> None:
    arrays = [np.sort(np.array(run, np.int64)) for run in runs]
    whole = np.concatenate(arrays)
    assert merged_order(arrays).tolist() == np.argsort(whole, kind="stable").tolist()


def test_order_mends_long_runs_of_one_prefix() -> None:
    random = np.random.default_rng(1)
    near = random.integers(0, 50, 5000)
    spread = np.concatenate([near, [LIMITS.min, LIMITS.max]])
    assert order_of(spread).tolist() == np.argsort(spread, kind="stable").tolist()


def test_order_mends_short_runs() -> None:
    random = np.random.default_rng(2)
    values = random.integers(LIMITS.min, LIMITS.max, 3000)
    values = np.concatenate([values, values[:1500] + 1, values[:1500]])
    assert order_of(values).tolist() == np.argsort(values, kind="stable").tolist()


@given(keys, keys, st.booleans())
def test_rebounding_search_is_searchsorted(stored: list[int], asked: list[int], sort: bool) -> None:
    array, values = np.sort(np.array(stored, np.int64)), np.array(asked, np.int64)
    order = order_of(values) if sort else np.arange(values.size, dtype=np.int32)
    for search, side in ((first_at_least, "left"), (first_above, "right")):
        out = np.full(values.size, -1, np.int64)
        search(array, values, order, out)
        assert out.tolist() == np.searchsorted(array, values, side=side).tolist()
