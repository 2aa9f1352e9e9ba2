"""Several units, each with its share, together give what one unit gives."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import thetajoin as tj
from thetajoin.engine import joiner
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.spec import JoinSpec
from thetajoin.engine.state import JoinState
from thetajoin.engine.step import SAMPLED, Share, _middle, _spread, in_range
from thetajoin.index.interval import Interval
from thetajoin.limits import change_limits

ROWS = st.lists(
    st.tuples(st.none() | st.integers(0, 6), st.integers(0, 6), st.integers(0, 40)), max_size=12
)
WINDOWS = [tj.FullHistory(), tj.CountWindow(5), tj.CountWindow(7, slide=3)]
WINDOWS += [tj.TimeWindow(4, time="t"), tj.TimeWindow(before=6, after=1, time="t")]


def table(rows: list[tuple], first: int) -> pa.RecordBatch:
    a, b, t = zip(*rows, strict=True) if rows else ((), (), ())
    columns = {"id": range(first, first + len(rows)), "a": a, "b": b, "t": t}
    arrays = [pa.array(list(column), pa.int64()) for column in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


ON = "l.a < r.a AND l.b >= r.b"
CONDITIONS = [
    ON,
    "ABS(l.b - r.b) <= 1",
    "l.a = r.a AND l.b < r.b",
    "l.a != r.a",
    "l.a < r.a OR l.b = r.b",
    "CAST(l.b AS STRING) = CAST(r.b AS STRING) AND l.a <= r.a",
    "CAST(l.a AS STRING) < CAST(r.a AS STRING)",
]


# Every micro-batch becomes a segment.
SEGMENTS = {"head_rows": 0, "merge": "inline"}


def run(
    units: int, how: str, window, batches, self_join: bool, order_by, on=ON, options=None
) -> Counter:
    schema = table([], 0).schema
    spec = JoinSpec(
        on, how=how, window=window, order_by=order_by, self_join=self_join, options=options or {}
    )
    join = CompiledJoin(spec, schema, schema)
    states = [JoinState(join, Share.of(how, unit, units)) for unit in range(units)]
    found: Counter = Counter()
    first = 0
    for left, right, watermark in batches:
        rows = table(left, first), table(left if self_join else right, first)
        first += max(len(left), len(right))
        for state in states:
            outputs = list(state.run(*rows))
            if watermark is not None and isinstance(window, tj.TimeWindow):
                outputs += state.advance(watermark)
            for store in state.stores.values():
                store._check()
            for output in outputs:
                found.update(map(str, output.to_pylist()))
    for state in states:
        for output in state.finish():
            found.update(map(str, output.to_pylist()))
    return found


@pytest.mark.parametrize("how", ["inner", "left", "right", "semi", "anti"])
@given(
    window=st.sampled_from(WINDOWS),
    units=st.integers(2, 4),
    batches=st.lists(st.tuples(ROWS, ROWS, st.none() | st.integers(0, 40)), max_size=5),
    self_join=st.booleans(),
    order=st.booleans(),
)
def test_units_together_are_the_whole(how, window, units, batches, self_join, order) -> None:
    self_join = self_join and how == "inner"
    order_by = ("t", "t") if order else None
    # A micro-batch that is split over units must not depend on how it was split.
    alone = run(1, how, window, batches, self_join, order_by)
    assert run(units, how, window, batches, self_join, order_by) == alone


@pytest.mark.parametrize("on", CONDITIONS)
@given(
    window=st.sampled_from(WINDOWS),
    units=st.integers(2, 4),
    batches=st.lists(st.tuples(ROWS, ROWS, st.none() | st.integers(0, 40)), max_size=4),
    self_join=st.booleans(),
)
def test_units_that_pass_over_rows(on, window, units, batches, self_join) -> None:
    """With any number of probes, those that no unit's extremes let through are left out."""
    with change_limits(sorted_probes=1, able_share=0.999):
        shared = run(units, "inner", window, batches, self_join, ("t", "t"), on, SEGMENTS)
    assert shared == run(1, "inner", window, batches, self_join, ("t", "t"), on)


