"""Equality keys: every type, several of them, beside inequalities, however they are looked up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import thetajoin as tj
from strategies import HOWS, ids, naive_ids
from thetajoin.limits import change_limits

HUGE = [-(2**63), -(2**63) + 1, -7, 0, 2**62, 2**63 - 2, 2**63 - 1]
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "close": (pa.int64(), [-2, -1, 0, 1, 2, 3]),
    "huge": (pa.int64(), HUGE),
    "unsigned": (pa.uint64(), [0, 1, 2**63, 2**64 - 1]),
    "narrow": (pa.int8(), [-128, 0, 127]),
    "float": (pa.float64(), [math.nan, -math.nan, 0.0, -0.0, math.inf, -math.inf, 1.5, -1.5]),
    "bool": (pa.bool_(), [True, False]),
    "moment": (pa.timestamp("us"), [datetime(2024, 1, 1) + timedelta(days=i) for i in range(4)]),
    "decimal": (pa.decimal128(38, 2), [Decimal("-0.01"), Decimal("0.00"), Decimal(10) ** 30]),
    "string": (pa.string(), ["", "a", "A", "aa", "a\x00", "é", "the same long beginning " * 3]),
    "categories": (pa.dictionary(pa.int8(), pa.string()), ["x", "y", "xy", ""]),
}
CONDITIONS = {
    "alone": ("l.k = r.k", (("k", "=", "k"),)),
    "two": ("l.k = r.k AND l.a = r.a", (("k", "=", "k"), ("a", "=", "a"))),
    "versions": (
        "l.k = r.k AND l.t >= r.f AND l.t < r.u",
        (("k", "=", "k"), ("t", ">=", "f"), ("t", "<", "u")),
    ),
    "two and versions": (
        "l.k = r.k AND l.a = r.a AND l.t >= r.f AND l.t < r.u",
        (("k", "=", "k"), ("a", "=", "a"), ("t", ">=", "f"), ("t", "<", "u")),
    ),
    "inequality": ("l.k = r.k AND l.t <= r.f", (("k", "=", "k"), ("t", "<=", "f"))),
    "unlike": (
        "l.k = r.k AND l.a != r.a AND l.t > r.f",
        (("k", "=", "k"), ("a", "!=", "a"), ("t", ">", "f")),
    ),
    "key unlike": ("l.k != r.k AND l.t = r.f", (("k", "!=", "k"), ("t", "=", "f"))),
}


@contextmanager
def forced(direct: bool, emitter: str | None = None) -> Iterator[None]:
    """Runs looked up in tables, in small pieces, or all of them searched; and one emitter."""
    costs = {
        None: {},
        "scan": {"MOVE_NS": 1e9, "SUMMARY_NS": 1e9, "TEST_NS": 1e-9},
        "bitmap": {"TEST_NS": 1e12},
    }[emitter]
    block_ns = {None: 1.2, "scan": 1e-9, "bitmap": 1e12}[emitter]
    passed_over = 1e12 if direct else 1e-12
    with (
        pytest.MonkeyPatch.context() as patch,
        change_limits(passed_over=passed_over, looked_up=7, sorted_probes=1, block_ns=block_ns),
    ):
        for name, cost in costs.items():
            patch.setattr(f"thetajoin.index.po_join.{name}", cost)
        yield


def rows_of(
    random: np.random.Generator, id_column: str, values: list[Any], size: int, skew: bool
) -> list[dict[str, Any]]:
    """Rows with a key, NULL among them, and small numbers; with skew most keys are one value."""
    drawn = []
    for i in range(size):
        at = 0 if skew and random.random() < 0.8 else int(random.integers(0, len(values)))
        first = int(random.integers(-3, 4))
        drawn.append(
            {
                id_column: i,
                "k": None if random.random() < 0.1 else values[at],
                "a": int(random.integers(0, 2)),
                "t": int(random.integers(-3, 8)),
                "f": first,
                "u": first + int(random.integers(0, 3)),
            }
        )
    return drawn


def table(rows: list[dict[str, Any]], id_column: str, key: pa.DataType) -> pa.Table:
    fields = [(id_column, pa.int64()), ("k", key)]
    fields += [(name, pa.int64()) for name in ("a", "t", "f", "u")]
    return pa.Table.from_pylist(rows, schema=pa.schema(fields))


def check(
    left: list[dict[str, Any]],
    right: list[dict[str, Any]],
    key: pa.DataType,
    condition: str,
    how: str = "inner",
    threads: int = 1,
) -> None:
    on, parts = CONDITIONS[condition]
    tables = table(left, "lid", key), table(right, "rid", key)
    got = tj.join(*tables, on, how=how, threads=threads, head_rows=0, chunk_rows=64)
    expected = naive.naive_join(left, right, naive.conj(*parts), how=how)
    assert ids(got) == naive_ids(expected)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("direct", [True, False])
def test_every_type_of_key(key: str, condition: str, direct: bool) -> None:
    random = np.random.default_rng(len(key) + 10 * len(condition))
    type_, values = KEYS[key]
    left, right = (rows_of(random, name, values, 60, False) for name in ("lid", "rid"))
    with forced(direct):
        check(left, right, type_, condition)


@given(
    st.sampled_from(sorted(KEYS)),
    st.sampled_from(sorted(CONDITIONS)),
    st.sampled_from(HOWS),
    st.booleans(),
    st.sampled_from([None, "scan", "bitmap"]),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_any_way_gives_the_same(
    key: str,
    condition: str,
    how: str,
    direct: bool,
    emitter: str | None,
    skew: bool,
    seed: int,
) -> None:
    random = np.random.default_rng(seed)
    type_, values = KEYS[key]
    sizes = random.choice([0, 1, 5, 70], 2)
    left = rows_of(random, "lid", values, int(sizes[0]), skew)
    right = rows_of(random, "rid", values, int(sizes[1]), skew)
    with forced(direct, emitter):
        check(left, right, type_, condition, how, threads=1 + seed % 2)


@pytest.mark.parametrize("distinct", [1, 2, 3])
@pytest.mark.parametrize("condition", ["two", "two and versions"])
@pytest.mark.parametrize("direct", [True, False])
def test_keys_that_share_a_hash(
    monkeypatch: pytest.MonkeyPatch, distinct: int, condition: str, direct: bool
) -> None:
    """Several equality keys are hashed to one; with few hashes most rows of a run are others'."""
    monkeypatch.setattr(
        "thetajoin.index.sorted_rows.hash_columns",
        lambda columns: sum(c % distinct for c in columns),
    )
    random = np.random.default_rng(distinct)
    left, right = (rows_of(random, name, HUGE, 80, False) for name in ("lid", "rid"))
    with forced(direct):
        check(left, right, pa.int64(), condition)


