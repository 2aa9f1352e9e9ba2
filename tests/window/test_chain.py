"""Which segments are merged: neighbours of one size class, never past the limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetajoin.limits import limits
from thetajoin.window.chain import FANOUT, LARGEST, SEGMENTS, next_merge

UNIT = limits.smallest_class


@pytest.mark.parametrize(
    ("sizes", "bounded", "merged"),
    [
        ([], False, None),
        ([UNIT] * 3, False, None),
        ([UNIT] * 4, False, (0, 4)),
        ([1, 5, 3, 2], False, (0, 4)),
        # A size class holds sizes up to four times as large as the one before it.
        ([4 * UNIT, 1, 1, 1], False, None),
        ([4 * UNIT - 1, 1, 1, 1], False, (0, 4)),
        ([16 * UNIT, 4 * UNIT, 4 * UNIT, 4 * UNIT], False, None),
        ([16 * UNIT - 1, 4 * UNIT, 4 * UNIT, 4 * UNIT], False, (0, 4)),
        ([64 * UNIT, 16 * UNIT, 16 * UNIT, 16 * UNIT], False, None),
        # Smaller ones before a large one go with it.
        ([1, 1, 1, 4 * UNIT], False, (0, 4)),
        # The newest run first; where it is short, those before it.
        ([5 * UNIT] * 4 + [1] * 4, False, (4, 8)),
        ([5 * UNIT] * 4 + [1], False, (0, 4)),
        ([5 * UNIT] * 4 + [1] * 3, False, (0, 4)),
        ([40 * UNIT] * 4 + [5 * UNIT] + [1], False, (0, 4)),
        # More than four go together.
        ([UNIT] * 6, False, (0, 6)),
        # In a window that expires a segment has at most a sixth of the rows, or four units.
        ([2 * UNIT] * 4, True, (0, 2)),
        ([2 * UNIT + 1] * 4, True, None),
        ([UNIT] * 6, True, (0, 4)),
        ([3 * UNIT] * 12, True, (0, 2)),
        ([8 * UNIT] * 12, True, (0, 2)),
        ([8 * UNIT] * 11, True, None),
        # Where the first is too large to take another in, those after it may merge.
        ([4 * UNIT - 1, UNIT, UNIT, UNIT, UNIT], True, (1, 5)),
        ([4 * UNIT - 1, 4 * UNIT - 1, UNIT, UNIT, UNIT], True, None),
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


@given(
    st.lists(st.integers(1, 40 * UNIT), max_size=60),
    st.booleans(),
    st.sampled_from([2, SEGMENTS, 20]),
)
def test_merging_to_the_end_leaves_few_segments_within_the_limit(
    sizes: list[int], bounded: bool, segments: int
) -> None:
    total = sum(sizes)
    limit = max(UNIT * FANOUT, total // segments) if bounded else LARGEST
    while (found := next_merge(sizes, bounded=bounded, segments=segments)) is not None:
        start, end = found
        assert 0 <= start < end - 1 < len(sizes)
        joined = sum(sizes[start:end])
        assert joined <= limit
        sizes = [*sizes[:start], joined, *sizes[end:]]
    assert sum(sizes) == total
    # Each class has at most three, and no two neighbours of those that are too large fit together.
    assert len(sizes) <= 2 * segments + 4 * FANOUT if bounded else len(sizes) <= 4 * FANOUT
