"""Arrival numbers with and without gaps, against sets of numbers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetajoin.index.probe import Arrivals

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


@given(numbers=NUMBERS, data=st.data())
def test_a_slice_has_the_numbers_of_its_rows(numbers, data) -> None:
    start = data.draw(st.integers(0, len(numbers) - 1))
    rows = data.draw(st.integers(1, len(numbers) - start))
    part = Arrivals.of(np.array(numbers)).slice(start, rows)
    again = Arrivals.of(np.array(numbers[start : start + rows]))
    assert part.rows == rows
    assert part.firsts.tolist() == again.firsts.tolist()
    assert part.starts.tolist() == again.starts.tolist()


@given(numbers=NUMBERS)
def test_bits_bring_the_numbers_back(numbers) -> None:
    arrivals = Arrivals.of(np.array(numbers))
    again = Arrivals.from_bits(arrivals.first, arrivals.bits())
    assert again.numbers().tolist() == numbers
    assert again.rows == len(numbers)


def gapped(*numbers: int) -> Arrivals:
    return Arrivals.of(np.array(numbers))


def test_rows_before_by_hand() -> None:
    numbers = gapped(10, 11, 12, 20, 21, 30)
    asked = [9, 10, 11, 13, 19, 20, 21, 22, 30, 31]
    for far in (0, 10**12):  # with a number far away, no table of all between is made
        found = numbers.rows_before(np.array([*asked, 40 + far]))
        assert found.tolist() == [0, 0, 1, 3, 3, 3, 4, 5, 5, 6, 6]
    assert numbers.rows_before(np.zeros(0, np.int64)).tolist() == []


@pytest.mark.parametrize(
    "parts",
    [
        [[5, 6], [7, 8], [9]],
        [[5, 6], [8, 9], [10]],
        [[5, 6], [7, 8], [10]],
        [[5, 7], [8, 9]],
        [[5, 6], [7, 9]],
        [[5, 7], [9, 11], [12, 14]],
        [[1], [5], [9, 10], [11, 12, 13], [20]],
    ],
)
def test_parts_with_gaps_between_and_inside(parts: list[list[int]]) -> None:
    numbers = [number for part in parts for number in part]
    whole = Arrivals.concat([gapped(*part) for part in parts])
    assert whole.numbers().tolist() == numbers
    assert (whole.first, whole.last, whole.rows) == (numbers[0], numbers[-1], len(numbers))
    assert whole.firsts.tolist() == gapped(*numbers).firsts.tolist()
    assert whole.starts.tolist() == gapped(*numbers).starts.tolist()


@pytest.mark.parametrize(("last", "size"), [(107, 1), (108, 2)])
def test_a_bit_for_each_number_and_no_more(last: int, size: int) -> None:
    assert len(gapped(100, last).bits()) == size
