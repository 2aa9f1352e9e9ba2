"""Spark's own join or nearest match of two tables, with the output that thetajoin's has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from thetajoin.engine.layout import How
from thetajoin.engine.parts import Side
from thetajoin.predicate.render import backquoted
from thetajoin.spark.tables.native_condition import NativeCondition, NativeNearest
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


def native_nearest(
    tables: Mapping[Side, Table], condition: NativeNearest, how: How, output: StructType
) -> Any:
    """The nearest match as a window over the rows of both tables; nothing is read before.

    Spark's own `ASOF JOIN`, which 4.3 brought and which is off by default, cannot say which of
    right rows with equal keys to take, and takes longer where many rows share a key.
    """
    kept: dict[Side, Any] = {
        "l": tables["l"].frame.alias("l"),
        "r": tables["r"].frame.alias("r").where(condition.kept),
    }
    rows = [
        frame.selectExpr(
            *(f"({sql}) AS by{at}" for at, sql in enumerate(condition.by[side])),
            f"({condition.key[side]}) AS near",
            f"{str(side == 'l').lower()} AS is_left",
            *([f"({condition.place}) AS place"] if side == "r" else []),
            f"struct(*) AS {side}",
        )
        for side, frame in kept.items()
    ]
    equal = ", ".join(f"by{at}" for at in range(len(condition.by["l"])))
    window = (
        f"OVER ({f'PARTITION BY {equal}' if equal else ''} ORDER BY {condition.order} "
        "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    )
    both = rows[0].unionByName(rows[1], allowMissingColumns=True)
    nearest = both.selectExpr("l", f"last(r, true) {window} AS r").where("l IS NOT NULL")
    found = nearest.selectExpr("l", f"if({condition.fits}, r, NULL) AS r")
    if how != "left":
        found = found.where(f"r IS {'' if how == 'anti' else 'NOT '}NULL")
    columns = [f"{side}.{name}" for side, table in tables.items() for name in table.frame.columns]
    return found.selectExpr(
        *[
            f"{column} AS {backquoted(field.name)}"
            for column, field in zip(columns, output.fields, strict=False)
        ]
    )


def _with_made(frame: Any, side: Side, condition: NativeCondition) -> Any:
    """A side with the columns that the condition wants made."""
    made = [f"({sql}) AS m{at}" for at, sql in enumerate(condition.made[side])]
    return (frame.alias(side).selectExpr("*", *made) if made else frame).alias(side)
