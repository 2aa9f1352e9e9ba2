"""Settings of a batch join on Spark that the embedded engine does not have."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from thetajoin.errors import OptionError
from thetajoin.paper_options import partitioning
from thetajoin.planner.engines import ENGINES, Engine

if TYPE_CHECKING:
    from thetajoin.papers.partitionings import Partitioning

# Steps of a paper's partitioning that can be left out.
SWITCHES = ("pre_filter", "amalgamate", "split_oversized", "partition_filter")


@dataclass(frozen=True)
class BatchOptions:
    """How the work is spread; none of these changes the result.

    engine: "thetajoin", "spark" for Spark's own join, or "auto" for the cheaper one.
    units: tasks that run at once (default: Spark's parallelism).
    broadcast_rows: a side with at most this many rows is sent whole to every task.
    held_rows: most rows of the held side that a task has in memory.
    partitioning: "default", or one of the Prefap paper's: rbm, obt, cfs, ftj, prefap, with `p`
    partitions of each side and its steps `pre_filter`, `amalgamate`, `split_oversized` and
    `partition_filter` on or off.
    observe: a `pyspark.sql.Observation` that is given the paper's measures when the join has run.
    """

    engine: Engine = "auto"
    units: int | None = None
    broadcast_rows: int = 250_000
    held_rows: int = 4_000_000
    partitioning: str = "default"
    p: int = 10
    pre_filter: bool | None = None
    amalgamate: bool | None = None
    split_oversized: bool | None = None
    partition_filter: bool | None = None
    observe: Any = None

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            known = "'auto', 'thetajoin' or 'spark'"
            raise OptionError(f"engine={self.engine!r}: must be {known}")
        for name, least in (("units", 1), ("broadcast_rows", 0), ("held_rows", 1)):
            value = getattr(self, name)
            if value is None and name == "units":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise OptionError(f"{name}={value!r}: must be a whole number of at least {least}")

        # Spark Connect's class is another of the same name.
        given = self.observe is None or isinstance(self.observe, str)
        if not given and type(self.observe).__name__ != "Observation":
            raise OptionError(f"observe={self.observe!r}: give a pyspark.sql.Observation")
        asked = [name for name in SWITCHES if getattr(self, name) is not None]
        if self.paper is None and (asked or self.p != 10):
            wrong = asked[0] if asked else "p"
            raise OptionError(f"{wrong} goes with partitioning='prefap' or another of the paper's")

    @property
    def paper(self) -> Partitioning | None:
        """The paper's partitioning that was asked for."""
        if self.partitioning == "default":
            return None
        switches = {name: getattr(self, name) for name in SWITCHES}
        given = {name: value for name, value in switches.items() if value is not None}
        return partitioning(self.partitioning, self.p, given)

    @classmethod
    def take(cls, options: dict[str, Any]) -> BatchOptions:
        """Take these settings out of a call's options, leaving the engine's."""
        known = [field.name for field in fields(cls)]
        return cls(**{name: options.pop(name) for name in known if name in options})
