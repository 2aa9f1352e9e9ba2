"""The join of two whole tables: nothing comes later, so only what is looked at once is built."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.arrays import filled
from thetajoin.engine.block import Block, sorted_block, unsorted_block
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.joiner import Found, See
from thetajoin.engine.layout import preserves
from thetajoin.engine.overlaps import Look, looks
from thetajoin.engine.parts import OTHER, SIDES, Side
from thetajoin.engine.rows import KeyedBatch
from thetajoin.engine.state import JoinState, mapper_of
from thetajoin.index.probe import Arrivals
from thetajoin.limits import limits
from thetajoin.paper_options import PO_JOIN
from thetajoin.window.windows import CountWindow


def join_tables(
    join: CompiledJoin, left: pa.RecordBatch, right: pa.RecordBatch
) -> Generator[pa.RecordBatch, None, None]:
    """The result of a join of two tables, in batches of bounded size."""
    window, index = join.window, join.options.index
    if isinstance(window, CountWindow) or index != PO_JOIN:
        state = JoinState(join)
        yield from state.run(left, right, last=True)
        yield from state.finish()
        return
    yield from _OneShot(join, left, right).run()


class _OneShot:
    """Both tables, keyed once, and which of their rows have found a match."""

    def __init__(self, join: CompiledJoin, left: pa.RecordBatch, right: pa.RecordBatch) -> None:
        self._join, self._how = join, join.spec.how
        given = {"l": left, "r": right}
        with mapper_of(join, left.num_rows + right.num_rows) as mapper:
            keyed = mapper(lambda side: join.keyed(given[side], side), SIDES)
        self._batches: dict[Side, KeyedBatch] = dict(zip(SIDES, keyed, strict=True))
        self._matched: dict[Side, NDArray[np.bool_]] = {
            side: filled(len(batch), False, np.bool_)
            for side, batch in self._batches.items()
            if preserves(self._how, side)
        }

    def run(self) -> Iterator[pa.RecordBatch]:
        """Matches as they are found, then the rows that come out alone."""
        want_pairs = self._how not in ("semi", "anti")
        for look in self._looks():
            for found in self._found(look, want_pairs):
                probing = OTHER[look.stored]
                for side, rows in (
                    (probing, found.probe_rows),
                    (look.stored, found.stored_rows),
                ):
                    if side in self._matched:
                        self._matched[side][rows] = True
                if found.output is not None and found.output.num_rows:
                    yield found.output
        yield from self._alone()

    def _looks(self) -> Iterator[Look]:
        left, right = self._batches["l"], self._batches["r"]
        for part, *rows in zip(self._join.parts, left.parts, right.parts, strict=True):
            yield from looks(part, *rows)

    def _found(self, look: Look, want_pairs: bool) -> Iterator[Found]:
        """One look-up: the stored side is sorted, and the other one probes it."""
        probing = OTHER[look.stored]
        if not all(len(rows) for rows in look.rows.values()):
            return
        joiner = replace(self._join.joiner, parts=(look.part,))
        batch = KeyedBatch(self._batches[probing].table, (look.rows[probing],))
        block = self._block(look)
        once = not want_pairs and probing == "l"
        see = None
        if self._join.spec.self_join:  # no row with itself
            see = See(None, None, np.arange(len(batch)))
        yield from joiner.probe(batch, probing, [block], see, once=once, want_output=want_pairs)

    def _block(self, look: Look) -> Block:
        """The stored side's rows, sorted; as they come where they are few."""
        view, table = look.part.views[look.stored], self._batches[look.stored].table
        batch = KeyedBatch(table, (look.rows[look.stored],))
        args = Arrivals.dense(0, len(batch)), batch, [view.shape], [view.stored]
        few = len(batch) <= self._join.options.head_rows // 2
        many_probes = len(look.rows[OTHER[look.stored]]) >= limits.sorted_probes
        if view.shape.run and many_probes:  # an equality that many look up
            few = False
        if few and not any(dim.is_bytes for dim in view.shape.dims):
            return unsorted_block(*args, settled=None, times=None, capacity=0)
        with mapper_of(self._join, len(batch)) as mapper:
            return sorted_block(*args, settled=None, times=None, mapper=mapper)

    def _alone(self) -> Iterator[pa.RecordBatch]:
        """Rows of preserved sides that matched nothing; those that did, of a semi join."""
        for side, matched in self._matched.items():
            rows = np.flatnonzero(matched if self._how == "semi" else ~matched)
            yield from self._join.give_alone(side, self._batches[side].table, rows)
