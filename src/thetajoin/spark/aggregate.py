"""Aggregates over joins of Spark DataFrames, in two phases (BiStream, Section 3.4.2).

Units turn what they join into partial aggregates by group; Spark's own aggregation, which spreads
groups over its partitions and keeps them in its state store, adds these up once a micro-batch.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from thetajoin.aggregate.run import AggConfig, AggHow, Aggregator
from thetajoin.aggregate.spec import AggSpec
from thetajoin.engine.call import JoinCall
from thetajoin.engine.parts import Side
from thetajoin.engine.state import JoinState
from thetajoin.engine.step import Step
from thetajoin.errors import OptionError
from thetajoin.predicate.nodes import Column
from thetajoin.predicate.render import backquoted
from thetajoin.spark.cells import self_totals, table_totals
from thetajoin.spark.checks import (
    check_distinct,
    check_kinds,
    check_names,
    check_nearest,
    folds,
    with_names_of,
)
from thetajoin.spark.column_condition import with_text
from thetajoin.spark.columns import by_position
from thetajoin.spark.frames import engine_options
from thetajoin.spark.interpreter import check_workers
from thetajoin.spark.listed import finished, nearest_partials
from thetajoin.spark.meaning import check_aggregate, check_join
from thetajoin.spark.partials import partial_batch, partial_schema, spark_schema
from thetajoin.spark.planned import surroundings
from thetajoin.spark.static import static_totals
from thetajoin.spark.stream import (
    WATERMARK,
    arrow_schema,
    beside_state,
    check_has_order,
    check_watermarks,
    in_units,
    observed,
    refuse_change_feeds,
    spread_over_units,
    time_lags,
)
from thetajoin.spark.unit import METRICS, JoinUnit
from thetajoin.spark.unit_spec import UnitSpec

CLOSES = "__thetajoin_closes"


class TotalsUnit(JoinUnit):
    """Joins as its base does, but gives out partial aggregates in place of matches."""

    @cached_property
    def _aggregates(self) -> AggSpec:
        assert self._spec.totals is not None
        group_by, aggs = self._spec.totals
        config = self._spec.config
        how: AggHow = "left" if self._spec.keeps_left else "inner"
        schemas = config.left_schema, config.right_schema
        return AggConfig(config.on, *schemas, group_by, aggs, how=how).spec

    def _output(self, state: JoinState, step: Step) -> Iterator[pa.RecordBatch]:
        totals = Aggregator(state, self._aggregates).totals(step)
        state.commit(step, pairs=int(totals.pairs.sum()))
        batch = partial_batch(totals)
        if batch.num_rows:
            yield batch

    def _schema(self) -> pa.Schema | None:
        return partial_schema(self._aggregates)


def aggregate_frames(left: Any, right: Any, call: JoinCall) -> Any:
    """Aggregates over the join of two DataFrames, of which none, one or both stream.

    Those of a self-join are the same one, and it is read once.
    """
    check_kinds(left, right)
    check_workers(left.sparkSession)
    check_names(left, "the left input")
    check_names(right, "the right input")
    call = with_names_of(replace(call, on=with_text(left, right, call.on)), left, right)
    check_join(left, right, call)
    if call.nearest is not None:
        return _of_nearest(left, right, call)
    streaming = left.isStreaming or right.isStreaming
    options = dict(call.options)
    units, routing = options.pop("units", None), options.pop("routing", surroundings().routing)
    around = beside_state(options) if left.isStreaming and right.isStreaming else {}
    call = replace(call, options=options)
    config = _asked(left, right, call, streaming=streaming)
    spec = config.spec
    refuse_change_feeds(left, right, config.join)
    whole = left, right
    left, right = _needed(left, right, config)
    if left.isStreaming and right.isStreaming:
        partials = _from_stream(left, right, config, spec, options, units, routing, around)
    elif streaming:
        partials = _with_table(left, right, config, spec)
    elif call.self_join:
        partials = self_totals(whole[0], config, spec, units)
    else:
        partials = table_totals(whole, config, spec, units)
    closing: list[Any] = []
    if streaming:
        partials, closing = _closing(partials, left, right, config, spec)
    return finished(partials, spec, closing)


def _of_nearest(left: Any, right: Any, call: JoinCall) -> Any:
    """Aggregates over the nearest matches of two tables."""
    check_nearest(call)
    if left.isStreaming or right.isStreaming:
        raise OptionError(
            "nearest with aggs is for tables: leave aggs out, and group what nearest gives of the "
            "stream (groupBy)"
        )
    plain = replace(call, options=engine_options(dict(call.options)))
    config = _asked(left, right, plain, streaming=False)
    partials = nearest_partials(*_needed(left, right, config), call, config)
    return finished(partials, config.spec)


def _asked(left: Any, right: Any, call: JoinCall, *, streaming: bool) -> AggConfig:
    """The query that a call is, which Spark would give the same groups and totals."""
    config = AggConfig.of(call, arrow_schema(left), arrow_schema(right), streaming=streaming)
    check_has_order(config.window, config.order_by)
    check_aggregate(left, right, config.spec, call.group_by, config.aggs)
    if folds(left):
        check_distinct(config.spec.schema.names, "the result has")
    return config


def _needed(left: Any, right: Any, config: AggConfig) -> tuple[Any, Any]:
    """Both inputs with the columns that matter."""
    both = (left, config.left_schema), (right, config.right_schema)
    chosen = [df.select(*map(backquoted, schema.names)) for df, schema in both]
    return chosen[0], chosen[1]


def _from_stream(
    left: Any,
    right: Any,
    config: AggConfig,
    spec: AggSpec,
    options: dict[str, Any],
    units: Any,
    routing: Any,
    around: dict[str, Any],
) -> Any:
    check_watermarks(left, right, config.window)
    unit_spec = UnitSpec.of(
        config.join.config,
        options,
        lags=time_lags(left, right, config.window),
        totals=(config.group_by, dict(config.aggs)),
        keeps_left=spec.keeps_left,
        **spread_over_units(left, config.join, units, routing),
        **around,
    )
    output = spark_schema(spec, left, right)
    totals = in_units(left, right, unit_spec, TotalsUnit(unit_spec), output)
    return observed(totals).drop(METRICS).toDF(*output.names)


def _with_table(left: Any, right: Any, config: AggConfig, spec: AggSpec) -> Any:
    """Of a stream and a table: nothing is kept but the groups, by Spark's own aggregation."""
    check_watermarks(left, right, config.window)
    if spec.keeps_left and not left.isStreaming:
        raise OptionError(
            "how='left' with a table on the left and a stream on the right: groups come with the "
            "stream's rows, and those without a match have none; swap the two, or use how='inner'"
        )
    side: Side = "l" if left.isStreaming else "r"
    stream, table = (left, right) if left.isStreaming else (right, left)
    output = spark_schema(spec, left, right)
    return static_totals(by_position(stream), table, config, side, output, uuid.uuid4().hex[:12])


def _closing(
    partials: Any, left: Any, right: Any, config: AggConfig, spec: AggSpec
) -> tuple[Any, list[Any]]:
    """With a group by event time, when no pair can come any more: Spark then closes the group.

    A pair comes with the later of its rows, so a group is complete when the watermark has passed
    its own end by as much as the window reaches. With a table, pairs come with the stream's rows.
    """
    clock = config.join.clock
    both = left.isStreaming and right.isStreaming
    if both and clock is None:
        return partials, []
    for at, group in enumerate(spec.groups):
        expr = group.expr
        if not isinstance(expr, Column) or expr.path:
            continue
        field = (left if expr.side == "l" else right).schema[expr.name]
        if WATERMARK not in (field.metadata or {}):
            continue
        column = F.col(f"g{at}")
        end = column["end"] if isinstance(field.dataType, StructType) else column
        reach = clock.reach["l" if expr.side == "l" else "r"] if both and clock is not None else 0
        closes = F.timestamp_micros(F.unix_micros(end) + F.lit(reach))
        metadata = {WATERMARK: field.metadata[WATERMARK]}
        return partials.select("*", closes.alias(CLOSES, metadata=metadata)), [F.col(CLOSES)]
    return partials, []
