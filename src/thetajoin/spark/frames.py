"""Joins of Spark DataFrames: they are checked here, and sent on to streams or tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, LongType, StringType

from thetajoin.engine.block import concat_batches, empty_batch
from thetajoin.engine.layout import (
    BOTH,
    INDICATED,
    LEFT_ONLY,
    RIGHT_ONLY,
    Layout,
    check_indicator,
)
from thetajoin.engine.spec import JoinSpec
from thetajoin.errors import WindowError
from thetajoin.ipc import batches_from_ipc, schema_from_bytes, schema_to_bytes, to_ipc
from thetajoin.planner.join_order import Estimate
from thetajoin.planner.plan import sample_of
from thetajoin.planner.routing import DEFAULT_UNITS
from thetajoin.predicate.render import backquote
from thetajoin.spark.column_condition import with_text
from thetajoin.spark.exchange import chunks, sample_rows
from thetajoin.spark.meaning import (
    RESERVED,
    check_distinct,
    check_join,
    check_kinds,
    check_many,
    check_names,
    check_nearest,
    folds,
    order_of,
    respell,
    with_columns_of,
    with_names_of,
)
from thetajoin.spark.row_order import number_rows
from thetajoin.spark.session import check_workers
from thetajoin.spark.stream import arrow_schema, stream_join, with_own_window
from thetajoin.spark.tables.engine import BatchOptions
from thetajoin.spark.tables.join import batch_join, explain_engine_of
from thetajoin.spark.tables.table import Table
from thetajoin.spark.tasks import make_schema
from thetajoin.window.many_inputs import ONE, hide_name, list_numbers
from thetajoin.window.windows import CountWindow, Window

IN_LEFT, IN_RIGHT = f"{RESERVED}in_left", f"{RESERVED}in_right"
SAMPLED = make_schema(input=StringType(), total=LongType(), sample=BinaryType())
# Sampled rows of each chunk that a task reads.
TASK_SAMPLE = 256


def mark_sides(left: Any, right: Any, spec: JoinSpec) -> tuple[Any, Any, JoinSpec]:
    """Both inputs with the marks they need, and the call without its indicator."""
    how = spec.how
    layout = Layout(arrow_schema(left), arrow_schema(right), how, spec.suffix)
    name = check_indicator(spec.indicator, how, layout.schema.names)
    if folds(left):
        check_indicator(name.lower(), how, [taken.lower() for taken in layout.schema.names])
    if how in ("right", "full"):
        left = left.withColumn(IN_LEFT, F.lit(True))
    if how in ("left", "full"):
        right = right.withColumn(IN_RIGHT, F.lit(True))
    return left, right, replace(spec, indicator=None)


def add_indicator(joined: Any, name: str) -> Any:
    """A join's output with words in place of the marks."""
    words = [F.lit(word) for word in INDICATED]
    said = words[BOTH]
    for mark, missing in ((IN_LEFT, RIGHT_ONLY), (IN_RIGHT, LEFT_ONLY)):
        if mark in joined.columns:
            said = F.when(F.col(mark).isNull(), words[missing]).otherwise(said)
    kept = [column for column in joined.columns if column not in (IN_LEFT, IN_RIGHT)]
    return joined.select(*[F.col(backquote(column)) for column in kept], said.alias(name))


def prepare_explain(
    left: Any, right: Any, spec: JoinSpec
) -> tuple[pa.Table, pa.Table, JoinSpec, str | None, tuple[int, Any] | None]:
    """Two empty tables, and the call over them, for `explain` to plan.

    Besides, the engine of two tables, or for two streams the number of units and their routing.
    """
    check_kinds(left, right)
    spec = replace(spec, on=with_text(left, right, spec.on))
    engine = spread = None
    if left.isStreaming or right.isStreaming:
        spec = with_own_window(spec, left, right)
    elif spec.aggs is None:
        engine = str(explain_engine_of(left, *_check(left, right, spec)))
    options = dict(spec.options)
    routing = options.pop("routing", None)
    units = options.pop("units", None) or getattr(routing, "units", None) or DEFAULT_UNITS
    if left.isStreaming and right.isStreaming:
        spread = units, routing
    spec = replace(spec, options=engine_options(options))
    tables = (arrow_schema(df).empty_table() for df in (left, right))
    return *tables, spec, engine, spread


def engine_options(options: dict[str, Any]) -> dict[str, Any]:
    """A call's options without those that only spread the work on Spark; these are checked."""
    rest = dict(options)
    BatchOptions.take(rest)
    return rest


def join_frames(left: Any, right: Any, spec: JoinSpec, *, checked: bool = False) -> Any:
    """Join two Spark DataFrames: as tables, or as streams where at least one streams.

    checked: this is a step of a larger join, whose inputs have been checked.
    """
    check_kinds(left, right)
    check_workers(left.sparkSession)
    if not checked:
        spec = replace(spec, on=with_text(left, right, spec.on))
        right, spec = _check(left, right, spec)
    join = stream_join if left.isStreaming or right.isStreaming else batch_join
    if spec.indicator is None:
        return join(left, right, spec)
    return add_indicator(join(*mark_sides(left, right, spec)), spec.indicator)


