"""Sums of doubles mean what they should with infinities, NaN and numbers that overflow on the way.

NaN, or infinities of both signs, give NaN; one infinity gives itself; all else is the exact sum,
rounded, which is infinite only if it is past the largest double. However the rows are batched.
"""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import strategies as own
import thetajoin as tj

LARGEST = Fraction(1.7976931348623157e308)
NUMBERS = st.sampled_from(
    [1.0, -1.0, 0.5, -0.0, 0.0, 3.0, 1e16, -1e16, 1e308, -1e308, 1.7e308, -1.7e308, 5e-324, 1e300]
)
SPECIAL = st.sampled_from([math.inf, -math.inf, math.nan])
VALUES = st.none() | NUMBERS | NUMBERS | NUMBERS | SPECIAL
FINITE = st.none() | NUMBERS


def meaning(values: list[float]) -> tuple[float, float]:
    """The sum, and how far off rounding may put it."""
    odd = {value for value in values if math.isinf(value)}
    if any(map(math.isnan, values)) or len(odd) == 2:
        return math.nan, 0.0
    if odd:
        return odd.pop(), 0.0
    exact = sum(map(Fraction, values), Fraction(0))
    scale = sum((abs(Fraction(value)) for value in values), Fraction(0)) / 2**40
    if abs(exact) > LARGEST:
        return math.inf if exact > 0 else -math.inf, 0.0
    return float(exact), float(min(scale, LARGEST))


def same(got: float | None, values: list[float]) -> bool:
    if not values:
        return got is None
    want, off = meaning(values)
    assert got is not None
    if math.isnan(want):
        return math.isnan(got)
    return got == want or abs(got - want) <= off


CONDITIONS = {
    "l.k < r.k": lambda l, r: l["k"] < r["k"],
    "l.k <= r.k AND l.b >= r.b": lambda l, r: l["k"] <= r["k"] and l["b"] >= r["b"],
    "l.k + r.k >= 3": lambda l, r: l["k"] + r["k"] >= 3,
    "l.k = r.k AND l.b < r.b": lambda l, r: l["k"] == r["k"] and l["b"] < r["b"],
}
SCHEMA = pa.schema({"k": pa.int64(), "b": pa.int64(), "g": pa.int64(), "v": pa.float64()})


def rows(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[naive.Row]]:
    small = st.integers(0, 3)
    row = st.fixed_dictionaries({"k": small, "b": small, "g": st.integers(0, 1), "v": values})
    return st.lists(row, max_size=7)


def table(drawn: list[naive.Row]) -> pa.Table:
    return pa.Table.from_pylist(drawn, schema=SCHEMA)


def expected(
    left: list[naive.Row], right: list[naive.Row], on: str, group: str | None
) -> dict[Any, tuple[list[float], list[float]]]:
    found: dict[Any, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for l, r in naive.naive_join(left, right, CONDITIONS[on]):
        assert l is not None
        assert r is not None
        key = {None: None, "l.g": l["g"], "r.g": r["g"]}[group]
        for place, value in zip(found[key], (l["v"], r["v"]), strict=True):
            if value is not None:
                place.append(value)
    return found


def check(got: pa.Table, left: Any, right: Any, on: str, group: str | None) -> None:
    want = expected(left, right, on, group)
    keys = got["g"].to_pylist() if group else [None]
    assert set(want) <= set(keys)
    for key, row in zip(keys, got.to_pylist(), strict=True):
        lefts, rights = want[key]
        assert same(row["sl"], lefts), (row, lefts)
        assert same(row["sr"], rights), (row, rights)
        if lefts and math.isfinite(row["sl"]):
            assert row["al"] == row["sl"] / len(lefts)


AGGS = {"sl": "sum(l.v)", "sr": "sum(r.v)", "al": "avg(l.v)"}


@pytest.mark.parametrize("on", CONDITIONS)
@pytest.mark.parametrize("group", [None, "l.g", "r.g"])
@own.examples(15)
@given(data=st.data())
def test_tables(on: str, group: str | None, data: Any) -> None:
    values = data.draw(st.sampled_from([VALUES, FINITE]))
    left, right = data.draw(rows(values)), data.draw(rows(values))
    groups = [group] if group else []
    got = tj.join_agg(table(left), table(right), on, group_by=groups, aggs=AGGS)
    check(got, left, right, on, group)


@own.examples(25)
@given(st.data(), st.sampled_from(sorted(CONDITIONS)), st.sampled_from([None, "l.g", "r.g"]))
def test_streams(data: Any, on: str, group: str | None) -> None:
    """What one batch adds up past the largest double, another may bring back."""
    totals = tj.StreamJoin(
        on,
        group_by=[group] if group else [],
        aggs=AGGS,
        window=tj.FullHistory(),
        left_schema=SCHEMA,
        right_schema=SCHEMA,
        head_rows=data.draw(st.sampled_from([0, 16])),
    )
    left: list[naive.Row] = []
    right: list[naive.Row] = []
    for _ in range(data.draw(st.integers(1, 4))):
        new = data.draw(rows(FINITE)), data.draw(rows(FINITE))
        totals.push(*map(table, new))
        left += new[0]
        right += new[1]
        totals = tj.StreamJoin.restore(totals.snapshot())
    check(totals.finish(), left, right, on, group)


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ([-1e308], -1e308),
        ([1e308, 1e308, -1e308], 1e308),
        ([-1e308, -1e308], -math.inf),
        ([-math.inf, 1e308, 1e308], -math.inf),
        ([1e308, 1e308, -math.inf], -math.inf),
        ([math.inf, -math.inf, 1.0], math.nan),
        ([math.nan, math.inf], math.nan),
        ([-0.0, -0.0], 0.0),
    ],
)
def test_of_either_side(values: list[float], want: float) -> None:
    one = pa.table({"k": [0]})
    column = pa.table({"k": [1] * len(values), "v": values})
    right = tj.join_agg(one, column, "l.k < r.k", aggs={"s": "sum(r.v)"})["s"][0].as_py()
    left = tj.join_agg(column, one, "l.k > r.k", aggs={"s": "sum(l.v)"})["s"][0].as_py()
    for got in (left, right):
        assert got == want or (math.isnan(got) and math.isnan(want))
