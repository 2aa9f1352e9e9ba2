"""A column that says which sides a row of a join of Spark DataFrames comes from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyspark.sql import functions as F

from thetajoin.engine.call import JoinCall
from thetajoin.engine.layout import (
    BOTH,
    INDICATED,
    LEFT_ONLY,
    RIGHT_ONLY,
    check_indicator,
    parse_how,
)
from thetajoin.engine.nearest import nearest_how
from thetajoin.spark.checks import check_kinds, folds
from thetajoin.spark.frames import join_frames

# Not as the join's own columns are called, which no input may have.
_LEFT, _RIGHT = "_thetajoin_left", "_thetajoin_right"


def join_with_indicator(left: Any, right: Any, call: JoinCall) -> Any:
    """Join two DataFrames whose rows carry a mark, and see which marks came through."""
    check_kinds(left, right)
    how = parse_how(call.how) if call.nearest is None else nearest_how(call.how)
    name = check_indicator(call.indicator, how, ())
    taken = {column.lower() for column in (*left.columns, *right.columns)}
    in_left, in_right = (_free(mark, taken) for mark in (_LEFT, _RIGHT))
    left, right = left.withColumn(in_left, F.lit(True)), right.withColumn(in_right, F.lit(True))
    found = join_frames(left, right, replace(call, indicator=None))
    same = str.lower if folds(left) else str
    check_indicator(name, how, [name] if same(name) in map(same, found.columns) else [])
    sides = (
        F.when(F.col(in_right).isNull(), INDICATED[LEFT_ONLY])
        .when(F.col(in_left).isNull(), INDICATED[RIGHT_ONLY])
        .otherwise(INDICATED[BOTH])
    )
    return found.withColumn(name, sides).drop(in_left, in_right)


def _free(name: str, taken: set[str]) -> str:
    """A name like this one that no column has."""
    while name in taken:
        name += "_"
    return name
