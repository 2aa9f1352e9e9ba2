"""A unit that unpacks its rows and does nothing with them: the pipeline's own cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
