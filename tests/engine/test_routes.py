"""Where rows go: equal keys to one unit whatever their types, every row to exactly one."""

from __future__ import annotations

from decimal import Decimal as D

import numpy as np
import pyarrow as pa
import pytest

import thetajoin as tj
from thetajoin.engine.compiled import CompiledJoin, JoinConfig
from thetajoin.engine.routes import HashRoute, choose_routing
from thetajoin.errors import OptionError

UNITS = 1000


def units_of(left: pa.Array, right: pa.Array, on: str = "l.k = r.k") -> list[list[int]]:
    sides = [pa.record_batch({"k": array, "v": range(len(array))}) for array in (left, right)]
    join = CompiledJoin(JoinConfig(on, sides[0].schema, sides[1].schema))
    route = HashRoute(join, UNITS)
    return [
        route.units_of(rows, side).tolist() for rows, side in zip(sides, ("l", "r"), strict=True)
    ]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array([1, 2, -3], pa.int32()), pa.array([1, 2, -3], pa.int64())),
        (pa.array([1, 2, -3], pa.int64()), pa.array([1.0, 2.0, -3.0])),
        (pa.array([0.0, float("nan"), 1.5]), pa.array([-0.0, -float("nan"), 1.5], pa.float32())),
        (pa.array([D("1.50"), D("-2.00")]), pa.array([D("1.5"), D("-2")], pa.decimal128(38, 20))),
        (pa.array([3, 4], pa.int64()), pa.array([D("3.0"), D("4.0")], pa.decimal128(9, 1))),
        (pa.array(["", "é", "abc"]), pa.array(["", "é", "abc"]).dictionary_encode()),
        (pa.array([b"", b"\x00"]), pa.array([b"", b"\x00"], pa.large_binary())),
        (pa.array([1, 2], pa.timestamp("s")), pa.array([1000, 2000], pa.timestamp("ms"))),
    ],
)
def test_equal_keys_land_together(left: pa.Array, right: pa.Array) -> None:
    here, there = units_of(left, right)
    assert here == there
    assert len(set(here)) == len(here), "and others elsewhere"


def test_each_side_is_hashed_by_its_own_key() -> None:
    """Also where the other side's key is another column, and of two equalities each by its own."""
    left = pa.record_batch({"a": [1, 2, 3], "b": [7, 8, 9]})
    right = pa.record_batch({"a": [8, 9, 7], "b": [2, 3, 1]})
    join = CompiledJoin(JoinConfig("l.a = r.b AND l.b = r.a", left.schema, right.schema))
    route = HashRoute(join, UNITS)
    here, there = route.units_of(left, "l"), route.units_of(right, "r")
    assert here.tolist() == there[[2, 0, 1]].tolist()
    assert len(set(here.tolist())) == 3


def test_keys_may_stand_at_other_places_on_each_side() -> None:
    left = pa.record_batch({"k": [7, 8, 9], "a": [1, 1, 1]})
    right = pa.record_batch({"k": [8, 9, 7], "a": [2, 2, 2], "b": [3, 3, 3]})
    on = "l.a < r.a AND l.a < r.b AND l.k = r.k"
    route = HashRoute(CompiledJoin(JoinConfig(on, left.schema, right.schema)), UNITS)
    here, there = route.units_of(left, "l"), route.units_of(right, "r")
    assert here.tolist() == there[[2, 0, 1]].tolist()
    assert len(set(here.tolist())) == 3


def test_every_row_has_one_unit() -> None:
    """Those that cannot match, too: a NULL, or a row that a filter keeps out."""
    keys = pa.array([None, 1, 2, None])
    here, there = units_of(keys, keys, "l.k = r.k AND l.v < 2")
    assert all(0 <= unit < UNITS for unit in here + there)
    assert here[0] != here[3], "spread by all that they hold"
    assert here[1] == there[1]
    alternatives, others = units_of(keys, keys, "l.k = r.k AND (l.v < r.v OR l.v > 2)")
    assert alternatives[1:3] == others[1:3] == there[1:3]


@pytest.mark.parametrize(
    ("on", "more", "why"),
    [
        ("l.k < r.k", {}, "no equality"),
        ("l.k = r.k OR l.v = r.v", {}, "no equality in common"),
        ("l.k = r.k", {"window": tj.CountWindow(3)}, "CountWindow"),
        ("l.k = r.v", {"self_join": True}, "two places"),
        ("l.k = r.k AND l.k = r.v", {"self_join": True}, "two places"),
    ],
)
def test_what_cannot_be_hashed_says_why(on: str, more: dict, why: str) -> None:
    schema = pa.schema({"k": pa.int64(), "v": pa.int64()})
    join = CompiledJoin(JoinConfig(on, schema, schema, **more))
    assert choose_routing(join) == "broadcast"
    with pytest.raises(OptionError, match=why):
        choose_routing(join, "hash")
    with pytest.raises(OptionError, match="is not known"):
        choose_routing(join, "hsah")


def test_hash_where_it_can_be() -> None:
    schema = pa.schema({"k": pa.int64(), "v": pa.int64()})
    for on, more in (
        ("l.k = r.k AND l.v < r.v", {}),
        ("l.k = r.v AND l.v < r.k", {"how": "full"}),
        ("l.k = r.k AND (l.v < r.v OR l.v > r.k)", {}),
        ("l.k = r.k", {"self_join": True}),
    ):
        join = CompiledJoin(JoinConfig(on, schema, schema, **more))
        assert choose_routing(join) == "hash", on
        assert choose_routing(join, "broadcast") == "broadcast"


def test_units_are_even() -> None:
    keys = pa.array(np.arange(100_000))
    here, _ = units_of(keys, keys)
    counts = np.bincount(here, minlength=UNITS)
    assert counts.max() < 1.6 * counts.mean()
