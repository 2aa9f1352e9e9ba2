"""A stream joined with a table: nothing of the stream is kept, so a batch is done when probed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from thetajoin.engine.block import Block
from thetajoin.engine.core import JoinCore
from thetajoin.engine.intake import conform, stored
from thetajoin.engine.rows import Batch, make_batch
from thetajoin.engine.spec import OTHER, Side
from thetajoin.errors import OptionError, WindowError
from thetajoin.window.spec import CountWindow

# Joins in which each row of the streaming side can be settled without seeing the others.
ALLOWED: dict[Side, tuple[str, ...]] = {
    "l": ("inner", "left", "semi", "anti"),
    "r": ("inner", "right"),
}


class StaticJoin:
    """The join of a stream, which is one side, with a table, which is the other."""

    def __init__(self, core: JoinCore, streaming: Side, table: pa.RecordBatch) -> None:
        """Index the table once."""
        how, other = core.config.how, OTHER[streaming]
        if how not in ALLOWED[streaming]:
            name = "left" if streaming == "l" else "right"
            raise OptionError(
                f"how={how!r} with a stream on the {name} and a table on the other side would owe "
                f"rows of the table for ever: use {', '.join(ALLOWED[streaming])}"
            )
        if isinstance(core.config.window, CountWindow):
            raise WindowError(
                "a CountWindow counts rows as they arrive, and a table has none that arrive: use "
                "FullHistory() or a TimeWindow"
            )
        self._core, self._side = core, streaming
        kept = stored(conform(table, core.given[other], other), core.schemas[other])
        batch = make_batch(kept, other, core.parts, list(kept.schema.names))
        store = core.stores[other]
        times = None if core.clock is None else core.clock.times(kept, other)[0]
        self._blocks = [store.block_of(batch, times)]
        self.table = batch.table

    def _batch(self, rows: pa.RecordBatch) -> Batch:
        core, side = self._core, self._side
        given = stored(conform(rows, core.given[side], side), core.schemas[side])
        return make_batch(given, side, core.parts, list(given.schema.names))

    def visit(
        self, rows: pa.RecordBatch, step: Callable[[Side, Batch, list[Block], None], None]
    ) -> None:
        """Have `step` deal with a batch of the stream and the table that it meets."""
        step(self._side, self._batch(rows), self._blocks, None)

    def run(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The output that a batch of the stream causes."""
        core, side, how = self._core, self._side, self._core.config.how
        batch = self._batch(rows)
        matched = None if how == "inner" else np.zeros(len(batch), np.bool_)
        pairs = how not in ("semi", "anti")
        for found in core.joiner.probe(
            batch, side, self._blocks, once=not pairs, want_output=pairs
        ):
            if matched is not None:
                matched[found.probe_rows] = True
            if found.output is not None:
                yield found.output
        if matched is None:
            return
        single = np.flatnonzero(matched if how == "semi" else ~matched).astype(np.int32)
        if len(single):
            yield core.layout.single(side, batch.table, single)
