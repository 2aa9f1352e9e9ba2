"""`StreamJoin`: whatever the micro-batches, the same pairs as the oracle, each exactly once."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import naive
import strategies as own
import thetajoin as tj
from naive import Advance, Push
from strategies import HOWS, STREAM_L, STREAM_R, all_ids, ids, naive_ids, stream_rows, table

START = datetime(2024, 1, 1)
OPS = st.tuples(own.operators, own.operators)
SCHEMAS = {
    "left_schema": pa.schema(list(STREAM_L.items())),
    "right_schema": pa.schema(list(STREAM_R.items())),
}


def on(ops):
    return f"l.a {ops[0]} r.b AND l.c {ops[1]} r.d"


def predicate(ops):
    return naive.conj(("a", ops[0], "b"), ("c", ops[1], "d"))


def run(join, steps):
    """The result of each step, then that of the end."""
    results = []
    for step in steps:
        if isinstance(step, Advance):
            assert join.advance(step.watermark) is None
            continue
        left = table(step.left, STREAM_L) if step.left else None
        right = table(step.right, STREAM_R) if step.right else None
        results.append(join.push(left, right))
    results.append(join.finish())
    return results


def check(steps, ops, windowed, how, **options):
    join = tj.StreamJoin(
        on(ops), how=how, window=windowed.window, order_by=windowed.order_by, **options
    )
    expected = naive.naive_stream(
        steps, predicate(ops), how=how, window=windowed.naive, order_by=windowed.order_by
    )
    results = run(join, steps)
    assert all_ids(results) == naive_ids(expected.rows)
    assert join.stats.late_rows == expected.late_rows
    if how in ("inner", "left", "right", "full"):
        assert join.stats.pairs == expected.pairs
    if isinstance(windowed.naive, naive.Time):
        assert join.stats.null_times == expected.null_times
    return join, results, expected


@pytest.mark.parametrize("how", HOWS)
@given(
    steps=own.streams(watermarks=True),
    ops=OPS,
    windowed=own.time_windows(),
    options=own.engine_options(),
)
def test_time_windows(how, steps, ops, windowed, options):
    check(steps, ops, windowed, how, **SCHEMAS, **options)


@pytest.mark.parametrize("how", HOWS)
@given(
    steps=own.streams(),
    ops=OPS,
    windowed=own.count_windows(),
    options=own.engine_options(),
)
def test_count_windows(how, steps, ops, windowed, options):
    check(steps, ops, windowed, how, **SCHEMAS, **options)


@pytest.mark.parametrize("how", ["inner", "semi"])
@given(steps=own.streams(), ops=OPS)
def test_full_history(how, steps, ops):
    check(steps, ops, own.Windowed(tj.FullHistory(), naive.Full()), how, **SCHEMAS)


@own.examples(100)
@given(
    own.streams(watermarks=True),
    own.conditions(),
    own.windows(),
    st.sampled_from(HOWS),
    own.engine_options(),
)
def test_any_condition(steps, condition, windowed, how, options):
    if not isinstance(windowed.naive, naive.Time):
        steps = [step for step in steps if isinstance(step, Push)]
    assume(how in ("inner", "semi") or not isinstance(windowed.naive, naive.Full))
    left_schema, right_schema = STREAM_L | {"x": pa.float64()}, STREAM_R | {"y": pa.float64()}
    steps = [
        step
        if isinstance(step, Advance)
        else Push(
            [row | {"x": row["a"]} for row in step.left],
            [row | {"y": row["d"]} for row in step.right],
        )
        for step in steps
    ]
    join = tj.StreamJoin(condition.sql, how=how, window=windowed.window, order_by=windowed.order_by)
    results = []
    for step in steps:
        if isinstance(step, Advance):
            join.advance(step.watermark)
        else:
            results.append(
                join.push(table(step.left, left_schema), table(step.right, right_schema))
            )
    results.append(join.finish())
    expected = naive.naive_stream(
        steps, condition.pred, how=how, window=windowed.naive, order_by=windowed.order_by
    )
    assert all_ids(results) == naive_ids(expected.rows)


@given(own.streams(), OPS, own.windows())
def test_each_step_gives_its_own_matches(steps, ops, windowed):
    """An inner join never holds a match back."""
    expected = naive.naive_stream(
        steps, predicate(ops), window=windowed.naive, order_by=windowed.order_by
    )
    join = tj.StreamJoin(on(ops), window=windowed.window, order_by=windowed.order_by, **SCHEMAS)
    results = run(join, steps)
    assert [ids(result) for result in results] == [
        *(naive_ids(step) for step in expected.steps),
        {},
    ]


@given(own.streams(), OPS, own.full_windows() | own.time_windows(), st.sampled_from(HOWS))
def test_stream_equals_batch(steps, ops, windowed, how):
    assume(how in ("inner", "semi") or not isinstance(windowed.naive, naive.Full))
    join = tj.StreamJoin(on(ops), how=how, window=windowed.window, **SCHEMAS)
    left, right = stream_rows(steps)
    batch = tj.join(
        table(left, STREAM_L), table(right, STREAM_R), on(ops), how=how, window=windowed.window
    )
    assert all_ids(run(join, steps)) == ids(batch)


@given(
    st.lists(st.tuples(own.nullable_ints, own.nullable_ints, st.booleans()), max_size=20),
    st.lists(st.integers(0, 20), max_size=4),
    OPS,
    own.count_windows(),
)
def test_batch_equals_a_stream_of_the_same_rows_in_order(drawn, cuts, ops, windowed):
    """With distinct order keys the micro-batch boundaries cannot matter."""
    windowed = own.Windowed(windowed.window, windowed.naive, "t")
    left = [
        {"lid": i, "a": k, "c": m, "t": i} for i, (k, m, is_left) in enumerate(drawn) if is_left
    ]
    right = [
        {"rid": i, "b": k, "d": m, "t": i} for i, (k, m, is_left) in enumerate(drawn) if not is_left
    ]
    edges = [-1, *sorted(cuts), len(drawn)]
    steps = [
        Push(
            [row for row in left if low <= row["t"] < high],
            [row for row in right if low <= row["t"] < high],
        )
        for low, high in pairwise(edges)
    ]
    batch = tj.join(
        table(left, STREAM_L),
        table(right, STREAM_R),
        on(ops),
        window=windowed.window,
        order_by="t",
    )
    _, results, _ = check(steps, ops, windowed, "inner", **SCHEMAS)
    assert all_ids(results) == ids(batch)


@own.examples(60)
@given(
    own.streams(watermarks=True),
    OPS,
    own.windows(),
    st.sampled_from(HOWS),
    own.engine_options(),
    st.data(),
)
def test_snapshot_and_restore_anywhere(steps, ops, windowed, how, options, data):
    if not isinstance(windowed.naive, naive.Time):
        steps = [step for step in steps if isinstance(step, Push)]
    assume(how in ("inner", "semi") or not isinstance(windowed.naive, naive.Full))
    join = tj.StreamJoin(
        on(ops), how=how, window=windowed.window, order_by=windowed.order_by, **SCHEMAS, **options
    )
    at = data.draw(st.integers(0, len(steps)), label="snapshot before step")
    before = run_some(join, steps[:at])
    saved = join.snapshot()
    assert isinstance(saved, bytes)
    again = tj.StreamJoin.restore(saved)
    assert counts(again.stats) == counts(join.stats)
    tail = run(join, steps[at:])
    tail_again = run(again, steps[at:])
    assert [ids(result) for result in tail] == [ids(result) for result in tail_again]
    assert [result.schema for result in tail] == [result.schema for result in tail_again]
    expected = naive.naive_stream(
        steps, predicate(ops), how=how, window=windowed.naive, order_by=windowed.order_by
    )
    assert all_ids([*before, *tail_again]) == naive_ids(expected.rows)
    assert counts(again.stats) == counts(join.stats)


def counts(stats):
    """The part of the statistics that does not depend on when segments were merged."""
    names = ("left_rows", "right_rows", "pairs", "late_rows", "null_times")
    return {name: getattr(stats, name) for name in names}


def run_some(join, steps):
    results = []
    for step in steps:
        if isinstance(step, Advance):
            join.advance(step.watermark)
        else:
            results.append(join.push(table(step.left, STREAM_L), table(step.right, STREAM_R)))
    return results


@given(own.streams(watermarks=True, max_steps=4), OPS, own.time_windows())
def test_a_snapshot_does_not_change_the_operator(steps, ops, windowed):
    plain = tj.StreamJoin(on(ops), how="full", window=windowed.window, **SCHEMAS)
    watched = tj.StreamJoin(on(ops), how="full", window=windowed.window, **SCHEMAS)
    for step in steps:
        first = run_some(plain, [step])
        assert watched.snapshot() == watched.snapshot()
        second = run_some(watched, [step])
        assert [ids(result) for result in first] == [ids(result) for result in second]
    assert ids(plain.finish()) == ids(watched.finish())


# --- what comes when -----------------------------------------------------------------------------


def lefts(*times, first=0):
    return pa.table(
        {"lid": range(first, first + len(times)), "a": [1] * len(times), "t": times},
        schema=pa.schema({"lid": pa.int64(), "a": pa.int64(), "t": pa.int64()}),
    )


def rights(*times, first=0):
    return pa.table(
        {"rid": range(first, first + len(times)), "b": [2] * len(times), "t": times},
        schema=pa.schema({"rid": pa.int64(), "b": pa.int64(), "t": pa.int64()}),
    )


def test_unmatched_rows_come_when_the_watermark_has_passed_them():
    join = tj.StreamJoin("l.a < r.b", how="full", window=tj.TimeWindow(5, time="t"))
    assert ids(join.push(lefts(10, 20), rights(30))) == {}
    join.advance(15)
    assert ids(join.push()) == {}  # a right row of time 15 would still match the left one of 10
    join.advance(16)
    assert ids(join.push()) == {(0, None): 1}
    assert ids(join.push(right=rights(25, first=1))) == {(1, 1): 1}
    join.advance(36)
    assert ids(join.push()) == {(None, 0): 1}
    assert ids(join.finish()) == {}


def test_asymmetric_windows_release_each_side_at_its_own_time():
    # l.t - 5 <= r.t <= l.t + 1
    window = tj.TimeWindow(before=5, after=1, time="t")
    join = tj.StreamJoin("l.a < r.b", how="full", window=window)
    join.push(lefts(10), rights(10, 100))
    assert join.stats.pairs == 1
    join = tj.StreamJoin("l.a > r.b", how="full", window=window)
    join.push(lefts(10), rights(10))
    join.advance(11)
    assert ids(join.push()) == {}
    join.advance(12)
    assert ids(join.push()) == {(0, None): 1}  # r.t <= 11 can no longer come
    join.advance(15)
    assert ids(join.push()) == {}
    join.advance(16)
    assert ids(join.push()) == {(None, 0): 1}  # l.t <= 15 can no longer come
    assert ids(join.finish()) == {}


@pytest.mark.parametrize("how", ["left", "anti"])
def test_unmatched_rows_come_when_the_count_has_passed_them(how):
    schemas = {"left_schema": lefts().schema, "right_schema": rights().schema}
    join = tj.StreamJoin("l.a > r.b", how=how, window=tj.CountWindow(2), **schemas)
    got = [join.push(lefts(0, 1)), join.push(lefts(2, first=2))]
    # Three left rows: with a window of two, the first one is seen by no right row any more.
    assert all_ids(got) == {(0, None): 1}
    assert ids(join.finish()) == {(1, None): 1, (2, None): 1}


def test_anti_join_holds_back_what_may_still_match():
    join = tj.StreamJoin("l.a < r.b", how="anti", window=tj.TimeWindow(5, time="t"))
    assert ids(join.push(lefts(0, 10))) == {}
    assert ids(join.push(right=rights(1))) == {}
    assert ids(join.finish()) == {(1, None): 1}


def test_semi_join_gives_a_row_at_its_first_match():
    join = tj.StreamJoin("l.a < r.b", how="semi", window=tj.FullHistory())
    assert join.push(lefts(0, 1)).num_rows == 0
    assert ids(join.push(right=rights(0))) == {(0, None): 1, (1, None): 1}
    assert ids(join.push(right=rights(1, 2))) == {}
    assert ids(join.push(left=lefts(3, first=2))) == {(2, None): 1}
    assert ids(join.finish()) == {}


def test_a_row_exactly_at_the_watermark_is_not_late():
    join = tj.StreamJoin("l.a < r.b", window=tj.TimeWindow(5, time="t"))
    join.push(lefts(10), rights())
    join.advance(12)
    assert ids(join.push(right=rights(11, 12))) == {(0, 1): 1}
    assert (join.stats.late_rows, join.stats.left_rows, join.stats.right_rows) == (1, 1, 1)


def test_rows_without_a_time_match_nothing_and_come_out_unmatched():
    join = tj.StreamJoin("l.a < r.b", how="full", window=tj.TimeWindow(5, time="t"))
    got = [join.push(lefts(None, 3), rights(3, None)), join.finish()]
    assert all_ids(got) == {(1, 0): 1, (0, None): 1, (None, 1): 1}
    assert (join.stats.null_times, join.stats.late_rows) == (2, 0)


def test_rows_that_can_never_match_come_out_at_once():
    """A NULL key, or a row that a filter keeps out: there is nothing to wait for."""
    schema = pa.schema({"k": pa.int64(), "t": pa.int64()})
    join = tj.StreamJoin(
        "l.k < r.k AND l.k > 1",
        how="left",
        window=tj.TimeWindow(5, time="t"),
        left_schema=schema,
        right_schema=schema,
    )
    given = join.push(pa.table({"k": [None, 0, 7], "t": [1, 2, 3]}, schema), None)
    assert given["t"].to_pylist() == [1, 2]
    assert join.push(None, pa.table({"k": [9], "t": [3]}, schema))["t"].to_pylist() == [3]


def test_timestamps_and_watermarks():
    start = datetime(2024, 1, 1)
    minute = timedelta(minutes=1)
    left = pa.table({"lid": [0, 1], "a": [1, 1], "t": [start, start + 20 * minute]})
    right = pa.table({"rid": [0, 1], "b": [2, 2], "t": [start + 10 * minute, start + 11 * minute]})
    join = tj.StreamJoin("l.a < r.b", how="left", window=tj.TimeWindow("10 minutes", time="t"))
    assert ids(join.push(left, right)) == {(0, 0): 1, (1, 0): 1, (1, 1): 1}
    join.advance(start + 30 * minute)
    late = right.slice(0, 1)
    on_time = pa.table({"rid": [2], "b": [2], "t": [start + 30 * minute]})
    assert ids(join.push(right=pa.concat_tables([late, on_time]))) == {(1, 2): 1}
    assert join.stats.late_rows == 1
    assert join.finish().num_rows == 0


@pytest.mark.parametrize(
    ("type_", "watermark", "late"),
    [
        (pa.timestamp("s"), START + timedelta(seconds=1.5), 2),
        (pa.timestamp("s"), START + timedelta(seconds=1), 1),
        (pa.timestamp("ns"), START + timedelta(seconds=1, microseconds=1), 2),
        (pa.timestamp("us", "UTC"), START + timedelta(seconds=1), 1),
        (pa.timestamp("us", "UTC"), (START + timedelta(seconds=1)).replace(tzinfo=UTC), 1),
        (pa.timestamp("us", "Asia/Tokyo"), START.replace(tzinfo=UTC) + timedelta(seconds=2), 2),
    ],
    ids=str,
)
def test_watermarks_of_any_resolution(type_, watermark, late):
    """A row is late where its time is before the watermark, whatever the unit of either."""
    zone = UTC if type_.tz else None
    times = pa.array([(START + timedelta(seconds=s)).replace(tzinfo=zone) for s in range(4)], type_)
    join = tj.StreamJoin("l.a < r.b", window=tj.TimeWindow("1 hour", time="t"))
    join.push(pa.table({"lid": [0], "a": [1], "t": times[3:]}))
    join.advance(watermark)
    got = join.push(right=pa.table({"rid": range(4), "b": [2] * 4, "t": times}))
    assert join.stats.late_rows == late
    assert ids(got) == {(0, rid): 1 for rid in range(late, 4)}


def test_watermarks_over_dates():
    days = [date(2024, 1, 1) + timedelta(days=n) for n in range(4)]
    for watermark, late in ((date(2024, 1, 2), 1), (datetime(2024, 1, 2, 12), 2)):
        join = tj.StreamJoin("l.a < r.b", window=tj.TimeWindow("9 days", time="t"))
        join.push(pa.table({"lid": [0], "a": [1], "t": days[3:]}))
        join.advance(watermark)
        join.push(right=pa.table({"rid": range(4), "b": [2] * 4, "t": days}))
        assert join.stats.late_rows == late


def test_a_watermark_may_come_before_any_row():
    join = tj.StreamJoin("l.a < r.b", how="full", window=tj.TimeWindow(5, time="t"))
    join.advance(10)
    assert ids(join.push(lefts(9, 10))) == {}
    assert ids(join.push(right=rights(11, 9))) == {(1, 0): 1}
    assert (join.stats.late_rows, join.stats.left_rows, join.stats.right_rows) == (2, 1, 1)


def test_state_is_removed_as_the_watermark_moves():
    join = tj.StreamJoin("l.a < r.b", window=tj.TimeWindow(10, time="t"))
    sizes = []
    for n in range(0, 4000, 100):
        join.push(lefts(*range(n, n + 100), first=n), rights(*range(n, n + 100), first=n))
        join.advance(n + 100)
        sizes.append(len(join.snapshot()))
    assert max(sizes[20:]) < 2 * max(sizes[:10])


def test_state_is_removed_as_rows_are_counted_out():
    join = tj.StreamJoin("l.a < r.b", window=tj.CountWindow(10, slide=5))
    sizes = []
    for n in range(0, 4000, 100):
        join.push(lefts(*range(n, n + 100), first=n), rights(*range(n, n + 100), first=n))
        sizes.append(len(join.snapshot()))
    assert max(sizes[20:]) < 2 * max(sizes[:10])


# --- schemas -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["inner", "left", "semi"])
def test_one_side_may_come_long_before_the_other(how):
    join = tj.StreamJoin("l.a < r.b", how=how, window=tj.TimeWindow(5, time="t"))
    assert join.push(left=lefts(0)).num_rows == 0
    assert join.push(left=lefts(1, first=1)).num_rows == 0
    got = join.push(right=rights(2))
    assert {lid for lid, _ in ids(got)} == {0, 1}
    assert join.stats.left_rows == 2


def test_nothing_pushed_at_all():
    join = tj.StreamJoin("l.a < r.b", window=tj.FullHistory())
    assert join.push().num_rows == 0
    assert join.finish().num_rows == 0


@pytest.mark.parametrize("how", ["inner", "semi"])
def test_only_one_side_ever_came(how):
    join = tj.StreamJoin("l.a < r.b", how=how, window=tj.TimeWindow(5, time="t"))
    join.push(left=lefts(0, 1))
    assert join.finish().num_rows == 0


def test_only_one_side_ever_came_to_an_anti_join():
    join = tj.StreamJoin("l.a < r.b", how="anti", window=tj.TimeWindow(5, time="t"))
    join.push(left=lefts(0, 1))
    assert ids(join.finish()) == {(0, None): 1, (1, None): 1}


def test_only_one_side_ever_came_to_an_outer_join():
    """The right side's columns are unknown, so the rows that are owed cannot be written."""
    join = tj.StreamJoin("l.a < r.b", how="left", window=tj.TimeWindow(5, time="t"))
    join.push(left=lefts(0, 1))
    with pytest.raises(tj.ThetaJoinError, match="right_schema"):
        join.finish()
    # Nothing is lost: once the right side has come, even without rows, they are given.
    assert ids(join.push(right=rights())) == {}
    assert ids(join.finish()) == {(0, None): 1, (1, None): 1}


