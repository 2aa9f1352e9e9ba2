"""Totals of joins of Spark DataFrames, in two phases (BiStream, Section 3.4.2).

Tasks turn what they join into partial totals by group; Spark's own aggregation, which spreads
groups over its partitions and keeps those of a stream in its state store, adds these up.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, StructField, StructType

from thetajoin.aggregate.columns import DENSE
from thetajoin.aggregate.rows import row_totals, total_pairs
from thetajoin.aggregate.run import Aggregator
from thetajoin.aggregate.spec import AggSpec, Output, parse_aggregates
from thetajoin.aggregate.state import State, merge, to_decimal
from thetajoin.aggregate.totals import TotalsJoin
from thetajoin.batch.tables import contiguous
from thetajoin.engine.block import empty_batch
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.parts import SIDES, Side
from thetajoin.engine.rows import cast_for_storage, storage_schema
from thetajoin.engine.spec import JoinSpec
from thetajoin.engine.state import JoinState
from thetajoin.engine.step import Share, Step
from thetajoin.errors import OptionError
from thetajoin.ipc import from_ipc
from thetajoin.planner.routing import Routing
from thetajoin.planner.routing_samples import has_one_place, route_tables
from thetajoin.predicate.nodes import Column
from thetajoin.predicate.render import backquote
from thetajoin.routes.copies import Copies
from thetajoin.spark.column_condition import with_text
from thetajoin.spark.exchange import BLOBS, VISITING, as_batch, chunks, read_blobs, send_copies
from thetajoin.spark.frames import engine_options
from thetajoin.spark.meaning import (
    check_aggregate,
    check_distinct,
    check_join,
    check_kinds,
    check_names,
    check_nearest,
    folds,
    with_names_of,
)
from thetajoin.spark.row_order import tie_breakers
from thetajoin.spark.session import check_workers
from thetajoin.spark.stream import (
    WATERMARK,
    arrow_schema,
    beside_state,
    check_has_order,
    check_watermarks,
    in_units,
    observe_units,
    refuse_change_feeds,
    spread_over_units,
    time_lags,
    with_own_window,
)
from thetajoin.spark.tables.join import batch_join
from thetajoin.spark.tables.table import Table, draw_both
from thetajoin.spark.tasks import Task, map_batches, name_by_position, parallelism
from thetajoin.spark.unit import METRICS
from thetajoin.spark.unit_spec import StreamSettings, UnitSpec
from thetajoin.spark.versions import repartition_by_unit
from thetajoin.spark.whole import Probe, probe_with, read_now
from thetajoin.window.windows import CountWindow

CLOSES = "__thetajoin_closes"
# Tables believed to have fewer rows are not looked at: whatever their keys, one cell is soon done.
FEW_ROWS = 1 << 20
TOO_LARGE = (
    "a task of join_agg gets more than 2 GiB of one column's text: ask for more tasks (units=), or "
    "leave long texts out of groups, aggregates and condition"
)
TIES = pa.schema([("__thetajoin_tie_0", pa.int64()), ("__thetajoin_tie_1", pa.int64())])
# States of single batches that are kept until they are merged.
MOST_STATES = 32
PAIRS = "pairs"


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
        return _add_up_nearest(left, right, spec)
    streaming = left.isStreaming or right.isStreaming
    options = dict(spec.options)
    settings = options.pop("settings", None) or StreamSettings()
    units, routing = options.pop("units", None), options.pop("routing", settings.routing)
    around = beside_state(options, settings) if left.isStreaming and right.isStreaming else {}
    spec = replace(spec, options=options)
    if streaming:
        spec = with_own_window(spec, left, right).for_stream()
    query = _parse_query(left, right, spec)
    aggregates = query.aggregates
    refuse_change_feeds(left, right, query.join)
    whole = left, right
    left, right = _select_needed(left, right, query)
    if left.isStreaming and right.isStreaming:
        spread = spread_over_units(left, query.join, units, routing)
        partials = _add_up_streams(left, right, query, spread | around, settings)
    elif streaming:
        partials = _add_up_beside_table(left, right, query)
    else:
        partials = add_up_tables(whole, query, units)
    closing: list[Any] = []
    if streaming:
        partials, closing = _close_groups(partials, left, right, query)
    return merge_partials(partials, aggregates, closing)


def _add_up_nearest(left: Any, right: Any, spec: JoinSpec) -> Any:
    """Aggregates over the nearest matches of two tables."""
    check_nearest(spec)
    if left.isStreaming or right.isStreaming:
        raise OptionError(
            "nearest with aggs is for tables: leave aggs out, and group what nearest gives of the "
            "stream (groupBy)"
        )
    query = _parse_query(left, right, replace(spec, options=engine_options(dict(spec.options))))
    partials = _nearest_partials(*_select_needed(left, right, query), spec, query)
    return merge_partials(partials, query.aggregates)


def _parse_query(left: Any, right: Any, spec: JoinSpec) -> TotalsJoin:
    """The call as a query; refuses one to which Spark would give other groups or totals."""
    query = TotalsJoin.of(spec, arrow_schema(left), arrow_schema(right))
    check_has_order(spec.window, spec.order_by)
    assert spec.aggs is not None
    check_aggregate(left, right, query.aggregates, spec.group_by, spec.aggs)
    if folds(left):
        check_distinct(query.aggregates.schema.names, "the result has")
    return query


def _select_needed(left: Any, right: Any, query: TotalsJoin) -> tuple[Any, Any]:
    """Both inputs with the columns that matter."""
    both = (left, query.left_schema), (right, query.right_schema)
    chosen = [df.select(*map(backquote, schema.names)) for df, schema in both]
    return chosen[0], chosen[1]


def _add_up_streams(
    left: Any, right: Any, query: TotalsJoin, asked: dict[str, Any], settings: StreamSettings
) -> Any:
    """Partial totals of two streams; `asked` are fields of a `UnitSpec`."""
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
    totals = in_units(left, right, spec, output)
    return observe_units(totals).drop(METRICS).toDF(*output.names)


def _add_up_beside_table(left: Any, right: Any, query: TotalsJoin) -> Any:
    """Partial totals of a stream and a table, which is read once, now.

    Only Spark's own aggregation keeps state.
    """
    check_watermarks(left, right, query.join.window)
    if query.aggregates.keeps_left and not left.isStreaming:
        raise OptionError(
            "how='left' with a table on the left and a stream on the right: groups come with the "
            "stream's rows, and those without a match have none; swap the two, or use how='inner'"
        )
    streaming: Side = "l" if left.isStreaming else "r"
    sides = (left, query.left_schema), (right, query.right_schema)
    (stream, mine), (table, other) = sides if streaming == "l" else sides[::-1]
    query.put_beside(streaming, empty_batch(other))  # refuses what cannot be done
    sent = read_now(table, other)

    def index() -> Probe:
        beside = query.put_beside(streaming, sent.batch(other))

        def probe(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
            totals = partial_batch(beside.add_up(rows))
            if totals.num_rows:
                yield totals

        return probe

    task = probe_with(uuid.uuid4().hex[:12], index, mine)
    return map_batches(name_by_position(stream), task, spark_schema(query.aggregates, left, right))


def _close_groups(partials: Any, left: Any, right: Any, query: TotalsJoin) -> tuple[Any, list[Any]]:
    """When no pair can come any more for a group by event time, so that Spark closes it.

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