def states_of(on: str, units: int, schema: pa.Schema, window) -> list[JoinState]:
    spec = JoinSpec(on, window=window, order_by=("id", "id"), options=SEGMENTS)
    join = CompiledJoin(spec, schema, schema)
    return [JoinState(join, Share.of("inner", unit, units)) for unit in range(units)]


@pytest.mark.parametrize(
    ("on", "most"),
    [("ABS(l.a - r.a) <= 10", 0.4), ("l.a < r.a AND l.b > r.b", 0.4), ("l.a = r.a", 0.4)],
)
def test_each_unit_is_probed_by_its_neighbourhood_only(on, most, monkeypatch) -> None:
    random = np.random.default_rng(1)
    units, seen = 4, []
    original = joiner.drop_unable

    def counted(view, rows, indexes):
        able = original(view, rows, indexes)
        seen.append(len(able))
        return able

    monkeypatch.setattr(joiner, "drop_unable", counted)

    def side(first: int) -> pa.RecordBatch:
        a = random.integers(0, 1_000_000, 8000)
        return pa.RecordBatch.from_pydict(
            {"id": np.arange(first, first + 8000), "a": a, "b": a + random.integers(0, 50, 8000)}
        )

    states = states_of(on, units, side(0).schema, tj.CountWindow(20_000))
    for batch in range(3):
        rows = side(8000 * batch), side(8000 * batch)
        for state in states:
            list(state.run(*rows))
    stored = [state.stores["l"].rows for state in states]
    assert max(stored) < 1.2 * sum(stored) / units
    # 3 micro-batches, 2 sides, 4 units, 8,000 rows each.
    assert sum(seen) < most * 3 * 2 * units * 8000


@given(
    keys=st.lists(st.integers(0, 5), min_size=1, max_size=60),
    sample=st.lists(st.integers(0, 6), min_size=1, max_size=20).map(sorted),
    units=st.integers(2, 5),
)
def test_ranges_cover_every_key_once(keys, sample, units) -> None:
    given_to = [in_range(np.array(keys), np.array(sample), unit, units) for unit in range(units)]
    assert (np.sum(given_to, axis=0) == 1).all()


def test_frequent_keys_are_dealt_to_several_units() -> None:
    keys = np.where(np.arange(1000) % 10 == 0, np.arange(1000), 500)
    given_to = [int(in_range(keys, np.sort(keys), unit, 4).sum()) for unit in range(4)]
    assert max(given_to) <= 260


def test_a_full_join_needs_one_unit() -> None:
    with pytest.raises(tj.ThetaJoinError, match="units=1"):
        Share.of("full", 0, 2)


def test_the_middle_of_an_interval_at_the_ends_of_64_bits_too() -> None:
    ends = [(2, 8), (-3, 4), (-(2**63), 2**63 - 1), (2**63 - 3, 2**63 - 1), (5, 5)]
    low, high = (np.array(side) for side in zip(*ends, strict=True))
    assert _middle(Interval(low, high)).tolist() == [(a + b) // 2 for a, b in ends]
    assert _middle(Interval(low, None)) is low
    assert _middle(Interval(None, high)) is high


def test_a_sample_is_all_of_few_rows_and_some_of_many() -> None:
    assert _spread(5).tolist() == [0, 1, 2, 3, 4]
    many = _spread(10**6)
    assert len(many) == SAMPLED
    assert (many[0], many[-1]) == (0, 10**6 - 1)


def test_equal_keys_that_are_rare_in_the_sample_stay_together() -> None:
    keys, sample = np.array([5, 5, 5, 5]), np.array([1, 5, 9])
    owners = [in_range(keys, sample, unit, 3).sum() for unit in range(3)]
    assert owners == [0, 4, 0]
