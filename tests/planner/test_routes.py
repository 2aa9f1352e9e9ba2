"""Where rows go: two rows that match meet in exactly one unit, and every row has a home."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal as D
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import thetajoin as tj
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.spec import JoinSpec
from thetajoin.errors import OptionError
from thetajoin.planner.routing import Routing, choose_route, explain_route
from thetajoin.planner.routing_keys import HashRoute
from thetajoin.routes.copies import Copies, Grid, hashes_of

UNITS = 1000
SIDES = ("l", "r")


def units_of(left: pa.Array, right: pa.Array, on: str = "l.k = r.k") -> list[list[int]]:
    sides = [pa.record_batch({"k": array, "v": range(len(array))}) for array in (left, right)]
    join = CompiledJoin(JoinSpec(on), sides[0].schema, sides[1].schema)
    route = HashRoute(join, UNITS)
    return [
        route.copies(rows, side).units.tolist() for rows, side in zip(sides, SIDES, strict=True)
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


@pytest.mark.parametrize(
    ("left", "right", "on"),
    [
        (
            pa.record_batch({"a": [1, 2, 3], "b": [7, 8, 9]}),
            pa.record_batch({"a": [8, 9, 7], "b": [2, 3, 1]}),
            "l.a = r.b AND l.b = r.a",
        ),
        (
            pa.record_batch({"k": [7, 8, 9], "a": [1, 1, 1]}),
            pa.record_batch({"k": [8, 9, 7], "a": [2, 2, 2], "b": [3, 3, 3]}),
            "l.a < r.a AND l.a < r.b AND l.k = r.k",
        ),
    ],
)
def test_each_side_is_hashed_by_its_own_key(
    left: pa.RecordBatch, right: pa.RecordBatch, on: str
) -> None:
    """Also where the other side's key is another column, or stands at another place."""
    route = HashRoute(CompiledJoin(JoinSpec(on), left.schema, right.schema), UNITS)
    here, there = route.copies(left, "l").units, route.copies(right, "r").units
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


def test_a_row_of_a_self_join_has_one_unit_whatever_role_it_can_play() -> None:
    rows = pa.record_batch({"k": [2, 2], "p": [None, 1], "q": [1, None]})
    on = "l.k = r.k AND ABS(l.p - r.q) <= 1"
    join = CompiledJoin(JoinSpec(on, self_join=True), rows.schema, rows.schema)
    first, second = HashRoute(join, UNITS).copies(rows, "l").units.tolist()
    assert first == second


NARROW = pa.schema({"k": pa.int64(), "v": pa.int64(), "x": pa.float64(), "t": pa.timestamp("us")})


def compiled(on: str, **more: Any) -> CompiledJoin:
    return CompiledJoin(JoinSpec(on, **more), NARROW, NARROW)


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
    join = compiled(on, **more)
    assert choose_route(join, 4).kind == "broadcast"
    with pytest.raises(OptionError, match=why):
        choose_route(join, 4, "hash")
    with pytest.raises(OptionError, match="is not known"):
        choose_route(join, 4, "hsah")


@pytest.mark.parametrize(
    ("on", "more", "why"),
    [
        ("l.k < r.k", {}, "no key is bounded"),
        ("ABS(l.k - r.k) < 3 OR l.v < r.v", {}, "alternatives"),
        ("ABS(l.k - r.k) < 3", {"window": tj.CountWindow(3)}, "CountWindow"),
        ("ABS(l.k - r.k) < 3", {"self_join": True}, "two roles"),
        ("ABS(l.k - r.k) < 3", {"how": "full"}, "in one place"),
        ("l.k < r.k", {"window": tj.TimeWindow("1 hour", time="t")}, "close together in time"),
        ("l.t BETWEEN r.t AND r.t + INTERVAL '1' HOUR", {}, "by a distance"),
        ("l.k - r.k > 3", {}, "no key is bounded"),
    ],
)
def test_what_has_no_cells_says_why(on: str, more: dict, why: str) -> None:
    join = compiled(on, **more)
    assert choose_route(join, 4).kind == "broadcast"
    with pytest.raises(OptionError, match=why):
        choose_route(join, 4, "cells")