def add_up_tables(whole: tuple[Any, Any], query: TotalsJoin, units: Any) -> Any:
    """Partial aggregates of the join of two tables; those of a self-join are the same one."""
    if units is not None and (isinstance(units, bool) or not isinstance(units, int) or units < 1):
        raise OptionError(f"units={units!r}: must be a whole number of at least 1")
    units = units or parallelism(whole[0].sparkSession)
    schemas = query.left_schema, query.right_schema
    tables: dict[Side, Table] = {
        side: _table(df, schema.names, query)
        for side, df, schema in zip(SIDES, whole, schemas, strict=True)
    }
    if query.spec.self_join:
        tables["r"] = tables["l"]
    routing = _choose_routing(tables, query, units)
    roles: tuple[tuple[Side, ...], ...] = (SIDES,) if query.spec.self_join else (("l",), ("r",))
    sent = [tables[r[0]].map(send_to_cells(query, routing, units, r), BLOBS) for r in roles]
    cells = routing.tasks(query.join, units)
    placed = repartition_by_unit(sent[0].union(sent[-1]) if sent[1:] else sent[0], cells)
    return map_batches(placed, add_up_cell(query), spark_schema(query.aggregates, *whole))


def _table(df: Any, names: list[str], query: TotalsJoin) -> Table:
    """The columns that matter, and under a count window two that order what nothing else does."""
    plain = name_by_position(df)
    needed = [F.col(f"c{df.columns.index(name)}") for name in names]
    ties = tie_breakers(plain) if isinstance(query.join.window, CountWindow) else []
    return Table(plain.select(*needed, *ties))


def _choose_routing(tables: dict[Side, Table], query: TotalsJoin, units: int) -> Routing:
    """How rows are spread over cells; with an equality, a few rows of large tables are drawn."""
    samples = None
    if units > 1 and has_one_place(query.join):
        different = dict.fromkeys(tables.values())
        Table.look_up_bytes(*different)
        if sum(table.believed_rows for table in different) > FEW_ROWS:
            samples = draw_both(tables, query.join).samples
    return route_tables(query.join, units, samples)


def send_to_cells(query: TotalsJoin, routing: Routing, units: int, sides: tuple[Side, ...]) -> Task:
    """A task that sends a table's rows to the cells; with two sides, in both roles."""
    schema = query.left_schema if sides[0] == "l" else query.right_schema
    ordered = isinstance(query.join.window, CountWindow)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        join = query.join
        given = pa.schema([*schema, *TIES]) if ordered else schema
        for rows in chunks(batches, given):
            for side in sides:
                if ordered:  # all rows have one order, so they are in one cell
                    copies = Copies.single(np.zeros(rows.num_rows * (side == sides[0]), np.int32))
                else:
                    # A left row that can match nothing has a group all the same, if any has.
                    lone = query.aggregates.keeps_left and side == "l"
                    copies = routing.route(join, units, lone=lone).copies(rows, side)
                yield from send_copies(rows, copies, side)

    return run


