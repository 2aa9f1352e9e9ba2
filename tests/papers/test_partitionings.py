"""The paper's partitionings: no match is ever left out, and its own example comes out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import strategies as own
from benchmarks.papers.measures import balance, count_results, measure, spread
from thetajoin.errors import OptionError
from thetajoin.papers.partitionings import (
    NAMED,
    OPERATORS,
    SWITCHES,
    _boundaries,
    find_partitioning,
    partition,
)

STREAMS = st.lists(st.integers(-4, 6) | st.sampled_from([-100, 1000]), max_size=25)
SETTINGS = st.fixed_dictionaries({}, optional=dict.fromkeys(SWITCHES, st.booleans()))


@own.examples(150)
@given(
    STREAMS,
    STREAMS,
    st.sampled_from(OPERATORS),
    st.sampled_from(tuple(NAMED)),
    st.integers(1, 6),
    SETTINGS,
)
def test_every_match_is_in_one_pair_of_partitions(left, right, op, name, p, switches):
    keys = np.array(left, np.float64), np.array(right, np.float64)
    made = partition(*keys, op, find_partitioning(name, p, **switches))
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            if naive.compare(a, op, b):
                first, second = made.left.of[i], made.right.of[j]
                assert first >= 0
                assert second >= 0
                assert made.pairs[first, second]
    measures = measure(*keys, op, made, 3)
    matches = sum(bool(naive.compare(a, op, b)) for a in left for b in right)
    assert measures.results == matches
    assert matches <= measures.cartesian_products <= len(left) * len(right)
    assert measures.balance_in >= 1
    assert measures.balance_out >= 1


def test_amalgamated_boundaries_of_figure_2():
    streams = [np.array([1.0, 5, 9]), np.array([0.0, 4, 8])]
    cuts, same = _boundaries(streams, find_partitioning("prefap", p=3))
    assert cuts.round(2).tolist() == [0, 1, 2.67, 3.67, 5.33, 6.33, 8, 9]
    assert same is cuts


def test_sampled_boundaries_of_figure_2():
    left = np.array([0.0, 1, 2, 3, 4, 5, 6, 7, 9])
    cuts, _ = _boundaries([left, left], find_partitioning("rbm", p=3))
    assert cuts.tolist() == [3, 6]


def test_prefap_compares_less_than_ftj_on_ranges_that_overlap_in_part():
    random = np.random.default_rng(1)
    left, right = random.uniform(20, 50, 1000), random.uniform(10, 40, 1000)
    products = {
        n: partition(left, right, "<=", find_partitioning(n)).cartesian_products for n in NAMED
    }
    results = count_results(left, right, "<=")
    assert results <= products["prefap"] < products["ftj"] < products["cfs"] < products["rbm"]


def test_a_repeated_value_is_not_split_for_ever():
    same = np.full(50, 3.0)
    made = partition(same, same, "<=", find_partitioning("prefap"))
    assert made.left.sizes.tolist() == [50]
    assert made.cartesian_products == 2500


@pytest.mark.parametrize("op", OPERATORS)
def test_counting(op):
    left, right = np.array([1, 2, 2, 5]), np.array([2, 2, 3])
    expected = sum(bool(naive.compare(int(a), op, int(b))) for a in left for b in right)
    assert count_results(left, right, op) == expected


def test_loads():
    inputs, outputs = spread(np.array([5, 4, 3, 2]), np.array([1, 1, 1, 1]), 2)
    assert inputs.tolist() == [7, 7]
    assert balance(np.array([3, 1])) == 1.5
    assert outputs.sum() == 4


@pytest.mark.parametrize(
    ("arguments", "word"),
    [(("fast",), "rbm"), (("ftj", 0), "p=0"), (("ftj", True), "p=True")],
)
def test_mistakes(arguments, word):
    with pytest.raises(OptionError, match=word):
        find_partitioning(*arguments)
    with pytest.raises(OptionError, match="!="):
        partition(np.zeros(1), np.zeros(1), "!=", find_partitioning("ftj"))
