"""Units that do nothing with their rows: what a pipeline costs by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql.streaming import StatefulProcessor

from thetajoin.spark.pack import unpack
from thetajoin.spark.unit import JoinUnit


class EmptyUnit(JoinUnit):
    """Reads what it is sent, keeps a number, emits nothing."""

    def _step(self, unit: int, blobs: dict[int, list[bytes]], timers: Any) -> Iterator[Any]:
        config = self._spec.config
        order_by = config.order_by or (None, None)
        schemas = config.left_schema, config.right_schema
        rows = sum(unpack(blobs[at], schemas[at], order_by[at]).num_rows for at in (0, 1))
        saved = self._description.get()
        self._description.update((str(rows + int(saved[0] if saved else 0)),))
        return iter(())


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