def test_output_schema_is_the_same_for_every_push():
    join = tj.StreamJoin(
        "l.a < r.b",
        how="full",
        window=tj.TimeWindow(5, time="t"),
        left_schema=lefts().schema,
        right_schema=rights().schema,
    )
    results = [
        join.push(),
        join.push(lefts(0)),
        join.push(right=rights(0)),
        join.push(lefts(), rights()),
    ]
    join.advance(100)
    results += [join.push(), join.finish()]
    assert {tuple(result.schema.names) for result in results} == {
        ("lid", "a", "t", "rid", "b", "t_right")
    }
    assert len({result.schema for result in results}) == 1


@given(own.streams(max_steps=4), OPS)
def test_given_and_found_schemas_agree(steps, ops):
    assume(all(stream_rows(steps)))
    window = tj.CountWindow(4, slide=2)
    given_first = tj.StreamJoin(on(ops), how="full", window=window, **SCHEMAS)
    found = tj.StreamJoin(on(ops), how="full", window=window)
    assert all_ids(run(given_first, steps)) == all_ids(run(found, steps))


def test_record_batches_of_other_kinds():
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    join = tj.StreamJoin("l.a < r.b", window=tj.FullHistory())
    got = join.push(
        pandas.DataFrame({"lid": [0], "a": [1]}), polars.DataFrame({"rid": [0], "b": [2]})
    )
    assert isinstance(got, pa.Table)
    assert ids(got) == {(0, 0): 1}


