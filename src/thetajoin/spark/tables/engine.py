"""Which engine joins two tables: as asked, or the one that a few rows of both say is cheaper."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from thetajoin.errors import OptionError
from thetajoin.paper_options import find_partitioning
from thetajoin.planner.engines import ENGINES, Engine

if TYPE_CHECKING:
    from thetajoin.papers.partitionings import Partitioning
from collections.abc import Mapping

from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.parts import SIDES, Side
from thetajoin.planner.engines import (
    DRAW_S,
    FIRST_S,
    EngineChoice,
    choose_engine,
    choose_for_nearest,
    clearly_spark,
    estimate_keys,
    has_equality,
    hottest_share,
    little_to_gain,
    rows_a_key,
    soon_done,
)
from thetajoin.spark.exchange import row_bytes
from thetajoin.spark.meaning import ANSI
from thetajoin.spark.tables.native import (
    NativeCondition,
    NativeNearest,
    native_condition,
    nearest_condition,
)
from thetajoin.spark.tables.table import FIRST, Drawn, Table, draw_both, first_keys
from thetajoin.spark.tasks import parallelism
from thetajoin.window.windows import CountWindow

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
        return find_partitioning(self.partitioning, self.p, given)

    @classmethod
    def take(cls, options: dict[str, Any]) -> BatchOptions:
        """Take these settings out of a call's options; the rest are the engine's."""
        known = [field.name for field in fields(cls)]
        return cls(**{name: options.pop(name) for name in known if name in options})


@dataclass(frozen=True)
class Chosen:
    """The choice, the condition for Spark where it is Spark, and what was drawn to choose."""

    choice: EngineChoice
    condition: NativeCondition | NativeNearest | None = None
    drawn: Drawn | None = None


def choose(
    tables: Mapping[Side, Table],
    compiled: CompiledJoin,
    settings: BatchOptions,
    given: Mapping[str, Any],
) -> Chosen:
    """The engine of a join that has been checked; `given` are its options, as they were given.

    Where an equality leaves a choice, the first rows of the larger table are read, unless both are
    small; if they leave it open, those of the other; and then the condition's columns of both,
    once.
    """
    session = tables["l"].session
    if settings.engine == "thetajoin":
        return _ours("asked for")
    alone = _only_ours(compiled)
    tuned = next((name for name in given if name != "engine"), None)
    if settings.engine == "spark":
        return _by_spark(session, compiled, alone, tuned)
    if alone is not None:
        return _ours(f"Spark has no {alone}")
    if tuned is not None:
        return _ours(f"{tuned} is an option of its own")
    if compiled.near_key is None and not has_equality(compiled):
        return _ours("the condition has no equality")
    condition = _condition(session, compiled)
    doubt = condition.problem or condition.doubt
    if doubt is not None:
        return _ours(doubt)
    widths = {side: float(row_bytes(compiled.given[side])[0]) for side in SIDES}
    cores, drawn = parallelism(session), None
    Table.look_up_bytes(*tables.values())
    rows = {side: table.believed_rows for side, table in tables.items()}
    choice: EngineChoice | None
    if isinstance(condition, NativeNearest):
        choice = _for_nearest(tables, condition, rows, widths, cores)
    else:
        choice = _at_first_sight(tables, condition, rows, widths, cores)
    if choice is None:
        drawn = draw_both(tables, compiled)
        choice = choose_engine(estimate_keys(compiled, drawn.samples, drawn.rows), widths, cores)
    return Chosen(choice, condition if choice.engine == "spark" else None, drawn)


def _ours(reason: str) -> Chosen:
    return Chosen(EngineChoice("thetajoin", reason))


def _by_spark(session: Any, compiled: CompiledJoin, alone: str | None, tuned: str | None) -> Chosen:
    if alone is not None:
        raise OptionError(f"engine='spark': Spark's own join has no {alone}; leave engine out")
    if tuned is not None:
        raise OptionError(
            f"{tuned} is an option of thetajoin's join, and engine='spark' asks for Spark's own: "
            "leave one of them out"
        )
    condition = _condition(session, compiled)
    if condition.problem is not None:
        raise OptionError(f"engine='spark': {condition.problem}; leave engine out")
    return Chosen(EngineChoice("spark", "asked for"), condition)


def _only_ours(compiled: CompiledJoin) -> str | None:
    """What the join asks for that only thetajoin can do."""
    if compiled.spec.self_join:
        return "self-join that leaves a row's pair with itself out"
    if isinstance(compiled.window, CountWindow):
        return "CountWindow"
    return None


def _condition(session: Any, compiled: CompiledJoin) -> NativeCondition | NativeNearest:
    ansi = session.conf.get(ANSI).lower() == "true"
    if compiled.near_key is not None:
        return nearest_condition(compiled, ansi=ansi)
    return native_condition(compiled, ansi=ansi)


def _at_first_sight(
    tables: Mapping[Side, Table],
    condition: NativeCondition,
    rows: dict[Side, float],
    widths: Mapping[Side, float],
    cores: int,
) -> EngineChoice | None:
    """The engine, where sizes or the first rows of a side leave no doubt.

    That costs little, and the join would be Spark's without it. Where it is in doubt, more is read,
    unless that takes longer than it could save.
    """
    soon = soon_done(rows) or little_to_gain(rows, widths, cores, FIRST_S)
    if soon is not None:
        return soon
    for side in sorted(SIDES, key=lambda side: -rows[side]):
        first = first_keys(tables[side], side, condition.keys[side])
        if len(first) < FIRST:
            rows[side] = len(first)
        choice = clearly_spark(side, rows_a_key(first, rows[side]), rows, widths, cores)
        if choice is not None:
            return choice
    return little_to_gain(rows, widths, cores, DRAW_S)


def _for_nearest(
    tables: Mapping[Side, Table],
    condition: NativeNearest,
    rows: Mapping[Side, float],
    widths: Mapping[Side, float],
    cores: int,
) -> EngineChoice:
    """The engine of a nearest match; keys are read only where it depends on how they spread."""
    spread = choose_for_nearest(rows, widths, 0.0, cores)
    one_key = choose_for_nearest(rows, widths, 1.0, cores)
    if not condition.by["l"] or spread.engine == one_key.engine:
        return one_key
    larger = max(SIDES, key=lambda side: rows[side])
    hottest = hottest_share(first_keys(tables[larger], larger, condition.by[larger]))
    return choose_for_nearest(rows, widths, hottest, cores)