@pytest.mark.parametrize("more", [{"how": "full"}, {"window": tj.CountWindow(3)}])
def test_what_has_no_matrix_is_broadcast_in_any_number_of_units(more: dict) -> None:
    join = compiled("l.k < r.k", **more)
    assert choose_route(join, 64).kind == "broadcast"
    with pytest.raises(OptionError, match="cannot be used"):
        choose_route(join, 64, "matrix")


@pytest.mark.parametrize(
    ("on", "more", "units", "kind"),
    [
        ("l.k = r.k AND l.v < r.v", {}, 4, "hash"),
        ("l.k = r.v AND l.v < r.k", {"how": "full"}, 4, "hash"),
        ("l.k = r.k AND (l.v < r.v OR l.v > r.k)", {}, 4, "hash"),
        ("l.k = r.k", {"self_join": True}, 4, "hash"),
        ("l.k = r.k AND ABS(l.v - r.v) < 3", {}, 64, "hash"),
        ("ABS(l.v - r.v) < 3", {}, 2, "cells"),
        ("l.v - r.v >= 0 AND l.v - r.v <= 3", {"how": "anti"}, 2, "cells"),
        ("ABS(l.x - r.x) < 0.5", {"window": tj.TimeWindow("1 hour", time="t")}, 64, "cells"),
        ("l.v <= r.v AND l.v >= r.v - 20", {}, 4, "cells"),
        ("l.x BETWEEN r.v - 1.5 AND 2 + r.v", {"how": "left"}, 4, "cells"),
        ("r.x > l.x - 1 AND l.x + 2.5 > r.x", {}, 4, "cells"),
        ("l.v BETWEEN r.v AND r.k", {}, 8, "broadcast"),
        ("l.v BETWEEN r.v + 1 AND r.v", {}, 8, "broadcast"),
        ("l.v >= r.v - 3 AND l.k <= r.v", {}, 8, "broadcast"),
        ("l.k < r.k", {}, 8, "broadcast"),
        ("l.k < r.k", {}, 9, "matrix"),
        ("l.k < r.k OR l.v < r.v", {"how": "left"}, 9, "matrix"),
    ],
)
def test_the_routing_with_the_fewest_copies(on: str, more: dict, units: int, kind: str) -> None:
    join = compiled(on, **more)
    assert choose_route(join, units).kind == kind
    assert choose_route(join, units, "broadcast").kind == "broadcast"
    assert explain_route(join, units).startswith(kind)
    plan = choose_route(join, units)
    assert Routing.from_value(plan.to_value()) == plan


@pytest.mark.parametrize(
    "value", ["hsah", {}, {"kind": "matrix", "grid": 3}, {"kind": "hash", "z": 1}, 7]
)
def test_what_is_no_routing_is_refused(value: Any) -> None:
    with pytest.raises(OptionError, match="not a routing"):
        Routing.from_value(value)


def test_units_are_even() -> None:
    keys = pa.array(np.arange(100_000))
    here, _ = units_of(keys, keys)
    counts = np.bincount(here, minlength=UNITS)
    assert counts.max() < 1.6 * counts.mean()


VALUES = st.none() | st.integers(-9, 9) | st.sampled_from([-(2**63), 2**63 - 1, 10**12])
REALS = st.none() | st.sampled_from([0.0, -0.0, 0.2, 0.9, 1e300, -1e300, 1.5]) | st.floats()
ROWS = st.lists(st.tuples(VALUES, VALUES, REALS), max_size=15)
CONDITIONS = [
    "l.k = r.k AND l.v <= r.v",
    "ABS(l.k - r.v) <= 2",
    "l.k - r.v >= -1 AND l.k - r.v < 4",
    "ABS(l.x - r.x) <= 0.7",
    "ABS(l.x - r.x) <= 0",
    "l.k = r.k AND ABS(l.x - r.x) <= 0.7",
    "l.k < r.k",
    "l.k < r.k OR l.v = r.v",
    "l.k > r.v AND l.v <= r.k",
    "l.x >= r.x AND l.k != r.k",
    "l.k BETWEEN r.v AND r.k",
    "l.k BETWEEN r.v - 2 AND r.v",
    "l.x <= r.x AND l.x > r.x - 0.7",
    "l.x + 1 >= r.v AND r.v >= l.x - 1",
]


