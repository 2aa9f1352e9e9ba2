"""The functions a user calls; each hands its inputs to the engine that fits them.

What a plain join does not need is imported where it is used: it would take longer than the join.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from thetajoin.batch.tables import Kind, from_table, kind_of, to_batch
from thetajoin.engine.call import JoinCall
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.intake import all_taken_in, taken_in
from thetajoin.engine.nearest import Nearest, nearest_condition
from thetajoin.engine.nearest_state import nearest_of_tables
from thetajoin.engine.one_shot import join_tables
from thetajoin.engine.serial import SerialIterator
from thetajoin.errors import OptionError, SchemaError, enough_memory
from thetajoin.kernels.jit import few_rows
from thetajoin.window.windows import Window

if TYPE_CHECKING:
    from thetajoin.planner.aggregates import AggPlan
    from thetajoin.planner.plan import Plan

SMALLER = "take the result in pieces with join_batches, or aggregate it with join_agg"


@enough_memory(SMALLER)
def join(
    left: Any,
    right: Any,
    on: Any,
    *,
    how: str = "inner",
    window: Window | None = None,
    order_by: str | tuple[str, str] | None = None,
    suffix: str = "_right",
    **options: Any,
) -> Any:
    """Join two tables on inequalities; the result is of the left table's kind.

    Costs a sort of both sides and a constant for each match, never the product of the sizes.

    >>> import thetajoin as tj, pyarrow as pa
    >>> here = pa.table({"rack": [1, 2], "power": [10, 30]})
    >>> there = pa.table({"rack": [7, 8], "power": [20, 40]})
    >>> tj.join(here, there, "l.power < r.power").sort_by("rack").to_pydict()["rack_right"]
    [7, 8, 8]
    """
    return joined(left, right, JoinCall(on, how, window, order_by, suffix, options=options))


def join_batches(
    left: Any,
    right: Any,
    on: Any,
    *,
    how: str = "inner",
    window: Window | None = None,
    order_by: str | tuple[str, str] | None = None,
    suffix: str = "_right",
    **options: Any,
) -> Iterator[pa.RecordBatch]:
    """The result of `join` as an iterator of record batches of bounded size.

    Nothing is computed ahead of what is taken but a few batches, so a join with a billion matches
    may be looked into and left. Mistakes are reported by the call itself. Threads that share the
    iterator are each given other batches.

    >>> import thetajoin as tj, pyarrow as pa
    >>> numbers = pa.table({"x": range(100_000)})
    >>> next(tj.join_batches(numbers, numbers, "l.x < r.x", chunk_rows=64)).num_rows
    64
    """
    if is_spark(left) or is_spark(right):
        raise SchemaError("join_batches is for tables in this process; on Spark use join")
    return open_join(left, right, JoinCall(on, how, window, order_by, suffix, options=options))[1]


def open_join(left: Any, right: Any, call: JoinCall) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The columns of a join's result, and its rows as `join_batches` gives them."""
    compiled, batches = _prepare(left, right, call)
    return compiled.layout.schema, SerialIterator(_in_pieces(_run(compiled, batches)))


@enough_memory(SMALLER)
def self_join(
    df: Any,
    on: Any,
    *,
    window: Window | None = None,
    order_by: str | None = None,
    suffix: str = "_right",
    **options: Any,
) -> Any:
    """Join a table with itself: each pair of rows is tried in both roles, none with itself.

    >>> import thetajoin as tj, pyarrow as pa
    >>> trips = pa.table({"km": [3, 5, 9], "fare": [12, 9, 20]})
    >>> tj.self_join(trips, "l.km > r.km AND l.fare < r.fare").to_pydict()
    {'km': [5], 'fare': [9], 'km_right': [3], 'fare_right': [12]}
    """
    call = JoinCall(on, "inner", window, order_by, suffix, self_join=True, options=options)
    return joined(df, df, call)


@enough_memory(SMALLER)
def join_agg(
    left: Any,
    right: Any,
    on: Any,
    *,
    how: str = "inner",
    group_by: Any = (),
    aggs: Mapping[str, str],
    window: Window | None = None,
    order_by: str | tuple[str, str] | None = None,
    **options: Any,
) -> Any:
    """Counts, sums, averages and extremes over the matches of a join, by group.

    Gives what joining and then grouping would give, but lists no pairs where one or two
    inequalities decide (and equalities, bands and a window with them): then the cost is that of
    sorting both sides, whatever the number of matches.

    With ``how="left"`` every group of the left side is there, and `group_by` is of that side. Only
    matches count: a group without any has ``count(*)`` and ``count(x)`` 0, and NULL for the rest.
    (Spark's ``count(*)`` over an outer join would count an unmatched row as 1.)

    >>> import thetajoin as tj, pyarrow as pa
    >>> here = pa.table({"rack": ["a", "b"], "power": [10, 30]})
    >>> there = pa.table({"rack": ["x", "y"], "power": [20, 40]})
    >>> aggs = {"n": "count(*)", "most": "max(r.power)"}
    >>> tj.join_agg(here, there, "l.power < r.power", group_by="l.rack", aggs=aggs).to_pydict()
    {'rack': ['a', 'b'], 'n': [2, 1], 'most': [40, 40]}
    >>> asked = {"group_by": "l.rack", "aggs": aggs}
    >>> tj.join_agg(here, there, "l.power > r.power", how="left", **asked).to_pydict()
    {'rack': ['a', 'b'], 'n': [0, 1], 'most': [None, 20]}
    """
    call = JoinCall(on, how, window, order_by, group_by=group_by, aggs=aggs, options=options)
    return _aggregated(left, right, call)


