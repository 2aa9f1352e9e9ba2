"""Columns of Spark's tables by position, and a hash of them."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F


def by_position(frame: Any) -> Any:
    """The frame with its columns named c0, c1, ...

    mapInArrow takes a name with a dot or a backtick for a path.
    """
    return frame.toDF(*[f"c{at}" for at in range(len(frame.columns))])


def hashed(frame: Any) -> Any:
    """A hash of all columns of such a frame; of maps Spark can only hash the text."""
    columns = []
    for field in frame.schema.fields:
        is_map = "map<" in field.dataType.simpleString()
        columns.append(F.col(field.name).cast("string") if is_map else F.col(field.name))
    return F.xxhash64(*columns)
