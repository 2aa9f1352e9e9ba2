"""The RaP-Table's splitters (PanJoin, Algorithm 1)."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.papers.structures import distributions
from thetajoin.papers.kernels.llat import Histograms, adjust_splitters
from thetajoin.papers.structures.rap_table import RapPartitions, first_splitters


def filled(splitters: np.ndarray, keys: np.ndarray) -> RapPartitions:
    table = RapPartitions(splitters, keys.size, 1.25)
    order = np.argsort(keys, kind="stable").astype(np.int32)
    table.insert(order, keys, np.arange(keys.size, dtype=np.int32))
    table._check()
    return table


def test_new_splitters_lie_between_a_partitions_smallest_and_largest_key() -> None:
    """The paper's formula without the smallest key would put all of them below 1,000 here."""
    keys = 10**6 + np.arange(1000)
    table = filled(np.array([10**6 + 1, 10**6 + 2, 10**6 + 3]), keys)
    assert table.adjust().tolist() == pytest.approx([10**6 + 250, 10**6 + 500, 10**6 + 750], abs=5)
    assert filled(table.adjust(), keys).imbalance() < 0.02


def test_one_splitter_for_each_balancing_indicator() -> None:
    """A histogram of 2, 3, 5 and 6 rows, 16 in all: splitters after 4, 8 and 12 of them."""
    out = np.empty(3, np.int64)
    histograms = Histograms(
        np.array([2, 3, 5, 6]), np.array([0, 10, 20, 30]), np.array([9, 19, 29, 39])
    )
    adjust_splitters(histograms, out)
    assert out.tolist() == [10 + int(2 / 3 * 9), 20 + int(3 / 5 * 9), 30 + int(2 / 6 * 9)]


@pytest.mark.parametrize("name", ["normal", "multimodal", "zipf"])
def test_three_adjustments_balance(name: str) -> None:
    random = np.random.default_rng(5)
    splitters = np.arange(1, 1024) * ((1 << 31) // 1024)
    for _ in range(3):
        splitters = filled(splitters, distributions(random, 100_000)[name]).adjust()
    assert filled(splitters, distributions(random, 100_000)[name]).imbalance() <= 0.25


def test_first_splitters_at_the_ends_of_the_range() -> None:
    limits = np.iinfo(np.int64)
    splitters = first_splitters(np.array([limits.min, limits.max]), 8)
    assert (np.diff(splitters.astype(object)) >= 0).all()
    assert splitters.size == 7
