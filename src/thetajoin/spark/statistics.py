"""What Spark's optimiser knows of a table."""

from __future__ import annotations

import re
from typing import Any

_UNITS = {
    name: 1024**power for power, name in enumerate(["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}
_SIZE = re.compile(r"Statistics\(sizeInBytes=([\d.]+) (\w+)")
_PLAN = "== Optimized Logical Plan ==\n"


def estimated_bytes(*frames: Any) -> list[float]:
    """How large Spark expects DataFrames to be; infinite where it does not say.

    `EXPLAIN COST` is the one public place that tells, in a text for people. Two are asked about as
    the sides of a join that is never run.
    """
    if len(frames) == 1:
        told = _told("SELECT * FROM {df}", df=frames[0])
        return [_bytes(told[0])]
    one, two = frames
    told = _told("SELECT * FROM {one} CROSS JOIN {two}", one=one, two=two)
    sides = [line for line in told[1:] if line.startswith((":- ", "+- "))]
    if len(sides) != 2:  # not planned as a join, as of a table known to be empty
        return [size for frame in frames for size in estimated_bytes(frame)]
    return [_bytes(line) for line in sides]


def _told(query: str, **frames: Any) -> list[str]:
    """The lines of a query's plan, the whole first, each with what Spark knows of its size."""
    session = next(iter(frames.values())).sparkSession
    text: str = session.sql(f"EXPLAIN COST {query}", **frames).collect()[0][0]
    return text.partition(_PLAN)[2].partition("\n\n")[0].splitlines() or [""]


def _bytes(line: str) -> float:
    found = _SIZE.search(line)
    if found is None or found[2] not in _UNITS:
        return float("inf")
    return float(float(found[1]) * _UNITS[found[2]])
