"""An order of a table's rows that every job and every attempt of a task agrees on.

Rows have no order of their own on Spark: those that nothing else orders are ordered by hashes. For
a count window they are numbered in it, and the window becomes a condition on the numbers. Spark
does that in one sorted pass through a single task, which is what a count over all rows takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from thetajoin.predicate.render import backquote
from thetajoin.spark.tasks import name_by_position
from thetajoin.window.many_inputs import MOST, list_numbers
from thetajoin.window.windows import CountWindow

# A row's text tells a NULL from no field, and instants apart to the microsecond in any time zone.
_EXACT = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def hash_columns(frame: Any) -> Any:
    """A hash of all columns of such a frame; Spark can only hash the text of maps and VARIANT.

    Different rows may share it, since Spark skips NULLs and takes -0.0 for 0.0.
    """
    columns = []
    for field in frame.schema.fields:
        name = field.dataType.simpleString()
        as_text = "map<" in name or "variant" in name
        columns.append(F.col(field.name).cast("string") if as_text else F.col(field.name))
    return F.xxhash64(*columns)


def tie_breakers(frame: Any) -> list[Any]:
    """Two hashes of all columns of such a frame; rows that share both are the same.

    They order rows that nothing else orders, alike in every job and every attempt of a task.
    """
    return [hash_columns(frame), F.xxhash64(F.to_json(F.struct(*frame.columns), _EXACT))]


def add_order(frame: Any, name: str) -> Any:
    """The frame with a column that orders its rows by what they hold, alike in every job.

    The order in which a query happens to name the columns does not matter.
    """
    columns = [F.col(backquote(column)) for column in sorted(frame.columns)]
    return frame.withColumn(name, F.xxhash64(F.to_json(F.struct(*columns), _EXACT)))


def number_rows(
    frames: Mapping[str, Any], order: Sequence[int], window: CountWindow
) -> dict[str, Any]:
    """The frames, columns by position, with the numbers that their rows carry after them.

    order: the place of the column in each that orders its rows. Rows of one frame that tie are
    ordered by what else they hold, so that a task that runs again numbers them alike. One frame
    alone is joined with itself, and its rows carry the numbers of both parts.
    """
    tagged = None
    for at, (name, frame) in enumerate(frames.items()):
        plain = name_by_position(frame)
        rows = [F.struct(*plain.columns) if n == name else F.lit(None) for n in frames]
        one = plain.select(
            F.col(f"c{order[at]}").alias("at"),
            F.lit(at).alias("input"),
            *[tie.alias(f"tie_{number}") for number, tie in enumerate(tie_breakers(plain))],
            *[column.alias(f"rows_{number}") for number, column in enumerate(rows)],
        )
        tagged = one if tagged is None else tagged.union(one)
    assert tagged is not None
    by = Over.orderBy(F.col("at").asc_nulls_first(), "input", "tie_0", "tie_1")
    running = by.rowsBetween(Over.unboundedPreceding, Over.currentRow)
    counts = [
        F.sum(F.when(F.col("input") == at, 1).otherwise(0)).over(running).alias(f"n_{at}")
        for at in range(len(frames))
    ]
    counted = tagged.select("*", *counts)
    result = {}
    for at, name in enumerate(frames):
        names = list_numbers(at, len(frames))
        before = [F.col(f"n_{other}") for other in range(len(frames))]
        index = before[at] - 1
        if len(frames) == 1:
            names, before = [*list_numbers(0, 2), *list_numbers(1, 2)], [index, index]
        numbers = [_number(number, index, before, window) for number in names]
        rows = counted.where(F.col("input") == at)
        result[name] = name_by_position(rows.select(f"rows_{at}.*", *numbers))
    return result


def _number(name: str, index: Any, before: Sequence[Any], window: CountWindow) -> Any:
    """One of the numbers, as `thetajoin.window.many_inputs` defines it."""
    size, slide = min(window.size, MOST), min(window.slide, MOST)
    kind, _, other = name.partition("_")
    if kind == "index":
        number = index
    elif kind == "last":
        number = F.greatest(index, size + slide * F.floor(index / slide))
    elif kind == "before":
        number = before[int(other)]
    else:
        beyond = F.greatest(F.lit(0), before[int(other)] - size)
        number = F.least(before[int(other)], slide * F.floor((beyond + (slide - 1)) / slide))
    return number.cast("bigint")


def add_numbers(frame: Any, name: str) -> Any:
    """The frame with a column that numbers its rows from 1, alike in every job but for twins."""
    text = F.to_json(F.struct(*[F.col(backquote(column)) for column in frame.columns]), _EXACT)
    return frame.withColumn(name, F.row_number().over(Over.orderBy(text)))
