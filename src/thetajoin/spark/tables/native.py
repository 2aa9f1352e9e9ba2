"""Spark's own join of two tables, with the output that thetajoin's has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from thetajoin.engine.layout import How
from thetajoin.engine.parts import Side
from thetajoin.predicate.render import backquoted
from thetajoin.spark.tables.native_condition import NativeCondition
from thetajoin.spark.tables.table import Table

_HOW: dict[How, str] = {
    "inner": "inner",
    "left": "left",
    "right": "right",
    "full": "full",
    "semi": "left_semi",
    "anti": "left_anti",
}


def native_join(
    tables: Mapping[Side, Table], condition: NativeCondition, how: How, output: StructType
) -> Any:
    """The join as Spark plans it; nothing is read before the result is used."""
    one, two = (_with_made(table.frame, side, condition) for side, table in tables.items())
    joined = one.join(two, F.expr(condition.sql), _HOW[how])
    columns = [f"{side}.{name}" for side, table in tables.items() for name in table.frame.columns]
    # Whatever the inputs said of NULLs and other things, the output says what it always does. As
    # text it is read in one call, where columns would be some for each.
    return joined.selectExpr(
        *[
            f"if(true, {column}, NULL) AS {backquoted(field.name)}"
            for column, field in zip(columns, output.fields, strict=False)
        ]
    )


def _with_made(frame: Any, side: Side, condition: NativeCondition) -> Any:
    """A side with the columns that the condition wants made."""
    made = [f"({sql}) AS m{at}" for at, sql in enumerate(condition.made[side])]
    return (frame.alias(side).selectExpr("*", *made) if made else frame).alias(side)
