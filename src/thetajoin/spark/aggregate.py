"""Aggregates over joins of Spark DataFrames, in two phases (BiStream, Section 3.4.2).

Units turn what they join into partial aggregates by group; Spark's own aggregation, which spreads
groups over its partitions and keeps them in its state store, adds these up once a micro-batch.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    IntegerType,
    StructType,
)

from thetajoin.aggregate.run import AggConfig, Aggregator
from thetajoin.aggregate.spec import AggSpec
from thetajoin.batch.tables import contiguous
from thetajoin.engine.core import JoinCore
from thetajoin.engine.options import Options
from thetajoin.engine.spec import Side
from thetajoin.engine.stream import check_window
from thetajoin.errors import DataError, OptionError
from thetajoin.predicate import condition_text
from thetajoin.predicate.nodes import Column
from thetajoin.predicate.render import backquoted
from thetajoin.spark.batch.table import Table
from thetajoin.spark.batch.worker import to_blobs
from thetajoin.spark.checks import (
    check_distinct,
    check_kinds,
    check_names,
    folds,
    order_of,
    with_columns_of,
)
from thetajoin.spark.columns import by_position, tie_breakers
from thetajoin.spark.housekeeping import look_after
from thetajoin.spark.interpreter import check_workers
from thetajoin.spark.meaning import check_aggregate, check_join
from thetajoin.spark.pack import binary
from thetajoin.spark.partials import final, merged, partial_batch, partial_schema, spark_schema
from thetajoin.spark.self_totals import self_totals
from thetajoin.spark.spec import UnitSpec
from thetajoin.spark.static import static_totals
from thetajoin.spark.stream import (
    WATERMARK,
    arrow_schema,
    check_watermark,
    frame_order,
    inside,
    observed,
    packed,
    take_units,
    time_lags,
    use_rocksdb,
)
from thetajoin.spark.tasks import Task, schema_of, set_aside
from thetajoin.spark.unit import METRICS, JoinUnit, OnArrival
from thetajoin.window.spec import CountWindow, FullHistory, TimeWindow

CELLS = schema_of(cell=IntegerType(), side=ByteType(), blob=BinaryType())
CLOSES = "__thetajoin_closes"


class TotalsUnit(JoinUnit):
    """Joins as its base does, but gives out partial aggregates in place of matches."""

    @cached_property
    def _aggregates(self) -> AggSpec:
        assert self._spec.totals is not None
        group_by, aggs = self._spec.totals
        config = self._spec.config
        return AggConfig(config.on, config.left_schema, config.right_schema, group_by, aggs).spec()

    def _output(
        self, core: JoinCore, left: pa.RecordBatch, right: pa.RecordBatch, write: OnArrival
    ) -> Iterator[pa.RecordBatch]:
        state = Aggregator(core, self._aggregates).run(left, right, on_arrival=write)
        core.counters.pairs += int(state.pairs.sum())
        batch = partial_batch(state)
        if batch.num_rows:
            yield batch

    def _schema(self) -> pa.Schema | None:
        return partial_schema(self._aggregates)


def aggregate_frames(
    left: Any,
    right: Any,
    on: Any,
    *,
    group_by: Any,
    aggs: Any,
    window: Any,
    order_by: Any,
    options: dict[str, Any],
    self_join: bool = False,
    unit_class: type[JoinUnit] = TotalsUnit,
) -> Any:
    """Aggregates over the join of two DataFrames, of which none, one or both stream.

    Those of a self-join are the same one, and it is read once.
    """
    check_kinds(left, right)
    check_workers(left.sparkSession)
    check_names(left, "the left input")
    check_names(right, "the right input")
    window, order_by = with_columns_of(window, left, right), order_of(order_by, left, right)
    check_join(left, right, on, window, order_by)
    streaming = left.isStreaming or right.isStreaming
    options = dict(options)
    units = options.pop("units", None)
    checked = FullHistory() if window is None and not streaming else check_window(window)
    config = AggConfig(
        condition_text(on),
        arrow_schema(left),
        arrow_schema(right),
        dict(group_by) if isinstance(group_by, dict) else group_by,
        aggs,
        window=checked,
        order_by=frame_order(order_by, checked),
        self_join=self_join,
        options=Options.parse(options),
    ).pruned()
    spec = config.spec()
    check_aggregate(left, right, spec, group_by, aggs)
    if folds(left):
        check_distinct(spec.schema.names, "the result has")
    whole = left, right
    left, right = (
        df.select(*[F.col(backquoted(name)) for name in schema.names])
        for df, schema in ((left, config.left_schema), (right, config.right_schema))
    )
    if left.isStreaming and right.isStreaming:
        partials = _from_stream(left, right, config, spec, options, units, unit_class)
    elif streaming:
        partials = _with_table(left, right, config, spec)
    elif self_join:
        partials = self_totals(left, config, spec, math.prod(_cells(left, config, units)))
    else:
        partials = _from_tables(whole, config, spec, units)
    groups = [F.col(f"g{at}") for at in range(len(spec.groups))]
    if streaming:
        partials, closing = _closing(partials, left, right, config, spec)
        groups += closing
    grouped = partials.groupBy(*groups).agg(*[F.expr(text) for text in merged(spec)])
    return grouped.selectExpr(*final(spec))


def _from_stream(
    left: Any,
    right: Any,
    config: AggConfig,
    spec: AggSpec,
    options: dict[str, Any],
    units: Any,
    unit_class: type[JoinUnit],
) -> Any:
    window = config.window
    if isinstance(window, TimeWindow):
        check_watermark(left, window.left_time, "left")
        check_watermark(right, window.right_time, "right")
    asked = {} if units is None else {"units": units}
    number = take_units(left, "inner", asked)
    unit_spec = UnitSpec.of(
        config.core().config,
        options,
        units=number,
        lags=time_lags(left, right, window),
        totals=(config.group_by, dict(config.aggs)),
    )
    use_rocksdb(left.sparkSession)
    look_after(left.sparkSession)
    rows = packed(left, 0, number)
    if not config.self_join:
        rows = rows.union(packed(right, 1, number))
    output = spark_schema(spec, left, right)
    totals = rows.groupBy("unit").transformWithStateInPandas(
        unit_class(unit_spec),
        inside(output),
        "Append",
        "EventTime" if isinstance(window, TimeWindow) else "None",
    )
    return observed(totals, number).drop(METRICS).toDF(*output.names)


def _with_table(left: Any, right: Any, config: AggConfig, spec: AggSpec) -> Any:
    """Of a stream and a table: nothing is kept but the groups, by Spark's own aggregation."""
    if isinstance(config.window, TimeWindow):
        check_watermark(left, config.window.left_time, "left")
        check_watermark(right, config.window.right_time, "right")
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
    clock = config.core().clock
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


