"""The chain of sub-windows: segments by arrival, joined into larger ones, dropped whole.

SPO-Join merges at each slide and PanJoin keeps a fixed number of sub-windows. Here neighbours of
one size class are merged once there are `FANOUT` of them, so a row is moved a few times in its life
and a window has about ``SEGMENTS + 2 * FANOUT`` segments whatever its size and the batches' size.
"""

from __future__ import annotations

from collections.abc import Sequence

from thetajoin.limits import limits

# Neighbours of one size class that make a merge worth while.
FANOUT = 3
# A window's rows go into at least this many segments, so that expiry by whole segments keeps at
# most one part in so many that has passed already.
SEGMENTS = 4
# Row numbers inside a segment are int32.
LARGEST = 1 << 30


def next_merge(
    sizes: Sequence[int], *, bounded: bool, segments: int = SEGMENTS, largest: int = LARGEST
) -> tuple[int, int] | None:
    """Which neighbours ``[start, end)`` to merge next, oldest first; None if all is well.

    `bounded` says that the window expires, which limits a segment to one part in `segments`. None
    is made that has more than `largest` rows.

    >>> next_merge([160_000, 10_000, 10_000, 10_000], bounded=False)
    (1, 4)
    >>> next_merge([160_000, 10_000, 10_000, 10_000], bounded=False, largest=20_000)
    (1, 3)
    """
    limit = largest
    if bounded:
        limit = min(limit, max(limits.smallest_class * FANOUT, sum(sizes) // segments))
    classes = [_size_class(size) for size in sizes]
    end = len(sizes)
    while end > 0:
        start = end - 1
        while start > 0 and classes[start - 1] <= classes[end - 1]:
            start -= 1
        # Where the first is too large already to take another in, those after it may still merge.
        for begin in range(start, end - FANOUT + 1):
            fitting = begin
            total = 0
            while fitting < end and total + sizes[fitting] <= limit:
                total += sizes[fitting]
                fitting += 1
            if fitting - begin >= 2:
                return begin, fitting
        end = start
    return None


def fitting_rows(room: int, rows: int, size: int) -> int:
    """How many rows fit into `room` bytes if `rows` of them take `size`; at least one.

    >>> fitting_rows(1000, 50, 2000)
    25
    """
    return max(1, min(LARGEST, room * rows // max(1, size)))


def _size_class(size: int) -> int:
    result = 0
    size //= limits.smallest_class
    while size >= FANOUT:
        size //= FANOUT
        result += 1
    return result
