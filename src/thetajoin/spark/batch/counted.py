"""Count windows over tables: each row is numbered, and the window becomes a condition.

Spark numbers the rows in one sorted pass through a single task, which is what a count over both
tables' common order takes.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from thetajoin.window.spec import CountWindow

# A row's number on its own side, how many of the other came before, and the first of those it sees.
NUMBERS = ("index", "before", "first")
_MOST = 1 << 40


def hidden(side: str, name: str) -> str:
    """The name of a column that only serves the join."""
    return f"__thetajoin_{side}_{name}"


def numbered(
    frames: dict[str, Any], order: tuple[str, str], hashes: dict[str, Any], window: CountWindow
) -> dict[str, Any]:
    """Both sides' frames with the three numbers; one frame where a table is joined with itself.

    Rows of one side that tie are ordered by their hash: those that tie again are the same rows.
    """
    tagged = None
    for at, (side, frame) in enumerate(frames.items()):
        rows = [F.struct(*frame.columns) if s == side else F.lit(None) for s in frames]
        named = [column.alias(f"rows_{s}") for s, column in zip(frames, rows, strict=True)]
        one = frame.select(
            F.col(order[at]).alias("at"),
            F.lit(at).alias("side"),
            hashes[side].alias("hash"),
            *named,
        )
        tagged = one if tagged is None else tagged.union(one)
    assert tagged is not None
    by = Over.orderBy(F.col("at").asc_nulls_first(), "side", "hash")
    running = by.rowsBetween(Over.unboundedPreceding, Over.currentRow)
    counts = [F.sum(F.when(F.col("side") == at, 1).otherwise(0)).over(running) for at in (0, 1)]
    counted = tagged.select("*", counts[0].alias("n_0"), counts[1].alias("n_1"))
    size, slide = min(window.size, _MOST), min(window.slide, _MOST)
    result = {}
    for at, side in enumerate(frames):
        own = F.col(f"n_{at}") - 1
        before = own if len(frames) == 1 else F.col(f"n_{1 - at}")
        beyond = F.greatest(F.lit(0), before - size)
        first = slide * F.floor((beyond + (slide - 1)) / slide).cast("bigint")
        numbers = zip(NUMBERS, (own, before, first), strict=True)
        result[side] = counted.where(F.col("side") == at).select(
            f"rows_{side}.*", *[c.cast("bigint").alias(hidden(side, n)) for n, c in numbers]
        )
    return result


def sees(later: str, earlier: str) -> str:
    """The condition that one side's row is the later one and sees the other's."""
    index = f"{earlier}.{hidden(earlier, 'index')}"
    before, first = (f"{later}.{hidden(later, name)}" for name in ("before", "first"))
    return f"({index} < {before} AND {index} >= {first})"
