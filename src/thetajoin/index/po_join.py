"""PO-Join: probing an immutable segment of the window (SPO-Join, Section 4.3).

The paper's offset arrays (Algorithm 3) say where one stream's keys fall among the other's; here
they are computed for each batch of probes by a rebounding search, because the probes are not known
when a segment is built.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from thetajoin.arrays import empty, fill, number_rows
from thetajoin.batch.keys import Int64
from thetajoin.index.interval import Interval, stack
from thetajoin.index.probe import Arrivals, Int32, Pairs, Probe, Shape
from thetajoin.index.sorted_rows import NO_KEYS, SortedRows
from thetajoin.kernels import emit
from thetajoin.kernels.order import gather, is_sorted, order_of, order_of_both
from thetajoin.kernels.runs import look_up, rises_in_runs
from thetajoin.kernels.search import (
    first_above,
    first_at_least,
    merge_above,
    merge_at_least,
    narrow,
    narrow_in_order,
)
from thetajoin.kernels.threads import ALONE, Mapper
from thetajoin.limits import limits

Span = tuple[Int32, Int32]

# Estimated costs in ns: testing a row in a scan, testing one that a bit leads to, moving one bit of
# the window, looking at one word of the summary, a probe's fixed part, and sorting a probe by its
# run and bound. Measured with the benchmark `engine`.
TEST_NS, LED_NS, MOVE_NS, SUMMARY_NS, PROBE_NS, SWEEP_NS = 0.7, 2.5, 1.6, 0.6, 12.0, 25.0
SAMPLED_PROBES = 16


@dataclass(frozen=True)
class Drive:
    """What was decided for one batch and one segment: emitter, driving key, estimated ns."""

    kind: str
    key: int | None
    cost: float


@dataclass(frozen=True)
class Spans:
    """Where a batch of probes falls in a segment: ranges of positions, one for each key's order.

    `primary` are ranges of the primary order. For every other key that decides something, `others`
    has its number, the permutation from its order to the primary one and the ranges, and `rising`
    an order of the probes in which these go up. A key of `excluded` is to lie outside of its
    ranges, but inside `runs`.
    """

    runs: Span
    primary: Span
    others: tuple[tuple[int, Int32, Span], ...]
    rising: dict[int, Int32]
    excluded: tuple[tuple[int, Int32, Span], ...]


class PoJoin(SortedRows):
    """A segment that finds the matches of a batch of probes, or the ranges they lie in."""

    def pairs(
        self, probe: Probe, arrivals: Arrivals, *, room: int, once: bool = False
    ) -> list[Iterator[Pairs]]:
        """Matches of a probe batch as streams of ``(probe, row)`` chunks.

        `arrivals` numbers the segment's rows. Chunks have at most `room` pairs and are overwritten
        by the next; the streams may run on different threads.
        """
        if self.size == 0 or probe.size == 0:
            return []
        visible = probe.find_visible(arrivals)
        if visible is None:
            return []
        intervals, runs, (starts, ends), needed, (drive, windows) = self._decide(probe)
        if drive.kind == "bitmap":
            assert drive.key is not None
            order = self._sweep(probe, drive.key, intervals[drive.key], runs[0])
        elif self.shape.primary is not None and self.run is None:
            order = probe.order(self.shape.primary, intervals[self.shape.primary])
        else:
            order = number_rows(probe.size)
        reach = emit.Reach(order, starts, ends, self.rid)
        shown = emit.Shown(*visible, once)
        if drive.kind == "ranges":
            # The cost of copying is the number of rows, so a small batch needs little room.
            rows = int(drive.cost)
            return [_copy_ranges(reach, shown, min(room, rows))] if rows else []
        tested = tuple(i for i in needed if i != drive.key)
        at = [self.shape.tested.index(i) for i in tested]
        columns = self.columns if len(at) == len(self.columns) else self.columns[at]
        low, high = stack(intervals, tested, probe.size)
        negate = np.array([self.shape.dims[i].negate for i in tested], np.bool_)
        tests = emit.Tests(columns, low, high, negate)

        def scan() -> Iterator[Pairs]:
            out = emit.Out.of(room)
            zones = emit.Extremes(self.zone_low[at], self.zone_high[at])
            while out.state[0] < order.size:
                if n := emit.emit_scan(reach, tests, zones, shown, out):
                    yield out.probe[:n], out.row[:n]

        def bitmap(key: int) -> Iterator[Pairs]:
            out = emit.Out.of(room)
            levels = [np.zeros((self.size >> s) + 1, np.uint64) for s in (6, 12, 18)]
            window = emit.Bits(*windows, self._own_order(key)[0], *levels)
            while out.state[0] < order.size:
                if n := emit.emit_bitmap(reach, window, tests, shown, out):
                    yield out.probe[:n], out.row[:n]

        return [scan() if drive.key is None else bitmap(drive.key)]

    def drive(self, probe: Probe) -> Drive:
        """What `pairs` would do for this batch of probes."""
        if self.size == 0 or probe.size == 0:
            return Drive("ranges", None, 0.0)
        return self._decide(probe)[-1][0]

    def finds_runs(self, probes: int) -> bool:
        """Whether this many probes look up their runs in a table, for which they need no order."""
        return self.run is not None and self._is_passed_over(probes)

    def spans(self, probe: Probe, mapper: Mapper = ALONE) -> Spans | None:
        """Ranges instead of pairs; None where two sets of equal keys share a hash."""
        intervals = self._intervals(probe, mapper)
        runs = self._runs(probe, intervals)
        if len(self.shape.run) > 1:
            checked = self._check_keys(intervals, runs)
            if checked is None:
                return None
            runs = checked
        orders: dict[int, tuple[Int32, Int64]] = {}
        if self.shape.primary is not None and self.primary is not None:
            orders[self.shape.primary] = _NO_ROWS, self.primary
        for dim in self._choose_tested(intervals):
            if dim not in self.shape.run:
                plain = not self.shape.dims[dim].negate
                made = self._own_order if plain else self._sort_by
                orders[dim] = made(dim, mapper)
        found: dict[int, Span] = {}

        def search(dim: int) -> None:
            found[dim] = self._narrow(probe, dim, intervals[dim], orders[dim][1], runs)

        mapper(search, list(orders))
        primary = runs if self.shape.primary is None else found.pop(self.shape.primary, runs)
        spans = [(dim, orders[dim][0], span) for dim, span in sorted(found.items())]
        excluded = tuple(span for span in spans if self.shape.dims[span[0]].negate)
        others = tuple(span for span in spans if not self.shape.dims[span[0]].negate)
        rising = {dim: probe.order(dim, intervals[dim]) for dim, *_ in others}
        return Spans(runs, primary, others, {} if self.run is not None else rising, excluded)

    def _decide(
        self, probe: Probe
    ) -> tuple[list[Interval], Span, Span, tuple[int, ...], tuple[Drive, Span]]:
        """Search all keys, then choose.

        Gives intervals, runs, ranges, the keys that ranges leave open, and the choice with a
        bitmap's windows.
        """
        intervals = self._intervals(probe)
        needed = self._choose_tested(intervals)
        runs = self._runs(probe, intervals)
        if len(self.shape.run) > 1 and self.finds_runs(probe.size):
            checked = self._check_keys(intervals, runs)
            if checked is not None:
                runs = checked
                needed = tuple(dim for dim in needed if dim not in self.shape.run)
        ranges = runs
        if self.shape.primary is not None and self.primary is not None:
            asked = intervals[self.shape.primary]
            ranges = self._narrow(probe, self.shape.primary, asked, self.primary, runs)
            ranges, needed = self._narrow_further(probe, intervals, needed, runs, ranges)
        choice = self._choose(probe, intervals, needed, runs, *ranges)
        return intervals, runs, ranges, needed, choice

    def _intervals(self, probe: Probe, mapper: Mapper = ALONE) -> list[Interval]:
        known = zip(probe.intervals, self.dictionaries, strict=True)
        return [asked.against(dictionary, mapper) for asked, dictionary in known]

    def _choose_tested(self, intervals: list[Interval]) -> tuple[int, ...]:
        """The tested keys that some row of the segment could fail."""
        needed = []
        for at, dim in enumerate(self.shape.tested):
            asked, negate = intervals[dim], self.shape.dims[dim].negate
            low, high = self._extremes[at]
            low_holds = asked.low is None or bool((asked.low <= low).all())
            high_holds = asked.high is None or bool((asked.high >= high).all())
            if negate or not (low_holds and high_holds):
                needed.append(dim)
        return tuple(needed)

    def _runs(self, probe: Probe, intervals: list[Interval]) -> Span:
        """Each probe's run of equal keys; the same positions in every key's order."""
        if self.run is None:
            # One run; the two arrays are shared by all keys and never written to.
            return fill(probe.size, 0, np.int32), fill(probe.size, self.size, np.int32)
        lows = [intervals[i].low for i in self.shape.run]
        run = self._combine_keys([low for low in lows if low is not None])
        assert run is not None
        if self.finds_runs(probe.size):
            return look_up(self._table(), run)
        starts, ends = empty(probe.size, np.int32), empty(probe.size, np.int32)
        order = order_of(run)
        first_at_least(self.run, run, order, starts)
        first_above(self.run, run, order, ends)
        return starts, ends

    def _check_keys(self, intervals: list[Interval], runs: Span) -> Span | None:
        """Runs of a hash, empty if the probe's own keys differ; None if the rows' keys do."""
        if self._shares_hash:
            return None
        starts, ends = runs
        fits = starts < ends
        at = np.minimum(starts, max(self.size - 1, 0))
        for dim in self.shape.run:
            asked = intervals[dim].low
            assert asked is not None
            fits &= gather(self._column(dim), at) == asked
        return starts, np.where(fits, ends, starts).astype(np.int32)

    def _narrow(self, probe: Probe, dim: int, asked: Interval, keys: Int64, runs: Span) -> Span:
        """The part of each run, in the order of `keys`, that lies in the probe's interval."""
        if self.run is not None:
            low = asked.low if asked.low is not None else NO_KEYS
            high = asked.high if asked.high is not None else NO_KEYS
            first = high if asked.low is None else low
            if probe.size >= limits.sorted_probes and first.size and self._has_long_runs:
                order = self.by_run(runs[0], first)
                starts, ends = empty(probe.size, np.int32), empty(probe.size, np.int32)
                bounds = tuple(gather(end, order) if end.size else end for end in (low, high))
                in_order = gather(runs[0], order), gather(runs[1], order)
                narrow_in_order(keys, order, bounds, in_order, starts, ends)
                return starts, ends
            starts, ends = runs[0].copy(), runs[1].copy()
            narrow(keys, low, high, asked.low is not None, asked.high is not None, starts, ends)
            return starts, ends
        starts, ends = runs
        if asked.low is not None:
            starts, rising = (
                empty(probe.size, np.int32),
                self._sort_bounds(probe, dim, asked, low=True),
            )
            if rising is not None:
                merge_at_least(keys, rising, probe.order(dim, asked), starts)
            else:
                first_at_least(keys, asked.low, probe.order(dim, asked), starts)
        if asked.high is not None:
            ends, rising = (
                empty(probe.size, np.int32),
                self._sort_bounds(probe, dim, asked, low=False),
            )
            if rising is not None:
                merge_above(keys, rising, probe.order(dim, asked), ends)
            else:
                first_above(keys, asked.high, probe.order(dim, asked), ends)
        return starts, ends

    def by_run(self, starts: Int32, keys: Int64) -> Int32:
        """Probes in the order of the runs that begin at some positions, by a key inside each."""
        runs: Int64 = gather(self._run_numbers, np.minimum(starts, self.size - 1))
        if is_sorted(runs) and rises_in_runs(keys, runs):
            return number_rows(keys.size)
        return order_of_both(runs, keys)

    def _narrow_further(
        self,
        probe: Probe,
        intervals: list[Interval],
        needed: tuple[int, ...],
        runs: Span,
        ranges: Span,
    ) -> tuple[Span, tuple[int, ...]]:
        """Ranges narrowed by all keys that rise with the primary one, and the other keys.

        Successive versions of a record are like that, and sessions: their ends rise with their
        beginnings, so no row in a point's range needs a test.
        """
        if not self._is_passed_over(probe.size):
            return ranges, needed
        others = []
        for dim in needed:
            if dim not in self.shape.setters or not self._follows(dim):
                others.append(dim)
            elif self.run is not None:
                ranges = self._narrow(probe, dim, intervals[dim], self._column(dim), ranges)
            else:
                column = self._column(dim)
                starts, ends = self._narrow(probe, dim, intervals[dim], column, runs)
                ranges = np.maximum(ranges[0], starts), np.minimum(ranges[1], ends)
        return ranges, tuple(others)

    def _is_passed_over(self, probes: int) -> bool:
        """Whether there are enough probes to make one pass over all rows worthwhile."""
        return probes * limits.passed_over >= self.size

    def _sort_bounds(self, probe: Probe, dim: int, asked: Interval, *, low: bool) -> Int64 | None:
        """One end of the intervals in rising order, to merge with keys; None if they are few."""
        if not self._is_passed_over(probe.size):
            return None
        return probe.sort_bounds(dim, asked, low=low)

    def _sweep(self, probe: Probe, dim: int, asked: Interval, run_starts: Int32) -> Int32:
        """The order of probes in which a key's window moves least: by run, then by its bound."""
        order = probe.order(dim, asked)
        if self.run is None:
            return order
        run_of = gather(run_starts, order).astype(np.int64)
        swept: Int32 = gather(order, order_of(run_of))
        return swept

    def _choose(
        self,
        probe: Probe,
        intervals: list[Interval],
        needed: tuple[int, ...],
        runs: Span,
        starts: Int32,
        ends: Int32,
    ) -> tuple[Drive, Span]:
        """Pick the cheapest emitter from exact counts: search positions say how long ranges are."""
        nothing = (_NO_ROWS, _NO_ROWS)
        reach = float(emit.count_reached(starts, ends))
        if not needed:
            return Drive("ranges", None, reach), nothing
        touched = self._estimate_blocks(probe, intervals, needed, starts, ends)
        tests = min(touched * 64, reach) * TEST_NS * len(needed)
        best = Drive("scan", None, reach / 64 * limits.block_ns + tests)
        chosen = nothing
        each = PROBE_NS if self.run is None else PROBE_NS + SWEEP_NS
        least = reach / 262_144 * SUMMARY_NS + probe.size * each
        for dim in self.shape.setters:
            if dim not in needed or best.cost <= least:
                continue
            _, values = self._own_order(dim)
            begins, finishes = self._narrow(probe, dim, intervals[dim], values, runs)
            order = self._sweep(probe, dim, intervals[dim], runs[0])
            cost = least + emit.count_moves(order, begins, finishes) * MOVE_NS
            if len(needed) > 1:  # the other keys are tested for each bit
                led_to = emit.estimate_bits(starts, ends, begins, finishes, *runs)
                cost += led_to * LED_NS * (len(needed) - 1)
            if cost < best.cost:
                best, chosen = Drive("bitmap", dim, cost), (begins, finishes)
        return best, chosen

    def _estimate_blocks(
        self,
        probe: Probe,
        intervals: list[Interval],
        needed: tuple[int, ...],
        starts: Int32,
        ends: Int32,
    ) -> float:
        """Blocks that a scan could not skip, estimated from a few probes."""
        sample = np.unique(np.linspace(0, probe.size - 1, SAMPLED_PROBES).astype(np.int64))
        at = [self.shape.tested.index(i) for i in needed]
        taken = [interval.take(sample) for interval in intervals]
        low, high = stack(taken, needed, sample.size)
        negate = np.array([self.shape.dims[i].negate for i in needed], np.bool_)
        blocks = emit.count_blocks(
            starts[sample], ends[sample], self.zone_low[at], self.zone_high[at], low, high, negate
        )
        return float(blocks) * probe.size / sample.size


