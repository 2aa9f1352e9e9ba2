"""The stateful processor that is sent to Spark: a unit, which is opened where there are rows.

Before the first micro-batch Spark starts a Python process of its own, only to ask the processor
which state it keeps. Everything that a unit imports would be loaded there, for nothing, while the
query waits: so this module imports next to nothing, and the unit inside it stays packed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.streaming import StatefulProcessor

if TYPE_CHECKING:
    import pandas as pd

    from thetajoin.spark.unit import JoinUnit


class States(NamedTuple):
    """What a unit keeps in the state store."""

    description: Any
    rows: Any
    marks: Any

    @staticmethod
    def of(handle: Any) -> States:
        """Declared to Spark, which asks for the same in every task."""
        return States(
            handle.getValueState("description", "json string"),
            handle.getMapState("rows", "id string", "blob binary"),
            handle.getValueState("marks", "l binary, r binary"),
        )


class UnitProcessor(StatefulProcessor):  # type: ignore[misc]
    """A unit that is opened when the first rows or timers come."""

    def __init__(self, unit: JoinUnit) -> None:
        self._packed = CloudPickleSerializer().dumps(unit)
        self._unit: JoinUnit | None = None

    def init(self, handle: Any) -> None:
        """Called by Spark before any rows, in every task, and once on the driver."""
        self._handle, self._states = handle, States.of(handle)

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """New blobs of both sides."""
        return self._open().handleInputRows(key, rows, timerValues)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        """The watermark has moved in a micro-batch that has no rows."""
        return self._open().handleExpiredTimer(key, timerValues, expiredTimerInfo)

    def close(self) -> None:
        """Called by Spark at the end of a task."""
        if self._unit is not None:
            self._unit.close()

    def _open(self) -> JoinUnit:
        if self._unit is None:
            unit: JoinUnit = CloudPickleSerializer().loads(self._packed)
            unit.start(self._handle, self._states)
            self._unit = unit
        return self._unit