def add_up_cell(query: TotalsJoin) -> Task:
    """A task that adds up the matches of one cell's rows.

    A left row that is at home gives its group, whether it has a match or not. In a self-join the
    rows at home meet each other, told apart from their equals by their places, and the visiting
    ones of one part meet those of another.
    """
    inner = replace(query, spec=replace(query.spec, how="inner", self_join=False))

    def totals(asked: TotalsJoin, left: pa.RecordBatch, right: pa.RecordBatch) -> pa.RecordBatch:
        return partial_batch(asked.aggregator().run(left, right))

    def add_up(home: dict[Side, pa.RecordBatch], visiting: dict[Side, pa.RecordBatch]) -> Any:
        if query.spec.self_join:
            yield totals(query, home["l"], home["l"])
            yield totals(inner, visiting["l"], visiting["r"])
            yield totals(inner, visiting["r"], visiting["l"])
            return
        left, right = (_together(home[side], visiting[side]) for side in SIDES)
        if not query.aggregates.keeps_left or not visiting["l"].num_rows:
            yield totals(query, left, right)
            return
        yield totals(inner, left, right)
        yield totals(query, home["l"], right.slice(0, 0))

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        blobs: dict[int, list[pa.Buffer]] = {
            at + more: [] for at in range(2) for more in (0, VISITING)
        }
        for side, blob in read_blobs(batches):
            blobs[side].append(blob)
        if not any(blobs.values()):
            return
        rows = {side: _rows(of, "l" if side % 2 == 0 else "r", query) for side, of in blobs.items()}
        home: dict[Side, pa.RecordBatch] = {"l": rows[0], "r": rows[1]}
        visiting: dict[Side, pa.RecordBatch] = {"l": rows[VISITING], "r": rows[VISITING + 1]}
        for batch in add_up(home, visiting):
            if batch.num_rows:
                yield batch

    return run


def _rows(blobs: list[pa.Buffer], side: Side, query: TotalsJoin) -> pa.RecordBatch:
    """The rows of some blobs; under a count window in the order of the columns they end in."""
    schema = query.left_schema if side == "l" else query.right_schema
    if not blobs:
        return as_batch(schema.empty_table(), schema)
    whole = pa.concat_tables(map(from_ipc, blobs))
    if isinstance(query.join.window, CountWindow):
        whole = whole.sort_by([(name, "ascending") for name in TIES.names])
        whole = whole.select(range(len(schema)))
    return as_batch(whole, schema, TOO_LARGE)


def _together(one: pa.RecordBatch, other: pa.RecordBatch) -> pa.RecordBatch:
    if not other.num_rows:
        return one
    return as_batch(pa.Table.from_batches([one, other]), one.schema, TOO_LARGE)


def _nearest_partials(left: Any, right: Any, spec: JoinSpec, query: TotalsJoin) -> Any:
    """Partial totals of the nearest matches of two tables that have only the needed columns."""
    on, suffix = query.spec.on, query.join.spec.suffix
    plain = replace(spec, on=on, suffix=suffix, group_by=(), aggs=None)
    found = batch_join(left, right, plain)
    schemas = query.left_schema, query.right_schema

    def totals(batch: pa.RecordBatch) -> State:
        sides = []
        start = 0
        for side, schema in zip(SIDES, schemas, strict=True):
            columns = batch.select(list(range(start, start + len(schema))))
            sides.append(query.join.take_in(as_batch(columns, schema), side))
            start += len(schema)
        # A NULL key matches nothing, so it tells a left row without a match.
        assert spec.nearest is not None
        there = sides[1].column(spec.nearest.key[1]).is_valid()
        rows = np.flatnonzero(there.to_numpy(zero_copy_only=False)).astype(np.int32)
        return total_pairs(query.aggregates, (sides[0], rows), (sides[1], rows))

    task = _add_up_batches(lambda: query.aggregates, totals)
    return map_batches(name_by_position(found), task, spark_schema(query.aggregates, left, right))


def add_up_rows(df: Any, group_by: Mapping[str, str], aggs: Mapping[str, str]) -> Any:
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

    partials = map_batches(
        name_by_position(df), _add_up_batches(spec, totals), spark_schema(checked, df, df)
    )
    return merge_partials(partials, checked)


def merge_partials(partials: Any, spec: AggSpec, closing: Iterable[Any] = ()) -> Any:
    """The result that partial aggregates add up to."""
    groups = [F.col(f"g{at}") for at in range(len(spec.groups))]
    grouped = partials.groupBy(*groups, *closing).agg(
        *[F.expr(text) for text in sum_partials(spec)]
    )
    return grouped.selectExpr(*show_totals(spec))


def _add_up_batches(spec: Callable[[], AggSpec], totals: Callable[[pa.RecordBatch], State]) -> Task:
    """A task that adds up the totals of its partition's batches."""

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
