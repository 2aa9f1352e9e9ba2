"""Comparison of Arrow arrays in Spark's order: NaN equals NaN and is above every number."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as t

from thetajoin.predicate.arrays import Array, divided, pc
from thetajoin.predicate.nodes import MIRROR
from thetajoin.predicate.types import ticks_per_second

_ARROW = {
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
    "=": "equal",
    "!=": "not_equal",
}


def compare(op: str, a: Array, b: Array) -> Array:
    """``a op b`` row by row, NULL where either is.

    The types are equal but for the unit of timestamps and durations. O(n).

    >>> compare(">", pa.array([float("nan"), 1.0]), pa.array([float("inf"), None])).to_pylist()
    [True, None]
    """
    if a.type != b.type:
        return _compare_units(op, a, b)
    if a.type == pa.null():
        return pa.nulls(len(a), pa.bool_())
    result: Array = pc.call_function(_ARROW[op], [a, b])
    return _with_nan(op, a, b, result) if t.is_floating(a.type) else result


def same(a: Array, b: Array) -> Array:
    """``a <=> b``: like equality, but NULL equals NULL and nothing is unknown."""
    both_null = pc.and_(a.is_null(), b.is_null())
    result: Array = pc.or_(pc.fill_null(compare("=", a, b), False), both_null)
    return result


def _with_nan(op: str, a: Array, b: Array, result: Array) -> Array:
    a_nan, b_nan = pc.is_nan(a), pc.is_nan(b)
    if not (pc.any(a_nan).as_py() or pc.any(b_nan).as_py()):
        return result
    # Where a NaN takes part, its being NaN (true above false) orders like the values.
    in_nan_order = pc.call_function(_ARROW[op], [a_nan, b_nan])
    answer: Array = pc.if_else(pc.or_(a_nan, b_nan), in_nan_order, result)
    return answer


def _compare_units(op: str, a: Array, b: Array) -> Array:
    """Compare in the coarser unit, so that nothing can overflow (see `coarsened`)."""
    if ticks_per_second(a.type) > ticks_per_second(b.type):
        return _compare_units(MIRROR[op], b, a)
    step = ticks_per_second(b.type) // ticks_per_second(a.type)
    down = divided(b, step, a.type)
    up = divided(b, step, a.type, up=True)
    if op in ("=", "!="):
        equal = pc.and_(pc.equal(a, down), pc.equal(a, up))
        answer: Array = equal if op == "=" else pc.invert(equal)
        return answer
    return compare(op, a, down if op in ("<=", ">") else up)


def coarsened(op: str, fine: Array, type_: pa.DataType) -> Array:
    """The finer side of ``coarse op fine`` brought to the coarser unit, so that the answer stays.

    ``a <= b`` and ``a > b`` are as with b rounded down, ``a < b`` and ``a >= b`` as with b rounded
    up, and ``a = b`` needs b to be whole: NULL where it is not.
    """
    step = ticks_per_second(fine.type) // ticks_per_second(type_)
    down = divided(fine, step, type_)
    if op in ("<=", ">"):
        return down
    up = divided(fine, step, type_, up=True)
    if op != "=":
        return up
    answer: Array = pc.if_else(pc.equal(down, up), down, pa.scalar(None, type_))
    return answer
