"""Aggregates over rows that a join of Spark tables has listed: tasks add up, Spark merges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from thetajoin.aggregate.columns import DENSE
from thetajoin.aggregate.rows import row_totals, total_pairs
from thetajoin.aggregate.spec import AggSpec, parse_aggregates
from thetajoin.aggregate.state import State, merge
from thetajoin.aggregate.totals import TotalsJoin
from thetajoin.batch.tables import contiguous
from thetajoin.engine.parts import Side
from thetajoin.engine.rows import cast_for_storage, storage_schema
from thetajoin.engine.spec import JoinSpec
from thetajoin.spark.columns import by_position
from thetajoin.spark.meaning import check_aggregate
from thetajoin.spark.partials import final, merged, partial_batch, spark_schema
from thetajoin.spark.stream import arrow_schema
from thetajoin.spark.tables.join import batch_join
from thetajoin.spark.tasks import Task, mapped

# States of single batches that are kept until they are merged.
MOST_STATES = 32


def nearest_partials(left: Any, right: Any, spec: JoinSpec, query: TotalsJoin) -> Any:
    """Partial aggregates of the nearest matches of two tables with no more than needed columns."""
    on, suffix = query.spec.on, query.join.spec.suffix
    plain = replace(spec, on=on, suffix=suffix, group_by=(), aggs=None)
    found = batch_join(left, right, plain)
    schemas = query.left_schema, query.right_schema

    def totals(batch: pa.RecordBatch) -> State:
        sides = []
        start = 0
        for side, schema in zip(("l", "r"), schemas, strict=True):
            columns = batch.select(list(range(start, start + len(schema))))
            sides.append(_taken_in(query, columns, schema, "l" if side == "l" else "r"))
            start += len(schema)
        # A NULL key matches nothing, so it tells a left row without a match.
        assert spec.nearest is not None
        there = sides[1].column(spec.nearest.key[1]).is_valid()
        rows = np.flatnonzero(there.to_numpy(zero_copy_only=False)).astype(np.int32)
        return total_pairs(query.aggregates, (sides[0], rows), (sides[1], rows))

    task = _adding(lambda: query.aggregates, totals)
    return mapped(by_position(found), task, spark_schema(query.aggregates, left, right))


def _taken_in(
    query: TotalsJoin, batch: pa.RecordBatch, schema: pa.Schema, side: Side
) -> pa.RecordBatch:
    """A side's columns of listed rows, as the engine keeps them."""
    named = pa.Table.from_batches([batch]).rename_columns(schema.names)
    return query.join.take_in(contiguous(named.cast(schema), "joined"), side)


def grouped_rows(df: Any, group_by: Mapping[str, str], aggs: Mapping[str, str]) -> Any:
    """Aggregates over the rows of a DataFrame, with the functions and types of `join_agg`."""
    schema = storage_schema(arrow_schema(df))
    groups, outputs = dict(group_by), dict(aggs)

    def spec() -> AggSpec:
        return parse_aggregates(groups, outputs, schema, pa.schema([]))

    checked = spec()
    check_aggregate(df, df, checked, groups, outputs)

    def totals(batch: pa.RecordBatch) -> State:
        named = pa.Table.from_batches([batch]).rename_columns(schema.names)
        return row_totals(cast_for_storage(contiguous(named, "joined"), schema), spec())

    partials = mapped(by_position(df), _adding(spec, totals), spark_schema(checked, df, df))
    return finished(partials, checked)


def finished(partials: Any, spec: AggSpec, closing: Iterable[Any] = ()) -> Any:
    """The result that partial aggregates add up to."""
    groups = [F.col(f"g{at}") for at in range(len(spec.groups))]
    grouped = partials.groupBy(*groups, *closing).agg(*[F.expr(text) for text in merged(spec)])
    return grouped.selectExpr(*final(spec))


def _adding(spec: Callable[[], AggSpec], totals: Callable[[pa.RecordBatch], State]) -> Task:
    """A task that adds up what the batches of its partition give, and sends that on."""

    def add(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        states = [State.nothing(spec())]
        for batch in batches:
            if batch.num_rows:
                states.append(totals(batch))
            if len(states) > MOST_STATES or sum(state.size for state in states) > DENSE:
                states = [merge(states)]
        partial = partial_batch(merge(states))
        if partial.num_rows:
            yield partial

    return add
