"""The join of two sides, batch by batch: what a stream, a table and a restart have in common.

A micro-batch is new rows of either or both sides. Everything is computed before anything is stored,
so a batch that fails leaves the state as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.batch.keys import Int64
from thetajoin.engine.block import Block, Flags, empty_batch
from thetajoin.engine.intake import (
    Clock,
    Ordering,
    check_schema,
    conform,
    storage_schema,
    stored,
)
from thetajoin.engine.joiner import Found, Joiner, See
from thetajoin.engine.layout import How, Layout, owes
from thetajoin.engine.options import Options
from thetajoin.engine.rows import Batch, make_batch
from thetajoin.engine.share import Share
from thetajoin.engine.spec import (
    OTHER,
    Side,
    compare_columns,
    compile_parts,
    time_difference,
)
from thetajoin.engine.store import Store, StoreConfig
from thetajoin.errors import SchemaError, WindowError
from thetajoin.index.arrivals import Arrivals
from thetajoin.index.po_join import Mapper
from thetajoin.predicate import Condition, compile_condition
from thetajoin.registry import PO_JOIN, store_class, tuner
from thetajoin.window.chain import SEGMENTS
from thetajoin.window.spec import CountWindow, FullHistory, Window

SIDES: tuple[Side, Side] = ("l", "r")
# From this many new rows on, their keys are sorted on several threads.
PARALLEL_SORT_ROWS = 100_000


@dataclass(frozen=True)
class JoinConfig:
    """Everything a join is made of but its rows."""

    on: Any
    left_schema: pa.Schema
    right_schema: pa.Schema
    how: How = "inner"
    window: Window = field(default_factory=FullHistory)
    order_by: tuple[str, str] | None = None
    suffix: str = "_right"
    self_join: bool = False
    options: Options = field(default_factory=Options)
    segments: int = SEGMENTS


@dataclass
class Counters:
    """What has passed through a join."""

    pairs: int = 0
    unmatched: int = 0
    late_rows: int = 0
    null_times: int = 0


@dataclass(frozen=True)
class Arrival:
    """New rows of one side, in order and keyed.

    batch: the rows to probe with, the first of them with the arrival number `first`; `before` says
    how many new rows of the other side came before each.
    kept: the rows to store, made into a `block` that is not stored yet.
    """

    batch: Batch
    first: int
    before: Int64
    kept: Batch
    block: Block
    arrived: int
    late: int
    null_times: int


class JoinCore:
    """State and logic of one join."""

    def __init__(self, config: JoinConfig, share: Share | None = None) -> None:
        """Compile the condition against both schemas; every mistake in it is reported here."""
        self.config = config
        self.share = Share() if share is None else share
        given: dict[Side, pa.Schema] = {"l": config.left_schema, "r": config.right_schema}
        for side in SIDES:
            check_schema(given[side], side)
        self.given = given
        schemas = {side: storage_schema(given[side]) for side in SIDES}
        self.schemas = schemas
        self.layout = Layout(given["l"], given["r"], config.how, config.suffix)
        self.condition: Condition = compile_condition(config.on, schemas["l"], schemas["r"])
        time = time_difference(config.window, schemas["l"], schemas["r"])
        self.clock = None if time is None else Clock.of(time)
        self.parts = compile_parts(self.condition, time)
        self.ordering = Ordering(self._order_columns())
        self.watermark: int | None = None
        # Where a side's rows are late from another time on than the watermark.
        self.late: dict[Side, int] = {}
        self.counters = Counters()
        options = config.options
        self.joiner = Joiner(
            self.parts, self.layout, options.chunk_rows, options.workers, config.how != "inner"
        )
        self.stores: dict[Side, Store] = {
            side: self.new_store(side, options.index, options.index_options) for side in SIDES
        }
        self._tune = None if options.index == PO_JOIN else tuner(self)

    def new_store(self, side: Side, index: str, parameters: Mapping[str, Any]) -> Store:
        """An empty store for one side's rows under a window structure."""
        window, options = self.config.window, self.config.options
        config = StoreConfig(
            head_rows=options.head_rows,
            background=options.merge == "background",
            bounded=not isinstance(window, FullHistory),
            owes=owes(self.config.how, side),
            segments=self.config.segments,
            index=index,
            index_options=tuple(sorted(parameters.items())),
            window_rows=window.size if isinstance(window, CountWindow) else None,
        )
        if index == PO_JOIN:
            return Store(side, self.parts, config)
        shapes = [part.views[side].shape for part in self.parts]
        return store_class(index, shapes, self.condition.sql)(side, self.parts, config)

    def _order_columns(self) -> Any:
        names = self.config.order_by
        if names is None:
            return None
        for side, name in zip(SIDES, names, strict=True):
            if name not in self.schemas[side].names:
                raise SchemaError(
                    f"order_by column {name!r} is not in the {'left' if side == 'l' else 'right'} "
                    f"input; it has {', '.join(self.schemas[side].names)}"
                )
        return compare_columns(*names, self.schemas["l"], self.schemas["r"])

    def _kept(self, side: Side) -> list[str]:
        """Columns to keep of a side's rows: those of the output, and what keys are made from."""
        if side == "l" or not self.layout.only_left:
            return list(self.schemas[side].names)
        exprs = [key.expr for part in self.parts for key in part.keys[side]]
        exprs += [e for part in self.parts for e in (part.residual, part.filters[side]) if e]
        needed = {name for expr in exprs for name in expr.columns(side)}
        return [name for name in self.schemas[side].names if name in needed]

    def run(
        self,
        left: pa.RecordBatch | None,
        right: pa.RecordBatch | None,
        *,
        last: bool = False,
        on_arrival: Callable[[dict[Side, Block]], None] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Take new rows in, giving the output they cause; they are stored when this is exhausted.

        With `last` nothing will follow, so what only later rows would need is not built.
        `on_arrival` is called once, before any output, with the blocks that will be stored.
        """
        arrivals = self._arrive(left, right, last)
        if on_arrival is not None:
            on_arrival({side: arrivals[side].block for side in SIDES})
        marks: dict[int, Flags] = {}
        pairs = 0
        for side, blocks, see in self._steps(arrivals):
            want_output = self.config.how not in ("semi", "anti")
            once = not want_output and side == "l"
            for found in self.joiner.probe(
                arrivals[side].batch, side, blocks, see, once=once, want_output=want_output
            ):
                pairs += len(found.probe_rows)
                output = self._settle(side, arrivals, found, marks)
                if output is not None and output.num_rows:
                    yield output
        if not last:
            yield from self._unmatchable(arrivals)
        self._commit(arrivals, marks, pairs)
        if isinstance(self.config.window, CountWindow):
            yield from self._expire_counted(self.config.window)

    def visit(
        self,
        left: pa.RecordBatch | None,
        right: pa.RecordBatch | None,
        step: Callable[[Side, Batch, list[Block], See | None], None],
        *,
        last: bool = False,
        on_arrival: Callable[[dict[Side, Block]], None] | None = None,
        done: Callable[[], None] | None = None,
    ) -> None:
        """Take new rows in as `run` does, but have `step` deal with what meets what.

        For inner joins: `step` is given the new rows of one side, the blocks of the other that they
        meet and what they may see of them; together the calls cover each new pair once. `done` is
        called after the last of them; the rows are stored if it raises nothing.
        """
        arrivals = self._arrive(left, right, last)
        if on_arrival is not None:
            on_arrival({side: arrivals[side].block for side in SIDES})
        for side, batch, blocks, see in self._visits(arrivals):
            step(side, batch, blocks, see)
        if done is not None:
            done()
        self._commit(arrivals, {}, 0)
        if isinstance(self.config.window, CountWindow):
            for _ in self._expire_counted(self.config.window):
                pass

    def _arrive(
        self, left: pa.RecordBatch | None, right: pa.RecordBatch | None, last: bool
    ) -> dict[Side, Arrival]:
        given: dict[Side, pa.RecordBatch] = {}
        for side, batch in zip(SIDES, (left, right), strict=True):
            whole = empty_batch(self.given[side]) if batch is None else batch
            given[side] = stored(conform(whole, self.given[side], side), self.schemas[side])
        timed = {side: self._on_time(given[side], side) for side in SIDES}
        rows = {side: timed[side][0] for side in SIDES}
        befores: dict[Side, Int64] = {side: np.zeros(0, np.int64) for side in SIDES}
        if self._ordered:
            orders, counts = self.ordering.places(rows["l"], rows["r"])
            for side, order, before in zip(SIDES, orders, counts, strict=True):
                befores[side] = before
                if order is not None:
                    rows[side] = rows[side].take(pa.array(order))
        firsts = {side: self.stores[side].count for side in SIDES}
        batches: dict[Side, Batch] = {}
        for side in SIDES:
            start, end = 0, rows[side].num_rows
            if side in self.share.probed_in_part:
                start, end = self.share.part(end, firsts[side])
            mine, befores[side] = rows[side].slice(start, end - start), befores[side][start:end]
            batches[side] = make_batch(mine, side, self.parts, self._kept(side))
            firsts[side] += start
        arrivals: dict[Side, Arrival] = {}
        for side in SIDES:
            kept, numbers = self._share_of(side, batches, firsts[side])
            times = None if self.clock is None else self.clock.times(kept.table, side)[0]
            arrivals[side] = Arrival(
                batches[side],
                firsts[side],
                befores[side],
                kept,
                self._block(side, kept, times, numbers, last),
                rows[side].num_rows,
                *timed[side][1:],
            )
        return arrivals

    def _share_of(
        self, side: Side, batches: dict[Side, Batch], first: int
    ) -> tuple[Batch, Arrivals]:
        """The rows of a micro-batch that are to be stored here, and their arrival numbers."""
        batch = batches[side]
        if side not in self.share.stored_in_part or side in self.share.probed_in_part:
            return batch, Arrivals.dense(first, len(batch))
        # Rows of a self-join are stored once, to be found in both roles.
        role: Side = "l" if self.config.self_join else side
        mine = self.share.stored(self.parts[0], batches, role, first)
        kept = batch.where(mine)
        if not len(kept) or not self._ordered:
            return kept, Arrivals.dense(first, len(kept))
        return kept, Arrivals.of(first + np.flatnonzero(mine))

    @property
    def _ordered(self) -> bool:
        """Whether it matters which of two rows came first."""
        return isinstance(self.config.window, CountWindow) or self.config.self_join

    def _block(
        self, side: Side, batch: Batch, times: Int64 | None, numbers: Arrivals, last: bool
    ) -> Block:
        store = self.stores[side]
        if last and side == "l" and not self._ordered:
            settled = np.zeros(len(batch), np.bool_) if store.config.owes else None
            return Block(numbers, batch.table, [], settled, times)
        if self.joiner.threads == 1 or len(batch) < PARALLEL_SORT_ROWS:
            return store.block_of(batch, times, arrivals=numbers)
        with ThreadPoolExecutor(self.joiner.threads) as pool:
            mapper: Mapper = lambda f, xs: list(pool.map(f, xs))  # noqa: E731
            return store.block_of(batch, times, arrivals=numbers, mapper=mapper)

    def _on_time(self, batch: pa.RecordBatch, side: Side) -> tuple[pa.RecordBatch, int, int]:
        """Rows that are not late, and how many were late or without a time."""
        if self.clock is None:
            return batch, 0, 0
        times, null = self.clock.times(batch, side)
        nulls = int(null.sum())
        mark = self.late.get(side, self.watermark)
        if mark is None:
            return batch, 0, nulls
        late = (times < mark) & ~null
        if not late.any():
            return batch, 0, nulls
        return batch.filter(pa.array(~late)), int(late.sum()), nulls

    def _steps(
        self, arrivals: dict[Side, Arrival]
    ) -> Iterator[tuple[Side, list[Block], See | None]]:
        """Who probes what: together these meet every pair with a new row exactly once."""
        if not self._ordered:
            yield "r", self.stores["l"].probed(), None
            yield "l", [*self.stores["r"].probed(), arrivals["r"].block], None
            return
        sees = {side: self._sees(side, arrivals[side]) for side in SIDES}
        new = {side: [arrivals[OTHER[side]].block] for side in SIDES}
        if not self.config.self_join and self._new_meet(sees):
            # Whichever of two new rows is the later sees the other: one side can look for both.
            sees = {side: See(see.low, None) for side, see in sees.items()}
            new["r"] = []
        for side in SIDES:
            yield side, [*self.stores[OTHER[side]].probed(), *new[side]], sees[side]

    def _visits(
        self, arrivals: dict[Side, Arrival]
    ) -> Iterator[tuple[Side, Batch, list[Block], See | None]]:
        """Who probes what where the pairs are not listed: as in `_steps`, with fewer bounds.

        Rows of a self-join see the earlier ones, each up to another arrival number, and that is one
        more order of rows to decide by. Where all new rows are in the window together, each may
        meet all of them but itself.
        """
        sees = {side: self._sees(side, arrivals[side]) for side in SIDES}
        if not self.config.self_join or not self._new_meet(sees):
            for side, blocks, see in self._steps(arrivals):
                yield side, arrivals[side].batch, blocks, see
            return
        for side in SIDES:
            low = sees[side].low
            see = None if low is None else See(low, None)
            yield side, arrivals[side].batch, self.stores[OTHER[side]].probed(), see
        arrival = arrivals["l"]
        apart = arrival.first + np.arange(len(arrival.batch))
        yield "l", arrival.batch, [arrivals["r"].block], See(None, None, apart)

    def _sees(self, side: Side, arrival: Arrival) -> See:
        """What a side's new rows may see where rows are taken in an order."""
        window = self.config.window
        if self.config.self_join:
            seen = arrival.first + np.arange(len(arrival.batch))
        else:
            seen = self.stores[OTHER[side]].count + arrival.before
        low = None
        if isinstance(window, CountWindow):
            low = CountWindow.first_visible(seen, window.size, window.slide)
        return See(low, seen - 1)

    def _new_meet(self, sees: dict[Side, See]) -> bool:
        """Whether no new row has left the window when the last new row of the other side comes."""
        return all(
            see.low is None or not len(see.low) or see.low[-1] <= self.stores[OTHER[side]].count
            for side, see in sees.items()
        )

    def _settle(
        self, side: Side, arrivals: dict[Side, Arrival], found: Found, marks: dict[int, Flags]
    ) -> pa.RecordBatch | None:
        """Mark what has found a match; the rows to give out for it."""
        new_left: tuple[Block, NDArray[np.int32]] | None = None
        probing = side, arrivals[side].block, found.probe_rows
        for of, block, rows in (probing, (OTHER[side], found.block, found.stored_rows)):
            if block.settled is None:
                continue
            fresh = block is arrivals[of].block
            flags = block.settled if fresh else marks.setdefault(id(block), block.settled.copy())
            if of == "l" and self.config.how == "semi":
                new_left = block, np.unique(rows[~flags[rows]])
            flags[rows] = True
        if self.config.how == "semi":
            assert new_left is not None
            return self.layout.single("l", new_left[0].table, new_left[1])
        return found.output

    def _unmatchable(self, arrivals: dict[Side, Arrival]) -> Iterator[pa.RecordBatch]:
        """New rows that never can match: what an outer join owes for them is owed now."""
        for side in SIDES:
            block = arrivals[side].block
            if block.settled is None or not self._gives_unmatched(side):
                continue
            rows = np.flatnonzero(~arrivals[side].kept.matchable() & ~block.settled)
            block.settled[rows] = True
            yield from self._unmatched(side, block, rows)

    def _gives_unmatched(self, side: Side) -> bool:
        return self.config.how != "semi" and owes(self.config.how, side)

    def _unmatched(
        self, side: Side, block: Block, rows: NDArray[np.intp]
    ) -> Iterator[pa.RecordBatch]:
        step = self.config.options.chunk_rows
        for start in range(0, len(rows), step):
            chunk = rows[start : start + step].astype(np.int32)
            self.counters.unmatched += len(chunk)
            yield self.layout.single(side, block.table, chunk)

    def expired(self, side: Side, last: int, newest: int | None) -> bool:
        """Whether rows up to an arrival number and an event time can be forgotten."""
        window = self.config.window
        if isinstance(window, CountWindow):
            count = self.stores[side].count
            return last < CountWindow.first_visible(count, window.size, window.slide)
        if self.clock is None or self.watermark is None or newest is None:
            return False
        # A self-join's rows are kept once, for both roles.
        roles = SIDES if self.config.self_join else (side,)
        return newest < self.watermark - max(self.clock.reach[role] for role in roles)

    def _commit(self, arrivals: dict[Side, Arrival], marks: dict[int, Flags], pairs: int) -> None:
        for side in SIDES:
            for block in self.stores[side].blocks():
                block.settled = marks.get(id(block), block.settled)
            self.stores[side].add(arrivals[side].block, arrivals[side].arrived)
            if self._tune is not None:
                self._tune(side, len(arrivals[side].kept))
            if side == "l" or not self.config.self_join:
                self.counters.late_rows += arrivals[side].late
                self.counters.null_times += arrivals[side].null_times
        self.counters.pairs += pairs

    def _expire_counted(self, window: CountWindow) -> Iterator[pa.RecordBatch]:
        for side in SIDES:
            store = self.stores[side]
            first = CountWindow.first_visible(store.count, window.size, window.slide)
            for block in store.blocks() if self._gives_unmatched(side) else ():
                if block.arrivals.first >= first:
                    break
                gone = int(block.arrivals.rows_before(np.array([first]))[0])
                if gone and block.settled is not None:
                    rows = np.flatnonzero(~block.settled[:gone])
                    block.settled[rows] = True
                    yield from self._unmatched(side, block, rows)
            store.drop_before(first)

    def advance(self, watermark: Any) -> Iterator[pa.RecordBatch]:
        """Move event time; gives unmatched rows that no later row can match any more."""
        if self.clock is None:
            raise WindowError("advance() moves event time: the join needs a TimeWindow for that")
        yield from self.advance_to(self.clock.instant(watermark))

    def advance_to(self, instant: int) -> Iterator[pa.RecordBatch]:
        """Move event time to an instant in the unit of the time keys."""
        if self.clock is None or (self.watermark is not None and instant <= self.watermark):
            return
        self.watermark = instant
        for side in SIDES:
            oldest = instant - self.clock.reach[side]
            for block in self.stores[side].blocks():
                if block.settled is not None and self._gives_unmatched(side):
                    assert block.times is not None
                    rows = np.flatnonzero(~block.settled & (block.times < oldest))
                    block.settled[rows] = True
                    yield from self._unmatched(side, block, rows)
            self.stores[side].drop_older(oldest)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """All rows that are still owed as unmatched: nothing more will come."""
        for side in SIDES:
            if not self._gives_unmatched(side):
                continue
            for block in self.stores[side].blocks():
                assert block.settled is not None
                rows = np.flatnonzero(~block.settled)
                block.settled[rows] = True
                yield from self._unmatched(side, block, rows)

    def close(self) -> None:
        """Wait for merges under way."""
        for store in self.stores.values():
            store.settle_merge(wait=True)
