"""Arrival numbers with and without gaps, against sets of numbers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from thetajoin.index.arrivals import Arrivals

NUMBERS = st.sets(st.integers(100, 300), min_size=1).map(sorted)


@given(numbers=NUMBERS, asked=st.lists(st.integers(90, 310)), wide=st.booleans())
def test_rows_before_counts_smaller_numbers(numbers, asked, wide) -> None:
    # One number far away makes a table of all numbers between too large.
    asked = [*asked, 10**12] if wide else asked
    arrivals = Arrivals.of(np.array(numbers))
    assert (arrivals.first, arrivals.last, arrivals.rows) == (numbers[0], numbers[-1], len(numbers))
    assert arrivals.is_dense == (numbers[-1] - numbers[0] == len(numbers) - 1)
    found = arrivals.rows_before(np.array(asked, np.int64))
    assert found.tolist() == [sum(number < a for number in numbers) for a in asked]


@given(numbers=NUMBERS, cuts=st.sets(st.integers(100, 300), max_size=4))
def test_parts_one_after_another_are_the_whole(numbers, cuts) -> None:
    edges = [0, *sorted(cuts), 1000]
    parts = [[n for n in numbers if a <= n < b] for a, b in pairwise(edges)]
    whole = Arrivals.concat([Arrivals.of(np.array(part)) for part in parts if part])
    assert whole.numbers().tolist() == numbers
    assert len(whole.firsts) == len(Arrivals.of(np.array(numbers)).firsts)


@given(numbers=NUMBERS)
def test_bits_bring_the_numbers_back(numbers) -> None:
    arrivals = Arrivals.of(np.array(numbers))
    again = Arrivals.from_bits(arrivals.first, arrivals.bits())
    assert again.numbers().tolist() == numbers
    assert again.rows == len(numbers)
