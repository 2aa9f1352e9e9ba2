"""Which segments are merged: neighbours of one size class, never past the limit."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetajoin.engine.store import FANOUT, LARGEST, SEGMENTS, next_merge
from thetajoin.limits import limits

UNIT = limits.smallest_class


@pytest.mark.parametrize(
    ("sizes", "bounded", "merged"),
    [
        ([], False, None),
        ([UNIT] * 2, False, None),
        ([UNIT] * 3, False, (0, 3)),
        ([1, 5, 3], False, (0, 3)),
        # A size class holds sizes up to three times as large as the one before it.
        ([3 * UNIT, 1, 1], False, None),
        ([3 * UNIT - 1, 1, 1], False, (0, 3)),
        ([9 * UNIT, 3 * UNIT, 3 * UNIT], False, None),
        ([9 * UNIT - 1, 3 * UNIT, 3 * UNIT], False, (0, 3)),
        ([27 * UNIT, 9 * UNIT, 9 * UNIT], False, None),
        # Smaller ones before a large one go with it.
        ([1, 1, 3 * UNIT], False, (0, 3)),
        # The newest run first; where it is short, those before it.
        ([4 * UNIT] * 3 + [1] * 3, False, (3, 6)),
        ([4 * UNIT] * 3 + [1], False, (0, 3)),
        ([4 * UNIT] * 3 + [1] * 2, False, (0, 3)),
        ([40 * UNIT] * 3 + [4 * UNIT] + [1], False, (0, 3)),
        # More than three go together.
        ([UNIT] * 5, False, (0, 5)),
        # In a window that expires a segment has at most a quarter of the rows, or three units.
        ([UNIT + UNIT // 2] * 3, True, (0, 2)),
        ([UNIT + UNIT // 2 + 1] * 3, True, None),
        ([UNIT] * 5, True, (0, 3)),
        ([3 * UNIT] * 8, True, (0, 2)),
        ([8 * UNIT] * 8, True, (0, 2)),
        ([8 * UNIT] * 7, True, None),
        # Where the first is too large to take another in, those after it may merge.
        ([3 * UNIT - 1, UNIT, UNIT, UNIT], True, (1, 4)),
        ([3 * UNIT - 1, 3 * UNIT - 1, UNIT, UNIT], True, None),
        ([LARGEST // 2] * 4, False, (0, 2)),
        ([LARGEST // 2 + 1] * 4, False, None),
    ],
)
def test_by_hand(sizes: list[int], bounded: bool, merged: tuple[int, int] | None) -> None:
    assert next_merge(sizes, bounded=bounded) == merged


def test_the_limit_follows_the_number_of_segments_asked_for() -> None:
    sizes = [8 * UNIT] * 8
    assert next_merge(sizes, bounded=True, segments=2) == (0, 4)
    assert next_merge(sizes, bounded=True, segments=4) == (0, 2)
    assert next_merge(sizes, bounded=True, segments=5) is None


@pytest.mark.parametrize("bounded", [False, True])
def test_no_segment_has_more_rows_than_the_largest_may(bounded: bool) -> None:
    sizes = [8 * UNIT] * 40
    assert next_merge(sizes, bounded=bounded, largest=16 * UNIT) == (0, 2)
    assert next_merge(sizes, bounded=bounded, largest=16 * UNIT - 1) is None


@given(
    st.lists(st.integers(1, 40 * UNIT), max_size=60),
    st.booleans(),
    st.sampled_from([2, SEGMENTS, 20]),
    st.sampled_from([1, 5 * UNIT, LARGEST]),
)
def test_merging_to_the_end_leaves_few_segments_within_the_limit(
    sizes: list[int], bounded: bool, segments: int, largest: int
) -> None:
    total = sum(sizes)
    limit = max(UNIT * FANOUT, total // segments) if bounded else LARGEST
    limit = min(limit, largest)
    due = partial(next_merge, bounded=bounded, segments=segments, largest=largest)
    while (found := due(sizes)) is not None:
        start, end = found
        assert 0 <= start < end - 1 < len(sizes)
        joined = sum(sizes[start:end])
        assert joined <= limit
        sizes = [*sizes[:start], joined, *sizes[end:]]
    assert sum(sizes) == total
    # Each class has at most three, and no two neighbours of those that are too large fit together.
    if largest == LARGEST:
        assert len(sizes) <= 2 * segments + 4 * FANOUT if bounded else len(sizes) <= 4 * FANOUT
    elif largest > UNIT:
        assert len(sizes) <= 4 * total / limit + 4 * FANOUT
