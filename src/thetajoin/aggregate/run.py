"""Aggregating while joining: new rows meet stored rows, and only totals come of it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from thetajoin.aggregate.columns import DENSE
from thetajoin.aggregate.rows import PairTotals, SideRows
from thetajoin.aggregate.segment import Refused, Segment
from thetajoin.aggregate.spec import AggSpec
from thetajoin.aggregate.state import State, merge
from thetajoin.batch.keys import BytesKey, Int64, Key
from thetajoin.engine.block import Block, orders_of
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.joiner import See, limit_sight, make_probe, sort_probes
from thetajoin.engine.parts import OTHER, Part, Side, View
from thetajoin.engine.rows import KeyedBatch, PartRows, Rows32, cast_back
from thetajoin.engine.state import JoinState
from thetajoin.engine.step import Meeting, Step
from thetajoin.index.po_join import Head, PoJoin
from thetajoin.index.probe import Arrivals, Probe
from thetajoin.kernels.order import gather
from thetajoin.kernels.threads import ALONE, Mapper
from thetajoin.limits import limits
from thetajoin.window.windows import CountWindow

# Estimated cost in ns of listing a pair and adding it to its group, and of asking for one probe.
PAIR_NS, ASK_NS = 40.0, 300.0
# A table joined with itself under a count window comes in pieces of this many slides, if there are
# not too many of them.
PIECE_SLIDES, MOST_PIECES = 4, 256


@dataclass(frozen=True)
class Asking:
    """Rows of one side that ask: which of them, what they ask, and the groups they are in.

    apart: the arrival number of a row that each must not be given, because it is the row itself.
    """

    rows: SideRows
    places: Rows32
    probe: Probe
    codes: Int64
    apart: Int64 | None = None

    @staticmethod
    def of(rows: SideRows, view: View, keyed: PartRows) -> Asking:
        """The rows that have keys, in an order that suits the index."""
        keyed = _sort_rows(view, keyed)
        codes = gather(rows.grouping.codes, keyed.rows)
        return Asking(rows, keyed.rows, make_probe(view, keyed, None), codes)

    def restrict(self, see: See | None) -> Asking:
        """The same rows, of which each sees only some."""
        apart = None if see is None or see.apart is None else gather(see.apart, self.places)
        return replace(self, probe=limit_sight(self.probe, see, self.places), apart=apart)


@dataclass(frozen=True)
class LeftGroups:
    """New left rows, whose groups are kept even without a match, and their totals."""

    rows: SideRows
    state: State

    @staticmethod
    def of(table: pa.RecordBatch, spec: AggSpec) -> LeftGroups:
        """Groups without any pairs yet."""
        rows = SideRows(table, "l", spec)
        return LeftGroups(rows, rows.state())


class Aggregator:
    """A join's matches as totals by group."""

    def __init__(self, join: CompiledJoin, spec: AggSpec) -> None:
        self.join, self.spec = join, spec
        self.group_sides = {side for group in spec.groups for side in group.expr.sides()}
        self.needs_pairs = _find_across(spec)
        self._states: list[State] = []
        self._left: LeftGroups | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._pool_process = os.getpid()
        # How often no pairs were needed, and how often they were, by the reason.
        self.asked = 0
        self.listed: dict[str, int] = {}

    def run(self, left: pa.RecordBatch, right: pa.RecordBatch) -> State:
        """The totals of two tables' matches; nothing will follow."""
        state, found = JoinState(self.join), State.nothing(self.spec)
        for both in self._cut_pieces(left) or [(left, right)]:
            step = state.begin(*both, last=True)
            found = merge([found, self.totals(step)])
            state.commit(step)
        return found

    def totals(self, step: Step) -> State:
        """What a step's matches add to the totals; its rows are not stored yet."""
        return self._totals(step.meetings(), step.arrivals["l"].kept.table)

    def add_up(self, meeting: Meeting) -> State:
        """The totals of one meeting, whose rows are not kept."""
        return self._totals([meeting], meeting.batch.table if meeting.side == "l" else None)

    def _totals(self, meetings: Iterable[Meeting], left: pa.RecordBatch | None) -> State:
        """The totals of meetings; where left groups are kept, with those of the `left` rows."""
        self._states = [State.nothing(self.spec)]
        self._left = None
        if self.spec.keeps_left and left is not None and left.num_rows:
            self._left = LeftGroups.of(left, self.spec)
        for meeting in meetings:
            self._meet(meeting)
        states, self._states = self._states, []
        if self._left is not None:
            states.append(self._left.state)
            self._left = None
        return merge(states)

    def _cut_pieces(
        self, rows: pa.RecordBatch
    ) -> list[tuple[pa.RecordBatch, pa.RecordBatch]] | None:
        """The rows of a self-join in order and in pieces that fit into its count window.

        The rows of such a piece see each other, and few different ranges of the rows before it, so
        that their arrival is not one more order to decide by (see `Step.meetings`).
        """
        window = self.join.window
        if not self.join.spec.self_join or not isinstance(window, CountWindow):
            return None
        if rows.num_rows <= window.size:
            return None
        size = min(window.size // 2, PIECE_SLIDES * window.slide)
        if window.slide > window.size // 2 or rows.num_rows > size * MOST_PIECES:
            return None
        kept = self.join.take_in(rows, "l")
        (order, _), _ = self.join.ordering.places(kept, kept)
        ordered = rows
        if order is not None:
            columns = [column.take(pa.array(order)) for column in kept.columns]
            given = [cast_back(c, f.type) for c, f in zip(columns, rows.schema, strict=True)]
            ordered = pa.RecordBatch.from_arrays(given, schema=rows.schema)
        pieces = [ordered.slice(at, size) for at in range(0, ordered.num_rows, size)]
        return [(piece, piece) for piece in pieces]

    def _meet(self, meeting: Meeting) -> None:
        """New rows of one side meet blocks of the other."""
        side, batch, see = meeting.side, meeting.batch, meeting.see
        if not len(batch):
            return
        rows = SideRows(batch.table, side, self.spec)
        state: State | None = None
        if self._left is not None and batch.table is self._left.rows.table:
            rows, state = self._left.rows, self._left.state
        for at, part in enumerate(self.join.parts):
            asking: Asking | None = None
            answering: Segment | None = None
            for block in meeting.blocks:
                if not block.rows or not len(batch.parts[at]):
                    continue
                refused: Refused | None = None
                if self.needs_pairs:
                    refused = Refused(self.needs_pairs)
                elif part.residual is not None:
                    refused = Refused(f"{part.residual} is decided by the pair")
                elif len(self.group_sides) == 2:
                    refused = self._ask_by_group(at, part, rows, batch, block, see)
                elif OTHER[side] in self.group_sides:
                    answering = answering or self._index_batch(at, part, batch, side)
                    refused = self._ask_stored(at, part, rows, answering, block, see)
                else:
                    state = state or rows.state()
                    target = self._index_block(at, part, block, OTHER[side])
                    view = part.views[OTHER[side]]
                    asking = asking or Asking.of(rows, view, batch.parts[at]).restrict(see)
                    refused = self._ask(asking, state, target)
                if refused is None:
                    self.asked += 1
                else:
                    self.listed[refused.why] = self.listed.get(refused.why, 0) + 1
                    self._list_pairs(at, part, rows, batch, block, see)
        if state is not None and (self._left is None or state is not self._left.state):
            few = 2 * np.count_nonzero(state.pairs) < state.size
            self._states.append(state.keep_seen() if few else state)

    def _ask(self, asking: Asking, state: State, target: Segment) -> Refused | None:
        """Totals of the target's rows for each probe, and the probes' own values as often."""
        pairs = target.answer(asking.probe, self.spec, state, asking.codes, asking.apart)
        if isinstance(pairs, Refused):
            return pairs
        rows = asking.rows
        if rows.arrays():
            times = np.zeros(rows.table.num_rows, np.int64)
            times[asking.places] = pairs
            state.add_rows(rows.grouping.codes, times, rows.arrays())
        return None

    def _ask_stored(
        self, at: int, part: Part, rows: SideRows, target: Segment, block: Block, see: See | None
    ) -> Refused | None:
        """The stored rows have the groups: they ask, and the new rows answer."""
        asking = self._make_asking(at, part, block, OTHER[rows.side])
        state = asking.rows.state()
        asking = asking.restrict(_turn_sight(block, see, rows.table.num_rows))
        refused = self._ask(asking, state, target)
        if refused is None:
            self._states.append(state.keep_seen())
        return refused

    def _ask_by_group(
        self, at: int, part: Part, rows: SideRows, batch: KeyedBatch, block: Block, see: See | None
    ) -> Refused | None:
        """Groups of both sides: ask once for each group of one side, unless pairs are fewer."""
        other = OTHER[rows.side]
        stored = self._rows_of_block(block, other)
        target = self._index_block(at, part, block, other)
        asking = Asking.of(rows, part.views[other], batch.parts[at]).restrict(see)
        counted = target.count(asking.probe, asking.apart)
        if isinstance(counted, Refused):
            return counted
        pairs = int(counted.sum())
        sizes = rows.grouping.size, stored.grouping.size
        if pairs * PAIR_NS < min(sizes) * max(len(batch), block.rows) * ASK_NS:
            return Refused("groups of both sides are many for so few pairs")
        if sizes[1] <= sizes[0]:
            view, answering = part.views[other], stored
            held = _part_rows(block, at, view)
            arrivals = block.arrivals
        else:
            view, answering = part.views[rows.side], rows
            held, arrivals = batch.parts[at], Arrivals.dense(0, len(batch))
            asking = self._make_asking(at, part, block, other)
            asking = asking.restrict(_turn_sight(block, see, len(batch)))
        made: list[State] = []
        for group in range(answering.grouping.size):
            chosen = np.flatnonzero(answering.grouping.codes[held.rows] == group)
            some = held.take(chosen.astype(np.int32))
            index = PoJoin(view.shape, [some.keys[key] for key in view.stored], some.rows)
            segment = Segment(index, answering.table, answering.side, arrivals, None, self._mapper)
            state = asking.rows.state(answering, group)
            refused = self._ask(asking, state, segment)
            if refused is not None:
                return refused
            made.append(state.keep_seen())
        self._states += made
        self._compact()
        return None

    def _list_pairs(
        self, at: int, part: Part, rows: SideRows, batch: KeyedBatch, block: Block, see: See | None
    ) -> None:
        """List the pairs and add them up chunk by chunk."""
        joiner = replace(self.join.joiner, parts=(part,), keep_rows=True)
        only = replace(block, indexes=[block.indexes[at]])
        stored = self._rows_of_block(block, OTHER[rows.side])
        totals = PairTotals(self.spec, rows, stored)
        alone = KeyedBatch(batch.table, (batch.parts[at],))
        for found in joiner.probe(alone, rows.side, [only], see, want_output=False):
            totals.add(found.probe_rows, found.stored_rows)
            self._states += totals.take_full()
            self._compact()
        self._states += totals.finish()
        self._compact()

    def _compact(self) -> None:
        if len(self._states) > 64 or sum(s.size for s in self._states) > DENSE:
            self._states = [merge(self._states)]

    def _index_block(self, at: int, part: Part, block: Block, side: Side) -> Segment:
        index = block.indexes[at]
        memo: dict[Any, Any] | None = None
        if isinstance(index, Head):
            keys, rid = index.rows()
            index = PoJoin(index.shape, list(keys), rid)
        else:
            assert isinstance(index, PoJoin)
            memo = block.derived.setdefault(("aggregate", at), {})
        return Segment(index, block.table, side, block.arrivals, memo, self._mapper)

    def _index_batch(self, at: int, part: Part, batch: KeyedBatch, side: Side) -> Segment:
        view, rows = part.views[side], batch.parts[at]
        keys = [rows.keys[key] for key in view.stored]
        index = PoJoin(view.shape, keys, rows.rows, orders=orders_of(rows, view.stored))
        return Segment(index, batch.table, side, Arrivals.dense(0, len(batch)), None, self._mapper)

    def _rows_of_block(self, block: Block, side: Side) -> SideRows:
        key = ("aggregate", "rows")
        if any(isinstance(index, Head) for index in block.indexes):
            return SideRows(block.table, side, self.spec)
        if key not in block.derived:
            block.derived[key] = SideRows(block.table, side, self.spec)
        found: SideRows = block.derived[key]
        return found

    def _make_asking(self, at: int, part: Part, block: Block, side: Side) -> Asking:
        """A block's rows as askers; kept, as every batch of the other side is asked."""
        rows, view = self._rows_of_block(block, side), part.views[OTHER[side]]

        def make() -> Asking:
            return Asking.of(rows, view, _part_rows(block, at, part.views[side]))

        if isinstance(block.indexes[at], Head):
            return make()
        key = ("aggregate", "asking", at)
        if key not in block.derived:
            block.derived[key] = make()
        found: Asking = block.derived[key]
        return found

    @property
    def _mapper(self) -> Mapper:
        threads = self.join.joiner.threads
        if threads == 1:
            return ALONE
        # The child of a fork has the pool, but none of its threads.
        if self._pool is None or self._pool_process != os.getpid():
            self._pool, self._pool_process = ThreadPoolExecutor(threads), os.getpid()
        return Mapper(self._pool, threads)


def _find_across(spec: AggSpec) -> str:
    """Why the pairs are needed whatever the condition; empty if they are not."""
    for expr in [*(g.expr for g in spec.groups), *(t.expr for t in spec.terms)]:
        if len(expr.sides()) == 2:
            return f"{expr} names both sides"
    return ""


def _sort_rows(view: View, rows: PartRows) -> PartRows:
    """Many rows in the order of a key they search for, so that near ones are searched together.

    That of an equal key would leave the searches inside its runs without an order.
    """
    shape = view.shape
    searched = (*shape.setters, *(() if shape.primary is None else (shape.primary,)))
    if not shape.run or not searched:
        return sort_probes(view, rows)
    if len(rows) < limits.sorted_probes or any(isinstance(key, BytesKey) for key in rows.keys):
        return rows  # moving strings costs more than it saves
    return rows.sort_by(view.asks[searched[0]][0].probe_key)


def _part_rows(block: Block, at: int, view: View) -> PartRows:
    """A block's rows with their keys again, from its index."""
    index = block.indexes[at]
    orders: dict[int, Rows32] = {}
    if isinstance(index, Head):
        head_keys, rid = index.rows()
        found: list[Key] = list(head_keys)
    else:
        assert isinstance(index, PoJoin)
        found, rid = index.keys(), index.rid
        if index.run is None:
            orders = {view.stored[dim]: perm for dim, perm in index.perm.items()}
            if view.shape.primary is not None:
                orders[view.stored[view.shape.primary]] = np.arange(rid.size, dtype=np.int32)
    keys: dict[int, Key] = dict(zip(view.stored, found, strict=True))
    return PartRows(rid, [keys[key] for key in range(len(keys))], orders)


def _turn_sight(block: Block, see: See | None, rows: int) -> See | None:
    """What a block's rows may see of new rows, from what these may see of the block.

    Later rows see later ones: both bounds never go down, so a stored row is seen by a range. New
    rows that must not meet themselves have numbers without gaps.
    """
    if see is None or not rows:
        return None
    low: Int64 | None = None
    high: Int64 | None = None
    if see.high is not None and see.high[0] < block.arrivals.last:
        low = np.searchsorted(see.high, block.arrivals.numbers(), side="left").astype(np.int64)
    if see.low is not None and see.low[-1] > block.arrivals.first:
        high = np.searchsorted(see.low, block.arrivals.numbers(), side="right").astype(np.int64) - 1
    apart = None if see.apart is None else block.arrivals.numbers() - see.apart[0]
    return None if low is None and high is None and apart is None else See(low, high, apart)
