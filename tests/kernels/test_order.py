"""Sorting and searching against NumPy's own, on keys that make packing and galloping hard."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetajoin.kernels import order as kernels
from thetajoin.kernels import threads
from thetajoin.kernels.order import merge_orders, order_of, order_of_both, sort_ties
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


@given(keys, st.booleans())
def test_order_is_numpys_stable_order(values: list[int], digits: bool) -> None:
    array = np.array(values, np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "RADIX_KEYS", 0 if digits else 1 << 40)
        assert order_of(array).tolist() == np.argsort(array, kind="stable").tolist()


@given(keys, st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
def test_order_of_two_keys(values: list[int], seed: int, few: bool, digits: bool) -> None:
    random, second = np.random.default_rng(seed), np.array(values, np.int64)
    first = random.integers(-2 if few else LIMITS.min, 3 if few else LIMITS.max, second.size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "RADIX_KEYS", 0 if digits else 1 << 40)
        for one, other in ((first, second), (first, second % 7), (second, first % 3)):
            assert order_of_both(one, other).tolist() == np.lexsort((other, one)).tolist()


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("span", [1, 5, 1000, 2**20, 2**45, 2**62])
@pytest.mark.parametrize("skewed", [False, True])
def test_order_on_several_threads(
    count: int, span: int, skewed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "LEAST_ITEMS", 64)
    random = np.random.default_rng(span)
    for rows in (0, 1, 129, 2100, 30_000):
        first, second = random.integers(-span, span, rows), random.integers(0, span, rows)
        if skewed:
            first = np.where(random.random(rows) < 0.9, first % 7, first)
        with threads.use_threads(count) as mapper:
            assert (order_of(first, mapper) == np.argsort(first, kind="stable")).all()
            for one, other in ((first, second), (second, first)):
                assert (order_of_both(one, other, mapper) == np.lexsort((other, one))).all()


@pytest.mark.parametrize("has_run", [True, False])
def test_ties_are_ordered_by_a_further_key(has_run: bool) -> None:
    random = np.random.default_rng(3)
    run, first, second = (random.integers(0, 4, 300) for _ in range(3))
    if not has_run:
        run = np.zeros(300, np.int64)
    order = order_of_both(run, first)
    before = order.copy()
    of_run = run[order] if has_run else np.zeros(0, np.int64)
    settled = sort_ties(second, of_run, first[order], order)
    assert order.tolist() == before.tolist()
    assert sorted(settled.tolist()) == list(range(300))
    assert run[settled].tolist() == run[order].tolist()
    assert first[settled].tolist() == first[order].tolist()
    if has_run:  # ties are short
        assert settled.tolist() == np.lexsort((second, first, run)).tolist()


@given(st.lists(keys, min_size=1, max_size=6))
def test_merged_order_is_the_stable_order_of_the_runs(runs: list[list[int]]) -> None:
    arrays = [np.sort(np.array(run, np.int64)) for run in runs]
    whole = np.concatenate(arrays)
    assert merge_orders(arrays).tolist() == np.argsort(whole, kind="stable").tolist()


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