def test_stats():
    join = tj.StreamJoin("l.a < r.b", window=tj.TimeWindow(5, time="t"))
    join.push(lefts(0, 1), rights(0))
    join.push(lefts(2, first=2), rights(1, first=1))
    stats = join.stats
    assert (stats.left_rows, stats.right_rows, stats.pairs) == (3, 2, 6)
    assert (stats.late_rows, stats.null_times) == (0, 0)


# --- merges --------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 37, 1000])
@pytest.mark.parametrize(
    "windowed",
    [
        own.Windowed(tj.FullHistory(), naive.Full()),
        own.Windowed(tj.CountWindow(500, slide=100), naive.Count(500, 100)),
        own.Windowed(tj.TimeWindow(300, time="t"), naive.Time(300, 300)),
    ],
    ids=repr,
)
def test_thousands_of_rows_in_batches(windowed, batch):
    """Enough rows to fill heads and merge segments; pairs are checked by brute force."""
    import numpy as np

    n = 300 if batch == 1 else 2000
    rng = np.random.default_rng(3)
    left = {"a": rng.integers(0, 50, n), "c": rng.integers(0, 50, n), "t": np.arange(n)}
    right = {"b": rng.integers(0, 50, n), "d": rng.integers(0, 50, n), "t": np.arange(n)}
    grid = (left["a"][:, None] < right["b"]) & (left["c"][:, None] > right["d"] + 30)
    i, j = np.arange(n)[:, None], np.arange(n)[None, :]
    if isinstance(windowed.naive, naive.Time):
        grid &= abs(i - j) <= 300
    if isinstance(windowed.naive, naive.Count):
        # In a micro-batch all left rows come before all right ones.
        arrived_left = (j // batch + 1) * batch
        arrived_right = (i // batch) * batch
        earlier_left = i < np.minimum(arrived_left, n)
        earlier_right = j < arrived_right
        see = np.vectorize(windowed.naive.first_visible)
        grid &= np.where(
            earlier_right,
            j >= see(arrived_right),
            earlier_left & (i >= see(np.minimum(arrived_left, n))),
        )
    expected = {tuple(pair) for pair in np.argwhere(grid).tolist()}
    join = tj.StreamJoin("l.a < r.b AND l.c > r.d + 30", window=windowed.window)
    pairs = []
    for low in range(0, n, batch):
        high = min(low + batch, n)
        got = join.push(
            pa.table({"lid": np.arange(low, high)} | {k: v[low:high] for k, v in left.items()}),
            pa.table({"rid": np.arange(low, high)} | {k: v[low:high] for k, v in right.items()}),
        )
        pairs += zip(got["lid"].to_pylist(), got["rid"].to_pylist(), strict=True)
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == expected