def _check(left: Any, right: Any, spec: JoinSpec) -> tuple[Any, JoinSpec]:
    """The right input and the call in the left input's spelling; refuses what cannot be done."""
    check_names(left, "the left input")
    check_names(right, "the right input")
    right = respell(right, left.columns)
    spec = with_names_of(spec, left, right)
    if folds(left):  # Spark could not tell such columns of the output apart
        layout = Layout(arrow_schema(left), arrow_schema(right), spec.how, spec.suffix)
        check_distinct(layout.schema.names, f"with suffix={spec.suffix!r} the output has")
    check_join(left, right, spec)
    check_nearest(spec)
    return right, spec


class ManyFrames:
    """DataFrames, their columns named ``input.column``."""

    def __init__(self, inputs: Mapping[str, Any]) -> None:
        check_workers(next(iter(inputs.values())).sparkSession)
        self.frames: dict[str, Any] = {}
        taken: list[str] = []
        for name, frame in inputs.items():
            check_names(frame, f"input {name!r}")
            self.frames[name] = respell(frame, taken)
            taken += self.frames[name].columns
        self.schemas = {name: arrow_schema(frame) for name, frame in self.frames.items()}
        self.carrying: dict[str, Any] = {}

    def resolve_names(self, window: Window | None, order_by: Any) -> tuple[Window | None, Any]:
        """Window and order with the columns' own names."""
        first = next(iter(self.frames.values()))
        return with_columns_of(window, first, first), order_of(order_by, *self.frames.values())

    def check(
        self, on: Any, _parts: Any, window: Window | None, orders: Mapping[str, str] | None
    ) -> None:
        """Refuse what Spark would join otherwise."""
        check_many(self.frames, on, window, orders)

    def join(self, left: Any, right: Any, on: Any, **how: Any) -> Any:
        """One step; by thetajoin unless asked otherwise, as choosing would compute it twice."""
        if not (left.isStreaming or right.isStreaming):
            how.setdefault("engine", "thetajoin")
        spec = JoinSpec(on, window=how.pop("window"), options=how)
        return join_frames(left, right, spec, checked=True)

    def estimate(self) -> Estimate | None:
        """Rows and samples of the tables, read in one job; None where one of them streams."""
        if any(frame.isStreaming for frame in self.frames.values()):
            return None
        job = None
        for name, frame in self.frames.items():
            schema = schema_to_bytes(self.schemas[name])
            sampled = Table(frame).map(_sampler(name, schema), SAMPLED)
            job = sampled if job is None else job.union(sampled)
        assert job is not None
        found = job.collect()
        rows, samples = {}, {}
        for name, schema in self.schemas.items():
            own = [row for row in found if row.input == name]
            rows[name] = sum(row.total for row in own)
            taken = [batch for row in own for batch in batches_from_ipc(row.sample)]
            whole = concat_batches(taken) if taken else empty_batch(schema)
            samples[name] = sample_of(whole)
        return Estimate(rows, samples)

    def number(self, window: CountWindow, orders: dict[str, str] | None) -> None:
        """Give rows the numbers that say which of them see each other."""
        if any(frame.isStreaming for frame in self.frames.values()):
            raise WindowError(
                "join_many of streams takes a TimeWindow or FullHistory(): a CountWindow counts "
                "the rows of two streams; join these two first"
            )
        if orders is None:
            raise WindowError(
                "a CountWindow on Spark needs order_by, a column (or one for each input) that "
                "orders the rows"
            )
        places = [self.schemas[name].names.index(column) for name, column in orders.items()]
        for at, (name, frame) in enumerate(number_rows(self.frames, places, window).items()):
            numbers = [hide_name(name, number) for number in list_numbers(at, len(orders))]
            self.carrying[name] = frame.toDF(*self._qualify(name), *numbers)

    def _qualify(self, name: str) -> list[str]:
        return [f"{name}.{column}" for column in self.frames[name].columns]

    def input(self, name: str) -> Any:
        """One input as a step takes it."""
        return self.carrying.get(name) or self.frames[name].toDF(*self._qualify(name))

    def with_one(self, frame: Any) -> Any:
        """The frame with a column that is the same in all rows."""
        return frame.withColumn(ONE, F.lit(0))

    def finish(self, frame: Any, columns: dict[str, str]) -> Any:
        """The output's columns in order."""
        return frame.select(*[F.col(backquote(c)).alias(shown) for c, shown in columns.items()])


def _sampler(
    name: str, schema: bytes
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that gives a few rows of each chunk and how many it had."""

    def sample(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for chunk in chunks(batches, schema_from_bytes(schema)):
            columns = [
                pa.array([name]),
                pa.array([chunk.num_rows], pa.int64()),
                pa.array([to_ipc(sample_rows(chunk, TASK_SAMPLE)).to_pybytes()], pa.binary()),
            ]
            yield pa.RecordBatch.from_arrays(columns, ["input", "total", "sample"])

    return sample
