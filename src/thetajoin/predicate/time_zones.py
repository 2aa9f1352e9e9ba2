"""Timestamps with a time zone beside some without: nothing but a CAST can say how they compare."""

from __future__ import annotations

import pyarrow as pa

from thetajoin.errors import ConditionError, SchemaError
from thetajoin.predicate.nodes import Call, Cast, Column, Comparison, Expr


def refuse_mixed_zones(expr: Expr) -> None:
    """Refuse an expression that compares the two kinds; constants without a zone fit both."""
    for node in expr.walk():
        found = _find_mixed(node.children) if isinstance(node, Call) else None
        if found is not None:
            naive, zoned = (side.sql() for side in found)
            raise ConditionError(
                f"{naive} has no time zone and {zoned} has one",
                fragment=node.sql(),
                hint=f"say what is meant: CAST({naive} AS TIMESTAMP) reads it in UTC, "
                f"CAST({zoned} AS TIMESTAMP_NTZ) is the time in UTC without the zone",
            )


def refuse_mixed_columns(what: str, pair: Comparison) -> None:
    """The same for two columns that an argument names."""
    found = _find_mixed((pair.left, pair.right))
    if found is not None:
        naive, zoned = (side.sql() for side in found)
        raise SchemaError(
            f"{what}: {naive} has no time zone and {zoned} has one: make the two alike before the "
            f"join (CAST({naive} AS TIMESTAMP) in SQL, tz_localize in pandas, "
            "dt.replace_time_zone in Polars)"
        )


def _find_mixed(operands: tuple[Expr, ...]) -> tuple[Expr, Expr] | None:
    """An operand without a zone that was taken for UTC, and one that has a zone."""
    zoned = next((operand for operand in operands if _has_zone(operand)), None)
    if zoned is None:
        return None
    for operand in operands:
        if _is_read_in_utc(operand) and operand.sides():
            return operand, zoned
    return None


def _is_read_in_utc(expr: Expr) -> bool:
    return (
        isinstance(expr, Cast)
        and expr.implicit
        and _zone(expr.type) is not None
        and pa.types.is_timestamp(expr.arg.type)
        and _zone(expr.arg.type) is None
    )


def _has_zone(expr: Expr) -> bool:
    """Whether a zone was given: by a column, or in a CAST (a DATE plus hours has one in name)."""
    if _is_read_in_utc(expr) or _zone(expr.type) is None:
        return False
    return any(
        isinstance(node, Column) or (isinstance(node, Cast) and not node.implicit)
        for node in expr.walk()
        if _zone(node.type) is not None
    )


def _zone(type_: pa.DataType) -> str | None:
    return type_.tz if isinstance(type_, pa.TimestampType) else None
