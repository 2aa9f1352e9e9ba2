"""Which way a join of Spark DataFrames goes, once it is known to be one that can be done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from thetajoin.engine.layout import How, Layout
from thetajoin.engine.spec import JoinSpec
from thetajoin.planner.engines import EngineChoice
from thetajoin.spark.checks import (
    check_distinct,
    check_kinds,
    check_names,
    check_nearest,
    folds,
    respelled,
    with_names_of,
)
from thetajoin.spark.column_condition import with_text
from thetajoin.spark.indicator import indicated, marked
from thetajoin.spark.interpreter import check_workers
from thetajoin.spark.meaning import check_join
from thetajoin.spark.stream import arrow_schema, stream_join
from thetajoin.spark.tables.join import batch_join, chosen_engine
from thetajoin.spark.tables.options import BatchOptions


def empty_tables(left: Any, right: Any) -> tuple[pa.Table, pa.Table]:
    """Tables with the columns of two Spark DataFrames and no rows."""
    check_kinds(left, right)
    return arrow_schema(left).empty_table(), arrow_schema(right).empty_table()


def condition_of(left: Any, right: Any, on: Any) -> Any:
    """A condition with PySpark's columns as text, which needs no DataFrame to be understood."""
    check_kinds(left, right)
    return with_text(left, right, on)


def streams(left: Any, right: Any) -> bool:
    """Whether a join of two DataFrames is one of streams, which units carry out."""
    check_kinds(left, right)
    return bool(left.isStreaming and right.isStreaming)


def engine_options(options: dict[str, Any]) -> dict[str, Any]:
    """A call's options without those about how Spark spreads the work, which are checked."""
    rest = dict(options)
    BatchOptions.take(rest)
    return rest


def join_frames(left: Any, right: Any, spec: JoinSpec, *, checked: bool = False) -> Any:
    """Join two Spark DataFrames: as tables, or as streams where at least one streams.

    checked: they are a step of a larger join, whose inputs were checked.
    """
    check_kinds(left, right)
    check_workers(left.sparkSession)
    if not checked:
        spec = replace(spec, on=with_text(left, right, spec.on))
        right, spec = _checked(left, right, spec)
    join = stream_join if left.isStreaming or right.isStreaming else batch_join
    if spec.indicator is None:
        return join(left, right, spec)
    return indicated(join(*marked(left, right, spec)), spec.indicator)


def explain_engine(left: Any, right: Any, spec: JoinSpec) -> EngineChoice:
    """Which engine `join` of two tables would use, and why; may draw a few rows of both."""
    return chosen_engine(left, *_checked(left, right, spec))


def _checked(left: Any, right: Any, spec: JoinSpec) -> tuple[Any, JoinSpec]:
    """The right input and the call in the left input's spelling; refuses what cannot be done."""
    check_names(left, "the left input")
    check_names(right, "the right input")
    right = respelled(right, left.columns)
    spec = with_names_of(spec, left, right)
    _check_output(left, right, spec.how, spec.suffix)
    check_join(left, right, spec)
    check_nearest(spec)
    return right, spec


def _check_output(left: Any, right: Any, how: How, suffix: str) -> None:
    """Refuse an output whose columns Spark could not tell apart."""
    if folds(left):
        layout = Layout(arrow_schema(left), arrow_schema(right), how, suffix)
        check_distinct(layout.schema.names, f"with suffix={suffix!r} the output has")
