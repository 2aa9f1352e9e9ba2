"""Joins of two tables on Spark.

```
left, right -> zones and a sample of both, in one job when the join is called   (mapInArrow)
            -> cells: groups of one side's neighbours and what they may match    (planner)
            -> a blob of rows for each cell that must see them                   (mapInArrow)
            -> one partition a cell, held rows first                             (shuffle)
            -> the engine's join, its output in bounded batches                  (mapInArrow)
```
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.layout import How, preserves
from thetajoin.engine.parts import OTHER, SIDES, Side
from thetajoin.engine.spec import JoinSpec
from thetajoin.engine.tables import Singles
from thetajoin.errors import OptionError, warn_user
from thetajoin.limits import limits
from thetajoin.paper_options import load_spark_partitionings
from thetajoin.planner.cells import CellPlan, plan_cells, sample_matches, without_boxes
from thetajoin.planner.engines import EngineChoice, has_equality
from thetajoin.planner.zones import sights_of
from thetajoin.spark.exchange import BLOBS, route_to_cells, row_bytes
from thetajoin.spark.session import BATCH_BYTES, NO_LIMIT
from thetajoin.spark.stream import compile_join, output_schema
from thetajoin.spark.tables.cell import COUNTS, CellJob, join_cell
from thetajoin.spark.tables.engine import BatchOptions, choose
from thetajoin.spark.tables.native import NativeNearest, native_join, native_nearest
from thetajoin.spark.tables.table import (
    Drawn,
    Inputs,
    Summary,
    Table,
    draw_both,
    look,
    prepare,
    summarise_drawn,
)
from thetajoin.spark.tasks import map_batches, parallelism
from thetajoin.spark.unit_spec import UnitSpec
from thetajoin.spark.versions import repartition_by_unit
from thetajoin.spark.whole import Sent, probe_table

# A side believed to be no larger is taken whole without looking at it first.
BROADCAST_BYTES = 16 << 20
# How often a plan is made again with more cells, where one would be sent too much at once.
REPLANS = 3


def batch_join(left: Any, right: Any, spec: JoinSpec) -> Any:
    """The join of two tables, as a DataFrame; both are read now, and again when it runs."""
    settings, compiled = _compile(left, right, spec)
    if settings.observe is not None and spec.how == "full":
        raise OptionError(
            "observe works with one join, but a full join is run as two: leave it out"
        )
    output = output_schema(compiled, left, right)
    tables: dict[Side, Table] = {"l": Table(left), "r": Table(right)}
    chosen = choose(tables, compiled, settings, spec.options)
    if isinstance(chosen.condition, NativeNearest):
        return native_nearest(tables, chosen.condition, spec.how, output)
    if chosen.condition is not None:
        return native_join(tables, chosen.condition, spec.how, output)
    return _Join(prepare(tables, compiled), settings, output, compiled, chosen.drawn).run()


def explain_engine_of(left: Any, right: Any, spec: JoinSpec) -> EngineChoice:
    """Which engine `batch_join` would use, and why."""
    settings, compiled = _compile(left, right, spec)
    tables: dict[Side, Table] = {"l": Table(left), "r": Table(right)}
    return choose(tables, compiled, settings, spec.options).choice


def _compile(left: Any, right: Any, spec: JoinSpec) -> tuple[BatchOptions, CompiledJoin]:
    """The join, and the options that only tables have; refuses what is wrong."""
    options = dict(spec.options)
    settings = BatchOptions.take(options)
    return settings, compile_join(replace(spec, options=options), left, right)


class _Join:
    """One call: what is known of the inputs, and how they are joined."""

    def __init__(
        self,
        inputs: Inputs,
        settings: BatchOptions,
        output: StructType,
        compiled: CompiledJoin,
        drawn: Drawn | None,
    ) -> None:
        self.inputs, self.settings, self.output = inputs, settings, output
        self.spec = UnitSpec.of(inputs.spec, inputs.schemas["l"], inputs.schemas["r"])
        # Columns that only serve this join are part of its condition.
        self.compiled = self.spec.compile() if inputs.added else compiled
        self.how: How = self.compiled.keeps
        self.session = inputs.tables["l"].session
        self._drawn = drawn
        self._seen: dict[Side, Summary] = {}
        # Whether only some rows of the sides were looked at.
        self._in_part = False

    @property
    def seen(self) -> dict[Side, Summary]:
        """What is known of the sides; looked up once, when needed."""
        if not self._seen:
            part = self._some_rows()
            self._in_part = part is not None
            self._seen = part or look(self.inputs.tables, self.compiled, self.spec)
        return self._seen

    def _some_rows(self) -> dict[Side, Summary] | None:
        """What a few rows show, if an equality spreads the rows and few can be left out."""
        inputs, compiled = self.inputs, self.compiled
        alone = len(compiled.parts) == 1 and has_equality(compiled) and not inputs.added
        if not alone or inputs.is_self_join or self.settings.paper is not None:
            return None
        return summarise_drawn(self._drawn or draw_both(inputs.tables, compiled), compiled)

    def run(self) -> Any:
        """The joined DataFrame."""
        if self.settings.paper is not None:
            load_spark_partitionings().require_comparison(self.compiled, self.settings.partitioning)
        else:
            joined = self._try_small_side()
            if joined is not None:
                return joined
        rows = {side: self.seen[side].rows for side in SIDES}
        empty = [side for side in SIDES if not rows[side]]
        how = self.how
        if how == "full" and empty:
            how = "right" if "l" in empty else "left"
        if empty and not any(rows[s] for s in SIDES if preserves(how, s)):
            return self.session.createDataFrame([], self.output)
        if self.settings.paper is not None:
            return self._join_as_paper(self.settings.paper)
        fits = [s for s in self._may_broadcast(how) if rows[s] <= self.settings.broadcast_rows]
        if fits:
            small = min(fits, key=lambda side: rows[side])
            whole = self._whole(small)
            if whole is not None:
                return self._broadcast(how, small, whole)
        if self.compiled.near_key is not None:
            alone = self.compiled.gives_unmatched("l")
            return self._cells("l", pairs=True, singles="unmatched" if alone else "none")
        if how == "full":
            left = self._cells("l", pairs=True, singles="unmatched")
            return left.union(self._cells("r", pairs=False, singles="unmatched"))
        if how == "inner":
            return self._cells(None, pairs=True, singles="none")
        singles: Singles = "matched" if how == "semi" else "unmatched"
        return self._cells("r" if how == "right" else "l", how in ("left", "right"), singles)

    def _may_broadcast(self, how: How) -> list[Side]:
        """Sides that may be sent whole to every task if they are small: those not preserved."""
        if how == "full" or self.inputs.is_self_join or self.settings.observe is not None:
            return []
        return [side for side in SIDES if not preserves(how, side)]

    def _try_small_side(self) -> Any | None:
        """The join with a side that Spark believes to be small; no table is looked at before.

        None where there is no such side, or Spark was wrong.
        """
        if not self.settings.broadcast_rows:
            return None
        able = self._may_broadcast(self.how)
        sizes = {side: self.inputs.tables[side].bytes for side in able}
        small = min(able, key=lambda side: sizes[side], default=None)
        if small is None or sizes[small] > BROADCAST_BYTES:
            return None
        whole = self._whole(small)
        if whole is None or whole.rows > self.settings.broadcast_rows:
            return None
        if not whole.rows and not preserves(self.how, OTHER[small]):
            return self.session.createDataFrame([], self.output)
        return self._broadcast(self.how, small, whole)

    def _whole(self, side: Side) -> Sent | None:
        return self.inputs.tables[side].whole(self.compiled.given[side])

    def _broadcast(self, how: How, small: Side, whole: Sent) -> Any:
        spec = self.spec
        if self.compiled.near_key is None:
            spec = replace(spec, join=replace(spec.join, how=how), label=f"{spec.label}-{how}")
        shown = self.inputs.find_shown(self.compiled)
        task = probe_table(spec, OTHER[small], whole, shown)
        return self.inputs.tables[OTHER[small]].map(task, self.output)

    def plan(self, held: Side | None, keep_all: bool) -> CellPlan:
        """The cells with one side held, or with the one that is cheaper to hold.

        There are more of them if Spark would otherwise send a task too much at once.
        """
        plan = self._plan(held, keep_all, ())
        for _ in range(REPLANS if self._sends_at_once else 0):
            over = self._largest(plan) / limits.large_cell_bytes
            if over <= 1:
                break
            plan = self._plan(held, keep_all, (math.ceil(1.5 * over * plan.cells),))
        return plan

    def _plan(self, held: Side | None, keep_all: bool, tasks: tuple[int, ...]) -> CellPlan:
        sights = sights_of(self.compiled)
        seen = self.seen
        zones = {side: seen[side].zones for side in SIDES}
        plans = []
        for side in SIDES if held is None else (held,):
            samples = {s: seen[s].sample for s in SIDES}
            where, counts = sample_matches(self.compiled, side, samples)
            scale = np.prod([seen[s].rows / max(1, samples[s].num_rows) for s in SIDES])
            plans.append(
                plan_cells(
                    sights,
                    side,
                    zones,
                    (where, counts * float(scale)),
                    cores=self._cores(),
                    preserved=keep_all,
                    most_held=self.settings.held_rows,
                    tasks=tasks,
                )
            )
        best = min(plans, key=lambda plan: plan.makespan)
        return without_boxes(best, sights[0]) if self._in_part else best

    def _cores(self) -> int:
        return self.settings.units or parallelism(self.session)

    def _cells(self, held: Side | None, pairs: bool, singles: Singles) -> Any:
        keep_all = held is not None
        plan = self.plan(held, keep_all)
        prune = keep_all and singles == "matched"
        routed = None
        inputs = self.inputs
        roles: tuple[tuple[Side, ...], ...] = (("l",), ("r",))
        for sides in (SIDES,) if inputs.is_self_join else roles:
            numbered = inputs.is_self_join
            task = route_to_cells(self.spec, plan, sides, keep_all and not prune, numbered)
            sent = inputs.tables[sides[0]].map(task, BLOBS)
            routed = sent if routed is None else routed.union(sent)
        job = CellJob(
            plan.held, pairs, singles, inputs.find_shown(self.compiled), inputs.apart(self.compiled)
        )
        if self._sends_at_once:
            self._warn_of_large_cells(plan.cells, self._largest(plan))
        return self._join_cells(routed, plan.cells, job)

    def _join_as_paper(self, how: Any) -> Any:
        """The join by one of the paper's partitionings."""
        paper = load_spark_partitionings()
        plan = paper.plan_cuts(self.compiled, self.settings.partitioning, how, self.seen)
        left, right = (
            self.inputs.tables[side].map(paper.make_router(self.spec, plan, side), BLOBS)
            for side in SIDES
        )
        if self._sends_at_once:
            sent = sum(self.seen[side].rows * self._width(side) for side in SIDES)
            self._warn_of_large_cells(plan.number, sent / plan.number)
        return self._join_cells(left.union(right), plan.number, CellJob("l", True, "none"))

    def _join_cells(self, routed: Any, cells: int, job: CellJob) -> Any:
        """Bring each cell's rows together and join them."""
        placed = repartition_by_unit(routed, cells)
        side = F.col("side")
        ordered = placed.sortWithinPartitions(side.asc() if job.held == "l" else side.desc())
        if self.settings.observe is None:
            return map_batches(ordered, join_cell(self.spec, job), self.output)
        counted = replace(job, counted=True)
        schema = StructType(
            [*self.output.fields, *(StructField(name, LongType()) for name in COUNTS)]
        )
        rows = map_batches(ordered, join_cell(self.spec, counted), schema)
        return _observe(rows, self.settings.observe)

    @property
    def _sends_at_once(self) -> bool:
        """Whether Spark sends a task its rows in one batch, which must not have 2 GB."""
        return bool(self.session.conf.get(BATCH_BYTES) == NO_LIMIT)

    def _width(self, side: Side) -> int:
        """Bytes of a row, texts and lists aside."""
        return row_bytes(self.compiled.given[side])[0]

    def _largest(self, plan: CellPlan) -> float:
        """Bytes that go to the cell which gets most."""
        held, streamed = self._width(plan.held), self._width(OTHER[plan.held])
        cells = (
            group.held / group.held_parts * held + group.streamed / group.streamed_parts * streamed
            for group in plan.groups
        )
        return max(cells, default=0.0)

    def _warn_of_large_cells(self, cells: int, largest: float) -> None:
        if largest > limits.large_cell_bytes:
            warn_user(
                f"thetajoin: about {largest / 2**30:.1f} GiB go to one of {cells} tasks, and with "
                f"{BATCH_BYTES}={NO_LIMIT} Spark sends each its part as one batch, which fails "
                "at 2 GiB: set it to 67108864",
            )


def _observe(rows: Any, observation: Any) -> Any:
    """Give the cells' counts to an observation as the paper's measures, and drop them."""
    held, streamed, found = (F.col(name) for name in COUNTS)
    received = held + streamed
    filled = F.count(F.when(received > 0, 1))
    measures = {
        "cells": filled,
        "cartesian_products": F.sum(held * streamed),
        "results": F.sum(found),
        "balance_in": F.max(received) * filled / F.sum(received),
        "balance_out": F.max(found) * filled / F.sum(found),
    }
    named_measures = [column.alias(name) for name, column in measures.items()]
    try:
        seen = rows.observe(observation, *named_measures)
    except AssertionError:
        raise OptionError("an Observation serves one join: give observe= a new one") from None
    return seen.where(found.isNull()).drop(*COUNTS)
