"""A stream joined with a table: nothing of the stream is kept, so a batch is done when probed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.nearest_state import NearestTable
from thetajoin.engine.parts import OTHER, Side
from thetajoin.engine.step import Meeting
from thetajoin.errors import OptionError, WindowError
from thetajoin.window.windows import CountWindow

# Joins in which each row of the streaming side can be settled without seeing the others.
ALLOWED: dict[Side, tuple[str, ...]] = {
    "l": ("inner", "left", "semi", "anti"),
    "r": ("inner", "right"),
}


class StaticJoin:
    """The join of a stream, which is one side, with a table, which is the other."""

    def __init__(self, join: CompiledJoin, streaming: Side, table: pa.RecordBatch) -> None:
        """Index the table once."""
        how, other = join.spec.how, OTHER[streaming]
        if join.near_key is not None and streaming == "r":
            raise OptionError(
                "nearest with a stream on the right and a table on the left: a nearer row may "
                "always come; make the left input the stream, or read both as streams"
            )
        if how not in ALLOWED[streaming]:
            name = "left" if streaming == "l" else "right"
            raise OptionError(
                f"how={how!r} with a stream on the {name} and a table on the other side: which of "
                "the table's rows are unmatched would never be known; use "
                f"{', '.join(ALLOWED[streaming])}"
            )
        if isinstance(join.window, CountWindow):
            raise WindowError(
                "a CountWindow counts rows as they arrive, and a table has none that arrive: use "
                "FullHistory() or a TimeWindow"
            )
        self._join, self._side = join, streaming
        if join.near_key is not None:
            self._nearest = NearestTable(join, table)
            return
        batch = join.keyed(table, other)
        times = join.times(batch.table, other)
        self._blocks = [join.new_store(other).block_of(batch, times)]
        self.table = batch.table

    def meeting(self, rows: pa.RecordBatch) -> Meeting:
        """A batch of the stream, and the table that it meets."""
        return Meeting(self._side, self._join.keyed(rows, self._side), self._blocks, None)

    def run(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The output that a batch of the stream causes."""
        join, side, how = self._join, self._side, self._join.spec.how
        if join.near_key is not None:
            yield from self._nearest.run(rows)
            return
        batch = self.meeting(rows).batch
        matched = None if how == "inner" else np.zeros(len(batch), np.bool_)
        pairs = how not in ("semi", "anti")
        joiner = join.joiner.bounded(self.table, batch.table)
        for found in joiner.probe(batch, side, self._blocks, once=not pairs, want_output=pairs):
            if matched is not None:
                matched[found.probe_rows] = True
            if found.output is not None:
                yield found.output
        if matched is None:
            return
        rows = np.flatnonzero(matched if how == "semi" else ~matched)
        yield from join.give_alone(side, batch.table, rows)