def self_join_agg(
    df: Any,
    on: Any,
    *,
    group_by: Any = (),
    aggs: Mapping[str, str],
    window: Window | None = None,
    order_by: str | None = None,
    **options: Any,
) -> Any:
    """Counts, sums, averages and extremes over the matches of a `self_join`, by group.

    Gives what `self_join` and then grouping would give: each pair of rows in both roles, no row
    with itself. Costs what `join_agg` of the table with itself costs; under a `CountWindow` that
    the table does not fit into, one more order of rows decides, their arrival.

    >>> import thetajoin as tj, pyarrow as pa
    >>> trips = pa.table({"km": [3, 5, 9], "fare": [12, 9, 20]})
    >>> aggs = {"n": "count(*)", "least": "min(r.fare)"}
    >>> tj.self_join_agg(trips, "l.km >= r.km", group_by="l.km", aggs=aggs).to_pydict()
    {'km': [5, 9], 'n': [1, 2], 'least': [12, 9]}
    """
    call = JoinCall(
        on,
        window=window,
        order_by=order_by,
        self_join=True,
        group_by=group_by,
        aggs=aggs,
        options=options,
    )
    return _aggregated(df, df, call)


@enough_memory("take fewer left rows at a time")
def nearest(
    left: Any,
    right: Any,
    *,
    key: str | tuple[str, str],
    by: Any = (),
    on: Any = None,
    direction: str = "backward",
    tolerance: Any = None,
    k: int = 1,
    ties: str = "first",
    order_by: str | None = None,
    how: str = "left",
    group_by: Any = (),
    aggs: Mapping[str, str] | None = None,
    window: Window | None = None,
    suffix: str = "_right",
    **options: Any,
) -> Any:
    """For each left row the right row whose `key` is nearest: an as-of join, and more.

    key: a column, or one per side. by: columns that must be equal. on: any further condition.
    direction: "backward" looks at right keys up to the left one's, "forward" from it on, "nearest"
    at both. tolerance: the largest distance. k: how many right rows to take. ties: of right rows at
    equal distance the "first" or "last", by `order_by` or as they come, or "all". how: "left"
    keeps left rows without a match; or "inner", "semi", "anti".

    With `aggs`, and `group_by`, counts, sums, averages and extremes over these matches, as
    `join_agg` gives them over all.

    Costs a sort of both sides. On a stream the key is the window's time, and a left row comes out
    once the watermark shows that no nearer row can come.

    >>> import thetajoin as tj, pyarrow as pa
    >>> trades = pa.table({"ts": [5, 9], "symbol": ["A", "A"]})
    >>> quotes = pa.table({"ts": [1, 4, 8], "symbol": ["A", "A", "B"], "bid": [10, 11, 20]})
    >>> tj.nearest(trades, quotes, key="ts", by="symbol").to_pydict()["bid"]
    [11, 11]
    >>> aggs = {"n": "count(*)", "mean": "avg(r.bid)"}
    >>> tj.nearest(trades, quotes, key="ts", k=2, group_by="l.ts", aggs=aggs).to_pydict()
    {'ts': [5, 9], 'n': [2, 2], 'mean': [10.5, 15.5]}
    """
    spec = Nearest.of(key, direction, tolerance, k, ties, order_by)
    condition = nearest_condition(by, on)
    call = JoinCall(condition, how, window, None, suffix, nearest=spec, options=options)
    if aggs is not None:
        return _aggregated(left, right, replace(call, group_by=group_by, aggs=aggs))
    if group_by:
        raise OptionError(f"group_by={group_by!r} goes with aggs, such as aggs={{'n': 'count(*)'}}")
    return joined(left, right, call)


def joined(left: Any, right: Any, call: JoinCall) -> Any:
    """What a call without aggregates gives, of the left table's kind."""
    if is_spark(left) or is_spark(right):
        from thetajoin.spark.frames import join_frames

        return join_frames(left, right, call)
    kind = _kind(left, call)
    compiled, batches = _prepare(left, right, call, kind)
    return from_table(compiled.layout.table(list(_run(compiled, batches))), kind)


