"""Partial totals as rows that Spark itself can add up, and the columns that come of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, StructField, StructType

from thetajoin.aggregate.run import Aggregator
from thetajoin.aggregate.spec import AggSpec, Output
from thetajoin.aggregate.state import State, to_decimal
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.state import JoinState
from thetajoin.engine.step import Share, Step
from thetajoin.predicate.nodes import Column
from thetajoin.predicate.render import backquote

PAIRS = "pairs"


class PartialState(JoinState):
    """A unit's rows, whose matches it gives out added up: Spark adds those of all units."""

    def __init__(self, join: CompiledJoin, aggregates: AggSpec, share: Share) -> None:
        super().__init__(join, share)
        self._aggregates = aggregates

    @property
    def schema(self) -> pa.Schema:
        """The columns of the partial totals."""
        return partial_schema(self._aggregates)

    def carry_out(self, step: Step) -> Iterator[pa.RecordBatch]:
        """The partial totals of a step's matches; its rows are stored."""
        totals = Aggregator(self.join, self._aggregates).totals(step)
        self.commit(step, pairs=int(totals.pairs.sum()))
        batch = partial_batch(totals)
        if batch.num_rows:
            yield batch


def partial_schema(spec: AggSpec) -> pa.Schema:
    """A row for each group: its values, the number of pairs, and each term's part."""
    fields = [pa.field(f"g{at}", group.type) for at, group in enumerate(spec.groups)]
    fields.append(pa.field(PAIRS, pa.int64()))
    for at, term in enumerate(spec.terms):
        type_ = term.expr.type
        if term.kind == "count":
            type_ = pa.int64()
        elif term.kind == "sum":
            scale = type_.scale if pa.types.is_decimal(type_) else 0
            floating = pa.types.is_floating(type_)
            type_ = pa.float64() if floating else pa.decimal128(38, scale)
        fields.append(pa.field(f"t{at}", type_))
    return pa.schema(fields)


def partial_batch(state: State) -> pa.RecordBatch:
    """The groups that a state shows, as such rows."""
    state.settle()
    state = state.keep_shown()
    spec, schema = state.spec, partial_schema(state.spec)
    columns: list[Any] = [key.cast(schema.field(at).type) for at, key in enumerate(state.keys)]
    columns.append(pa.array(state.pairs))
    for at, term in enumerate(spec.terms):
        type_ = schema.field(f"t{at}").type
        if term.kind == "count":
            columns.append(pa.array(state.counts[at]))
        elif term.kind == "sum":
            columns.append(_sum(state, at, type_))
        else:
            columns.append(state.extremes(at).cast(type_))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _sum(state: State, at: int, type_: pa.DataType) -> pa.Array:
    """Sums of one term; NULL where no pair had a value."""
    term = state.spec.terms[at]
    counts = next(
        state.counts[other]
        for other, count in enumerate(state.spec.terms)
        if count.kind == "count" and count.expr == term.expr
    )
    sums, none = state.sums[at], counts == 0
    if pa.types.is_floating(type_):
        return pa.array(sums.as_floats(), mask=none)
    if len(sums.words) == 1:
        words = np.empty((state.size, 2), np.int64)
        words[:, 0], words[:, 1] = sums.words[0][1].view(np.int64), sums.words[0][0]
        whole = pa.Array.from_buffers(type_, state.size, [None, pa.py_buffer(words)])
    else:
        values = zip(sums.integers(), none, strict=True)
        whole = pa.array([None if n else to_decimal(v, type_.scale) for v, n in values], type_)
    return pc.if_else(pa.array(~none), whole, pa.scalar(None, type_))


def spark_schema(spec: AggSpec, left: Any, right: Any) -> StructType:
    """The same rows in Spark's types; a plain column keeps the one it has."""
    fields = []
    for at, field in enumerate(partial_schema(spec)):
        exprs = [group.expr for group in spec.groups]
        expr = exprs[at] if at < len(exprs) else None
        fields.append(StructField(field.name, _spark_type(field, expr, left, right), True))
    return StructType(fields)


def _spark_type(field: pa.Field, expr: Any, left: Any, right: Any) -> DataType:
    if isinstance(expr, Column) and not expr.path:
        return (left if expr.side == "l" else right).schema[expr.name].dataType
    return from_arrow_type(field.type)


def sum_partials(spec: AggSpec) -> list[str]:
    """Spark's aggregates that add the rows up, as SQL."""
    texts = [f"sum({PAIRS}) AS {PAIRS}"]
    for at, term in enumerate(spec.terms):
        function = term.kind if term.kind in ("min", "max") else "sum"
        texts.append(f"{function}(t{at}) AS t{at}")
    return texts


def show_totals(spec: AggSpec) -> list[str]:
    """The result's columns over the merged rows, as SQL."""
    texts = [f"g{at} AS {backquote(group.name)}" for at, group in enumerate(spec.groups)]
    for output in spec.outputs:
        texts.append(f"{_output(output)} AS {backquote(output.name)}")
    return texts


def _output(output: Output) -> str:
    if not output.terms:
        return f"coalesce({PAIRS}, 0L)"
    total = f"t{output.terms[0]}"
    if output.function == "count":
        return f"coalesce({total}, 0L)"
    if output.function in ("min", "max"):
        return total
    if output.function == "avg":
        count = f"nullif(t{output.terms[1]}, 0L)"
        if pa.types.is_floating(output.type):
            return f"CAST({total} AS DOUBLE) / {count}"
        return f"CAST({total} / {count} AS DECIMAL({output.type.precision}, {output.type.scale}))"
    if pa.types.is_integer(output.type):
        # Whether or not the session's casts are strict, a sum that does not fit is an error.
        return (
            f"CASE WHEN {total} NOT BETWEEN -9223372036854775808BD AND 9223372036854775807BD "
            f"THEN CAST(raise_error('thetajoin: {_plain(output)} overflows BIGINT') AS BIGINT) "
            f"ELSE CAST({total} AS BIGINT) END"
        )
    if pa.types.is_decimal(output.type):
        return f"CAST({total} AS DECIMAL({output.type.precision}, {output.type.scale}))"
    return total


def _plain(output: Output) -> str:
    return output.text.replace("'", "").replace("\\", "")
