"""Late rows of a `StreamJoin` that keeps them: the oracle's, once each, in snapshots too."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import strategies as own
import thetajoin as tj
from naive import Advance
from strategies import STREAM_L, STREAM_R, table

PRED = naive.conj(("a", "<", "b"))
SCHEMAS = {
    "left_schema": pa.schema(list(STREAM_L.items())),
    "right_schema": pa.schema(list(STREAM_R.items())),
}


def by_id(rows: Any) -> list[int]:
    return sorted(row.get("lid", -1) * 1000 + row.get("rid", -1) for row in rows)


@pytest.mark.parametrize("how", ["inner", "full", "semi"])
@given(
    steps=own.streams(watermarks=True),
    windowed=own.time_windows(),
    known=st.booleans(),
    data=st.data(),
)
def test_late_rows_are_the_oracle_s(how: Any, steps: Any, windowed: Any, known: Any, data: Any):
    """Whenever they are taken, and whether or not the join was saved and restored before."""
    schemas = SCHEMAS if known else {}
    join = tj.StreamJoin("l.a < r.b", how=how, window=windowed.window, keep_late=True, **schemas)
    expected = naive.naive_stream(steps, PRED, how=how, window=windowed.naive)
    taken: list[dict[str, Any]] = []
    for step in steps:
        if isinstance(step, Advance):
            join.advance(step.watermark)
        else:
            left = table(step.left, STREAM_L) if step.left else None
            join.push(left, table(step.right, STREAM_R) if step.right else None)
        if data.draw(st.booleans()):
            join = tj.StreamJoin.restore(join.snapshot())
        if data.draw(st.booleans()):
            taken += [row for side in join.take_late() for row in side.to_pylist()]
    if join.schema is None:
        return
    late = join.take_late()
    taken += [row for side in late for row in side.to_pylist()]
    assert by_id(taken) == by_id(expected.late)
    assert join.stats.late_rows == len(taken)
    assert all(side.num_rows == 0 for side in join.take_late())


def test_late_rows_keep_the_types_they_came_in() -> None:
    window = tj.TimeWindow(5, time="t")
    join = tj.StreamJoin("l.s < r.s", window=window, keep_late=True)
    words = pa.array(["a", "b"], pa.string_view())
    rows = pa.table({"t": [1, 20], "s": words})
    join.push(rows, rows)
    join.advance(15)
    join.push(left=rows)
    assert join.take_late().left.equals(rows.slice(0, 1))


def test_a_push_that_fails_keeps_no_late_row() -> None:
    window = tj.TimeWindow(5, time="t")
    join = tj.StreamJoin("l.a / l.b < r.a", window=window, keep_late=True)
    join.push(*(pa.table({"t": [20], "a": [1], "b": [1]}) for _ in "lr"))
    join.advance(15)
    with pytest.raises(tj.ThetaJoinError):
        join.push(left=pa.table({"t": [1, 20], "a": [1, 1], "b": [1, 0]}))
    assert join.take_late().left.num_rows == 0
    assert join.stats.late_rows == 0
