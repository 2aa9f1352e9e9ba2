"""The column that says which sides a row comes from, on Spark.

A side that may be missing from a row of the output gets a column that is always true: where it is
NULL after the join, the side is missing. Spark makes the words, so no text travels to Python.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyspark.sql import functions as F

from thetajoin.engine.layout import BOTH, INDICATED, LEFT_ONLY, RIGHT_ONLY, Layout, check_indicator
from thetajoin.engine.spec import JoinSpec
from thetajoin.predicate.render import backquoted
from thetajoin.spark.checks import RESERVED, folds
from thetajoin.spark.stream import arrow_schema

IN_LEFT, IN_RIGHT = f"{RESERVED}in_left", f"{RESERVED}in_right"


def marked(left: Any, right: Any, spec: JoinSpec) -> tuple[Any, Any, JoinSpec]:
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


def indicated(joined: Any, name: str) -> Any:
    """A join's output with words in place of the marks."""
    words = [F.lit(word) for word in INDICATED]
    said = words[BOTH]
    for mark, missing in ((IN_LEFT, RIGHT_ONLY), (IN_RIGHT, LEFT_ONLY)):
        if mark in joined.columns:
            said = F.when(F.col(mark).isNull(), words[missing]).otherwise(said)
    kept = [column for column in joined.columns if column not in (IN_LEFT, IN_RIGHT)]
    return joined.select(*[F.col(backquoted(column)) for column in kept], said.alias(name))