@pytest.mark.parametrize("direct", [True, False])
def test_a_probe_with_the_hash_of_other_keys(monkeypatch: pytest.MonkeyPatch, direct: bool) -> None:
    """No two sets of stored keys share a hash, so that a run is checked once for each probe."""
    monkeypatch.setattr("thetajoin.index.sorted_rows.hash_columns", lambda columns: columns[0] % 2)
    random = np.random.default_rng(4)
    left = rows_of(random, "lid", HUGE, 80, False)
    right = rows_of(random, "rid", HUGE, 20, False)
    for row in right:
        row["k"] = -7 if row["a"] else 2**62
    with forced(direct):
        check(left, right, pa.int64(), "two")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("spread", [1, 2**40 + 1])
def test_versions_that_follow_each_other(threads: int, spread: int) -> None:
    """A record's versions, some of no length, each up to where the next begins."""
    random = np.random.default_rng(spread % 97)
    right, rid = [], 0
    for key in range(40):
        cuts = sorted(random.integers(0, 12, 6).tolist())
        for first, last in pairwise(cuts):
            right.append({"rid": rid, "k": (key - 20) * spread, "a": 0, "t": 0})
            right[-1] |= {"f": first, "u": last}
            rid += 1
    random.shuffle(right)
    left = [
        {"lid": i, "k": int(random.integers(-25, 25)) * spread, "a": 0, "f": 0, "u": 0}
        | {"t": int(random.integers(-1, 13))}
        for i in range(500)
    ]
    with change_limits(looked_up=64):
        check(left, right, pa.int64(), "versions", "full", threads)


