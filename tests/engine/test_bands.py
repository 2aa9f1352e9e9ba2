"""Bounds of a difference, strict and not, as the engine's intervals take them."""

from __future__ import annotations

import operator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import thetajoin as tj
from thetajoin.engine.parts import FloatBand, whole_bounds
from thetajoin.predicate import Difference

COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def difference(type_: pa.DataType, low: Any, high: Any, strict: tuple[bool, bool]) -> Difference:
    nothing: Any = None  # the expressions, which bounds do not depend on
    return Difference(nothing, nothing, type_, low, strict[0], high, strict[1], nothing, True)


@pytest.mark.parametrize(
    ("low", "high", "strict", "bounds"),
    [
        (2, 5, (False, False), (2, 5)),
        (2, 5, (True, False), (3, 5)),
        (2, 5, (False, True), (2, 4)),
        (None, 5, (True, True), (None, 4)),
        (-2, None, (True, True), (-1, None)),
    ],
)
def test_whole_bounds_are_inclusive(
    low: int | None, high: int | None, strict: tuple[bool, bool], bounds: tuple[int | None, ...]
) -> None:
    assert whole_bounds(difference(pa.int64(), low, high, strict)) == bounds
    decimals = [None if end is None else Decimal(end) for end in (low, high)]
    scaled = tuple(
        None if end is None else 100 * end + step
        for end, step in zip((low, high), (strict[0], -strict[1]), strict=True)
    )
    assert whole_bounds(difference(pa.decimal128(9, 2), *decimals, strict)) == scaled


def test_a_band_of_floats_keeps_each_end_as_it_was_written() -> None:
    given = difference(pa.float32(), 1, 2, (True, False))
    assert FloatBand.of(given, left=True) == FloatBand(1.0, True, 2.0, False, True, True, False)
    given = difference(pa.float64(), None, 2, (False, True))
    assert FloatBand.of(given, left=False) == FloatBand(None, False, 2.0, True, False, False, False)


@pytest.mark.parametrize("type_", [pa.int64(), pa.float64(), pa.decimal128(23, 2)])
@pytest.mark.parametrize("low", [">", ">="])
@pytest.mark.parametrize("high", ["<", "<="])
def test_strict_ends_of_a_band_in_a_join(type_: pa.DataType, low: str, high: str) -> None:
    values = list(range(9))
    table = pa.table({"x": pa.array(values, pa.int64()).cast(type_)})
    found = tj.join(table, table, f"l.x - r.x {low} 2 AND l.x - r.x {high} 5")
    wanted = [
        (a, b) for a in values for b in values if COMPARE[low](a - b, 2) and COMPARE[high](a - b, 5)
    ]
    pairs = zip(found["x"].to_pylist(), found["x_right"].to_pylist(), strict=True)
    assert sorted((int(a), int(b)) for a, b in pairs) == wanted
