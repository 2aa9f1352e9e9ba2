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

_LEFT, _RIGHT = "__thetajoin_left", "__thetajoin_right"


def join_with_indicator(left: Any, right: Any, call: JoinCall) -> Any:
    """Join two DataFrames whose rows carry a mark, and see which marks came through."""
    check_kinds(left, right)
    how = parse_how(call.how) if call.nearest is None else nearest_how(call.how)
    name = check_indicator(call.indicator, how, ())
    left, right = left.withColumn(_LEFT, F.lit(True)), right.withColumn(_RIGHT, F.lit(True))
    found = join_frames(left, right, replace(call, indicator=None))
    same = str.lower if folds(left) else str
    check_indicator(name, how, [name] if same(name) in map(same, found.columns) else [])
    sides = (
        F.when(F.col(_RIGHT).isNull(), INDICATED[LEFT_ONLY])
        .when(F.col(_LEFT).isNull(), INDICATED[RIGHT_ONLY])
        .otherwise(INDICATED[BOTH])
    )
    return found.withColumn(name, sides).drop(_LEFT, _RIGHT)
