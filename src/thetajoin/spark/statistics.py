"""What Spark's optimiser knows of a table."""

from __future__ import annotations

import re
from typing import Any

_UNITS = {
    name: 1024**power for power, name in enumerate(["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}
_SIZE = re.compile(r"== Optimized Logical Plan ==\n.*Statistics\(sizeInBytes=([\d.]+) (\w+)")


def estimated_bytes(df: Any) -> float:
    """How large Spark expects a DataFrame to be; infinite where it does not say.

    `EXPLAIN COST` is the one public place that tells, in a text for people.
    """
    told: str = df.sparkSession.sql("EXPLAIN COST SELECT * FROM {df}", df=df).collect()[0][0]
    found = _SIZE.search(told)
    if found is None or found[2] not in _UNITS:
        return float("inf")
    return float(float(found[1]) * _UNITS[found[2]])
