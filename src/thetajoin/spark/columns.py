"""Columns of Spark's tables by position."""

from __future__ import annotations

from typing import Any


def by_position(frame: Any) -> Any:
    """The frame with its columns named c0, c1, ...

    mapInArrow takes a name with a dot or a backtick for a path.
    """
    return frame.toDF(*[f"c{at}" for at in range(len(frame.columns))])
