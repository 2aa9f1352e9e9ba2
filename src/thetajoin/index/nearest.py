"""The rows of a segment whose primary key is nearest to a probe's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from thetajoin.arrays import empty
from thetajoin.batch.keys import Int64
from thetajoin.index.interval import Interval, interval_of, stack
from thetajoin.index.po_join import PoJoin, Span
from thetajoin.index.probe import Int32, Pairs, Probe
from thetajoin.index.sorted_rows import NO_KEYS
from thetajoin.kernels import emit
from thetajoin.kernels.nearest import (
    ALL,
    FIRST,
    LAST,
    OUTWARD,
    Around,
    SegmentRows,
    Towers,
    Wanted,
    pick,
    pick_in_order,
    pick_one,
)
from thetajoin.kernels.order import gather, order_of
from thetajoin.limits import limits

Direction = Literal["backward", "forward", "nearest"]
Ties = Literal["first", "last", "all"]
TIES: dict[Ties, int] = {"first": FIRST, "last": LAST, "all": ALL}
# What pandas and Polars do by default.
USUAL_TIES: dict[Direction, int] = {"backward": LAST, "forward": FIRST, "nearest": OUTWARD}
FANOUT = 64
_ANY = Interval(None, None)


def nearest_rows(
    index: PoJoin, probe: Probe, keys: Int64, direction: Direction, wanted: Wanted, room: int
) -> Iterator[Pairs]:
    """The nearest rows of each probe as chunks of ``(probe, position)``, a probe's together.

    Positions are those of the primary order, and probes come in no particular one. `keys` are the
    probes' own in the type of the primary key; for byte strings, which have no distance, they are
    ignored. Chunks are overwritten by the next.
    """
    if index.size == 0 or probe.size == 0:
        return
    primary = index.shape.primary
    assert primary is not None
    assert index.primary is not None
    intervals = index._intervals(probe)
    runs = index._runs(probe, intervals)
    tested = index._choose_tested(intervals)
    asked = {dim: intervals[dim] for dim in (primary, *tested)}
    order = None
    if not tested and wanted.k == 1 and wanted.ties != ALL and direction != "nearest":
        found = _pick_one_each(index, asked[primary], runs, direction, wanted.ties)
        some = np.flatnonzero(found >= 0).astype(np.int32)
        yield some, gather(found, some)
        return
    if probe.size >= limits.sorted_probes:
        # Neighbouring probes then visit neighbouring rows.
        order = order_of(keys) if index.run is None else index.by_run(runs[0], keys)
        keys, runs = gather(keys, order), (gather(runs[0], order), gather(runs[1], order))
        asked = {dim: interval.take(order) for dim, interval in asked.items()}
    below, above = (
        _find_span(index, side, runs) for side in _split_interval(asked[primary], keys, direction)
    )
    around, rows = Around(keys, *below, *above), SegmentRows(index.primary, index.rid)
    if not tested and wanted.k == 1 and wanted.ties != ALL:
        found = empty(probe.size, np.int32)
        pick_one(around, rows, wanted.ties, wanted.is_float, found)
        matched = np.flatnonzero(found >= 0)
        probes = matched if order is None else gather(order, matched)
        yield probes.astype(np.int32, copy=False), gather(found, matched)
        return
    low, high = stack([asked[dim] for dim in tested], tuple(range(len(tested))), probe.size)
    at = [index.shape.tested.index(dim) for dim in tested]
    negate = np.array([index.shape.dims[dim].negate for dim in tested], np.bool_)
    tests = emit.Tests(np.ascontiguousarray(index.columns[at]), low, high, negate)
    towers = _build_towers(index.zone_low[at], index.zone_high[at])
    out = emit.Out.of(max(room, wanted.k))
    while out.state[0] < probe.size:
        before = out.state[0]
        if n := pick(around, rows, tests, towers, wanted, out):
            probes = out.probe[:n]
            yield probes if order is None else gather(order, probes), out.row[:n]
        elif out.state[0] == before:  # more rows at one distance than there is room for
            state = out.state
            out = emit.Out.of(2 * out.row.size)
            out.state[:] = state


def _pick_one_each(
    index: PoJoin, asked: Interval, runs: Span, direction: Direction, ties: int
) -> Int32:
    """Each probe's nearest position on one side of its key; -1 if there is none."""
    assert index.primary is not None
    searched = asked.high if direction == "backward" else asked.low
    assert searched is not None
    order = order_of(searched) if index.run is None else index.by_run(runs[0], searched)
    bounds = tuple(
        NO_KEYS if end is None else gather(end, order) for end in (asked.low, asked.high)
    )
    in_order = gather(runs[0], order), gather(runs[1], order)
    out = empty(order.size, np.int32)
    pick_in_order(index.primary, order, bounds, in_order, direction == "backward", ties, out)
    return out


def _split_interval(
    asked: Interval, keys: Int64, direction: Direction
) -> tuple[Interval | None, Interval | None]:
    """The parts of the intervals at or below the probes' keys, and above them."""
    if direction == "nearest":
        return asked & interval_of(">=", keys), asked & interval_of("<", keys)
    return (asked, None) if direction == "backward" else (None, asked)


def _find_span(index: PoJoin, asked: Interval | None, runs: Span) -> Span:
    """The positions of each probe's run that lie in an interval of the primary key."""
    size, primary = runs[0].size, index.shape.primary
    assert primary is not None
    assert index.primary is not None
    if asked is None:
        none = np.zeros(size, np.int32)
        return none, none
    dims = range(len(index.shape.dims))
    probe = Probe(tuple(asked if dim == primary else _ANY for dim in dims), size)
    return index._narrow(probe, primary, asked, index.primary, runs)


def _build_towers(low: NDArray[np.int64], high: NDArray[np.int64]) -> Towers:
    """Extremes of ever larger blocks over those of 64 rows."""
    lows, highs, starts = [low], [high], [0]
    while lows[-1].shape[1] > FANOUT:
        cuts = np.arange(0, lows[-1].shape[1], FANOUT)
        starts.append(starts[-1] + lows[-1].shape[1])
        lows.append(np.minimum.reduceat(lows[-1], cuts, axis=1))
        highs.append(np.maximum.reduceat(highs[-1], cuts, axis=1))
    return Towers(
        np.concatenate(lows, axis=1), np.concatenate(highs, axis=1), np.array(starts, np.int64)
    )
