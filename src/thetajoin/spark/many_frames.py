"""Spark DataFrames as inputs of a join of many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, LongType, StringType

from thetajoin.engine.block import concat_batches, empty_batch
from thetajoin.engine.spec import JoinSpec
from thetajoin.errors import WindowError
from thetajoin.ipc import batches_from_ipc, schema_from_bytes, schema_to_bytes, to_ipc
from thetajoin.planner.join_order import Estimate
from thetajoin.planner.plan import SAMPLE_ROWS, sample_of
from thetajoin.predicate.render import backquoted
from thetajoin.spark.checks import check_names, order_of, respelled, with_columns_of
from thetajoin.spark.frames import join_frames
from thetajoin.spark.interpreter import check_workers
from thetajoin.spark.meaning import check_many
from thetajoin.spark.stream import arrow_schema
from thetajoin.spark.tables.counted import numbered
from thetajoin.spark.tables.table import Table
from thetajoin.spark.tables.worker import chunks, sampled
from thetajoin.spark.tasks import schema_of
from thetajoin.window.many_inputs import carried, hidden
from thetajoin.window.windows import CountWindow, Window

SAMPLED = schema_of(input=StringType(), total=LongType(), sample=BinaryType())
_ONE = "__thetajoin_one"
# Sampled rows of each chunk that a task reads.
TASK_SAMPLE = 256


class ManyFrames:
    """DataFrames, their columns named ``input.column``."""

    def __init__(self, inputs: Mapping[str, Any]) -> None:
        check_workers(next(iter(inputs.values())).sparkSession)
        self.frames: dict[str, Any] = {}
        taken: list[str] = []
        for name, frame in inputs.items():
            check_names(frame, f"input {name!r}")
            self.frames[name] = respelled(frame, taken)
            taken += self.frames[name].columns
        self.schemas = {name: arrow_schema(frame) for name, frame in self.frames.items()}
        self.carrying: dict[str, Any] = {}

    def named(self, window: Window | None, order_by: Any) -> tuple[Window | None, Any]:
        """Window and order with the columns' own names."""
        first = next(iter(self.frames.values()))
        return with_columns_of(window, first, first), order_of(order_by, *self.frames.values())

    def check(self, on: Any, window: Window | None, orders: Mapping[str, str] | None) -> None:
        """Refuse what Spark would join otherwise."""
        check_many(self.frames, on, window, orders)

    def join(self, left: Any, right: Any, on: Any, **how: Any) -> Any:
        """One step; by thetajoin unless asked otherwise: a choice would compute it once more."""
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
            sampled = Table(frame).mapped(_sampler(name, schema), SAMPLED)
            job = sampled if job is None else job.union(sampled)
        assert job is not None
        found = job.collect()
        rows, samples = {}, {}
        for name, schema in self.schemas.items():
            own = [row for row in found if row.input == name]
            rows[name] = sum(row.total for row in own)
            taken = [batch for row in own for batch in batches_from_ipc(row.sample)]
            whole = concat_batches(taken) if taken else empty_batch(schema)
            samples[name] = sample_of(whole, SAMPLE_ROWS)
        return Estimate(rows, samples)

    def number(self, window: CountWindow, orders: dict[str, str] | None) -> None:
        """Let rows carry the numbers that tell which see each other."""
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
        for at, (name, frame) in enumerate(numbered(self.frames, places, window).items()):
            numbers = [hidden(name, number) for number in carried(at, len(orders))]
            self.carrying[name] = frame.toDF(*self._qualified(name), *numbers)

    def _qualified(self, name: str) -> list[str]:
        return [f"{name}.{column}" for column in self.frames[name].columns]

    def input(self, name: str) -> Any:
        """One input as a step takes it."""
        return self.carrying.get(name) or self.frames[name].toDF(*self._qualified(name))

    def with_one(self, frame: Any) -> Any:
        """The frame with a column that is the same in all rows."""
        return frame.withColumn(_ONE, F.lit(0))

    def finished(self, frame: Any, columns: dict[str, str]) -> Any:
        """The output's columns in order."""
        return frame.select(*[F.col(backquoted(c)).alias(shown) for c, shown in columns.items()])


def _sampler(
    name: str, schema: bytes
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that gives a few rows of each chunk and how many it had."""

    def sample(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for chunk in chunks(batches, schema_from_bytes(schema)):
            columns = [
                pa.array([name]),
                pa.array([chunk.num_rows], pa.int64()),
                pa.array([to_ipc(sampled(chunk, TASK_SAMPLE)).to_pybytes()], pa.binary()),
            ]
            yield pa.RecordBatch.from_arrays(columns, ["input", "total", "sample"])

    return sample
