"""Nearest matches as a kind of call: of two tables, of streams, and of a stream beside a table."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.arrays import fill, number_rows
from thetajoin.engine.block import KEYED, Block, Flags, concat_batches, empty_batch
from thetajoin.engine.compiled import CompiledJoin, ListedPairs
from thetajoin.engine.layout import How
from thetajoin.engine.nearest import Nearest
from thetajoin.engine.neighbours import NearestFinder, Neighbours
from thetajoin.engine.parts import NearKey, Part, Side, compile_parts
from thetajoin.engine.rows import Clock, KeyedBatch, cut_evenly, make_batch, rank_values
from thetajoin.engine.state import JoinState, mapper_of
from thetajoin.engine.step import Share, Step
from thetajoin.engine.tables import refuse_count_window
from thetajoin.errors import OptionError
from thetajoin.index.probe import Arrivals
from thetajoin.kernels.jit import few_rows
from thetajoin.kernels.order import gather, order_of
from thetajoin.limits import limits
from thetajoin.predicate import Condition, Difference, no_condition


class NearestJoin(CompiledJoin):
    """A nearest match of two schemas, ready for rows.

    A left row of a stream waits until it is known what it is nearest to, and only right rows are
    looked for.
    """

    near_key: NearKey

    def _compile_condition(self) -> Condition:
        schemas = self.schemas["l"], self.schemas["r"]
        self.near_key = self.nearest.near_key(*schemas)
        return no_condition() if self.spec.on is None else super()._compile_condition()

    def _set_clock(self, time: Difference) -> Clock:
        reach = self.near_key.reach
        return Clock.of(time).extend_for_waiting(None if reach is None else cast(int, reach.high))

    def _compile_parts(self, time: Difference | None) -> tuple[Part, ...]:
        return compile_parts(self.condition, time, self.near_key)

    @property
    def nearest(self) -> Nearest:
        """The key, the direction, and how many rows to take."""
        assert self.spec.nearest is not None
        return self.spec.nearest

    @property
    def keeps(self) -> How:
        """As in a left join, each left row is in one place, with a mark."""
        return "left"

    @property
    def keeps_head(self) -> bool:
        """No: what is nearest is found in sorted rows."""
        return False

    def is_probed(self, side: Side) -> bool:
        """Whether a side's stored rows are ever looked for."""
        return side == "r"

    def list_named(self, side: Side) -> set[str]:
        """Columns of a side that the condition and the order of ties name."""
        order_by = self.nearest.order_by
        return super().list_named(side) | (
            {order_by} if side == "r" and order_by is not None else set()
        )

    def new_state(self, share: Share | None = None) -> JoinState:
        """The empty state of a nearest match of streams, or of one unit's share of it."""
        return NearestState(self, share)

    def join_tables(
        self, left: pa.RecordBatch, right: pa.RecordBatch
    ) -> Generator[pa.RecordBatch, None, None]:
        """The nearest match of two whole tables, in the order of the left one's rows."""
        with few_rows(left.num_rows + right.num_rows):
            found = NearestTable(self, right).run(left)
        yield from found

    def list_few(self, left: pa.RecordBatch, right: pa.RecordBatch) -> ListedPairs:
        """The nearest rows of all left rows."""
        table, batch = NearestTable(self, right), self.key_rows(left, "l")
        found = table.find(batch)
        return (batch.table, found.left), (table.rows, found.row)

    def put_beside(self, streaming: Side, table: pa.RecordBatch) -> NearestTable:
        """Index the right table for a stream on the left."""
        if streaming == "r":
            raise OptionError(
                "nearest with a stream on the right and a table on the left: a nearer row may "
                "always come; make the left input the stream, or read both as streams"
            )
        refuse_count_window(self)
        return NearestTable(self, table)

    def hold(self, held: Side, rows: pa.RecordBatch, **give: Any) -> HeldNearest:
        """Hold left rows while the right ones pass."""
        return HeldNearest(self, rows)


