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

from thetajoin.aggregate.run import Aggregator
from thetajoin.aggregate.spec import AggSpec
from thetajoin.aggregate.totals import TotalsJoin
from thetajoin.engine.parts import Side
from thetajoin.engine.spec import JoinSpec
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
from thetajoin.spark.unit_spec import StreamSettings, UnitSpec

CLOSES = "__thetajoin_closes"


class TotalsUnit(JoinUnit):
    """Joins as its base does, but gives out partial aggregates in place of matches."""

    @cached_property
    def _aggregates(self) -> AggSpec:
        spec = self._spec
        return TotalsJoin(spec.join, spec.schema("left"), spec.schema("right")).aggregates

    def _output(self, state: JoinState, step: Step) -> Iterator[pa.RecordBatch]:
        totals = Aggregator(state.join, self._aggregates).totals(step)
        state.commit(step, pairs=int(totals.pairs.sum()))
        batch = partial_batch(totals)
        if batch.num_rows:
            yield batch

    def _schema(self) -> pa.Schema | None:
        return partial_schema(self._aggregates)


def aggregate_frames(left: Any, right: Any, spec: JoinSpec) -> Any:
    """Aggregates over the join of two DataFrames, of which none, one or both stream.

    Those of a self-join are the same one, and it is read once.
    """
    check_kinds(left, right)
    check_workers(left.sparkSession)
    check_names(left, "the left input")
    check_names(right, "the right input")
    spec = with_names_of(replace(spec, on=with_text(left, right, spec.on)), left, right)
    check_join(left, right, spec)
    if spec.nearest is not None:
        return _of_nearest(left, right, spec)
    streaming = left.isStreaming or right.isStreaming
    options = dict(spec.options)
    settings = options.pop("settings", None) or StreamSettings()
    units, routing = options.pop("units", None), options.pop("routing", settings.routing)
    around = beside_state(options, settings) if left.isStreaming and right.isStreaming else {}
    spec = replace(spec, options=options)
    query = _asked(left, right, spec.for_stream() if streaming else spec)
    aggregates = query.aggregates
    refuse_change_feeds(left, right, query.join)
    whole = left, right
    left, right = _needed(left, right, query)
    if left.isStreaming and right.isStreaming:
        spread = spread_over_units(left, query.join, units, routing)
        partials = _from_stream(left, right, query, spread | around, settings)
    elif streaming:
        partials = _with_table(left, right, query)
    elif spec.self_join:
        partials = self_totals(whole[0], query, units)
    else:
        partials = table_totals(whole, query, units)
    closing: list[Any] = []
    if streaming:
        partials, closing = _closing(partials, left, right, query)
    return finished(partials, aggregates, closing)


def _of_nearest(left: Any, right: Any, spec: JoinSpec) -> Any:
    """Aggregates over the nearest matches of two tables."""
    check_nearest(spec)
    if left.isStreaming or right.isStreaming:
        raise OptionError(
            "nearest with aggs is for tables: leave aggs out, and group what nearest gives of the "
            "stream (groupBy)"
        )
    query = _asked(left, right, replace(spec, options=engine_options(dict(spec.options))))
    partials = nearest_partials(*_needed(left, right, query), spec, query)
    return finished(partials, query.aggregates)


def _asked(left: Any, right: Any, spec: JoinSpec) -> TotalsJoin:
    """The query that a call is, which Spark would give the same groups and totals."""
    query = TotalsJoin.of(spec, arrow_schema(left), arrow_schema(right))
    check_has_order(spec.window, spec.order_by)
    assert spec.aggs is not None
    check_aggregate(left, right, query.aggregates, spec.group_by, spec.aggs)
    if folds(left):
        check_distinct(query.aggregates.schema.names, "the result has")
    return query


def _needed(left: Any, right: Any, query: TotalsJoin) -> tuple[Any, Any]:
    """Both inputs with the columns that matter."""
    both = (left, query.left_schema), (right, query.right_schema)
    chosen = [df.select(*map(backquoted, schema.names)) for df, schema in both]
    return chosen[0], chosen[1]


def _from_stream(
    left: Any, right: Any, query: TotalsJoin, asked: dict[str, Any], settings: StreamSettings
) -> Any:
    """Of two streams: what is asked of units is as `UnitSpec` has it."""
    window = query.join.window
    check_watermarks(left, right, window)
    spec = UnitSpec.of(
        replace(query.spec, suffix=query.join.spec.suffix),
        query.left_schema,
        query.right_schema,
        lags=time_lags(left, right, window),
        **asked,
    )
    settings.planned.append(spec)
    output = spark_schema(query.aggregates, left, right)
    totals = in_units(left, right, spec, TotalsUnit(spec), output)
    return observed(totals).drop(METRICS).toDF(*output.names)


def _with_table(left: Any, right: Any, query: TotalsJoin) -> Any:
    """Of a stream and a table: nothing is kept but the groups, by Spark's own aggregation."""
    check_watermarks(left, right, query.join.window)
    if query.aggregates.keeps_left and not left.isStreaming:
        raise OptionError(
            "how='left' with a table on the left and a stream on the right: groups come with the "
            "stream's rows, and those without a match have none; swap the two, or use how='inner'"
        )
    side: Side = "l" if left.isStreaming else "r"
    stream, table = (left, right) if left.isStreaming else (right, left)
    output = spark_schema(query.aggregates, left, right)
    return static_totals(by_position(stream), table, query, side, output, uuid.uuid4().hex[:12])


def _closing(partials: Any, left: Any, right: Any, query: TotalsJoin) -> tuple[Any, list[Any]]:
    """With a group by event time, when no pair can come any more: Spark then closes the group.

    A pair comes with the later of its rows, so a group is complete when the watermark has passed
    its own end by as much as the window reaches. With a table, pairs come with the stream's rows.
    """
    clock = query.join.clock
    both = left.isStreaming and right.isStreaming
    if both and clock is None:
        return partials, []
    for at, group in enumerate(query.aggregates.groups):
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
