"""`join_agg(how="left")`: every group of the left side is there, with what its matches give."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import naive
import strategies as own
import thetajoin as tj
from aggregate.oracle import aggregated, assert_same
from aggregate.test_join_agg import AGGS, FLOATS, GROUPS, LEFT, OPS, PLAIN, RIGHT, chosen, query
from strategies import STREAM_L, STREAM_R, left_rows, left_table, right_rows, right_table, table
from thetajoin.aggregate.stream import StreamAggregate

LEFT_GROUPS = ["l.a", "l.c"]


def expected(pairs, groups, aggs, left):
    known = AGGS | FLOATS
    return aggregated(pairs, [GROUPS[g] for g in groups], [known[a] for a in aggs], left)


@own.examples(120)
@given(
    left_rows(),
    right_rows(),
    own.conditions(),
    chosen(LEFT_GROUPS, 2),
    chosen(AGGS | FLOATS, 4).filter(bool),
)
def test_any_condition(left, right, condition, groups, aggs):
    """Conditions with filters of the left side are among these: they only stop a match."""
    got = tj.join_agg(
        left_table(left),
        right_table(right),
        condition.sql,
        how="left",
        **query(groups, aggs),
        threads=1,
    )
    pairs = naive.naive_join(left, right, condition.pred)
    assert_same(got, expected(pairs, groups, aggs, left), len(groups))


@own.examples(100)
@given(LEFT, RIGHT, OPS, own.windows(), chosen(LEFT_GROUPS, 2), chosen(PLAIN, 3).filter(bool))
def test_windows(left, right, ops, windowed, groups, aggs):
    got = tj.join_agg(
        table(left, STREAM_L),
        table(right, STREAM_R),
        f"l.a {ops[0]} r.b AND l.c {ops[1]} r.d",
        how="left_outer",
        window=windowed.window,
        order_by=windowed.order_by,
        **query(groups, aggs),
    )
    pairs = naive.naive_join(
        left,
        right,
        naive.conj(("a", ops[0], "b"), ("c", ops[1], "d")),
        window=windowed.naive,
        order_by=windowed.order_by,
    )
    assert_same(got, expected(pairs, groups, aggs, left), len(groups))


@own.examples(100)
@given(
    own.streams(watermarks=True),
    OPS,
    own.windows(),
    chosen(LEFT_GROUPS, 2),
    chosen(PLAIN, 3).filter(bool),
    own.engine_options(),
    st.integers(0, 4),
)
def test_streams(steps, ops, windowed, groups, aggs, options, restart):
    """A group is there from its first row that is not late, and what matched later is added."""
    stream = StreamAggregate(
        f"l.a {ops[0]} r.b AND l.c {ops[1]} r.d",
        how="left",
        window=windowed.window,
        order_by=windowed.order_by,
        left_schema=pa.schema(STREAM_L),
        right_schema=pa.schema(STREAM_R),
        **query(groups, aggs),
        **options,
    )
    timed = isinstance(windowed.window, tj.TimeWindow)
    pred = naive.conj(("a", ops[0], "b"), ("c", ops[1], "d"))
    latest, known, watermark, taken = {}, [], None, []
    for number, step in enumerate(steps):
        if isinstance(step, naive.Advance):
            if timed:
                stream.advance(step.watermark)
                known.append(step)
                watermark = max(step.watermark, watermark or step.watermark)
            continue
        known.append(step)
        for row in step.left:
            late = timed and watermark is not None and row["t"] is not None
            if not (late and row["t"] < watermark):
                taken.append(row)
        changed = stream.push(table(step.left, STREAM_L), table(step.right, STREAM_R))
        for row in changed.to_pylist():
            latest[tuple(row.values())[: len(groups)]] = row
        if number == restart:
            stream = StreamAggregate.restore(stream.snapshot())
    pairs = naive.naive_stream(known, pred, window=windowed.naive, order_by=windowed.order_by).rows
    want = expected(pairs, groups, aggs, taken)
    assert_same(stream.result(), want, len(groups))
    if groups:
        updates = pa.Table.from_pylist(list(latest.values()), schema=stream.result().schema)
        assert_same(updates, want, len(groups))