ALIKE: dict[str, tuple[pa.DataType, list[Any]]] = {
    **KEYS,
    "large_string": (pa.large_string(), ["", "b", "bb"]),
    "binary": (pa.binary(), [b"", b"\x00", b"b"]),
    "view": (pa.string_view(), ["", "a string past twelve bytes", "b"]),
    "day": (pa.date32(), [0, 1, 20_000]),
    "moment of a day": (pa.date64(), [0, 1, 86_400_000, 86_400_001]),
}


@pytest.mark.parametrize("name", ALIKE)
@pytest.mark.parametrize("rows", [40, 20_000])
def test_both_sides_columns_come_out_as_they_were(name: str, rows: int) -> None:
    """Equal values of some types are not the same: each side keeps its own."""
    type_, values = ALIKE[name]
    random = np.random.default_rng(rows)

    def table(side: str, size: int) -> pa.Table:
        drawn = [None if at == 0 else values[at - 1] for at in range(len(values) + 1)]
        plain = pa.string() if pa.types.is_string_view(type_) else type_
        given = pa.array(drawn, pa.int64()).cast(type_) if name.startswith("moment of") else None
        given = pa.array(drawn, plain) if given is None else given
        key = given.take(pa.array(random.integers(0, len(drawn), size + 5))).cast(type_)
        return pa.table({side: np.arange(size + 5), "k": key}).slice(5)

    left, right = table("a", rows), table("b", 60)
    for result in (
        tj.join(left, right, "l.k = r.k", how="full"),
        tj.nearest(left, right, key=("a", "b"), by="k"),
        tj.nearest(left, right, key=("a", "b"), by="k", how="inner", k=2),
    ):
        for one, number, key in ((left, "a", "k"), (right, "b", "k_right")):
            assert result[key].type == type_
            found = result[number].combine_chunks()
            at = pa.compute.subtract(found, 5)
            expected = one["k"].cast(_storable(type_)).take(at)
            assert _bits(result[key]).equals(_bits(expected))


def _storable(type_: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_string_view(type_) else type_


def _bits(column: pa.ChunkedArray) -> pa.Array:
    """Values that are equal if they are the same: those of floats as their bits."""
    whole = column.cast(_storable(column.type)).combine_chunks()
    if not pa.types.is_floating(whole.type):
        return whole
    kind = f"int{whole.type.bit_width}"
    bits = whole.fill_null(0).to_numpy(zero_copy_only=False).view(kind)
    return pa.array(bits, mask=whole.is_null().to_numpy(zero_copy_only=False))


@pytest.mark.parametrize("how", ["inner", "left"])
def test_keys_that_are_not_there_among_long_runs(how: str) -> None:
    random = np.random.default_rng(4)
    left = pa.table(
        {"id": np.arange(300), "k": random.integers(-2, 6, 300), "x": random.integers(0, 50, 300)}
    )
    right = pa.table({"k": random.choice([0, 1, 3], 400), "y": random.integers(0, 50, 400)})
    on, group = "l.k = r.k AND l.x <= r.y", {"group_by": "l.id", "aggs": {"n": "count(*)"}}
    expected = tj.join_agg(left, right, on, how=how, **group)
    with change_limits(sorted_probes=1, long_run=1):
        found = tj.join_agg(left, right, on, how=how, **group)
    assert sorted(found.to_pylist(), key=str) == sorted(expected.to_pylist(), key=str)
    k, x = left["k"].to_numpy(), left["x"].to_numpy()
    matches = (k[:, None] == right["k"].to_numpy()) & (x[:, None] <= right["y"].to_numpy())
    counts = matches.sum(axis=1)
    kept = {row: int(n) for row, n in enumerate(counts) if n or how == "left"}
    assert {row["id"]: row["n"] for row in found.to_pylist()} == kept
