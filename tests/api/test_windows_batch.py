"""Windows over tables: `join` and `self_join` give the pairs a stream of the same rows would."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import strategies as own
import thetajoin as tj
from naive import Count, Time
from strategies import HOWS, STREAM_L, STREAM_R, ids, naive_ids, nullable_ints, rows, table

TIMES = st.none() | st.integers(0, 8)
LEFT = rows("lid", {"a": nullable_ints, "c": nullable_ints, "t": TIMES})
RIGHT = rows("rid", {"b": nullable_ints, "d": nullable_ints, "t": TIMES})
OPS = st.tuples(own.operators, own.operators)


def check(left, right, ops, windowed, how="inner", **options):
    got = tj.join(
        table(left, STREAM_L),
        table(right, STREAM_R),
        f"l.a {ops[0]} r.b AND l.c {ops[1]} r.d",
        how=how,
        window=windowed.window,
        order_by=windowed.order_by,
        **options,
    )
    expected = naive.naive_join(
        left,
        right,
        naive.conj(("a", ops[0], "b"), ("c", ops[1], "d")),
        how=how,
        window=windowed.naive,
        order_by=windowed.order_by,
    )
    assert ids(got) == naive_ids(expected)


@pytest.mark.parametrize("how", HOWS)
@given(
    left=LEFT,
    right=RIGHT,
    ops=OPS,
    windowed=own.time_windows(),
    options=own.engine_options(),
)
def test_time_windows(how, left, right, ops, windowed, options):
    check(left, right, ops, windowed, how, **options)


@pytest.mark.parametrize("how", HOWS)
@given(
    left=LEFT,
    right=RIGHT,
    ops=OPS,
    windowed=own.count_windows(),
    options=own.engine_options(),
)
def test_count_windows(how, left, right, ops, windowed, options):
    check(left, right, ops, windowed, how, **options)


@pytest.mark.parametrize("how", HOWS)
@own.examples(15)
@given(left=LEFT, right=RIGHT, ops=OPS)
def test_full_history_is_no_window(how, left, right, ops):
    check(left, right, ops, own.Windowed(tj.FullHistory(), naive.Full()), how)


@given(LEFT, RIGHT, own.windows(), own.conditions())
def test_any_condition_in_a_window(left, right, windowed, condition):
    left = [row | {"x": row["a"]} for row in left]
    right = [row | {"y": row["d"]} for row in right]
    got = tj.join(
        table(left, STREAM_L | {"x": pa.float64()}),
        table(right, STREAM_R | {"y": pa.float64()}),
        condition.sql,
        window=windowed.window,
        order_by=windowed.order_by,
    )
    expected = naive.naive_join(
        left, right, condition.pred, window=windowed.naive, order_by=windowed.order_by
    )
    assert ids(got) == naive_ids(expected)


@given(LEFT, RIGHT)
def test_a_column_of_its_own_for_each_side(left, right):
    left_table = table(left, STREAM_L).rename_columns({"t": "lt"})
    right_table = table(right, STREAM_R).rename_columns({"t": "rt"})
    always = naive.conj(("a", "!=", "b"))
    got = tj.join(left_table, right_table, "l.a != r.b", window=tj.TimeWindow(2, time=("lt", "rt")))
    assert ids(got) == naive_ids(naive.naive_join(left, right, always, window=Time(2, 2)))
    window = tj.CountWindow(3, slide=2)
    got = tj.join(left_table, right_table, "l.a != r.b", window=window, order_by=("lt", "rt"))
    expected = naive.naive_join(left, right, always, window=Count(3, 2), order_by=("t", "t"))
    assert ids(got) == naive_ids(expected)


def column(values, type_):
    return pa.array(values, type_)


START = datetime(2024, 3, 31, 1, 0)
OFFSETS = (-3601, -3600, -600, -599, 0, 0, 1, 599, 600, 601, 3600)


@pytest.mark.parametrize(
    ("left_type", "right_type"),
    [
        (pa.timestamp("s"), pa.timestamp("s")),
        (pa.timestamp("us"), pa.timestamp("us")),
        (pa.timestamp("ns"), pa.timestamp("ms")),
        (pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us", "UTC")),
        (pa.timestamp("us", "Asia/Tokyo"), pa.timestamp("ns", "Asia/Tokyo")),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("window", "before", "after"),
    [
        (tj.TimeWindow("10 minutes", time="t"), 600, 600),
        (tj.TimeWindow(timedelta(minutes=10), time="t"), 600, 600),
        (tj.TimeWindow(before="1 hour", after="1 second", time="t"), 3600, 1),
        (tj.TimeWindow(after="10 minutes", time="t"), 0, 600),
        (tj.TimeWindow("500 ms", time="t"), 0.5, 0.5),
    ],
    ids=repr,
)
def test_timestamps(left_type, right_type, window, before, after):
    zone = UTC if left_type.tz else None
    values = [START.replace(tzinfo=zone) + timedelta(seconds=s) for s in OFFSETS]
    left = [{"lid": i, "t": v} for i, v in enumerate(values)]
    right = [{"rid": i, "t": v} for i, v in enumerate(values)]
    got = tj.join(
        pa.table({"lid": range(len(left)), "t": column(values, left_type), "k": [0] * len(left)}),
        pa.table({"rid": range(len(left)), "t": column(values, right_type), "k": [0] * len(left)}),
        "l.k <= r.k",
        window=window,
    )
    oracle = Time(timedelta(seconds=before), timedelta(seconds=after))
    assert ids(got) == naive_ids(naive.naive_join(left, right, naive.conj(), window=oracle))


def test_dates():
    days = [date(2024, 2, 27) + timedelta(days=n) for n in range(5)]
    left = pa.table({"lid": range(5), "t": days, "k": [0] * 5})
    right = pa.table({"rid": range(5), "t": days, "k": [1] * 5})
    for window, reach in (
        (tj.TimeWindow("2 days", time="t"), 2),
        (tj.TimeWindow("36 hours", time="t"), 1),
        (tj.TimeWindow("23 hours", time="t"), 0),
    ):
        got = tj.join(left, right, "l.k < r.k", window=window)
        expected = {(i, j): 1 for i in range(5) for j in range(5) if abs(i - j) <= reach}
        assert ids(got) == expected


def test_times_at_the_ends_of_int64():
    ends = [-(2**63), -(2**63) + 1, 0, 2**63 - 2, 2**63 - 1]
    left = [{"lid": i, "t": v, "k": 0} for i, v in enumerate(ends)]
    right = [{"rid": i, "t": v, "k": 1} for i, v in enumerate(ends)]
    for reach in (1, 2**62, 2**63 - 1):
        got = tj.join(
            pa.Table.from_pylist(left),
            pa.Table.from_pylist(right),
            "l.k < r.k",
            window=tj.TimeWindow(reach, time="t"),
        )
        oracle = Time(reach, reach)
        assert ids(got) == naive_ids(naive.naive_join(left, right, naive.conj(), window=oracle))


# --- count windows by hand -----------------------------------------------------------------------


def numbered(name, times):
    return pa.table({name: range(len(times)), "t": times, "k": [0] * len(times)})


def test_count_window_by_hand():
    # Arrival by t: l0 r0 r1 r2 l1 r3 l2, a window of two rows.
    got = tj.join(
        numbered("lid", [0, 4, 6]),
        numbered("rid", [1, 2, 3, 5]),
        "l.k = r.k",
        window=tj.CountWindow(2),
        order_by="t",
    )
    assert set(ids(got)) == {
        (0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (0, 3), (1, 3), (2, 2), (2, 3),
    }  # fmt: skip


def test_count_window_expires_whole_slides():
    got = tj.join(
        numbered("lid", [9]),
        numbered("rid", [0, 1, 2, 3, 4]),
        "l.k = r.k",
        window=tj.CountWindow(4, slide=2),
        order_by="t",
    )
    assert set(ids(got)) == {(0, 2), (0, 3), (0, 4)}


def test_left_rows_come_first_on_a_tie():
    left, right = numbered("lid", [1, 1]), numbered("rid", [1])
    got = tj.join(left, right, "l.k = r.k", window=tj.CountWindow(1), order_by="t")
    assert set(ids(got)) == {(1, 0)}


def test_rows_with_null_keys_count_as_rows():
    """A row that can match nothing still takes a place in the window."""
    left = pa.table({"lid": [0], "t": [9], "k": [0]})
    right = pa.table({"rid": [0, 1, 2], "t": [0, 1, 2], "k": [0, None, None]})
    got = tj.join(left, right, "l.k = r.k", window=tj.CountWindow(2), order_by="t")
    assert got.num_rows == 0
    got = tj.join(left, right, "l.k = r.k", window=tj.CountWindow(3), order_by="t")
    assert set(ids(got)) == {(0, 0)}


def test_filtered_rows_count_as_rows():
    left = pa.table({"lid": [0], "t": [9], "k": [0]})
    right = pa.table({"rid": [0, 1, 2], "t": [0, 1, 2], "k": [0, 0, 0], "f": [1, 0, 0]})
    on = "l.k = r.k AND r.f = 1"
    assert tj.join(left, right, on, window=tj.CountWindow(2), order_by="t").num_rows == 0
    assert tj.join(left, right, on, window=tj.CountWindow(3), order_by="t").num_rows == 1


def test_order_by_strings():
    left = pa.table({"lid": [0, 1], "t": ["b", "é"], "k": [0, 0]})
    right = pa.table({"rid": [0, 1], "t": ["a", "c"], "k": [0, 0]})
    # Arrival: r0 l0 r1 l1.
    got = tj.join(left, right, "l.k = r.k", window=tj.CountWindow(1), order_by="t")
    assert set(ids(got)) == {(0, 0), (0, 1), (1, 1)}


@pytest.mark.parametrize(
    ("left_type", "right_type"),
    [
        (pa.int8(), pa.int64()),
        (pa.int64(), pa.float64()),
        (pa.timestamp("s"), pa.timestamp("ns")),
        (pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us", "UTC")),
        (pa.date32(), pa.timestamp("us")),
        (pa.string(), pa.large_string()),
    ],
    ids=str,
)
def test_order_by_columns_of_two_types(left_type, right_type):
    def times(values, type_):
        if pa.types.is_date(type_):
            return pa.array(values, pa.int32()).cast(type_)
        if pa.types.is_timestamp(type_):
            unit = pa.timestamp(type_.unit, type_.tz)
            days = pa.array(values, pa.int32()).cast(pa.date32())
            return days.cast(pa.timestamp(type_.unit)).cast(pa.int64()).cast(unit)
        return pa.array(values).cast(type_)

    left = pa.table({"lid": [0, 1], "t": times([2, 5], left_type), "k": [0, 0]})
    right = pa.table({"rid": [0, 1, 2], "t": times([1, 2, 4], right_type), "k": [0, 0, 0]})
    # Arrival: r0 l0 r1 r2 l1.
    got = tj.join(left, right, "l.k = r.k", window=tj.CountWindow(1), order_by="t")
    assert set(ids(got)) == {(0, 0), (0, 1), (0, 2), (1, 2)}


# --- self-joins ----------------------------------------------------------------------------------

SELF = rows("id", {"a": nullable_ints, "c": nullable_ints, "t": TIMES}, max_size=14)
SELF_SCHEMA = {"id": pa.int64(), "a": pa.int64(), "c": pa.int64(), "t": pa.int64()}


def self_pairs(result):
    return sorted(zip(result["id"].to_pylist(), result["id_right"].to_pylist(), strict=True))


@own.examples(100)
@given(SELF, OPS, own.windows(), own.engine_options())
def test_self_join(table_rows, ops, windowed, options):
    got = tj.self_join(
        table(table_rows, SELF_SCHEMA),
        f"l.a {ops[0]} r.a AND l.c {ops[1]} r.c",
        window=windowed.window,
        order_by=windowed.order_by,
        **options,
    )
    expected = naive.naive_self_join(
        table_rows,
        naive.conj(("a", ops[0], "a"), ("c", ops[1], "c")),
        window=windowed.naive,
        order_by=windowed.order_by,
    )
    assert self_pairs(got) == sorted((l["id"], r["id"]) for l, r in expected)


@given(SELF)
def test_self_join_never_pairs_a_row_with_itself(table_rows):
    got = tj.self_join(table(table_rows, SELF_SCHEMA), "l.id <= r.id")
    n = len(table_rows)
    assert self_pairs(got) == [(i, j) for i in range(n) for j in range(i + 1, n)]


def test_self_join_of_equal_rows():
    """Equal rows are different rows: each pair is found in both roles."""
    same = pa.table({"id": [0, 1, 2], "k": [5, 5, 5]})
    assert self_pairs(tj.self_join(same, "l.k = r.k")) == [
        (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1),
    ]  # fmt: skip
    assert tj.self_join(same, "l.k < r.k").num_rows == 0


def test_self_join_columns():
    got = tj.self_join(pa.table({"id": [0, 1], "k": [1, 2]}), "l.k < r.k", suffix="_2")
    assert got.column_names == ["id", "k", "id_2", "k_2"]
    assert got.to_pylist() == [{"id": 0, "k": 1, "id_2": 1, "k_2": 2}]


def test_self_join_with_a_filter_and_a_residual():
    data = pa.table({"id": range(6), "k": [3, 1, 4, 1, 5, 9]})
    got = tj.self_join(data, "l.k < r.k AND l.k > 1 AND (l.k + r.k) % 2 = 0")
    k = data["k"].to_pylist()
    assert self_pairs(got) == sorted(
        (i, j)
        for i in range(6)
        for j in range(6)
        if k[i] < k[j] and k[i] > 1 and (k[i] + k[j]) % 2 == 0
    )
