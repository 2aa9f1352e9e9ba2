"""Carrying a call out: by Spark for its DataFrames, in this process for every other table.

What a plain join does not need is imported where it is used: it would take longer than the join.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from thetajoin.batch.tables import Kind, from_table, kind_of, no_table
from thetajoin.edge import count_rows
from thetajoin.engine.compiled import CompiledJoin, compile_call, compile_here
from thetajoin.engine.machine import Size, check_room
from thetajoin.engine.rows import take_all_in, take_in
from thetajoin.engine.spec import JoinSpec
from thetajoin.errors import SchemaError, enough_memory
from thetajoin.kernels.threads import new_lock

if TYPE_CHECKING:
    from thetajoin.planner.plan import AggPlan, Plan

T = TypeVar("T")
SMALLER = "take the result in pieces with join_batches, or aggregate it with join_agg"


def is_spark(table: Any) -> bool:
    """Whether a table is a Spark DataFrame, classic or Connect, without importing pyspark."""
    kind = type(table)
    return kind.__name__ == "DataFrame" and kind.__module__.startswith("pyspark.")


def run_call(left: Any, right: Any, spec: JoinSpec) -> Any:
    """What a call gives, of the left table's kind."""
    if is_spark(left) or is_spark(right):
        return _run_on_spark(left, right, spec)
    kind = kind_of(left)
    if kind is None:
        raise no_table(left, "joined" if spec.self_join else "left")
    batches = take_both_in(left, right, spec, kind)
    call = compile_here(spec, *(batch.schema for batch in batches))
    found = call.join_tables(*batches)
    if call.join.options.check_memory:
        # Another library's table is made while Arrow's is still there.
        copies = 1 if kind == "arrow" else 2
        advice = f"{SMALLER}, or go ahead with check_memory=False"
        large = partial(_count_if_large, spec, call.join, *batches)
        found = check_room(found, advice, copies=copies, too_large=large)
    rows = []
    for batch in found:
        count_rows(batch.num_rows)
        rows.append(batch)
    return from_table(pa.Table.from_batches(rows, schema=call.schema), kind)


def _run_on_spark(left: Any, right: Any, spec: JoinSpec) -> Any:
    if spec.aggs is not None:
        from thetajoin.spark.totals import aggregate_frames

        return aggregate_frames(left, right, spec)
    from thetajoin.spark.frames import join_frames

    return join_frames(left, right, spec)


def open_join(left: Any, right: Any, spec: JoinSpec) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The columns of a call's result, and its rows as `join_batches` gives them."""
    if is_spark(left) or is_spark(right):
        raise SchemaError("join_batches is for tables in this process; on Spark use join")
    batches = take_both_in(left, right, spec)
    call = compile_here(spec, *(batch.schema for batch in batches))
    return call.schema, SerialIterator(_take_pieces(call.join_tables(*batches)))


class SerialIterator(Iterator[T]):
    """An iterator that several threads may take from: each item goes to one of them.

    >>> next(SerialIterator(iter([1, 2])))
    1
    """

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._lock = new_lock(self)

    def __next__(self) -> T:
        with self._lock:
            return next(self._items)


def _take_pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with enough_memory("choose a smaller chunk_rows, or join a part of the rows at a time"):
        yield from batches


def more_pairs_than(left: Any, right: Any, spec: JoinSpec, most: float) -> Size | None:
    """How many rows a join has, if there are more than `most` and that is known beforehand."""
    batches = take_both_in(left, right, spec)
    join = CompiledJoin(spec, *(batch.schema for batch in batches))
    return _count_if_large(spec, join, *batches, most)


def _count_if_large(*given: Any) -> Size | None:
    from thetajoin.planner.plan import too_large

    return too_large(*given)


def take_both_in(
    left: Any, right: Any, spec: JoinSpec, kind: Kind | None = None
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Both tables as record batches; a table that is given for both sides is read once."""
    if spec.self_join:
        batch = take_in(left, "joined", as_kind=kind)
        return batch, batch
    batches = take_all_in({"left": left, "right": right}, as_kind=kind)
    return batches["left"], batches["right"]


def explain_call(left: Any, right: Any, spec: JoinSpec) -> Plan | AggPlan:
    """How `run_call` would go about a join or its totals."""
    from thetajoin.aggregate.totals import TotalsJoin
    from thetajoin.planner.plan import make_plan, plan_aggregates
    from thetajoin.planner.routing import explain_route

    engine = spread = None
    inferred, on_spark = False, is_spark(left) or is_spark(right)
    if on_spark:
        from thetajoin.spark.frames import prepare_explain

        given = spec.window
        left, right, spec, engine, spread = prepare_explain(left, right, spec)
        inferred = given is None and spec.window is not None
    batches = take_both_in(left, right, spec)
    schemas = batches[0].schema, batches[1].schema
    call = (compile_call if on_spark else compile_here)(spec, *schemas)
    plan = replace(make_plan(CompiledJoin(spec, *schemas), *batches), engine=engine)
    if on_spark:
        plan = plan.without_rows()
    if inferred:
        plan = replace(plan, window=f"{plan.window}: the condition bounds the times of a match")
    if spread is not None:
        plan = replace(plan, routing=explain_route(call.join, *spread))
    return plan_aggregates(call.aggregator(), plan) if isinstance(call, TotalsJoin) else plan
