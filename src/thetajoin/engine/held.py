"""One side's rows held, the other's streamed past them: a task of a distributed join.

Memory holds the held rows and one chunk of the others. Where pairs are wanted the held rows are
indexed once and probed by each chunk; where only a match matters, each chunk is indexed and probed
by the held rows that have found none yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import pyarrow as pa

from thetajoin.engine.block import Block
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.parts import OTHER, Side
from thetajoin.engine.rows import KeyedBatch, PartRows

Singles = Literal["none", "matched", "unmatched"]


class HeldJoin:
    """The join of held rows with all that `run` is given; `finish` gives those that come alone."""

    def __init__(
        self,
        join: CompiledJoin,
        held: Side,
        rows: pa.RecordBatch,
        *,
        pairs: bool = True,
        singles: Singles = "none",
    ) -> None:
        """Key the held rows, and index them where pairs are wanted. O(n log n)."""
        self._join, self._held = join, held
        self._pairs, self._singles = pairs, singles
        self._batch = join.keyed(rows, held)
        self._matched = np.zeros(len(self._batch), np.bool_)
        self._block = self._index(self._batch, held) if pairs else None

    def _index(self, batch: KeyedBatch, side: Side) -> Block:
        return self._join.new_store(side).block_of(batch, self._join.times(batch.table, side))

    def run(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The pairs that a chunk of the other side gives."""
        chunk = self._join.keyed(rows, OTHER[self._held])
        if self._block is None:
            self._mark(chunk)
            return
        joiner = self._join.joiner.bounded(self._batch.table, chunk.table)
        for found in joiner.probe(chunk, OTHER[self._held], [self._block]):
            if self._singles != "none":
                self._matched[found.stored_rows] = True
            if found.output is not None:
                yield found.output

    def _mark(self, chunk: KeyedBatch) -> None:
        """Note which held rows find their first match in a chunk."""
        block = self._index(chunk, OTHER[self._held])
        waiting = KeyedBatch(
            self._batch.table,
            tuple(_where(part, ~self._matched[part.rows]) for part in self._batch.parts),
        )
        for found in self._join.joiner.probe(
            waiting, self._held, [block], once=True, want_output=False
        ):
            self._matched[found.probe_rows] = True

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Held rows that matched, or that did not, as the join wants."""
        if self._singles == "none":
            return
        wanted = self._matched if self._singles == "matched" else ~self._matched
        yield from self._join.give_alone(self._held, self._batch.table, np.flatnonzero(wanted))


def _where(part: PartRows, mask: np.ndarray) -> PartRows:
    return part if mask.all() else part.take(np.flatnonzero(mask).astype(np.int32))
