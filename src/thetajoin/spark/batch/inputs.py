"""The tables of a batch join as its tasks see them: columns by position, and hidden ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from thetajoin.engine.core import JoinConfig, JoinCore
from thetajoin.engine.spec import Side
from thetajoin.spark.batch.counted import NUMBERS, hidden, numbered, sees
from thetajoin.spark.columns import by_position, hashed
from thetajoin.window.spec import CountWindow, FullHistory


@dataclass(frozen=True)
class Inputs:
    """Both tables and the join they take part in, its count window made a condition.

    frames: columns ``c0, c1, ...``, because a name with a dot would be taken for a path.
    is_self_join: the one table is read once and its rows take both parts; each row is numbered by
    the task that reads it, and pairs of a row with itself are left out.
    """

    frames: dict[Side, Any]
    config: JoinConfig
    is_self_join: bool
    counted: bool

    def shown(self, core: JoinCore) -> tuple[int, ...] | None:
        """Positions of the output columns that are the user's."""
        names = core.layout.schema.names
        shown = tuple(at for at, name in enumerate(names) if not name.startswith("__thetajoin_"))
        return None if len(shown) == len(names) else shown

    def apart(self, core: JoinCore) -> tuple[int, int] | None:
        """Positions of the row numbers in which the rows of a pair must differ."""
        if not self.is_self_join:
            return None
        names = core.layout.schema.names
        return names.index(hidden("l", "row")), names.index(hidden("r", "row"))


def prepare(left: Any, right: Any, config: JoinConfig, on: str) -> Inputs:
    """The inputs of a join that has been checked."""
    self_join, window = config.self_join, config.window
    frames: dict[Side, Any] = {"l": by_position(left)}
    if not self_join:
        frames["r"] = by_position(right)
    schemas = {"l": config.left_schema, "r": config.right_schema}
    counted = isinstance(window, CountWindow)
    if isinstance(window, CountWindow):
        assert config.order_by is not None
        order = [
            f"c{schemas[side].names.index(name)}"
            for side, name in zip(("l", "r"), config.order_by, strict=True)
        ]
        hashes = {side: hashed(frame) for side, frame in frames.items()}
        frames = numbered(frames, (order[0], order[1]), hashes, window)  # type: ignore[assignment, arg-type]
        for side, frame in frames.items():
            frames[side] = by_position(frame)
        on = f"({on}) AND ({sees('l', 'r')} OR {sees('r', 'l')})"
        window = FullHistory()
    for side in ("l", "r"):
        extra = [hidden(side, name) for name in NUMBERS] if counted else []
        extra += [hidden(side, "row")] if self_join else []
        for name in extra:
            schemas[side] = schemas[side].append(pa.field(name, pa.int64()))
    if self_join:
        frames["r"] = frames["l"]
    made = replace(
        config,
        on=on,
        left_schema=schemas["l"],
        right_schema=schemas["r"],
        window=window,
        order_by=None,
        self_join=False,
    )
    return Inputs(frames, made, self_join, counted)
