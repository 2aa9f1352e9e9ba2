"""Groups and aggregates to ask for, and what grouping a naive join's pairs gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import cmp_to_key
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import naive
from naive import Pair, Row

Value = Callable[[Row, Row], Any]


def chosen(texts: Iterable[str], most: int, least: int = 0) -> st.SearchStrategy[list[str]]:
    """Some of the groups or aggregates."""
    return st.lists(st.sampled_from(sorted(texts)), min_size=least, max_size=most, unique=True)


def asked(groups: Sequence[str], aggs: Sequence[str]) -> dict[str, Any]:
    """Groups and aggregates as arguments of `join_agg`."""
    named = {f"a{i}": text for i, text in enumerate(aggs)}
    return {"group_by": {f"g{i}": text for i, text in enumerate(groups)}, "aggs": named}


def aggregated(
    pairs: Sequence[Pair],
    groups: Sequence[Value],
    aggs: Sequence[tuple[str, Value | None]],
    left: Sequence[Row] = (),
) -> dict[tuple[Any, ...], list[Any]]:
    """Each group's aggregates; without groups there is one group even without pairs.

    The groups of the rows `left` are there too, whatever they match: groups are of that side then.
    """
    found: dict[tuple[Any, ...], list[Pair]] = {} if groups else {(): []}
    for l in left:
        found.setdefault(tuple(_same(group(l, {})) for group in groups), [])
    for l, r in pairs:
        key = tuple(_same(group(l, r)) for group in groups)
        found.setdefault(key, []).append((l, r))
    return {
        key: [_aggregate(name, value, members) for name, value in aggs]
        for key, members in found.items()
    }


def _same(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def _aggregate(name: str, value: Value | None, members: Sequence[Pair]) -> Any:
    if value is None:
        return len(members)
    values = [v for v in (value(l, r) for l, r in members) if v is not None]
    if name == "count":
        return len(values)
    if not values:
        return None
    if name in ("min", "max"):
        ordered = sorted(values, key=cmp_to_key(lambda a, b: naive.order(a, b) or 0))
        return ordered[0 if name == "min" else -1]
    if isinstance(values[0], float):
        total = _float_sum(values)
        return total if name == "sum" else total / len(values)
    total = sum(values)
    if name == "sum" or isinstance(total, Decimal):
        return total if name == "sum" else total / len(values)
    return float(total) / len(values)


def _float_sum(values: list[float]) -> float:
    if all(math.isfinite(v) for v in values):
        return math.fsum(values)
    return float(sum(values))


def rows_of(table: pa.Table, groups: int) -> dict[tuple[Any, ...], list[Any]]:
    """A result by group."""
    rows = [list(row.values()) for row in table.to_pylist()]
    found = {tuple(_same(v) for v in row[:groups]): row[groups:] for row in rows}
    assert len(found) == len(rows), "a group came twice"
    return found


def assert_same(got: pa.Table, want: dict[tuple[Any, ...], list[Any]], groups: int) -> None:
    """Equal up to the rounding of float sums."""
    rows = rows_of(got, groups)
    assert rows.keys() == want.keys()
    for key, values in want.items():
        for mine, expected in zip(rows[key], values, strict=True):
            assert _close(mine, expected), (key, rows[key], values)


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    return type(a) is type(b) and bool(a == b)
