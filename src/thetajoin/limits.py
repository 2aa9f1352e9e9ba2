"""Thresholds: sizes from which on something is done in another way. None changes a result.

They are fields of one value, so that they can be seen together, and so that a test can have the
large case with few rows:

>>> with change_limits(sorted_probes=1):
...     limits.sorted_probes
1
>>> limits.sorted_probes
2048
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any


@dataclass
class Limits:
    """All thresholds.

    disjuncts: alternatives of a condition; more stay one filter over the pairs.
    sorted_probes: from this many probes on, sorting them costs less than reading memory at random.
    passed_over: a probe for this many stored rows is enough to pass over all of them once: to merge
        with their keys rather than search, to make a table of equal ones.
    long_run: with more rows of an equal key than this on average, probes are sorted before they
        search among them.
    looked_up: probes that look equality keys up in a table are taken about this many at a time.
    able_share: with more than this share of the rows able to match, all of them probe.
    smallest_class: segments with fewer rows are one size class and merge with each other.
    block_ns: nanoseconds to look at the extremes of 64 rows, for the choice of an emitter.
    large_result: bytes of a result from which on it is asked whether it will fit into memory.
    blob_bytes: rows travel between Spark's tasks, and lie in its state store, in blobs of at most
        this many bytes. Spark has several copies of each in memory at once.
    segment_bytes: segments with more than this together are not merged, as a merge takes as much
        memory; a unit that builds its segments anew has no more than this outside of files.
    sample_bytes: what a task's sample may take on its way to the driver.
    whole_bytes: a table that is sent whole to every task of a join of tables.
    static_bytes: a table beside a stream, which every worker holds.
    held_bytes: bytes of a cell's held rows after which they are gathered.
    large_cell_bytes: bytes for one task that are close to too many for one batch of Spark's.
    most_entries: of a side's rows in the state store; more are written anew as fewer.
    young_seconds: a segment file this young may belong to a layout that is not written yet.
    idle_seconds: a join that has not written segment files for so long may lose them to a new one.
    """

    disjuncts: int = 16
    sorted_probes: int = 2048
    passed_over: float = 8.0
    long_run: int = 512
    looked_up: int = 1 << 17
    able_share: float = 0.9
    smallest_class: int = 4096
    block_ns: float = 1.2
    large_result: int = 64 << 20
    blob_bytes: int = 8 << 20
    segment_bytes: int = 256 << 20
    sample_bytes: int = 1 << 20
    whole_bytes: int = 256 << 20
    static_bytes: int = 1 << 30
    held_bytes: int = 1 << 30
    large_cell_bytes: int = 512 << 20
    most_entries: int = 64
    young_seconds: float = 60.0
    idle_seconds: float = 600.0


limits = Limits()


@contextmanager
def change_limits(**values: Any) -> Iterator[None]:
    """Other thresholds for a while, in this process."""
    before = replace(limits)
    for name, value in vars(replace(limits, **values)).items():
        setattr(limits, name, value)
    try:
        yield
    finally:
        for name, value in vars(before).items():
            setattr(limits, name, value)
