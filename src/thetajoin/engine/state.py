"""What a join holds: both sides' rows, event time and counters, micro-batch by micro-batch.

`begin` takes new rows in, `carry_out` gives the output they cause, `commit` stores them. Nearest
matches and totals keep their rows in the same way and give out other things.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.batch.keys import Int64
from thetajoin.engine.block import Block, Flags, concat_batches, empty_batch
from thetajoin.engine.parts import OTHER, SIDES, Side
from thetajoin.engine.rows import KeyedBatch, cast_back, make_batch
from thetajoin.engine.step import Arrival, Share, Sink, Step, copy_marks
from thetajoin.errors import SnapshotError, WindowError
from thetajoin.index.probe import Arrivals
from thetajoin.kernels.threads import Mapper, use_threads
from thetajoin.limits import limits
from thetajoin.paper_options import PO_JOIN, make_tuner
from thetajoin.window.windows import CountWindow

if TYPE_CHECKING:
    from thetajoin.engine.compiled import CompiledJoin
    from thetajoin.engine.spec import JoinSpec

# From this many new rows on, their keys are sorted on several threads.
PARALLEL_SORT_ROWS = 100_000


def mapper_of(join: CompiledJoin, rows: int) -> AbstractContextManager[Mapper]:
    """Threads to sort the keys of some rows with, if there are enough to be worth it."""
    return use_threads(1 if rows < PARALLEL_SORT_ROWS else join.joiner.threads)


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
    than the watermark. homes: where only a side's first rows are counted if they are late, how
    many, as the rest are copies. keeps_late: whether late rows are set aside, in `dropped`, until
    `take_dropped`.
    """

    def __init__(self, join: CompiledJoin, share: Share | None = None) -> None:
        self.join = join
        self.share = Share() if share is None else share
        self.watermark: int | None = None
        self.late: dict[Side, int] = {}
        self.homes: dict[Side, int] = {}
        self.counters = Counters()
        self.keeps_late = False
        self.dropped: dict[Side, list[pa.RecordBatch]] = {side: [] for side in SIDES}
        self.stores = {side: join.new_store(side) for side in SIDES}
        self._tune = None if join.options.index == PO_JOIN else make_tuner(join)

    @property
    def schema(self) -> pa.Schema:
        """The columns of what is given out."""
        return self.join.schema

    @property
    def spec(self) -> JoinSpec:
        """What is carried out, as a snapshot holds it."""
        return self.join.spec_with_text()

    def give_out(self, output: list[pa.RecordBatch]) -> pa.Table:
        """What calls have given so far, as one table."""
        return pa.Table.from_batches(output, schema=self.schema)

    def list_owed(self, pending: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """What a snapshot holds beside the rows: output that has not come out yet."""
        return pending

    def restore_owed(self, saved: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """The pending output that `list_owed` gave; refuses rows with other columns."""
        if any(not batch.schema.equals(self.schema) for batch in saved):
            raise SnapshotError("pending rows have other columns than the output")
        return saved

    def copy(self) -> Self:
        """An independent copy, whose calls never change this state. O(segments)."""
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
        yield from self.carry_out(self.begin(left, right, last=last))

    def begin(
        self, left: pa.RecordBatch | None, right: pa.RecordBatch | None, *, last: bool = False
    ) -> Step:
        """Take new rows in, without storing them."""
        join, share = self.join, self.share
        given: dict[Side, pa.RecordBatch] = {}
        for side, batch in zip(SIDES, (left, right), strict=True):
            whole = empty_batch(join.given[side]) if batch is None else batch
            given[side] = join.take_in(whole, side)
        timed = {side: self._drop_late(given[side], side) for side in SIDES}
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
            if side in share.probed_in_part:
                start, end = share.part(end, firsts[side])
            mine, befores[side] = rows[side].slice(start, end - start), befores[side][start:end]
            batches[side] = make_batch(mine, side, join.parts, join.list_kept(side))
            firsts[side] += start
        arrivals: dict[Side, Arrival] = {}
        for side in SIDES:
            kept, numbers = self._take_share(side, batches, firsts[side])
            arrivals[side] = Arrival(
                batches[side],
                firsts[side],
                befores[side],
                kept,
                self._make_block(side, kept, numbers, len(batches[OTHER[side]]) if last else None),
                rows[side].num_rows,
                *timed[side][1:],
            )
        return Step(join, self.stores, arrivals, last)

    def _drop_late(
        self, batch: pa.RecordBatch, side: Side
    ) -> tuple[pa.RecordBatch, int, int, pa.RecordBatch | None]:
        """Rows that are not late; how many were late, or without a time; and late ones to keep."""
        clock = self.join.clock
        if clock is None:
            return batch, 0, 0, None
        counted = self.homes.get(side, batch.num_rows)
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

    def _take_share(
        self, side: Side, batches: dict[Side, KeyedBatch], first: int
    ) -> tuple[KeyedBatch, Arrivals]:
        """The rows of a micro-batch that are to be stored here, and their arrival numbers."""
        batch = batches[side]
        if not self.share.stores:
            return batch.where(np.zeros(len(batch), np.bool_)), Arrivals.dense(first, 0)
        if side not in self.share.stored_in_part or side in self.share.probed_in_part:
            return batch, Arrivals.dense(first, len(batch))
        # Rows of a self-join are stored once, to be found in both roles.
        role: Side = "l" if self.join.spec.self_join else side
        mine = self.share.choose_stored(self.join.parts[0], batches, role, first)
        kept = batch.where(mine)
        if not len(kept) or not self.join.is_ordered:
            return kept, Arrivals.dense(first, len(kept))
        return kept, Arrivals.of(first + np.flatnonzero(mine))

    def _make_block(
        self, side: Side, batch: KeyedBatch, numbers: Arrivals, probes: int | None
    ) -> Block:
        """New rows as a block; `probes` says how many will look for them, where nothing follows."""
        last, sort = probes is not None, probes is not None and probes >= limits.sorted_probes
        store, times = self.stores[side], self.join.times(batch.table, side)
        # Nothing probes a table's left rows, except where the order of arrival matters.
        if last and side == "l" and not isinstance(self.join.window, CountWindow):
            settled = np.zeros(len(batch), np.bool_) if store.config.preserved else None
            return Block(numbers, batch.table, [], settled, times)
        with mapper_of(self.join, len(batch)) as mapper:
            return store.block_of(batch, times, arrivals=numbers, mapper=mapper, sort=sort)

    def carry_out(self, step: Step) -> Iterator[pa.RecordBatch]:
        """The output that a step's rows cause; they are stored when this is exhausted."""
        how = self.join.spec.how
        new = step.blocks.values()
        sink = Sink(self.join.joiner, wants_pairs=how not in ("semi", "anti"), own=new)
        for meeting in step.meetings():
            yield from sink.take(meeting)
        if how == "semi":
            yield from self._give_first_matches(step, sink)
        if not step.last:
            yield from self._give_unmatchable(step)
        yield from self.commit(step, sink.marks, sink.pairs)

    def _give_first_matches(self, step: Step, sink: Sink) -> Iterator[pa.RecordBatch]:
        """Left rows that have found their first match: a semi join gives them out now."""
        for block in self.stores["l"].blocks():
            if block.identity in sink.marks:
                assert block.settled is not None
                fresh = sink.marks[block.identity] & ~block.settled
                yield from self.join.give_alone("l", block.table, np.flatnonzero(fresh))
        new = step.blocks["l"]
        assert new.settled is not None
        yield from self.join.give_alone("l", new.table, np.flatnonzero(new.settled))

    def _give_unmatchable(self, step: Step) -> Iterator[pa.RecordBatch]:
        """New rows that never can match: an outer join gives them out now."""
        for side in SIDES:
            arrival = step.arrivals[side]
            block = arrival.block
            if block.settled is None or not self.join.gives_unmatched(side):
                continue
            rows = np.flatnonzero(~arrival.kept.matchable() & ~block.settled)
            block.settled[rows] = True  # nobody else has this block yet
            yield from self._give_alone(side, block, rows)

    def _give_unmatched(
        self, side: Side, block: Block, rows: NDArray[np.intp], marks: dict[object, Flags]
    ) -> Iterator[pa.RecordBatch]:
        """Give stored rows out as unmatched; `marks` then says that they are settled."""
        if rows.size:
            copy_marks(block, marks)[rows] = True
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
        return self._expire_by_count(window)

    def _expire_by_count(self, window: CountWindow) -> Iterator[pa.RecordBatch]:
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
                    yield from self._give_unmatched(side, block, rows, marks)
            store.set_marks(marks)
            store.drop_before(first)

    def has_expired(self, side: Side, last: int, newest: int | None) -> bool:
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
        yield from self._release(instant)
        for side, store in self.stores.items():
            store.drop_older(instant - clock.reach[side])

    def finish(self) -> Iterator[pa.RecordBatch]:
        """All unmatched rows: nothing more will come."""
        yield from self._release(None)

    def _release(self, instant: int | None) -> Iterator[pa.RecordBatch]:
        """Unmatched rows that nothing from this instant on can match; all of them for None."""
        for side, store in self.stores.items():
            if not self.join.gives_unmatched(side):
                continue
            marks: dict[object, Flags] = {}
            for block in store.blocks():
                assert block.settled is not None
                waiting = ~block.settled
                if instant is not None:
                    assert self.join.clock is not None
                    assert block.times is not None
                    waiting &= block.times < instant - self.join.clock.reach[side]
                yield from self._give_unmatched(side, block, np.flatnonzero(waiting), marks)
            store.set_marks(marks)

    def take_dropped(self) -> dict[Side, pa.RecordBatch]:
        """Take out the late rows that were set aside, in the types they came in."""
        taken: dict[Side, pa.RecordBatch] = {}
        for side in SIDES:
            given = self.join.given[side]
            rows = [empty_batch(self.join.schemas[side]), *self.dropped[side]]
            whole = concat_batches(rows) if len(rows) > 1 else rows[0]
            columns = [cast_back(c, f.type) for c, f in zip(whole.columns, given, strict=True)]
            taken[side] = pa.RecordBatch.from_arrays(columns, schema=given)
            self.dropped[side] = []
        return taken

    def close(self) -> None:
        """Wait for merges under way."""
        for store in self.stores.values():
            store.settle_merge(wait=True)
