"""Windows as configurations: what they accept, what they mean, and their round trip."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from datetime import timedelta
from math import ceil

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetajoin.errors import ThetaJoinError, WindowError
from thetajoin.window import CountWindow, FullHistory, TimeWindow, window_from_dict

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("length", "ns"),
    [
        ("10 minutes", 600 * SECOND),
        ("1 minute", 60 * SECOND),
        ("1 hour 30 minutes", 5400 * SECOND),
        ("500 ms", SECOND // 2),
        ("500ms", SECOND // 2),
        ("2 days", 2 * 86400 * SECOND),
        ("1 week", 7 * 86400 * SECOND),
        ("3 us", 3000),
        ("3 µs", 3000),
        ("7 ns", 7),
        ("1.5 seconds", 1_500_000_000),
        ("0.1 s", SECOND // 10),
        ("INTERVAL 5 Minutes", 300 * SECOND),
        ("  5   sec ", 5 * SECOND),
        ("1 hour -30 minutes", 1800 * SECOND),
        (timedelta(minutes=10), 600 * SECOND),
        (timedelta(days=1, microseconds=3), 86400 * SECOND + 3000),
        (pd.Timedelta(1_000_000_007, "ns"), 1_000_000_007),
        (np.timedelta64(5, "m"), 300 * SECOND),
        (np.timedelta64(5, "ns"), 5),
        (np.timedelta64(2, "15s"), 30 * SECOND),
    ],
)
def test_lengths_with_a_unit(length, ns):
    assert TimeWindow(length, time="ts").bounds("ns") == (ns, ns)


def test_length_is_the_first_positional_argument():
    assert TimeWindow("1 s", time="ts") == TimeWindow(length="1 second", time=("ts", "ts"))
    with pytest.raises(TypeError):
        TimeWindow("1 s", "ts")


def test_time_columns():
    one = TimeWindow("1 s", time="ts")
    assert (one.left_time, one.right_time) == ("ts", "ts")
    two = TimeWindow("1 s", time=("a", "b"))
    assert (two.left_time, two.right_time) == ("a", "b")
    assert TimeWindow("1 s", time=["a", "b"]) == two


def test_before_and_after():
    window = TimeWindow(before="5 minutes", after="1 minute", time="ts")
    assert window.bounds("s") == (300, 60)
    assert TimeWindow(before="5 minutes", time="ts").bounds("s") == (300, 0)
    assert TimeWindow(after="5 minutes", time="ts").bounds("s") == (0, 300)
    assert TimeWindow(before=0, after="5 minutes", time="ts").bounds("s") == (0, 300)
    assert TimeWindow(before="5 minutes", after=0, time="ts").bounds("s") == (300, 0)


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("ns", 129_600 * SECOND),
        ("us", 129_600_000_000),
        ("ms", 129_600_000),
        ("s", 129_600),
        ("day", 1),
    ],
)
def test_units(unit, expected):
    assert TimeWindow("36 hours", time="ts").bounds(unit) == (expected, expected)


@given(st.integers(1, 5_000), st.integers(-20, 20), st.integers(-20, 20))
def test_rounding_down_to_the_unit_keeps_the_same_pairs(ms, left_s, right_s):
    before, after = TimeWindow(f"{ms} ms", time="ts").bounds("s")
    exact = abs(left_s - right_s) * 1000 <= ms
    assert (left_s - before <= right_s <= left_s + after) == exact


def test_plain_numbers_are_for_integer_columns():
    assert TimeWindow(10, time="ts").bounds(None) == (10, 10)
    assert TimeWindow(np.int32(10), time="ts").bounds(None) == (10, 10)
    assert TimeWindow(before=3, time="ts").bounds(None) == (3, 0)
    with pytest.raises(WindowError, match="no unit"):
        TimeWindow(10, time="ts").bounds("us")
    with pytest.raises(WindowError, match="plain integer"):
        TimeWindow("10 minutes", time="ts").bounds(None)
    with pytest.raises(WindowError, match="differ in kind"):
        TimeWindow(before=3, after="1 s", time="ts")


def test_longest_window():
    assert TimeWindow(2**63 - 1, time="ts").bounds(None) == (2**63 - 1, 2**63 - 1)
    with pytest.raises(WindowError, match=f"length {2**63} does not fit into 64 bits"):
        TimeWindow(2**63, time="ts").bounds(None)
    century = TimeWindow("200000 days", time="ts")
    assert century.bounds("us") == (200_000 * 86_400_000_000,) * 2
    with pytest.raises(WindowError, match="'200000 days' does not fit into 64 bits"):
        century.bounds("ns")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 0}, "l.ts = r.ts"),
        ({"length": "0 seconds"}, "l.ts = r.ts"),
        ({"length": "0 seconds"}, "1 microsecond"),
        ({"length": timedelta(0)}, "l.ts = r.ts"),
        ({"before": 0, "after": 0}, "l.ts = r.ts"),
        ({"length": -1}, "negative"),
        ({"length": "-10 minutes"}, "negative"),
        ({"length": timedelta(seconds=-1)}, "negative"),
        ({"before": "-1 s", "after": "1 s"}, "before .*negative"),
        ({"before": "1 s", "after": "-1 s"}, "after .*negative"),
        ({"length": "ten minutes"}, "number and a unit"),
        ({"length": "10"}, "no unit"),
        ({"length": ""}, "empty"),
        ({"length": "10 minutes 5"}, "no unit"),
        ({"length": "10 fortnights"}, "unknown unit 'fortnights'"),
        ({"length": "1 month"}, "unknown unit 'month'"),
        ({"length": "0.1 ns"}, "whole number of nanoseconds"),
        ({"length": 1.5}, "float"),
        ({"length": True}, "bool"),
        ({"length": np.timedelta64("NaT")}, "is a timedelta64"),
        ({"length": np.timedelta64("NaT", "s")}, "is a timedelta64"),
        ({"length": np.timedelta64(5)}, "is a timedelta64"),
        ({"length": np.timedelta64(1, "M")}, "timedelta64"),
        ({}, "needs a length"),
        ({"length": "1 s", "before": "1 s"}, "not both"),
        ({"length": "1 s", "time": None}, "needs a time column"),
        ({"length": "1 s", "time": ""}, "column name or a pair"),
        ({"length": "1 s", "time": ("a", "b", "c")}, "column name or a pair"),
        ({"length": "1 s", "time": 3}, "column name or a pair"),
    ],
)
def test_bad_time_windows(arguments, message):
    with pytest.raises(WindowError, match=message) as caught:
        TimeWindow(**{"time": "ts"} | arguments)
    assert isinstance(caught.value, ThetaJoinError)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("time", "named"), [("ts", "column 'ts' holds"), (("a", "b"), "column 'a' / 'b' holds")]
)
def test_errors_name_the_time_columns(time, named):
    with pytest.raises(WindowError, match=named):
        TimeWindow(10, time=time).bounds("us")


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (timedelta(days=1, hours=2), "1 day 2 hours"),
        (timedelta(days=2, hours=1, minutes=1), "2 days 1 hour 1 minute"),
        (timedelta(seconds=1, milliseconds=500, microseconds=1), "1 second 500 ms 1 us"),
        (timedelta(seconds=59), "59 seconds"),
    ],
)
def test_a_length_is_told_as_a_person_would(length, text):
    assert TimeWindow(length, time="ts").length == text


def test_the_largest_count_window():
    assert CountWindow(2**63 - 1, slide=2**63 - 1).size == 2**63 - 1


@pytest.mark.parametrize("bad", [0, -1, True, 1.0, "10", None, 2**63])
@pytest.mark.parametrize("name", ["size", "slide"])
def test_bad_count_windows(name, bad):
    with pytest.raises(WindowError, match=f"{name} must be a whole number") as caught:
        CountWindow(**{"size": 5, "slide": 1} | {name: bad})
    assert "\n" not in str(caught.value)


def test_count_window_by_hand():
    # size 4, slide 2: with 5 rows one is too many, and a whole slide of two goes.
    assert [CountWindow(4, 2).first_visible(n) for n in range(10)] == [0, 0, 0, 0, 0, 2, 2, 4, 4, 6]
    # slide 1 is the plain sliding window.
    assert [CountWindow(3, 1).first_visible(n) for n in range(7)] == [0, 0, 0, 0, 1, 2, 3]
    # slide = size is tumbling: everything goes at once.
    assert [CountWindow(3, 3).first_visible(n) for n in range(8)] == [0, 0, 0, 0, 3, 3, 3, 6]
    # A slide above the size leaves gaps in which nothing is seen.
    assert [CountWindow(2, 5).first_visible(n) for n in range(9)] == [0, 0, 0, 5, 5, 5, 5, 5, 10]


@given(st.lists(st.integers(0, 10**12)), st.integers(1, 10**6), st.integers(1, 10**6))
def test_first_visible_of_arrays_and_of_numbers(counts, size, slide):
    array = CountWindow(size, slide).first_visible(np.array(counts, dtype=np.int64))
    assert array.dtype == np.int64
    for n, first in zip(counts, array.tolist(), strict=True):
        assert first == CountWindow(size, slide).first_visible(n)
        assert first == slide * ceil(max(0, n - size) / slide)
        assert first % slide == 0
        assert n - first <= size


def test_first_visible_at_the_extremes():
    most = 2**63 - 1
    array = np.array([0, 5, most], dtype=np.int64)
    assert CountWindow(most, most).first_visible(array).tolist() == [0, 0, 0]
    assert CountWindow(5, 1).first_visible(array).tolist() == [0, 0, most - 5]
    assert CountWindow(4, most).first_visible(array[:2]).tolist() == [0, most]


@pytest.mark.parametrize(
    "window",
    [
        TimeWindow("10 minutes", time="ts"),
        TimeWindow(timedelta(seconds=90, microseconds=1), time=("a", "b")),
        TimeWindow(pd.Timedelta(3, "ns"), time="ts"),
        TimeWindow(before="5 minutes", after=timedelta(hours=1), time="ts"),
        TimeWindow(before=5, time="ts"),
        TimeWindow(7, time="n"),
        CountWindow(10),
        CountWindow(np.int64(10), slide=np.int64(3)),
        FullHistory(),
    ],
    ids=repr,
)
def test_round_trip_through_json(window):
    again = window_from_dict(json.loads(json.dumps(window.to_dict())))
    assert again == window
    assert hash(again) == hash(window)
    assert repr(again) == repr(window)


@pytest.mark.parametrize(
    "data", [{}, {"kind": "tumbling"}, {"kind": "count"}, {"kind": "count", "size": 0, "slide": 1}]
)
def test_foreign_descriptions_are_refused(data):
    with pytest.raises(WindowError):
        window_from_dict(data)


def test_windows_are_frozen_values():
    window = TimeWindow("60 seconds", time="ts")
    assert window == TimeWindow("1 minute", time="ts")
    assert len({window, TimeWindow("1 minute", time="ts")}) == 1
    assert window != TimeWindow("1 minute", time="other")
    assert window != TimeWindow("61 seconds", time="ts")
    with pytest.raises(FrozenInstanceError):
        window.length = "2 minutes"


def test_representation_is_what_was_written():
    assert repr(TimeWindow("10 minutes", time="ts")) == "TimeWindow('10 minutes', time='ts')"
    asymmetric = TimeWindow(before="1 s", after=timedelta(days=2), time=("a", "b"))
    assert repr(asymmetric) == "TimeWindow(before='1 s', after='2 days', time=('a', 'b'))"
    assert repr(TimeWindow(5, time="n")) == "TimeWindow(5, time='n')"
