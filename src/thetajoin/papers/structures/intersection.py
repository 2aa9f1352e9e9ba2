"""Several predicates at once over one ordered component each (SPO-Join Section 4.1).

Each predicate's rows become a bitset, and the bitsets are ANDed; or each becomes a hash set, and
the sets are intersected, which is what the paper compares with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from thetajoin.batch.keys import Int64
from thetajoin.errors import OptionError
from thetajoin.index.interval import Interval
from thetajoin.index.probe import Pairs, Probe, Shape
from thetajoin.kernels.emit import Out, Shown
from thetajoin.papers.kernels.linked import emit_bitsets, intersect_sets
from thetajoin.papers.structures.structure import Component, ends, find_driver

# Slots that a hash set starts with, as a common library's does.
_INITIAL = 16
KINDS = ("bitset", "hash", "test")


def check_intersection(kind: str) -> str:
    """A known way to intersect, or an error that names them."""
    if kind not in KINDS:
        raise OptionError(f"intersection={kind!r}: must be one of {', '.join(KINDS)}")
    return kind


class Intersection:
    """How the predicates of a shape meet: as bitsets or as hash sets."""

    def __init__(self, shape: Shape, kind: str) -> None:
        # The first set must be that of a predicate that is not an exclusion.
        drive = find_driver(shape)
        self.dims = (drive, *(i for i in range(len(shape.dims)) if i != drive))
        self.kind = kind
        self._negate = np.array([shape.dims[i].negate for i in self.dims], np.bool_)

    def stream(
        self,
        components: Sequence[Component],
        probe: Probe,
        visible: tuple[bool, Int64, Int64],
        first: int,
        last: int,
        *,
        room: int,
        once: bool,
    ) -> Iterator[Pairs]:
        """Pairs with the rows ``first`` to ``last``, of which each component has its key."""
        order = np.arange(probe.size, dtype=np.int32)
        lows, highs, cursors = [], [], []
        for dim in self.dims:
            asked = probe.intervals[dim]
            assert isinstance(asked, Interval)
            low, high = ends(asked, probe.size)
            lows.append(low)
            highs.append(high)
            cursors.append(components[dim].cursors(order, low, high))
        storages = tuple(components[dim].storage() for dim in self.dims)
        sets = tuple(cursors), tuple(lows), tuple(highs), components[0].in_order, storages
        if self.kind == "hash":
            yield from self._intersect_hashes(sets, probe.size, visible, room, once)
            return
        rows = last - first + 1
        bits, result = (np.zeros((rows + 63) // 64 + 1, np.uint64) for _ in range(2))
        out, shown = Out.of(room), Shown(*visible, once)
        while out.state[0] < probe.size:
            n = emit_bitsets(order, sets, self._negate, first, rows, shown, bits, result, out)
            if n:
                yield out.probe[:n], out.row[:n]

    def _intersect_hashes(
        self,
        sets: tuple[object, ...],
        probes: int,
        visible: tuple[bool, Int64, Int64],
        room: int,
        once: bool,
    ) -> Iterator[Pairs]:
        see, low, high = visible
        for p in range(probes):
            rows = intersect_sets(p, *sets, self._negate, _INITIAL)
            if see:
                rows = rows[(rows >= low[p]) & (rows <= high[p])]
            if once:
                rows = rows[:1]
            for start in range(0, rows.size, room):
                chunk = rows[start : start + room]
                yield np.full(chunk.size, p, np.int32), chunk