_NO_ROWS: Int32 = np.zeros(0, np.int32)


def _copy_ranges(reach: emit.Reach, shown: emit.Shown, room: int) -> Iterator[Pairs]:
    """Every row of each probe's range."""
    out = emit.Out.of(room)
    while out.state[0] < reach.order.size:
        if n := emit.emit_ranges(reach, shown, out):
            yield out.probe[:n], out.row[:n]


class Head:
    """Keys of the newest rows, appended; at most `capacity` of them.

    A head and those that `with_rows` makes of it share their arrays; each uses the first `size`
    rows.
    """

    def __init__(self, shape: Shape, capacity: int) -> None:
        """An empty head. Keys that need a dictionary cannot be held here."""
        assert not any(dim.is_bytes for dim in shape.dims)
        self.shape = shape
        self.size = 0
        self.keys = np.empty((len(shape.dims), capacity), np.int64)
        self.rid = np.empty(capacity, np.int32)
        self._negate = np.array([dim.negate for dim in shape.dims], np.bool_)

    @property
    def nbytes(self) -> int:
        """Bytes held, used or not."""
        return int(self.keys.nbytes + self.rid.nbytes)

    def append(self, keys: list[Int64], rid: NDArray[np.int32]) -> None:
        """Add rows at the end; O(rows)."""
        end = self.size + rid.size
        for at, key in enumerate(keys):
            self.keys[at, self.size : end] = key
        self.rid[self.size : end] = rid
        self.size = end

    def with_rows(self, keys: list[Int64], rid: NDArray[np.int32]) -> Head:
        """A head with these rows as well; this one stays as it is. O(rows).

        Only one of the heads made from this one may be used: they lie in the same place.
        """
        longer = copy.copy(self)
        longer.append(keys, rid)
        return longer

    def clear(self) -> None:
        """Forget all rows."""
        self.size = 0

    def rows(self) -> tuple[list[Int64], NDArray[np.int32]]:
        """The keys and row numbers held, as copies."""
        return [key[: self.size].copy() for key in self.keys], self.rid[: self.size].copy()

    def pairs(
        self, probe: Probe, arrivals: Arrivals, *, room: int, once: bool = False
    ) -> list[Iterator[Pairs]]:
        """Matches of a probe batch; O(probes x rows / SIMD width)."""
        if self.size == 0 or probe.size == 0:
            return []
        visible = probe.find_visible(arrivals)
        if visible is None:
            return []
        args = self.keys, self.rid, self.size, self._negate, probe, visible
        return [scan_head(*args, room=room, once=once)]

    def _check(self) -> None:
        """Verify the invariants."""
        assert 0 <= self.size <= self.rid.size == self.keys.shape[1]
        assert np.unique(self.rid[: self.size]).size == self.size


def scan_head(
    keys: Int64,
    rid: NDArray[np.int32],
    rows: int,
    negate: NDArray[np.bool_],
    probe: Probe,
    visible: tuple[bool, Int64, Int64],
    *,
    room: int,
    once: bool,
) -> Iterator[Pairs]:
    """Every probe against the first `rows` rows, in chunks; O(probes x rows / SIMD width)."""
    intervals = [i for i in probe.intervals if isinstance(i, Interval)]
    low, high = stack(intervals, tuple(range(len(intervals))), probe.size)
    order = np.arange(probe.size, dtype=np.int32)
    tests = emit.Tests(keys, low, high, negate)
    shown = emit.Shown(*visible, once)
    out = emit.Out.of(room)
    while out.state[0] < order.size:
        n = emit.emit_head(order, rows, rid, tests, shown, out)
        if n:
            yield out.probe[:n], out.row[:n]
