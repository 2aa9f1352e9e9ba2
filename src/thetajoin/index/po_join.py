"""PO-Join: an immutable segment of the window (SPO-Join, Sections 4.2 and 4.3).

Rows stand in the order of the primary key. For each further key the segment keeps its sorted values
and the permutation from that order to the primary one (Algorithm 2). The paper's offset arrays
(Algorithm 3) say where one stream's keys fall among the other's; here they are computed for each
batch of probes by a rebounding search, because the probes are not known when a segment is built.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thetajoin.batch.keys import BytesKey, Int64, Key, mixed
from thetajoin.index.arrivals import Arrivals
from thetajoin.index.interval import Dictionary, Interval
from thetajoin.index.shape import Probe, Shape
from thetajoin.kernels import emit
from thetajoin.kernels.memory import empty
from thetajoin.kernels.order import (
    gather,
    gather_into,
    inverse,
    is_sorted,
    merged_order,
    order_of,
    order_of_both,
    with_ties_by,
)
from thetajoin.kernels.runs import (
    RunTable,
    count_distinct,
    look_up,
    rises_in_runs,
    run_table,
    same_in_runs,
)
from thetajoin.kernels.search import (
    first_above,
    first_at_least,
    merge_above,
    merge_at_least,
    narrow,
    narrow_in_order,
)
from thetajoin.limits import limits

Int32 = NDArray[np.int32]
Span = tuple[Int32, Int32]
Pairs = tuple[Int32, Int32]
# Calls a function with each of several items, possibly on several threads.
Mapper = Callable[[Callable[[Any], Any], Sequence[Any]], Sequence[Any]]

# Estimated cost in ns: testing a row, looking at a block's extremes, moving one bit of the window,
# looking at one word of the summary, a probe's fixed part, and sorting a probe by its run and
# bound. Measured with `bench engine`.
TEST_NS, MOVE_NS, SUMMARY_NS, PROBE_NS, SWEEP_NS = 0.7, 1.6, 0.6, 12.0, 25.0
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


class PoJoin:
    """An immutable index over one segment's rows that have all keys."""

    def __init__(
        self,
        shape: Shape,
        keys: Sequence[Key],
        rid: Int32,
        mapper: Mapper | None = None,
        orders: Callable[[int], Int32] | None = None,
    ) -> None:
        """Build from keys in any row order; `rid` numbers the rows. O(n log n), 60 ns a row.

        `orders` gives the order of an integer key, where the caller has use for it as well.
        """
        self.shape = shape
        self.size = len(rid)
        self.run: Int64 | None
        self.primary: Int64 | None
        self.dictionaries: list[Dictionary | None] = []
        values: list[Int64] = []
        for key in keys:
            if isinstance(key, BytesKey):
                dictionary, ranks = key.dictionary()
                self.dictionaries.append(Dictionary.of(dictionary))
                values.append(ranks)
            else:
                self.dictionaries.append(None)
                values.append(key)
        run = self._mixed([values[i] for i in shape.run])
        primary = shape.primary

        def order_by(dim: int | None) -> Int32:
            if dim is None:
                return np.arange(self.size, dtype=np.int32) if run is None else order_of(run)
            if run is not None:
                return order_of_both(run, values[dim])
            if orders is not None and self.dictionaries[dim] is None:
                return orders(dim)
            return order_of(values[dim])

        each = mapper or _sequential
        # Inside runs of equal keys the other orders are seldom needed, and made when they are.
        own = shape.setters if run is None else ()
        by_primary, *by_own = each(order_by, (primary, *own))
        sorters = run, None if primary is None else values[primary]
        self.run, self.primary = each(
            lambda keys: None if keys is None else gather(keys, by_primary), sorters
        )
        if self.primary is not None and shape.setters and not shape.stable:
            # Where the first key ties, the next one decides: it may then rise with the first.
            second = values[shape.setters[0]]
            by_primary = with_ties_by(second, self._run_or_none, self.primary, by_primary)
        self.columns = np.empty((len(shape.tested), self.size), np.int64)
        self.sorted: dict[int, Int64] = {}
        self.perm: dict[int, Int32] = {}
        self._lock = threading.Lock()

        def in_primary_order() -> None:
            self.rid: Int32 = gather(rid, by_primary)
            for at, dim in enumerate(shape.tested):
                gather_into(values[dim], by_primary, self.columns[at])
            self.zone_low, self.zone_high = _zones(self.columns)

        def in_own_order() -> None:
            where = inverse(by_primary) if own else by_primary
            for dim, order in zip(own, by_own, strict=True):
                self.sorted[dim] = gather(values[dim], order)
                self.perm[dim] = gather(where, order)

        each(lambda fill: fill(), (in_primary_order, in_own_order))
        self._measure()

    def _measure(self) -> None:
        """Note each tested column's extremes; what else can be told of the rows is not yet."""
        self._runs_by_key: RunTable | None = None
        self._rises: dict[int, bool] = {}
        self._extremes = [
            (low.min(), high.max())
            for low, high in zip(self.zone_low, self.zone_high, strict=True)
            if self.size
        ]

    @cached_property
    def extremes(self) -> dict[int, tuple[int, int]]:
        """The smallest and largest value of each key that an interval must reach for a match."""
        if not self.size:
            return {}
        found = dict(zip(self.shape.tested, self._extremes, strict=True))
        if self.shape.primary is not None and self.primary is not None:
            ends = self.primary[[0, -1]] if self.run is None else self.primary
            found[self.shape.primary] = ends.min(), ends.max()
        if self.run is not None and len(self.shape.run) == 1:
            found[self.shape.run[0]] = self.run[0], self.run[-1]
        return {
            dim: (int(low), int(high))
            for dim, (low, high) in found.items()
            if not self.shape.dims[dim].negate and self.dictionaries[dim] is None
        }

    def arrays(self) -> dict[str, NDArray[Any] | None]:
        """Everything the index consists of, by name; `from_arrays` takes it back."""
        for dim in self.shape.setters:
            self._own_order(dim)
        return self._held()

    def _held(self) -> dict[str, NDArray[Any] | None]:
        """The arrays that there are by now."""
        named: dict[str, NDArray[Any] | None] = {
            name: getattr(self, name)
            for name in ("rid", "run", "primary", "columns", "zone_low", "zone_high")
        }
        for dim in sorted(self.perm):
            named[f"sorted {dim}"], named[f"perm {dim}"] = self.sorted[dim], self.perm[dim]
        for dim, dictionary in enumerate(self.dictionaries):
            if dictionary is not None:
                named[f"offsets {dim}"], named[f"data {dim}"] = dictionary.offsets, dictionary.data
        return named

    @classmethod
    def from_arrays(cls, shape: Shape, named: Mapping[str, Any]) -> PoJoin:
        """The index that `arrays` described, without building or copying anything."""
        index = cls.__new__(cls)
        index.shape = shape
        for name in ("rid", "run", "primary", "columns", "zone_low", "zone_high"):
            setattr(index, name, named[name])
        index.size = len(index.rid)
        index.sorted = {dim: named[f"sorted {dim}"] for dim in shape.setters}
        index.perm = {dim: named[f"perm {dim}"] for dim in shape.setters}
        index.dictionaries = [
            Dictionary(named[f"offsets {dim}"], named[f"data {dim}"]) if spec.is_bytes else None
            for dim, spec in enumerate(shape.dims)
        ]
        index._lock = threading.Lock()
        index._measure()
        return index

    @staticmethod
    def _mixed(keys: list[Int64]) -> Int64 | None:
        """One run key: the equality key itself, or a hash of several (each is tested as well)."""
        if not keys:
            return None
        if len(keys) == 1:
            return keys[0]
        return mixed(keys)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays of the index."""
        return sum(array.nbytes for array in self._held().values() if array is not None)

    def keys(self) -> list[Key]:
        """The keys again, in primary order as `rid` is: what a merge starts from."""
        result: list[Key] = []
        for dim, dictionary in enumerate(self.dictionaries):
            values = self._column(dim)
            result.append(values if dictionary is None else dictionary.take(values >> 1))
        return result

    def primary_keys(self, positions: Int32) -> Key:
        """The primary keys at positions of the primary order."""
        assert self.shape.primary is not None
        assert self.primary is not None
        values = gather(self.primary, positions)
        dictionary = self.dictionaries[self.shape.primary]
        return values if dictionary is None else dictionary.take(values >> 1)

    def _column(self, dim: int) -> Int64:
        if dim == self.shape.primary:
            assert self.primary is not None
            return self.primary
        if dim in self.shape.tested:
            column: Int64 = self.columns[self.shape.tested.index(dim)]
            return column
        assert self.run is not None
        return self.run

    @classmethod
    def merge(cls, parts: Sequence[PoJoin], offsets: Sequence[int]) -> PoJoin:
        """One segment of several; part `i`'s row numbers are moved up by ``offsets[i]``."""
        shape = parts[0].shape
        rid = np.concatenate([p.rid + np.int32(o) for p, o in zip(parts, offsets, strict=True)])
        columns = zip(*(part.keys() for part in parts), strict=True)
        keys = [concat_keys(list(column)) for column in columns]
        # Inside runs of equal keys the parts' orders are by run first, and so of no use here.
        orders = None if shape.run else partial(_merged_order, parts)
        return cls(shape, keys, rid, orders=orders)

    def _intervals(self, probe: Probe) -> list[Interval]:
        return [i.against(d) for i, d in zip(probe.intervals, self.dictionaries, strict=True)]

    def _runs(self, probe: Probe, intervals: list[Interval]) -> Span:
        """Each probe's run of equal keys; the same positions in every key's order."""
        if self.run is None:
            # One run; the two arrays are shared by all keys and never written to.
            return np.zeros(probe.size, np.int32), np.full(probe.size, self.size, np.int32)
        lows = [intervals[i].low for i in self.shape.run]
        run = self._mixed([low for low in lows if low is not None])
        assert run is not None
        if self.finds_runs(probe.size):
            return look_up(self._table(), run)
        starts, ends = np.empty(probe.size, np.int32), np.empty(probe.size, np.int32)
        order = order_of(run)
        first_at_least(self.run, run, order, starts)
        first_above(self.run, run, order, ends)
        return starts, ends

    def finds_runs(self, probes: int) -> bool:
        """Whether so many probes' runs are looked up in a table, so that they need no order."""
        return self.run is not None and self._is_passed_over(probes)

    def _is_passed_over(self, probes: int) -> bool:
        """Whether there are probes enough to look at every row once."""
        return probes * limits.passed_over >= self.size

    @cached_property
    def _has_long_runs(self) -> bool:
        """Whether a search inside a run takes longer than bringing the probes into its order."""
        return self.run is not None and self.size > limits.long_run * count_distinct(self.run)

    @property
    def _run_or_none(self) -> Int64:
        """The rows' run keys; an empty array where all rows are one run."""
        return NO_KEYS if self.run is None else self.run

    def _table(self) -> RunTable:
        """The table of all runs; made once."""
        assert self.run is not None
        with self._lock:
            if self._runs_by_key is None:
                self._runs_by_key = run_table(self.run)
            return self._runs_by_key

    def _follows(self, dim: int) -> bool:
        """Whether a tested key goes up with the primary one inside each run."""
        if dim not in self._rises:
            self._rises[dim] = rises_in_runs(self._column(dim), self._run_or_none)
        return self._rises[dim]

    def _own_order(self, dim: int) -> tuple[Int32, Int64]:
        """The permutation from a further key's order to the primary one, and the sorted values."""
        with self._lock:
            if dim not in self.perm:
                self.perm[dim], self.sorted[dim] = self._ordered(dim)
            return self.perm[dim], self.sorted[dim]

    def _narrowed(self, probe: Probe, dim: int, asked: Interval, keys: Int64, runs: Span) -> Span:
        """The part of each run, in the order of `keys`, that lies in the probe's interval."""
        if self.run is not None:
            starts, ends = runs[0].copy(), runs[1].copy()
            low = asked.low if asked.low is not None else NO_KEYS
            high = asked.high if asked.high is not None else NO_KEYS
            first = high if asked.low is None else low
            if probe.size >= limits.sorted_probes and first.size and self._has_long_runs:
                narrow_in_order(keys, _by_run(starts, first), (low, high), starts, ends)
                return starts, ends
            narrow(keys, low, high, asked.low is not None, asked.high is not None, starts, ends)
            return starts, ends
        starts, ends = runs
        if asked.low is not None:
            starts, rising = empty(probe.size, np.int32), self._rising(probe, dim, asked, low=True)
            if rising is not None:
                merge_at_least(keys, rising, probe.order(dim, asked), starts)
            else:
                first_at_least(keys, asked.low, probe.order(dim, asked), starts)
        if asked.high is not None:
            ends, rising = empty(probe.size, np.int32), self._rising(probe, dim, asked, low=False)
            if rising is not None:
                merge_above(keys, rising, probe.order(dim, asked), ends)
            else:
                first_above(keys, asked.high, probe.order(dim, asked), ends)
        return starts, ends

    def _rising(self, probe: Probe, dim: int, asked: Interval, *, low: bool) -> Int64 | None:
        """One end of the intervals in their order, to pass over all keys with; None if few."""
        if not self._is_passed_over(probe.size):
            return None
        return probe.rising(dim, asked, low=low)

    def _sweep(self, probe: Probe, dim: int, asked: Interval, run_starts: Int32) -> Int32:
        """The order of probes in which a key's window moves least: by run, then by its bound."""
        order = probe.order(dim, asked)
        if self.run is None:
            return order
        run_of = gather(run_starts, order).astype(np.int64)
        swept: Int32 = gather(order, order_of(run_of))
        return swept

    def pairs(
        self, probe: Probe, arrivals: Arrivals, *, room: int, once: bool = False
    ) -> list[Iterator[Pairs]]:
        """Matches of a probe batch as streams of ``(probe, row)`` chunks.

        `arrivals` numbers the segment's rows. Chunks have at most `room` pairs and are overwritten
        by the next; the streams may run on different threads.
        """
        if self.size == 0 or probe.size == 0:
            return []
        visible = probe.visible(arrivals)
        if visible is None:
            return []
        intervals, runs, (starts, ends), needed, (drive, windows) = self._decide(probe)
        if drive.kind == "bitmap":
            assert drive.key is not None
            order = self._sweep(probe, drive.key, intervals[drive.key], runs[0])
        elif self.shape.primary is not None and self.run is None:
            order = probe.order(self.shape.primary, intervals[self.shape.primary])
        else:
            order = np.arange(probe.size, dtype=np.int32)
        reach = emit.Reach(order, starts, ends, self.rid)
        shown = emit.Shown(*visible, once)
        if drive.kind == "ranges":
            # The cost of a copy is the number of rows; a small batch needs little room.
            rows = int(drive.cost)
            return [_ranges(reach, shown, min(room, rows))] if rows else []
        tested = tuple(i for i in needed if i != drive.key)
        at = [self.shape.tested.index(i) for i in tested]
        columns = self.columns if len(at) == len(self.columns) else self.columns[at]
        low, high = stack(intervals, tested, probe.size)
        negate = np.array([self.shape.dims[i].negate for i in tested], np.bool_)
        tests = emit.Tests(columns, low, high, negate)

        def scan() -> Iterator[Pairs]:
            out = emit.Out.of(room)
            zones = emit.Zones(self.zone_low[at], self.zone_high[at])
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

    def _decide(
        self, probe: Probe
    ) -> tuple[list[Interval], Span, Span, tuple[int, ...], tuple[Drive, Span]]:
        """Search all keys, then choose.

        Gives intervals, runs, ranges, the keys that ranges leave open, and the choice with a
        bitmap's windows.
        """
        intervals = self._intervals(probe)
        needed = self._needed(intervals)
        runs = self._runs(probe, intervals)
        if len(self.shape.run) > 1 and self.finds_runs(probe.size):
            checked = self._same_keys(intervals, runs)
            if checked is not None:
                runs = checked
                needed = tuple(dim for dim in needed if dim not in self.shape.run)
        ranges = runs
        if self.shape.primary is not None and self.primary is not None:
            asked = intervals[self.shape.primary]
            ranges = self._narrowed(probe, self.shape.primary, asked, self.primary, runs)
            ranges, needed = self._narrowed_on(probe, intervals, needed, runs, ranges)
        choice = self._choose(probe, intervals, needed, runs, *ranges)
        return intervals, runs, ranges, needed, choice

    def _narrowed_on(
        self,
        probe: Probe,
        intervals: list[Interval],
        needed: tuple[int, ...],
        runs: Span,
        ranges: Span,
    ) -> tuple[Span, tuple[int, ...]]:
        """Ranges narrowed by all keys that go up with the primary one, and the keys left.

        Versions of a record that follow each other, and sessions, are such: their ends go up with
        their beginnings, and a point's range has no row to test.
        """
        if not self._is_passed_over(probe.size):
            return ranges, needed
        left = []
        for dim in needed:
            if dim not in self.shape.setters or not self._follows(dim):
                left.append(dim)
            elif self.run is not None:
                ranges = self._narrowed(probe, dim, intervals[dim], self._column(dim), ranges)
            else:
                column = self._column(dim)
                starts, ends = self._narrowed(probe, dim, intervals[dim], column, runs)
                ranges = np.maximum(ranges[0], starts), np.minimum(ranges[1], ends)
        return ranges, tuple(left)

    def _needed(self, intervals: list[Interval]) -> tuple[int, ...]:
        """Tested keys that some row of the segment could fail."""
        needed = []
        for at, dim in enumerate(self.shape.tested):
            asked, negate = intervals[dim], self.shape.dims[dim].negate
            low, high = self._extremes[at]
            low_holds = asked.low is None or bool((asked.low <= low).all())
            high_holds = asked.high is None or bool((asked.high >= high).all())
            if negate or not (low_holds and high_holds):
                needed.append(dim)
        return tuple(needed)

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
        reach = float(emit.total_reach(starts, ends))
        if not needed:
            return Drive("ranges", None, reach), nothing
        touched = self._touched(probe, intervals, needed, starts, ends)
        tests = min(touched * 64, reach) * TEST_NS * len(needed)
        best = Drive("scan", None, reach / 64 * limits.block_ns + tests)
        chosen = nothing
        each = PROBE_NS if self.run is None else PROBE_NS + SWEEP_NS
        least = reach / 262_144 * SUMMARY_NS + probe.size * each
        for dim in self.shape.setters:
            if dim not in needed or best.cost <= least:
                continue
            _, values = self._own_order(dim)
            begins, finishes = self._narrowed(probe, dim, intervals[dim], values, runs)
            order = self._sweep(probe, dim, intervals[dim], runs[0])
            cost = least + emit.window_moves(order, begins, finishes) * MOVE_NS
            if cost < best.cost:
                best, chosen = Drive("bitmap", dim, cost), (begins, finishes)
        return best, chosen

    def _touched(
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

    def spans(self, probe: Probe, mapper: Mapper | None = None) -> Spans | None:
        """Ranges instead of pairs; None where two sets of equal keys share a hash."""
        intervals = self._intervals(probe)
        runs = self._runs(probe, intervals)
        if len(self.shape.run) > 1:
            checked = self._same_keys(intervals, runs)
            if checked is None:
                return None
            runs = checked
        orders: dict[int, tuple[Int32, Int64]] = {}
        if self.shape.primary is not None and self.primary is not None:
            orders[self.shape.primary] = _NO_ROWS, self.primary
        for dim in self._needed(intervals):
            if dim not in self.shape.run:
                plain = not self.shape.dims[dim].negate
                kept = self._own_order(dim) if plain else self._ordered(dim)
                orders[dim] = kept
        found: dict[int, Span] = {}

        def search(dim: int) -> None:
            found[dim] = self._narrowed(probe, dim, intervals[dim], orders[dim][1], runs)

        (mapper or _sequential)(search, list(orders))
        primary = runs if self.shape.primary is None else found.pop(self.shape.primary, runs)
        spans = [(dim, orders[dim][0], span) for dim, span in sorted(found.items())]
        excluded = tuple(span for span in spans if self.shape.dims[span[0]].negate)
        others = tuple(span for span in spans if not self.shape.dims[span[0]].negate)
        rising = {dim: probe.order(dim, intervals[dim]) for dim, *_ in others}
        return Spans(runs, primary, others, {} if self.run is not None else rising, excluded)

    def _ordered(self, dim: int) -> tuple[Int32, Int64]:
        """The order of a tested key, inside each run, and its values in that order."""
        values = self._column(dim)
        order = order_of(values) if self.run is None else order_of_both(self.run, values)
        return order, gather(values, order)

    def _same_keys(self, intervals: list[Interval], runs: Span) -> Span | None:
        """Runs of a hash, emptied where the probe's own keys are others; None if rows' are."""
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

    @cached_property
    def _shares_hash(self) -> bool:
        """Whether rows with other equality keys stand in one run, because their hash is one."""
        assert self.run is not None
        return not all(same_in_runs(self._column(dim), self.run) for dim in self.shape.run)

    def _check(self) -> None:
        """Verify every invariant of the structure."""
        n = self.size
        for dim in self.shape.setters:
            self._own_order(dim)
        within = np.zeros(n, np.int64) if self.run is None else self.run
        assert (within[1:] >= within[:-1]).all()
        same = within[1:] == within[:-1]
        if self.primary is not None:
            assert (self.primary[1:] >= self.primary[:-1])[same].all()
        for dim, perm in self.perm.items():
            column = self._column(dim)
            assert (np.sort(perm) == np.arange(n)).all()
            assert (column[perm] == self.sorted[dim]).all()
            assert (self.sorted[dim][1:] >= self.sorted[dim][:-1])[same].all()
        assert np.unique(self.rid).size == n
        for at, column in enumerate(self.columns):
            for block in range((n + 63) // 64):
                rows = column[block * 64 : block * 64 + 64]
                assert self.zone_low[at, block] == rows.min()
                assert self.zone_high[at, block] == rows.max()


NO_KEYS: Int64 = np.zeros(0, np.int64)
_NO_ROWS: Int32 = np.zeros(0, np.int32)


def _by_run(starts: Int32, keys: Int64) -> Int32:
    """Probes in the order of their runs, and of a key inside each."""
    runs = starts.astype(np.int64)
    if is_sorted(runs) and rises_in_runs(keys, runs):
        return np.arange(keys.size, dtype=np.int32)
    return order_of_both(runs, keys)


def _merged_order(parts: Sequence[PoJoin], dim: int) -> Int32:
    """The order of an integer key over the rows of sorted segments, each in its primary order."""
    if dim == parts[0].shape.primary:
        primaries = [part.primary for part in parts if part.primary is not None]
        return merged_order(primaries)
    starts = np.cumsum([0, *(part.size for part in parts[:-1])]).astype(np.int32)
    places = [part.perm[dim] + start for part, start in zip(parts, starts, strict=True)]
    order: Int32 = gather(
        np.concatenate(places), merged_order([part.sorted[dim] for part in parts])
    )
    return order


def concat_keys(keys: list[Key]) -> Key:
    """Keys of several batches one after another."""
    if isinstance(keys[0], BytesKey):
        return BytesKey.concat([key for key in keys if isinstance(key, BytesKey)])
    return np.concatenate(keys)  # type: ignore[arg-type]


def _sequential(function: Callable[[Any], Any], items: Sequence[Any]) -> Sequence[Any]:
    return [function(item) for item in items]


def _zones(columns: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Smallest and largest key of each block of 64 rows, for each column."""
    starts = np.arange(0, columns.shape[1], emit.BLOCK)
    if starts.size == 0:
        empty = np.zeros((columns.shape[0], 0), np.int64)
        return empty, empty
    low = np.minimum.reduceat(columns, starts, axis=1)
    return low, np.maximum.reduceat(columns, starts, axis=1)


def _ranges(reach: emit.Reach, shown: emit.Shown, room: int) -> Iterator[Pairs]:
    """Every row of each probe's range."""
    out = emit.Out.of(room)
    while out.state[0] < reach.order.size:
        if n := emit.emit_ranges(reach, shown, out):
            yield out.probe[:n], out.row[:n]


def stack(
    intervals: list[Interval], dims: tuple[int, ...], size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ends of several keys' intervals as two matrices, open ends as the extremes."""
    limits = np.iinfo(np.int64)
    low = np.full((len(dims), size), limits.min, np.int64)
    high = np.full((len(dims), size), limits.max, np.int64)
    for at, dim in enumerate(dims):
        asked = intervals[dim]
        if asked.low is not None:
            low[at] = asked.low
        if asked.high is not None:
            high[at] = asked.high
    return low, high