@pytest.mark.parametrize(
    ("on", "width", "floats"),
    [
        ("l.v <= r.v AND l.v >= r.v - 20", 2 * 21, False),
        ("ABS(l.v - r.v) <= 10", 2 * 21, False),
        ("l.x <= r.x AND l.x >= r.x - 20", 2 * 20, True),
        ("l.v < r.v + 5 AND l.v > r.v - 5 AND l.v <= r.v + 1", 2 * 7, False),
        ("l.x BETWEEN r.x AND r.x", 1, False),
    ],
)
def test_cells_are_twice_as_wide_as_the_band_that_is_written(on, width, floats) -> None:
    plan = choose_route(compiled(on), 4)
    assert (plan.kind, plan.width, plan.floats) == ("cells", width, floats)


def batch(rows: list[tuple]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    arrays = [pa.array(c, t) for c, t in zip(columns, NARROW.types[:3], strict=True)]
    return pa.RecordBatch.from_arrays(
        [*arrays, pa.nulls(len(rows), NARROW.types[3])], schema=NARROW
    )


def plans(join: CompiledJoin, units: int) -> list[Routing]:
    """Every routing that a join can have, also with frequent keys."""
    found = []
    for name in ("hash", "cells", "matrix"):
        try:
            found.append(choose_route(join, units, name))
        except OptionError:
            continue
    keys = [int(h) for h in hashes_of([np.array([0, 1, 10**12])], 3)]
    if any(plan.kind == "hash" for plan in found):
        hot = tuple((key, Grid(2, 2)) for key in keys)
        found.append(Routing("contrand", hot=hot))
        banded = [plan for plan in found if plan.kind == "cells"]
        if banded:
            cells = banded[0]
            found.append(
                Routing("contrand", cells.point, cells.dim, cells.width, cells.floats, hot=hot)
            )
    sample = batch([(i % 7 - 3, i % 5 - 2, (i % 11) / 2) for i in range(40)])
    for how in ("inner", join.spec.how):
        try:
            found.append(
                choose_route(
                    join,
                    units,
                    tj.routing(sample, sample, join.spec.on, units=units, how=how),
                )
            )
        except OptionError:
            continue
    return [plan for plan in found if plan.meets]


@given(ROWS, ROWS, st.sampled_from(CONDITIONS), st.sampled_from([1, 4, 7]), st.data())
def test_rows_that_match_meet_in_one_unit(left, right, on, units, data) -> None:
    """And no row is in two units whose side must be in one."""
    how = data.draw(st.sampled_from(["inner", "left", "right", "semi"]))
    join = compiled(on, how=how)
    rows = {"l": batch(left), "r": batch(right)}
    numbered = [side.append_column("n", pa.array(range(side.num_rows))) for side in rows.values()]
    matches = tj.join(*numbered, on).select(["n", "n_right"]).to_pydict()
    for plan in plans(join, units):
        if plan.hot and (how != "inner" or units < 4):
            continue
        route = plan.route(join, units)
        copies = {side: route.copies(rows[side], side) for side in SIDES}
        places = {side: where(copies[side], rows[side].num_rows) for side in SIDES}
        for l, r in zip(*matches.values(), strict=True):
            assert len(places["l"][l] & places["r"][r]) == 1, (plan, left[l], right[r])
        single = {"left": "l", "semi": "l", "right": "r"}.get(how)
        if single:
            assert all(len(units_) == 1 for units_ in places[single])


def where(copies: Copies, rows: int) -> list[set[int]]:
    """The units of each row; each has one home."""
    found: list[set[int]] = [set() for _ in range(rows)]
    for row, unit in zip(copies.rows.tolist(), copies.units.tolist(), strict=True):
        assert unit not in found[row], "sent there twice"
        found[row].add(unit)
    home = np.ones(len(copies.rows), bool) if copies.home is None else copies.home
    assert Counter(copies.rows[home].tolist()) == Counter(range(rows))
    return found
