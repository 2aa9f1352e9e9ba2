"""`nearest` on tables against its definition: directions, ties, tolerances, further conditions."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import strategies as own
import thetajoin as tj
from naive import Near
from strategies import left_rows, left_table, right_rows, right_table
from thetajoin.limits import change_limits

DIRECTIONS = st.sampled_from(["backward", "forward", "nearest"])
HOWS = st.sampled_from(["left", "inner", "semi", "anti"])
TIES = st.sampled_from([None, "first", "last", "all"])
# A condition, what it means, and which equalities `by` has in its place.
CONDITIONS = [
    (None, (), None),
    (None, [("c", "d")], naive.conj(("c", "=", "d"))),
    ("l.c <= r.d", (), naive.conj(("c", "<=", "d"))),
    ("l.c != r.d", (), naive.conj(("c", "!=", "d"))),
    (
        "l.c = r.d OR l.lid < r.rid",
        (),
        naive.any_of(naive.conj(("c", "=", "d")), naive.conj(("lid", "<", "rid"))),
    ),
    ("l.lid < r.rid AND l.c > r.d", (), naive.conj(("lid", "<", "rid"), ("c", ">", "d"))),
    (
        "(l.lid + r.rid) % 3 = 0",
        (),
        lambda l, r: (l["lid"] + r["rid"]) % 3 == 0,
    ),
    (
        "(l.lid * r.rid) % 4 != 1",
        [("c", "d")],
        naive.all_of(naive.conj(("c", "=", "d")), lambda l, r: l["lid"] * r["rid"] % 4 != 1),
    ),
]


def listed(pairs):
    return Counter((l["lid"], None if r is None else r["rid"]) for l, r in pairs)


def got_ids(table):
    lids = table["lid"].to_pylist()
    rids = table["rid"].to_pylist() if "rid" in table.column_names else [None] * len(lids)
    return Counter(zip(lids, rids, strict=True))


@own.examples(150)
@given(
    left=left_rows(),
    right=right_rows(24),
    condition=st.sampled_from(CONDITIONS),
    direction=DIRECTIONS,
    how=HOWS,
    ties=TIES,
    k=st.integers(1, 4),
    tolerance=st.none() | st.sampled_from([0, 1, 2]),
    order_by=st.none() | st.sampled_from(["rid", "d", "y"]),
    key=st.sampled_from([("a", "b"), ("x", "y"), ("a", "y")]),
)
def test_against_the_definition(
    left, right, condition, direction, how, ties, k, tolerance, order_by, key
):
    on, by, pred = condition
    near = Near(key, direction, tolerance, k, ties, order_by)
    expected = listed(naive.naive_nearest(left, right, pred, near, how=how))
    with change_limits(sorted_probes=3):
        got = tj.nearest(
            left_table(left),
            right_table(right),
            key=key,
            by=by,
            on=on,
            direction=direction,
            tolerance=tolerance,
            k=k,
            ties=ties,
            order_by=order_by,
            how=how,
            chunk_rows=64,
        )
    assert got_ids(got) == expected


def test_left_rows_keep_their_order_and_the_nearest_come_first():
    left = pa.table({"t": [9, 1, 5]})
    right = pa.table({"u": [4, 8, 2, 6]})
    got = tj.nearest(left, right, key=("t", "u"), direction="nearest", k=2)
    assert got.to_pydict() == {"t": [9, 9, 1, 1, 5, 5], "u": [8, 6, 2, 4, 4, 6]}


@own.examples(30)
@given(seed=st.integers(0, 2**32), direction=DIRECTIONS, ties=TIES, k=st.integers(1, 3))
def test_many_rows(seed, direction, ties, k):
    """Enough rows for blocks of blocks to be skipped, and few that pass."""
    random = np.random.default_rng(seed)
    n, m = 40, 9000
    left = {"lid": range(n), "a": random.integers(0, 500, n), "c": random.integers(0, 400, n)}
    right = {"rid": range(m), "b": random.integers(0, 500, m)}
    right["d"] = np.where(random.random(m) < 0.002, random.integers(0, 400, m), 1000)
    lt, rt = pa.table(left), pa.table(right)
    near = Near(("a", "b"), direction, None, k, ties)
    few = [r for r in rt.to_pylist() if r["d"] < 1000]
    expected = naive.naive_nearest(lt.to_pylist(), few, naive.conj(("c", ">=", "d")), near)
    got = tj.nearest(lt, rt, key=("a", "b"), on="l.c >= r.d", direction=direction, k=k, ties=ties)
    assert got_ids(got) == listed(expected)


def tied(seed: int) -> tuple[pa.Table, pa.Table]:
    rng = np.random.default_rng(seed)
    left, right = (np.sort(rng.integers(0, 12, n)) for n in (30, 40))
    return (
        pa.table({"t": left, "lid": np.arange(30), "g": rng.integers(0, 2, 30)}),
        pa.table({"t": right, "rid": np.arange(40), "g": rng.integers(0, 2, 40)}),
    )


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
@pytest.mark.parametrize("by", [None, "g"])
@pytest.mark.parametrize("seed", range(6))
def test_equal_keys_are_decided_as_pandas_and_polars_do(seed, by, direction):
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    left, right = tied(seed)
    wanted = got_ids(tj.nearest(left, right, key="t", by=by or (), direction=direction))
    merged = pd.merge_asof(
        left.to_pandas(), right.to_pandas(), on="t", by=by, direction=direction
    ).astype({"rid": "Int64"})
    theirs = merged[["lid", "rid"]].itertuples(index=False, name=None)
    assert Counter((l, None if r is pd.NA else int(r)) for l, r in theirs) == wanted
    if direction == "nearest":  # Polars takes the one above at equal distance
        return
    frames = (pl.from_arrow(table).sort("t", maintain_order=True) for table in (left, right))
    joined = next(frames).join_asof(next(frames), on="t", by=by, strategy=direction)
    assert Counter(joined.select("lid", "rid").iter_rows()) == wanted


def test_more_ties_than_there_is_room_for():
    left = pa.table({"t": [1, 2]})
    right = pa.table({"t": [2] * 300 + [0] * 10})
    got = tj.nearest(left, right, key="t", direction="nearest", ties="all", chunk_rows=64)
    assert Counter(got["t_right"].to_pylist()) == {2: 600, 0: 10}


KEYS = {
    "int8": [pa.scalar(v, pa.int8()) for v in (-128, -1, 0, 5, 127)],
    "uint64": [pa.scalar(v, pa.uint64()) for v in (0, 1, 2**63, 2**64 - 1)],
    "int64": [pa.scalar(v, pa.int64()) for v in (-(2**63), -1, 0, 1, 2**63 - 1)],
    "float32": [pa.scalar(v, pa.float32()) for v in (0.1, -0.0, 0.0, 1e38, -1e38)],
    "double": [
        pa.scalar(v)
        for v in (0.1, 0.2, 0.30000000000000004, 1.0, 1e308, -1e308, 5e-324, math.inf, math.nan)
    ],
    "decimal": [pa.scalar(Decimal(v), pa.decimal128(9, 3)) for v in ("0.001", "-5", "99999.999")],
    "date": [pa.scalar(dt.date(2024, 2, d)) for d in (1, 3, 28)],
    "timestamp": [pa.scalar(dt.datetime(2024, 1, 1, 0, 0, s)) for s in (0, 1, 59)],
    "duration": [pa.scalar(dt.timedelta(seconds=s)) for s in (-1, 0, 7)],
}


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
def test_types_of_keys(name, direction):
    values = KEYS[name]
    column = pa.array([v.as_py() for v in values] * 2 + [None], values[0].type)
    left = pa.table({"lid": range(len(column)), "t": column})
    right = pa.table({"rid": range(len(column)), "t": column[::-1]})
    near = Near(("t", "t"), direction, None, 3, "all")
    expected = naive.naive_nearest(left.to_pylist(), right.to_pylist(), None, near)
    got = tj.nearest(left, right, key="t", direction=direction, k=3, ties="all")
    assert got_ids(got) == listed(expected)


@pytest.mark.parametrize("direction", ["backward", "forward"])
@pytest.mark.parametrize("wide", [False, True])
def test_keys_without_distances(direction, wide):
    values = ["", "a", "aa", "b", None, "\U00010000", "\uffff"]
    if wide:
        values = [Decimal(10) ** 20, Decimal(-3), Decimal(0), None, Decimal(7)]
    column = pa.array(values, pa.decimal128(30, 2) if wide else pa.string())
    left = pa.table({"lid": range(len(column)), "t": column})
    right = pa.table({"rid": range(len(column)), "t": column[::-1]})
    near = Near(("t", "t"), direction, None, 2, "first")
    expected = naive.naive_nearest(left.to_pylist(), right.to_pylist(), None, near)
    assert got_ids(tj.nearest(left, right, key="t", direction=direction, k=2)) == listed(expected)
    with pytest.raises(tj.ThetaJoinError, match="distances"):
        tj.nearest(left, right, key="t", direction="nearest")
    with pytest.raises(tj.ThetaJoinError, match="tolerance needs a key with distances"):
        tj.nearest(left, right, key="t", tolerance=1)


def test_units_of_time_differ():
    left = pa.table({"t": pa.array([10, 20], pa.timestamp("s"))})
    right = pa.table({"t": pa.array([9_999, 10_001, 19_400], pa.timestamp("ms"))})
    got = tj.nearest(left, right, key="t", direction="nearest", tolerance="500 ms")
    assert got["t_right"].cast(pa.int64()).to_pylist() == [9_999, None]
    got = tj.nearest(left, right, key="t", tolerance=dt.timedelta(milliseconds=600))
    assert got["t_right"].cast(pa.int64()).to_pylist() == [9_999, 19_400]


@own.examples(40)
@given(left=left_rows(), right=right_rows(), direction=DIRECTIONS, before=st.integers(1, 3))
def test_in_a_time_window(left, right, direction, before):
    near = Near(("c", "d"), direction)
    window = naive.Time(before, 1, "a", "b")
    expected = naive.naive_nearest(left, right, None, near, window=window)
    got = tj.nearest(
        left_table(left),
        right_table(right),
        key=("c", "d"),
        direction=direction,
        window=tj.TimeWindow(before=before, after=1, time=("a", "b")),
    )
    assert got_ids(got) == listed(expected)


def test_empty_sides():
    left, none = pa.table({"t": [1, 2]}), pa.table({"t": pa.array([], pa.int64())})
    assert tj.nearest(left, none, key="t").to_pydict() == {"t": [1, 2], "t_right": [None, None]}
    assert tj.nearest(none, left, key="t").num_rows == 0
    assert tj.nearest(left, none, key="t", how="inner").num_rows == 0
    assert tj.nearest(left, none, key="t", how="anti").num_rows == 2