def _from_tables(whole: tuple[Any, Any], config: AggConfig, spec: AggSpec, units: Any) -> Any:
    """Every part of one table meets every part of the other in a cell of its own."""
    rows, columns = _cells(whole[0], config, units)
    counted = isinstance(config.window, CountWindow)
    cells = None
    for side, df in enumerate(whole):
        names = (config.left_schema, config.right_schema)[side].names
        needed = [F.col(f"c{df.columns.index(name)}") for name in names]
        plain = by_position(df)
        ties = tie_breakers(plain) if counted else []
        table = Table(plain.select(*needed, *ties))
        sent = table.mapped(cutter(side, rows, columns), CELLS, with_hash=True)
        cells = sent if cells is None else cells.union(sent)
    assert cells is not None
    totals = _cell_totals(config, counted)
    return cells.groupBy("cell").applyInArrow(totals, spark_schema(spec, *whole))


def _cells(df: Any, config: AggConfig, units: Any) -> tuple[int, int]:
    """Into how many parts each side is cut; a count window has one order of all rows."""
    if units is not None and (isinstance(units, bool) or not isinstance(units, int) or units < 1):
        raise OptionError(f"units={units!r}: must be a whole number of at least 1")
    if isinstance(config.window, CountWindow):
        return 1, 1
    if units is None:
        try:
            units = df.sparkSession.sparkContext.defaultParallelism
        except Exception:  # Spark Connect has no context, and says so in its own way
            units = 4
    rows = math.isqrt(units - 1) + 1
    return rows, -(-units // rows)


def cutter(side: int, rows: int, columns: int) -> Task:
    """A function for `mapInArrow` that sends each row to all cells of its part of the table.

    The part is decided by the hash that is a row's last column, for Spark may run a task again with
    its rows in other batches while the cells that are done keep what they had.
    """
    mine, others = (rows, columns) if side == 0 else (columns, rows)

    def cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            hashes = batch.column(batch.num_columns - 1).to_numpy().view(np.uint64)
            plain = batch.select(list(range(batch.num_columns - 1)))
            # The bits that deal out one table's rows are not those that deal out the other's.
            part = (hashes >> np.uint64(32 * side)) % np.uint64(mine)
            for number in range(mine):
                chosen = plain.filter(pa.array(part == number)) if mine > 1 else plain
                if not chosen.num_rows:
                    continue
                cells = [
                    number * columns + other if side == 0 else other * columns + number
                    for other in range(others)
                ]
                for blob in to_blobs(chosen):
                    for cell in cells:
                        ids = [pa.array([cell], pa.int32()), pa.array([side], pa.int8())]
                        values = [*ids, binary(blob)]
                        yield pa.RecordBatch.from_arrays(values, names=["cell", "side", "blob"])

    return cut


def _cell_totals(config: AggConfig, counted: bool) -> Callable[[pa.Table], pa.Table]:
    """A function for `applyInArrow`; with `counted`, rows end in two columns that order them."""

    def totals(cell: pa.Table) -> pa.Table:
        sides = []
        for side, schema in enumerate((config.left_schema, config.right_schema)):
            mine = cell.filter(pc.equal(cell["side"], side))["blob"]
            tables = [pa.ipc.open_stream(blob.as_buffer()).read_all() for blob in mine]
            if not tables:
                sides.append(contiguous(schema.empty_table(), "joined"))
                continue
            whole = pa.concat_tables(tables)
            if counted:
                ties = [(name, "ascending") for name in whole.column_names[-2:]]
                whole = whole.sort_by(ties).select(whole.column_names[:-2])
            sides.append(_in_one(whole.rename_columns(schema.names).cast(schema)))
        found = partial_batch(config.aggregator().run(*sides, last=True))
        set_aside()
        return pa.Table.from_batches([found])

    return totals


def _in_one(table: pa.Table) -> pa.RecordBatch:
    try:
        return contiguous(table.combine_chunks(), "joined")
    except DataError:
        raise DataError(
            "a task of join_agg gets more than 2 GiB of one column's text: ask for more tasks "
            "(units=), or leave long texts out of groups, aggregates and condition"
        ) from None