class NearestTable:
    """A whole right table, indexed once, for left rows to find their nearest rows in.

    rows: the table in the order that `find` numbers its rows in.
    """

    def __init__(self, join: NearestJoin, right: pa.RecordBatch) -> None:
        right = _sort_by_order(join, right)
        batch = join.key_rows(right, "r")
        with mapper_of(join, len(batch)) as mapper:
            times = join.times(batch.table, "r")
            numbers = Arrivals.dense(0, len(batch))
            block = join.new_store("r").block_of(batch, times, arrivals=numbers, mapper=mapper)
        self._join, self._right, self.rows = join, right, block.table
        self._finder = NearestFinder(join, [block], in_order=True, threads=1)

    def find(self, left: KeyedBatch) -> Neighbours:
        """Left rows and their nearest rows."""
        return self._finder.find(left)

    def neighbours(self, left: KeyedBatch) -> pa.RecordBatch:
        """The rows of the table that are among the nearest of some left row."""
        rows = np.unique(self.find(left).row)
        return self._right.take(pa.array(rows))

    def run(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The nearest matches of left rows, in their order; a piece of them for each thread."""
        threads = min(self._join.joiner.threads, rows.num_rows // limits.sorted_probes)
        if threads < 2:
            return iter([self._find_matches(rows)])
        pieces = [rows.slice(a, b - a) for a, b in cut_evenly(rows.num_rows, threads)]
        with ThreadPoolExecutor(threads) as pool:
            return iter(list(pool.map(self._find_matches, pieces)))

    def _find_matches(self, left: pa.RecordBatch) -> pa.RecordBatch:
        layout, how, right = self._join.layout, self._join.spec.how, self.rows
        batch = self._join.key_rows(left, "l")
        found = self.find(batch)
        counts = np.bincount(found.left, minlength=len(batch))
        if how in ("semi", "anti"):
            alone = np.flatnonzero((counts > 0) == (how == "semi")).astype(np.int32)
            return layout.single("l", batch.table, alone)
        if counts.max(initial=0) <= 1:
            rows = fill(len(batch), -1, np.int32)
            rows[found.left] = found.row
            if how == "left":
                return layout.match_rows(batch.table, None, right, rows)
            lefts = np.flatnonzero(counts).astype(np.int32)
            return layout.pairs(batch.table, lefts, right, rows[lefts])
        order = order_of(found.left.astype(np.int64))
        lefts, matches = gather(found.left, order), gather(found.row, order)
        if how == "inner":
            return layout.pairs(batch.table, lefts, right, matches)
        lefts = np.repeat(number_rows(len(batch)), np.maximum(counts, 1))
        rows = fill(lefts.size, -1, np.int32)
        rows[(counts > 0)[lefts]] = matches
        return layout.match_rows(batch.table, lefts, right, rows)


class HeldNearest:
    """Held left rows and right rows streamed past them, of which only the nearest are kept."""

    def __init__(self, join: NearestJoin, rows: pa.RecordBatch) -> None:
        self._join, self._left = join, join.key_rows(rows, "l")
        self._rows = rows
        self._kept: pa.RecordBatch | None = None

    def run(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Keep what may be nearest to a held row; gives nothing yet."""
        both = rows if self._kept is None else concat_batches([self._kept, rows])
        self._kept = NearestTable(self._join, both).neighbours(self._left)
        return iter(())

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The nearest matches of the held rows."""
        none = empty_batch(self._join.given["r"])
        right = none if self._kept is None else self._kept
        yield from NearestTable(self._join, right).run(self._rows)


def _sort_by_order(join: NearestJoin, right: pa.RecordBatch) -> pa.RecordBatch:
    """Right rows in the order that decides between those at equal distance."""
    name = join.nearest.order_by
    if name is None:
        return right
    column = join.take_in(right, "r").column(name)
    return right.take(pa.array(order_of(rank_values(column))))


class NearestState(JoinState):
    """Rows of both sides; a left row comes out once no nearer row can come."""

    join: NearestJoin

    def carry_out(self, step: Step) -> Iterator[pa.RecordBatch]:
        """New rows wait; only those that can never match come out now."""
        yield from self._give_unmatchable(step)
        yield from self.commit(step)

    def _release(self, instant: int | None) -> Iterator[pa.RecordBatch]:
        """The nearest rows of left rows that need wait no longer; at the end (None) of all."""
        finder = NearestFinder(self.join, self.stores["r"].blocks())
        marks: dict[object, Flags] = {}
        for block in self.stores["l"].blocks():
            assert block.settled is not None
            due, early = self._due(block, instant)
            rows = np.flatnonzero(due | early).astype(np.int32)
            if not rows.size:
                continue
            batch = self._key_again(block).where(due | early)
            found = finder.find(batch)
            known = due[rows]
            if instant is not None and early.any():
                assert block.times is not None
                known |= self._final(found, block.times[rows], instant)
            settled = block.settled.copy()
            settled[rows[known]] = True
            marks[block.identity] = settled
            yield from self._give(batch.table, found.where(known[found.left]), known)
            if settled.all():
                block.derived.pop(KEYED, None)  # made again should this step fail
        self.stores["l"].set_marks(marks)

    def _key_again(self, block: Block) -> KeyedBatch:
        """Left rows and their keys, as they came; made again where they come from a file."""
        if KEYED not in block.derived:
            block.derived[KEYED] = make_batch(block.table, "l", self.join.parts, []).parts
        return KeyedBatch(block.table, block.derived[KEYED])

    def _due(self, block: Block, instant: int | None) -> tuple[Flags, Flags]:
        """Rows that must come out now, and rows that may if what is nearest is known."""
        assert block.settled is not None
        waiting = ~block.settled
        if instant is None:
            return waiting, np.zeros(block.rows, np.bool_)
        assert block.times is not None
        assert self.join.clock is not None
        after = self.join.clock.reach["l"]
        due = waiting & (block.times < instant - after)
        return due, waiting & ~due & (block.times < instant) & (after > 0)

    def _final(self, found: Neighbours, times: NDArray[np.int64], instant: int) -> Flags:
        """Left rows that have as many matches as wanted, all nearer than any row to come."""
        counts = np.bincount(found.left, minlength=len(times))
        if self.join.spec.how == "semi":
            return counts > 0
        matched = np.empty(len(found), np.int64)
        for place, block in enumerate(self.stores["r"].blocks()):
            mine = found.block == place
            assert block.times is not None
            matched[mine] = block.times[found.row[mine]]
        farthest = np.zeros(len(times), np.int64)
        np.maximum.at(farthest, found.left, np.abs(matched - times[found.left]))
        return (counts >= self.join.nearest.k) & (farthest < instant - times)

    def _give(
        self, left: pa.RecordBatch, found: Neighbours, known: Flags
    ) -> Iterator[pa.RecordBatch]:
        """Rows to give out for left rows of which everything is known."""
        how, step = self.join.spec.how, self.join.options.chunk_rows
        matched = np.bincount(found.left, minlength=left.num_rows) > 0
        self.counters.pairs += len(found)
        if how in ("inner", "left"):
            for place, block in enumerate(self.stores["r"].blocks()):
                mine = found.where(found.block == place)
                for start in range(0, len(mine), step):
                    lefts, rights = (rows[start : start + step] for rows in (mine.left, mine.row))
                    yield self.join.layout.pairs(left, lefts, block.table, rights)
        if how == "inner":
            return
        alone = known & (matched if how == "semi" else ~matched)
        if how != "semi":
            self.counters.unmatched += int(alone.sum())
        yield from self.join.give_alone("l", left, np.flatnonzero(alone))
