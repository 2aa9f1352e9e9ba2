"""`StreamJoin.nearest`: the stream gives what the table gives, and no later than it must."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import strategies as own
import thetajoin as tj
from naive import Near
from thetajoin.limits import change_limits

LEFT = {"lid": pa.int64(), "t": pa.int64(), "k": pa.int64()}
RIGHT = {"rid": pa.int64(), "u": pa.int64(), "k": pa.int64(), "o": pa.int64()}
CONDITIONS = [
    (None, (), None),
    (None, "k", naive.conj(("k", "=", "k"))),
    ("l.lid < r.rid", "k", naive.conj(("k", "=", "k"), ("lid", "<", "rid"))),
    ("(l.lid + r.rid) % 2 = 0", (), lambda l, r: (l["lid"] + r["rid"]) % 2 == 0),
]

times = st.none() | st.integers(0, 40)
keys = st.integers(0, 1)


@st.composite
def histories(draw):
    """Micro-batches with watermarks between them, in no order of time."""
    steps, lid, rid = [], 0, 0
    for _ in range(draw(st.integers(1, 6))):
        if draw(st.booleans()):
            steps.append(naive.Advance(draw(st.integers(0, 50))))
        left = draw(st.lists(st.tuples(times, keys), max_size=5))
        right = draw(st.lists(st.tuples(times, keys, st.none() | keys), max_size=8))
        steps.append(
            naive.Push(
                [{"lid": lid + i, "t": t, "k": k} for i, (t, k) in enumerate(left)],
                [{"rid": rid + i, "u": u, "k": k, "o": o} for i, (u, k, o) in enumerate(right)],
            )
        )
        lid, rid = lid + len(left), rid + len(right)
    return steps


def ids(pairs):
    return Counter((l["lid"], None if r is None else r["rid"]) for l, r in pairs)


def got_ids(table):
    if not table.num_columns:
        return Counter()
    lids = table["lid"].to_pylist()
    rids = table["rid"].to_pylist() if "rid" in table.column_names else [None] * len(lids)
    return Counter(zip(lids, rids, strict=True))


def on_time(steps):
    """The rows that are not late when they come."""
    left, right, watermark = [], [], None
    for step in steps:
        if isinstance(step, naive.Advance):
            watermark = step.watermark if watermark is None else max(watermark, step.watermark)
            continue
        for rows, kept, column in ((step.left, left, "t"), (step.right, right, "u")):
            for row in rows:
                if row[column] is None or watermark is None or row[column] >= watermark:
                    kept.append(row)
    return left, right


@own.examples(120)
@given(
    steps=histories(),
    condition=st.sampled_from(CONDITIONS),
    direction=st.sampled_from(["backward", "forward", "nearest"]),
    how=st.sampled_from(["left", "inner", "semi", "anti"]),
    ties=st.sampled_from([None, "first", "last", "all"]),
    k=st.integers(1, 3),
    tolerance=st.none() | st.integers(0, 6),
    order_by=st.sampled_from([None, "o", "rid"]),
    reach=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    restart=st.booleans(),
)
def test_a_stream_gives_what_the_table_gives(
    steps, condition, direction, how, ties, k, tolerance, order_by, reach, restart
):
    on, by, pred = condition
    near = Near(("t", "u"), direction, tolerance, k, ties, order_by)
    window = naive.Time(*reach, "t", "u")
    expected = ids(naive.naive_nearest(*on_time(steps), pred, near, how=how, window=window))
    join = tj.StreamJoin.nearest(
        key=("t", "u"),
        by=by,
        on=on,
        direction=direction,
        tolerance=tolerance,
        k=k,
        ties=ties,
        order_by=order_by,
        how=how,
        window=tj.TimeWindow(before=reach[0], after=reach[1], time=("t", "u")),
        left_schema=pa.schema(list(LEFT.items())),
        right_schema=pa.schema(list(RIGHT.items())),
    )
    got = Counter()
    with change_limits(smallest_class=1):
        for step in steps:
            if isinstance(step, naive.Advance):
                join.advance(step.watermark)
            else:
                left, right = own.table(step.left, LEFT), own.table(step.right, RIGHT)
                got += got_ids(join.push(left, right))
            if restart:
                join = tj.StreamJoin.restore(join.snapshot())
        got += got_ids(join.finish())
    assert got == expected


def released(direction, watermark, **options):
    """What comes out at a watermark: left rows at 10, right ones at 4 and 17."""
    window = tj.TimeWindow(20, time="t")
    join = tj.StreamJoin.nearest(key="t", direction=direction, window=window, **options)
    join.push(pa.table({"t": [10]}), pa.table({"t": [4, 17]}))
    join.advance(watermark)
    return join.push().columns[-1].to_pylist()


def test_a_left_row_comes_out_once_no_nearer_row_can_come():
    assert released("backward", 10) == []
    assert released("backward", 11) == [4]
    assert released("forward", 17) == []
    assert released("forward", 18) == [17]
    # A row at 16 would be as near as that at 4.
    assert released("nearest", 16) == []
    assert released("nearest", 17) == [4]
    assert released("forward", 29, k=2) == []
    assert released("forward", 31, k=2) == [17]
    assert released("forward", 15, tolerance=5) == []
    assert released("forward", 16, tolerance=5) == [None]
    assert released("forward", 10, how="semi") == []
    assert released("forward", 11, how="semi") == [10]


def test_state_is_removed():
    join = tj.StreamJoin.nearest(key="t", window=tj.TimeWindow(before=5, time="t"))
    for at in range(0, 100, 10):
        rows = pa.table({"t": range(at, at + 10)})
        join.push(rows, rows)
        join.advance(at + 10)
    assert join.stats.window_left == 0
    assert join.stats.window_right <= 20
    assert join.stats.pairs == 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"window": None}, "a stream needs a window"),
        ({"window": tj.FullHistory()}, "needs a TimeWindow on its key"),
        ({"window": tj.CountWindow(5)}, "use a TimeWindow"),
        ({"window": tj.TimeWindow(5, time="u")}, "must be the window's time"),
        ({"window": tj.TimeWindow(after=5, time="t")}, "nothing on the side"),
    ],
)
def test_bad_windows(arguments, message):
    with pytest.raises(tj.ThetaJoinError, match=message):
        tj.StreamJoin.nearest(key="t", **arguments)


def test_left_rows_are_keyed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """When they come, and not again when they come out, but where their keys were not kept."""
    from thetajoin.engine import nearest_join

    made = []
    real = nearest_join.make_batch

    def counted(table, *rest):
        made.append(table.num_rows)
        return real(table, *rest)

    monkeypatch.setattr(nearest_join, "make_batch", counted)
    window = tj.TimeWindow(10, time=("t", "u"))
    schemas = {"left_schema": pa.schema(LEFT), "right_schema": pa.schema(RIGHT)}
    stream = tj.StreamJoin.nearest(key=("t", "u"), by="k", window=window, **schemas)
    left = pa.table({"lid": [0, 1, 2], "t": [5, 7, 30], "k": [0, 1, 0]}, pa.schema(LEFT))
    right = pa.table({"rid": [0, 1], "u": [4, 9], "k": [0, 0], "o": [0, 0]}, pa.schema(RIGHT))
    stream.push(left, right)
    again = tj.StreamJoin.restore(stream.snapshot())
    expected = Counter([(0, 0), (1, None)])
    stream.advance(20)
    assert got_ids(stream.push()) == expected
    assert made == []
    for block in again._state.stores["l"].blocks():
        block.derived.clear()  # as of a segment that comes from a file
    again.advance(20)
    assert got_ids(again.push()) == expected
    assert made == [3]
    for last in (stream, again):
        assert got_ids(last.finish()) == Counter([(2, None)])
        (block,) = last._state.stores["l"].blocks()
        assert not block.derived
    assert made == [3]
