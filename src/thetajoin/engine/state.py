"""What a join holds: both sides' rows, event time and counters, micro-batch by micro-batch.

`begin` takes new rows in, `pairs` gives the output they cause, `commit` stores them. What only
counts matches goes over the step's meetings in place of `pairs` (`thetajoin.aggregate`).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.batch.keys import Int64
from thetajoin.engine.block import Block, Flags, concat_batches, empty_batch
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.intake import as_given
from thetajoin.engine.joiner import Found
from thetajoin.engine.parts import OTHER, SIDES, Side
from thetajoin.engine.rows import KeyedBatch, make_batch
from thetajoin.engine.share import Share
from thetajoin.engine.step import Arrival, Step
from thetajoin.errors import WindowError
from thetajoin.index.probe import Arrivals
from thetajoin.kernels.threads import Mapper, threaded
from thetajoin.limits import limits
from thetajoin.paper_options import PO_JOIN, tuner
from thetajoin.window.windows import CountWindow

# From this many new rows on, their keys are sorted on several threads.
PARALLEL_SORT_ROWS = 100_000


def mapper_of(join: CompiledJoin, rows: int) -> AbstractContextManager[Mapper]:
    """What sorts the keys of so many rows, on several threads if that is worth it."""
    return threaded(1 if rows < PARALLEL_SORT_ROWS else join.joiner.threads)


@dataclass
class Counters:
    """What has passed through a join."""

    pairs: int = 0
    unmatched: int = 0
    late_rows: int = 0
    null_times: int = 0


class JoinState:
    """The rows that later ones may still be paired with, and what is known of time.

    watermark: no older row is taken in. late: where a side's rows are late from another time on
    than the watermark. keeps_late: whether late rows are set aside, in `dropped`, until
    `take_dropped`.
    """

    def __init__(self, join: CompiledJoin, share: Share | None = None) -> None:
        self.join = join
        self.share = Share() if share is None else share
        self.watermark: int | None = None
        self.late: dict[Side, int] = {}
        self.counters = Counters()
        self.keeps_late = False
        self.dropped: dict[Side, list[pa.RecordBatch]] = {side: [] for side in SIDES}
        self.stores = {side: join.new_store(side) for side in SIDES}
        self._tune = None if join.options.index == PO_JOIN else tuner(join)

    def copy(self) -> JoinState:
        """A state that goes its own way: nothing it does changes this one. O(segments)."""
        other = copy.copy(self)
        other.late = dict(self.late)
        other.counters = replace(self.counters)
        other.dropped = {side: list(self.dropped[side]) for side in SIDES}
        other.stores = {side: self.stores[side].copy() for side in SIDES}
        other._tune = None if self._tune is None else self._tune.copy()
        return other

    def run(
        self, left: pa.RecordBatch | None, right: pa.RecordBatch | None, *, last: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Take new rows in, giving the output they cause; they are stored when this is exhausted.

        With `last` nothing will follow, so what only later rows would need is not built.
        """
        yield from self.pairs(self.begin(left, right, last=last))

    def begin(
        self,
        left: pa.RecordBatch | None,
        right: pa.RecordBatch | None,
        *,
        last: bool = False,
        homes: tuple[int, int] | None = None,
        store: bool = True,
    ) -> Step:
        """Take new rows in, without storing them.

        homes: how many rows of each side, from the first, are counted where they are late: copies
        of the others are elsewhere too. Without `store` the rows meet what is stored and no new
        row, and are not kept: they are stored elsewhere.
        """
        join = self.join
        given: dict[Side, pa.RecordBatch] = {}
        for side, batch in zip(SIDES, (left, right), strict=True):
            whole = empty_batch(join.given[side]) if batch is None else batch
            given[side] = join.taken_in(whole, side)
        counted = homes or (given["l"].num_rows, given["r"].num_rows)
        timed = {s: self._on_time(given[s], s, n) for s, n in zip(SIDES, counted, strict=True)}
        rows = {side: timed[side][0] for side in SIDES}
        befores: dict[Side, Int64] = {side: np.zeros(0, np.int64) for side in SIDES}
        if join.is_ordered:
            orders, counts = join.ordering.places(rows["l"], rows["r"])
            for side, order, before in zip(SIDES, orders, counts, strict=True):
                befores[side] = before
                if order is not None:
                    rows[side] = rows[side].take(pa.array(order))
        firsts = {side: self.stores[side].count for side in SIDES}
        batches: dict[Side, KeyedBatch] = {}
        for side in SIDES:
            start, end = 0, rows[side].num_rows
            if side in self.share.probed_in_part:
                start, end = self.share.part(end, firsts[side])
            mine, befores[side] = rows[side].slice(start, end - start), befores[side][start:end]
            batches[side] = make_batch(mine, side, join.parts, join.kept(side))
            firsts[side] += start
        arrivals: dict[Side, Arrival] = {}
        for side in SIDES:
            if store:
                kept, numbers = self._share_of(side, batches, firsts[side])
            else:
                kept = batches[side].where(np.zeros(len(batches[side]), np.bool_))
                numbers = Arrivals.dense(firsts[side], 0)
            arrivals[side] = Arrival(
                batches[side],
                firsts[side],
                befores[side],
                kept,
                self._block(side, kept, numbers, len(batches[OTHER[side]]) if last else None),
                rows[side].num_rows,
                *timed[side][1:],
            )
        return Step(join, self.stores, arrivals, last)

    def _on_time(
        self, batch: pa.RecordBatch, side: Side, counted: int
    ) -> tuple[pa.RecordBatch, int, int, pa.RecordBatch | None]:
        """Rows that are not late, how many of the first were late or without a time, and the late.

        The late rows only where they are wanted.
        """
        clock = self.join.clock
        if clock is None:
            return batch, 0, 0, None
        times, null = clock.times(batch, side)
        nulls = int(null[:counted].sum())
        mark = self.late.get(side, self.watermark)
        if mark is None:
            return batch, 0, nulls, None
        late = (times < mark) & ~null
        if not late.any():
            return batch, 0, nulls, None
        dropped = None
        if self.keeps_late:
            dropped = batch.slice(0, counted).filter(pa.array(late[:counted]))
        return batch.filter(pa.array(~late)), int(late[:counted].sum()), nulls, dropped

    def _share_of(
        self, side: Side, batches: dict[Side, KeyedBatch], first: int
    ) -> tuple[KeyedBatch, Arrivals]:
        """The rows of a micro-batch that are to be stored here, and their arrival numbers."""
        batch = batches[side]
        if side not in self.share.stored_in_part or side in self.share.probed_in_part:
            return batch, Arrivals.dense(first, len(batch))
        # Rows of a self-join are stored once, to be found in both roles.
        role: Side = "l" if self.join.spec.self_join else side
        mine = self.share.stored(self.join.parts[0], batches, role, first)
        kept = batch.where(mine)
        if not len(kept) or not self.join.is_ordered:
            return kept, Arrivals.dense(first, len(kept))
        return kept, Arrivals.of(first + np.flatnonzero(mine))

    def _block(self, side: Side, batch: KeyedBatch, numbers: Arrivals, probes: int | None) -> Block:
        """New rows as a block; `probes` says how many will look for them, where nothing follows."""
        last, sort = probes is not None, probes is not None and probes >= limits.sorted_probes
        store, times = self.stores[side], self.join.times(batch.table, side)
        # Nothing probes a table's left rows, but where they are seen by when they came.
        if last and side == "l" and not isinstance(self.join.window, CountWindow):
            settled = np.zeros(len(batch), np.bool_) if store.config.preserved else None
            return Block(numbers, batch.table, [], settled, times)
        with mapper_of(self.join, len(batch)) as mapper:
            return store.block_of(batch, times, arrivals=numbers, mapper=mapper, sort=sort)

    def pairs(self, step: Step) -> Iterator[pa.RecordBatch]:
        """The output that a step's rows cause; they are stored when this is exhausted."""
        marks: dict[object, Flags] = {}
        pairs = 0
        want_output = self.join.spec.how not in ("semi", "anti")
        for meeting in step.meetings():
            side = meeting.side
            once = not want_output and side == "l"
            for found in self.join.joiner.probe(
                meeting.batch, side, meeting.blocks, meeting.see, once=once, want_output=want_output
            ):
                pairs += len(found.probe_rows)
                output = self._settle(side, step, found, marks)
                if output is not None and output.num_rows:
                    yield output
        if not step.last:
            yield from self._unmatchable(step)
        yield from self.commit(step, marks, pairs)

    def _settle(
        self, side: Side, step: Step, found: Found, marks: dict[object, Flags]
    ) -> pa.RecordBatch | None:
        """Mark what has found a match; the rows to give out for it."""
        new_left: tuple[Block, NDArray[np.int32]] | None = None
        semi = self.join.spec.how == "semi"
        probing = side, step.arrivals[side].block, found.probe_rows
        for of, block, rows in (probing, (OTHER[side], found.block, found.stored_rows)):
            if block.settled is None:
                continue
            fresh = block is step.arrivals[of].block
            flags = block.settled if fresh else _marks_of(block, marks)
            if of == "l" and semi:
                new_left = block, np.unique(rows[~flags[rows]])
            flags[rows] = True
        if semi:
            assert new_left is not None
            return self.join.layout.single("l", new_left[0].table, new_left[1])
        return found.output

    def _unmatchable(self, step: Step) -> Iterator[pa.RecordBatch]:
        """New rows that never can match: an outer join gives them out now."""
        for side in SIDES:
            arrival = step.arrivals[side]
            block = arrival.block
            if block.settled is None or not self.join.gives_unmatched(side):
                continue
            rows = np.flatnonzero(~arrival.kept.matchable() & ~block.settled)
            block.settled[rows] = True  # nobody else has this block yet
            yield from self._give_alone(side, block, rows)

    def _unmatched(
        self, side: Side, block: Block, rows: NDArray[np.intp], marks: dict[object, Flags]
    ) -> Iterator[pa.RecordBatch]:
        """Give stored rows out as unmatched; `marks` then says that they are settled."""
        if rows.size:
            _marks_of(block, marks)[rows] = True
            yield from self._give_alone(side, block, rows)

    def _give_alone(
        self, side: Side, block: Block, rows: NDArray[np.intp]
    ) -> Iterator[pa.RecordBatch]:
        for found in self.join.give_alone(side, block.table, rows):
            self.counters.unmatched += found.num_rows
            yield found

    def commit(
        self, step: Step, marks: dict[object, Flags] | None = None, pairs: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """Store a step's rows, now; gives the unmatched rows that leave a count window.

        An inner join has none of these, and what is given need not be taken. marks: of blocks whose
        rows have found matches, by their identity.
        """
        for side in SIDES:
            arrival = step.arrivals[side]
            self.stores[side].set_marks(marks or {})
            self.stores[side].add(arrival.block, arrival.arrived)
            if self._tune is not None:
                self._tune(self, side, len(arrival.kept))
            if side == "l" or not self.join.spec.self_join:
                self.counters.late_rows += arrival.late
                self.counters.null_times += arrival.null_times
                if arrival.dropped is not None:
                    self.dropped[side].append(arrival.dropped)
        self.counters.pairs += pairs
        window = self.join.window
        if not isinstance(window, CountWindow):
            return iter(())
        for side in SIDES:
            if not self.join.gives_unmatched(side):
                self.stores[side].drop_before(window.first_visible(self.stores[side].count))
        return self._leave_count_window(window)

    def _leave_count_window(self, window: CountWindow) -> Iterator[pa.RecordBatch]:
        for side in SIDES:
            if not self.join.gives_unmatched(side):
                continue
            store = self.stores[side]
            first = window.first_visible(store.count)
            marks: dict[object, Flags] = {}
            for block in store.blocks():
                if block.arrivals.first >= first:
                    break
                gone = int(block.arrivals.rows_before(np.array([first]))[0])
                if gone and block.settled is not None:
                    rows = np.flatnonzero(~block.settled[:gone])
                    yield from self._unmatched(side, block, rows, marks)
            store.set_marks(marks)
            store.drop_before(first)

    def expired(self, side: Side, last: int, newest: int | None) -> bool:
        """Whether rows up to an arrival number and an event time can be forgotten."""
        window, clock = self.join.window, self.join.clock
        if isinstance(window, CountWindow):
            return last < window.first_visible(self.stores[side].count)
        if clock is None or self.watermark is None or newest is None:
            return False
        # A self-join's rows are kept once, for both roles.
        roles = SIDES if self.join.spec.self_join else (side,)
        return newest < self.watermark - max(clock.reach[role] for role in roles)

    def advance(self, watermark: Any) -> Iterator[pa.RecordBatch]:
        """Move event time; gives unmatched rows that no later row can match any more."""
        if self.join.clock is None:
            raise WindowError("advance() moves event time: the join needs a TimeWindow for that")
        yield from self.advance_to(self.join.clock.instant(watermark))

    def advance_to(self, instant: int) -> Iterator[pa.RecordBatch]:
        """Move event time to an instant in the unit of the time keys."""
        clock = self.join.clock
        if clock is None or (self.watermark is not None and instant <= self.watermark):
            return
        self.watermark = instant
        for side in SIDES:
            oldest = instant - clock.reach[side]
            marks: dict[object, Flags] = {}
            for block in self.stores[side].blocks():
                if block.settled is not None and self.join.gives_unmatched(side):
                    assert block.times is not None
                    rows = np.flatnonzero(~block.settled & (block.times < oldest))
                    yield from self._unmatched(side, block, rows, marks)
            self.stores[side].set_marks(marks)
            self.stores[side].drop_older(oldest)

    def take_dropped(self) -> dict[Side, pa.RecordBatch]:
        """The late rows of each side that were set aside, in the types they came in; once."""
        taken: dict[Side, pa.RecordBatch] = {}
        for side in SIDES:
            given = self.join.given[side]
            rows = [empty_batch(self.join.schemas[side]), *self.dropped[side]]
            whole = concat_batches(rows) if len(rows) > 1 else rows[0]
            columns = [as_given(c, f.type) for c, f in zip(whole.columns, given, strict=True)]
            taken[side] = pa.RecordBatch.from_arrays(columns, schema=given)
            self.dropped[side] = []
        return taken

    def finish(self) -> Iterator[pa.RecordBatch]:
        """All rows that are still unmatched: nothing more will come."""
        for side in SIDES:
            if not self.join.gives_unmatched(side):
                continue
            marks: dict[object, Flags] = {}
            for block in self.stores[side].blocks():
                assert block.settled is not None
                yield from self._unmatched(side, block, np.flatnonzero(~block.settled), marks)
            self.stores[side].set_marks(marks)

    def close(self) -> None:
        """Wait for merges under way."""
        for store in self.stores.values():
            store.settle_merge(wait=True)


def _marks_of(block: Block, marks: dict[object, Flags]) -> Flags:
    """A stored block's marks to change: a copy, made once, that `Store.set_marks` puts in place."""
    assert block.settled is not None
    if block.identity not in marks:
        marks[block.identity] = block.settled.copy()
    return marks[block.identity]
