"""Which way a join of Spark DataFrames goes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from thetajoin.errors import SchemaError
from thetajoin.spark.batch.join import batch_join
from thetajoin.spark.batch.options import BatchOptions
from thetajoin.spark.interpreter import check_workers
from thetajoin.spark.stream import arrow_schema, stream_join
from thetajoin.window.spec import Window


def empty_tables(left: Any, right: Any) -> tuple[pa.Table, pa.Table]:
    """Tables with the columns of two Spark DataFrames and no rows."""
    check_kinds(left, right)
    return arrow_schema(left).empty_table(), arrow_schema(right).empty_table()


def engine_options(options: dict[str, Any]) -> dict[str, Any]:
    """A call's options without those about how Spark spreads the work, which are checked."""
    rest = dict(options)
    BatchOptions.take(rest)
    return rest


def check_kinds(left: Any, right: Any) -> None:
    """Refuse a Spark DataFrame beside something else."""
    for df, name in ((left, "left"), (right, "right")):
        if not hasattr(df, "isStreaming"):
            raise SchemaError(
                f"the {name} input is a {type(df).__name__} and the other a Spark DataFrame: "
                "make both Spark DataFrames (spark.createDataFrame)"
            )


def join_frames(
    left: Any,
    right: Any,
    on: Any,
    *,
    how: str,
    window: Window | None,
    order_by: Any,
    suffix: str,
    options: dict[str, Any],
    self_join: bool = False,
) -> Any:
    """Join two Spark DataFrames: as tables, or as streams where at least one streams."""
    check_kinds(left, right)
    check_workers(left.sparkSession)
    join = stream_join if left.isStreaming or right.isStreaming else batch_join
    return join(
        left,
        right,
        on,
        how=how,
        window=window,
        order_by=order_by,
        suffix=suffix,
        self_join=self_join,
        options=dict(options),
    )
