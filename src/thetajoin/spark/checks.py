"""Spark DataFrames as inputs: what is refused before anything runs, and names as Spark takes them.

Spark does not tell case apart unless it is told to, and the engine does. So a name that is given in
another case becomes the column's own, and names that only differ in case are one name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from thetajoin.engine.spec import JoinSpec
from thetajoin.errors import OptionError, SchemaError
from thetajoin.window.windows import TimeWindow

CASE = "spark.sql.caseSensitive"
# Columns of ours that travel beside the user's.
RESERVED = "__thetajoin_"


def check_kinds(left: Any, right: Any) -> None:
    """Refuse a Spark DataFrame beside something else."""
    for df, name in ((left, "left"), (right, "right")):
        if not hasattr(df, "isStreaming"):
            raise SchemaError(
                f"the {name} input is a {type(df).__name__} and the other a Spark DataFrame: "
                "make both Spark DataFrames (spark.createDataFrame)"
            )


def folds(df: Any) -> bool:
    """Whether names that differ in case are one name to Spark."""
    return bool(df.sparkSession.conf.get(CASE).lower() != "true")


def check_names(df: Any, what: str) -> None:
    """Refuse columns that could not be told apart, from each other or from ours."""
    for name in df.columns:
        if name.lower().startswith(RESERVED):
            raise SchemaError(
                f"{what} has a column {name!r}: names that begin with {RESERVED} are the join's "
                "own; rename it"
            )
    if folds(df):
        check_distinct(df.columns, f"{what} has")


def check_distinct(names: Iterable[str], what: str) -> None:
    """Refuse names that differ in case only, where Spark does not tell case apart."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise SchemaError(
                f"{what} the columns {other!r} and {name!r}, which Spark takes for one while "
                f"{CASE} is false: rename one"
            )


def respelled(df: Any, names: Iterable[str]) -> Any:
    """The frame with its columns in the spelling of others that Spark takes for the same."""
    if not folds(df):
        return df
    known: dict[str, str] = {}
    for name in names:
        known.setdefault(name.lower(), name)
    spelled = [known.get(name.lower(), name) for name in df.columns]
    return df if spelled == df.columns else df.toDF(*spelled)


def column_of(df: Any, name: str) -> str:
    """The column that a name means; the name itself where there is none."""
    if name in df.columns or not folds(df):
        return name
    found = [column for column in df.columns if column.lower() == name.lower()]
    return found[0] if len(found) == 1 else name


def with_columns_of(window: Any, left: Any, right: Any) -> Any:
    """The window with the columns' own names."""
    if not isinstance(window, TimeWindow):
        return window
    time = column_of(left, window.left_time), column_of(right, window.right_time)
    return window if time == (window.left_time, window.right_time) else replace(window, time=time)


def order_of(order_by: Any, *frames: Any) -> Any:
    """`order_by` with the columns' own names; what is no name or names is left as it is."""
    if isinstance(order_by, str):
        order_by = [order_by] * len(frames)
    if not isinstance(order_by, list | tuple) or len(order_by) != len(frames):
        return order_by
    if not all(isinstance(name, str) for name in order_by):
        return order_by
    return tuple(column_of(df, name) for df, name in zip(frames, order_by, strict=True))


def with_names_of(spec: JoinSpec, left: Any, right: Any) -> JoinSpec:
    """The call with window and order naming columns as the DataFrames spell them."""
    window = with_columns_of(spec.window, left, right)
    nearest = spec.nearest
    if nearest is not None:
        key = column_of(left, nearest.key[0]), column_of(right, nearest.key[1])
        order_by = nearest.order_by
        order_by = None if order_by is None else column_of(right, order_by)
        nearest = replace(nearest, key=key, order_by=order_by)
    order = order_of(spec.order_by, left, right)
    return replace(spec, window=window, order_by=order, nearest=nearest)


def check_nearest(spec: JoinSpec) -> None:
    """Refuse a nearest match that leaves open which of two rows to take: Spark's have no order."""
    nearest = spec.nearest
    if nearest is None or nearest.ties == "all" or nearest.order_by is not None:
        return
    if spec.how in ("left", "inner"):
        raise OptionError(
            f"ties={nearest.ties!r} on Spark needs order_by, a right column that says which of two "
            "rows at equal distance comes later: rows have no order there; or use ties='all'"
        )
