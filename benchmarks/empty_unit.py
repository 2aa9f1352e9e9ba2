"""Units that do nothing with their rows: what a pipeline costs by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming import StatefulProcessor

from thetajoin.spark.exchange import unpack_ordered
from thetajoin.spark.unit import FRAME_ROWS, JoinUnit, to_frame


@contextmanager
def instead(module: Any, name: str, unit: type[Any]) -> Iterator[None]:
    """Have the joins that are made meanwhile carried out by another class of units."""
    own = getattr(module, name)
    setattr(module, name, unit)
    try:
        yield
    finally:
        setattr(module, name, own)


class EmptyUnit(JoinUnit):
    """Reads what it is sent, keeps a number, emits nothing."""

    def _step(self, unit: int, blobs: dict[int, list[bytes]], timers: Any) -> Iterator[Any]:
        order_by = self._spec.join.order_by or (None, None)
        schemas = self._spec.schema("left"), self._spec.schema("right")
        sides = [unpack_ordered(blobs[at], schemas[at], order_by[at]) for at in (0, 1)]
        saved = self._description.get()
        rows = sum(side.num_rows for side in sides)
        self._description.update((str(rows + int(saved[0] if saved else 0)),))
        yield from self._emit(*sides)

    def _emit(self, left: pa.RecordBatch, right: pa.RecordBatch) -> Iterator[Any]:
        return iter(())


class EchoUnit(EmptyUnit):
    """Emits as many rows as a join with a match a row, but stores nothing and looks for nothing.

    What is slower than this in a join is the join; what is slower here than in an empty unit is
    Spark taking rows from Python, which no join can do without.
    """

    def _emit(self, left: pa.RecordBatch, right: pa.RecordBatch) -> Iterator[Any]:
        rows = min(left.num_rows, right.num_rows)
        columns = [side.slice(0, rows).columns for side in (left, right)]
        schema = self._spec.state(0).join.layout.schema
        pairs = pa.RecordBatch.from_arrays([*columns[0], *columns[1]], schema=schema)
        for start in range(0, rows, FRAME_ROWS):
            yield to_frame(pairs.slice(start, FRAME_ROWS))


class PlainUnit(StatefulProcessor):  # type: ignore[misc]
    """Rows as Spark itself brings them to a stateful operator: counted, and nothing emitted."""

    def init(self, handle: Any) -> None:
        """Called by Spark before any rows, in every task."""
        self._seen = handle.getValueState("seen", "rows bigint")

    def close(self) -> None:
        """Called by Spark at the end of a task; nothing is held open."""

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """Count the rows."""
        saved = self._seen.get()
        self._seen.update(((saved[0] if saved else 0) + sum(len(frame) for frame in rows),))
        return iter(())
