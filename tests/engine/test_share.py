"""Several units, each with its share, together give what one unit gives."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import thetajoin as tj
from thetajoin.engine.core import JoinConfig, JoinCore
from thetajoin.engine.share import Share

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


def run(units: int, how: str, window, batches, self_join: bool, order_by) -> Counter:
    schema = table([], 0).schema
    on = "l.a < r.a AND l.b >= r.b"
    config = JoinConfig(
        on, schema, schema, how=how, window=window, order_by=order_by, self_join=self_join
    )
    cores = [JoinCore(config, Share.of(how, unit, units)) for unit in range(units)]
    found: Counter = Counter()
    first = 0
    for left, right, watermark in batches:
        rows = table(left, first), table(left if self_join else right, first)
        first += max(len(left), len(right))
        for core in cores:
            outputs = list(core.run(*rows))
            if watermark is not None and isinstance(window, tj.TimeWindow):
                outputs += core.advance(watermark)
            for store in core.stores.values():
                store._check()
            for output in outputs:
                found.update(map(str, output.to_pylist()))
    for core in cores:
        for output in core.finish():
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


def test_a_full_join_needs_one_unit() -> None:
    with pytest.raises(tj.ThetaJoinError, match="units=1"):
        Share.of("full", 0, 2)
