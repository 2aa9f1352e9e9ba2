"""Count windows over tables on Spark: each row is numbered, and the window becomes a condition.

Spark numbers the rows in one sorted pass through a single task, which is what a count over all
tables' common order takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from thetajoin.spark.columns import by_position, tie_breakers
from thetajoin.window.many_inputs import MOST, carried
from thetajoin.window.windows import CountWindow


def numbered(
    frames: Mapping[str, Any], order: Sequence[int], window: CountWindow
) -> dict[str, Any]:
    """The frames, columns by position, with the numbers that their rows carry after them.

    order: the place of the column in each that orders its rows. Rows of one frame that tie are
    ordered by what else they hold, so that a task that runs again numbers them alike. One frame
    alone is joined with itself, and its rows carry the numbers of both parts.
    """
    tagged = None
    for at, (name, frame) in enumerate(frames.items()):
        plain = by_position(frame)
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
        names = carried(at, len(frames))
        before = [F.col(f"n_{other}") for other in range(len(frames))]
        index = before[at] - 1
        if len(frames) == 1:
            names, before = [*carried(0, 2), *carried(1, 2)], [index, index]
        numbers = [_number(number, index, before, window) for number in names]
        rows = counted.where(F.col("input") == at)
        result[name] = by_position(rows.select(f"rows_{at}.*", *numbers))
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
