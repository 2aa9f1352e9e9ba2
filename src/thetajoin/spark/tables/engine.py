"""Which engine joins two tables: as asked, or the one that a few rows of both say is cheaper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.parts import SIDES, Side
from thetajoin.errors import OptionError
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
from thetajoin.spark.meaning import ANSI
from thetajoin.spark.tables.drawn import FIRST, Drawn, draw_both, first_keys
from thetajoin.spark.tables.native_condition import (
    NativeCondition,
    NativeNearest,
    native_condition,
    nearest_condition,
)
from thetajoin.spark.tables.options import BatchOptions
from thetajoin.spark.tables.table import Table
from thetajoin.spark.tables.worker import row_bytes
from thetajoin.spark.tasks import parallelism
from thetajoin.window.windows import CountWindow


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
    """What only thetajoin can do of what the join asks."""
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