def explain(
    left: Any,
    right: Any,
    on: Any,
    *,
    how: str = "inner",
    window: Window | None = None,
    order_by: str | tuple[str, str] | None = None,
    suffix: str = "_right",
    group_by: Any = (),
    aggs: Mapping[str, str] | None = None,
    **options: Any,
) -> Plan | AggPlan:
    """How `join` would go about it: conditions, keys, what drives, and estimated sizes.

    With `aggs`, how `join_agg` would. Of Spark DataFrames only the columns are looked at, and
    nothing is estimated but which engine joins two tables: where an equality leaves a choice, a few
    thousand rows of both are read for that.

    >>> import thetajoin as tj, pyarrow as pa
    >>> here = pa.table({"a": [1.0, 2.0]})
    >>> tj.explain(here, here, "l.a < r.a").parts[0].kernel
    'ranges'
    """
    from thetajoin.aggregate.run import AggConfig
    from thetajoin.planner.aggregates import plan_aggregates
    from thetajoin.planner.plan import make_plan
    from thetajoin.planner.route_plan import DEFAULT_UNITS, explain_route

    streaming, engine = False, None
    routing, units = None, DEFAULT_UNITS
    if is_spark(left) or is_spark(right):
        from thetajoin.spark.frames import empty_tables, engine_options, explain_engine, streams

        streaming = streams(left, right)
        if aggs is None and not (left.isStreaming or right.isStreaming):
            asked = JoinCall(on, how, window, order_by, suffix, options=options)
            engine = str(explain_engine(left, right, asked))
        left, right = empty_tables(left, right)
        routing = options.pop("routing", None)
        units = options.pop("units", None) or getattr(routing, "units", None) or units
        options = engine_options(options)
    call = JoinCall(
        on, how, window, order_by, suffix, group_by=group_by, aggs=aggs, options=options
    )
    batches = _batches(left, right, call)
    schemas = batches[0].schema, batches[1].schema
    aggregated = None if aggs is None else AggConfig.of(call, *schemas)
    compiled = CompiledJoin(call.config(*schemas))
    plan = replace(make_plan(compiled, *batches), engine=engine)
    if streaming:
        routed = compiled if aggregated is None else aggregated.join
        plan = replace(plan, routing=explain_route(routed, units, routing))
    return plan if aggregated is None else plan_aggregates(aggregated.aggregator(), plan)


def is_spark(table: Any) -> bool:
    """Whether a table is a Spark DataFrame, classic or Connect, without importing pyspark."""
    kind = type(table)
    return kind.__name__ == "DataFrame" and kind.__module__.startswith("pyspark.")


def _aggregated(left: Any, right: Any, call: JoinCall) -> Any:
    """What a call with aggregates gives, of the left table's kind."""
    if is_spark(left) or is_spark(right):
        from thetajoin.spark.aggregate import aggregate_frames

        return aggregate_frames(left, right, call)
    from thetajoin.aggregate.run import AggConfig
    from thetajoin.aggregate.state import result

    kind = _kind(left, call)
    batches = _batches(left, right, call, kind)
    config = AggConfig.of(call, *(batch.schema for batch in batches))
    needed = [
        batch.select(schema.names)
        for batch, schema in zip(batches, (config.left_schema, config.right_schema), strict=True)
    ]
    return from_table(result(config.totals(*needed)), kind)


def _kind(table: Any, call: JoinCall) -> Kind:
    kind = kind_of(table)
    if kind is None:
        what = "joined" if call.self_join else "left"
        to_batch(table, what)
        raise SchemaError(f"the {what} input is a {type(table).__name__}: give a table")
    return kind


def _batches(
    left: Any, right: Any, call: JoinCall, kind: Kind | None = None
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    if call.self_join:
        batch = taken_in(left, "joined", as_kind=kind)
        return batch, batch
    batches = all_taken_in({"left": left, "right": right}, as_kind=kind)
    return batches["left"], batches["right"]


def _prepare(
    left: Any, right: Any, call: JoinCall, kind: Kind | None = None
) -> tuple[CompiledJoin, tuple[pa.RecordBatch, pa.RecordBatch]]:
    batches = _batches(left, right, call, kind)
    return CompiledJoin(call.config(*(batch.schema for batch in batches))), batches


def _run(
    compiled: CompiledJoin, batches: tuple[pa.RecordBatch, pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    run = join_tables if compiled.near_key is None else nearest_of_tables
    rows = sum(batch.num_rows for batch in batches)
    with few_rows(rows):
        found = iter(run(compiled, *batches))
        batch = next(found, None)
    while batch is not None:
        yield batch
        with few_rows(rows):
            batch = next(found, None)


def _in_pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with enough_memory("choose a smaller chunk_rows, or join a part of the rows at a time"):
        yield from batches
