"""Columns of Spark's tables by position, and a hash of them."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from thetajoin.predicate.render import backquoted

# A row's text tells a NULL from no field, and instants apart to the microsecond in any time zone.
_EXACT = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def by_position(frame: Any) -> Any:
    """The frame with its columns named c0, c1, ...

    mapInArrow takes a name with a dot or a backtick for a path.
    """
    return frame.toDF(*[f"c{at}" for at in range(len(frame.columns))])


def hashed(frame: Any) -> Any:
    """A hash of all columns of such a frame; of maps and VARIANT Spark can only hash the text.

    Not all that differs has another hash: Spark skips NULLs and takes -0.0 for 0.0.
    """
    columns = []
    for field in frame.schema.fields:
        name = field.dataType.simpleString()
        as_text = "map<" in name or "variant" in name
        columns.append(F.col(field.name).cast("string") if as_text else F.col(field.name))
    return F.xxhash64(*columns)


def tie_breakers(frame: Any) -> list[Any]:
    """Two hashes of all columns of such a frame; rows that have both in common are the same.

    They order rows that nothing else orders, alike in every job and every attempt of a task.
    """
    return [hashed(frame), F.xxhash64(F.to_json(F.struct(*frame.columns), _EXACT))]


def with_order(frame: Any, name: str) -> Any:
    """The frame with a column that orders its rows by what they hold, alike in every job."""
    text = F.to_json(F.struct(*[F.col(backquoted(column)) for column in frame.columns]), _EXACT)
    return frame.withColumn(name, F.xxhash64(text))
