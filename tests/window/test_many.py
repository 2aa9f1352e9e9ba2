"""A time window over more than two inputs: which of two inputs it is told from."""

from __future__ import annotations

import pyarrow as pa
import pytest

from thetajoin.errors import WindowError
from thetajoin.window.many_inputs import between, pair_window
from thetajoin.window.windows import TimeWindow

NAMES = ["a", "b", "c"]
ASYMMETRIC = TimeWindow(before="5 seconds", after="1 second", time="t")


def schemas(type_: pa.DataType) -> dict[str, pa.Schema]:
    return {name: pa.schema([("t", type_)]) for name in NAMES}


@pytest.mark.parametrize(
    ("window", "bounds"),
    [
        (ASYMMETRIC, (5, 1)),
        (TimeWindow("3 seconds", time="t"), (3, 3)),
        (TimeWindow(before="5 seconds", time="t"), (5, 0)),
        (TimeWindow(after="5 seconds", time="t"), (0, 5)),
    ],
)
def test_a_step_of_two_sees_the_window_from_the_input_given_first(
    window: TimeWindow, bounds: tuple[int, int]
) -> None:
    forwards = pair_window(window, "a", "c", NAMES)
    assert forwards.bounds("s") == bounds
    assert (forwards.left_time, forwards.right_time) == ("a.t", "c.t")
    backwards = pair_window(window, "c", "b", NAMES)
    assert backwards.bounds("s") == bounds[::-1]
    assert (backwards.left_time, backwards.right_time) == ("c.t", "b.t")


def test_the_condition_is_told_from_the_input_given_first() -> None:
    window = TimeWindow(before=5, after=1, time="t")
    plain = schemas(pa.int64())
    forwards, backwards = (between(window, first, "b", NAMES, plain) for first in ("a", "c"))
    assert forwards == "r.`b.t` BETWEEN l.`a.t` - 5 AND l.`a.t` + 1"
    assert backwards == "r.`b.t` BETWEEN l.`c.t` - 1 AND l.`c.t` + 5"


@pytest.mark.parametrize(
    ("type_", "length", "span"),
    [
        (pa.timestamp("us"), "1500 ms", "INTERVAL '1.5' SECOND"),
        (pa.timestamp("s"), "90 seconds", "INTERVAL '90' SECOND"),
        (pa.timestamp("ms"), "3 hours", "INTERVAL '3' HOUR"),
        (pa.duration("ns"), "7 ns", "INTERVAL '0.000000007' SECOND"),
        (pa.date32(), "2 days", "INTERVAL '2' DAY"),
    ],
)
def test_spans_are_in_the_unit_of_the_column(type_: pa.DataType, length: str, span: str) -> None:
    found = between(TimeWindow(length, time="t"), "a", "b", NAMES, schemas(type_))
    assert found == f"r.`b.t` BETWEEN l.`a.t` - {span} AND l.`a.t` + {span}"


def test_every_input_has_the_time_column() -> None:
    known = schemas(pa.int64()) | {"b": pa.schema([("other", pa.int64())])}
    with pytest.raises(WindowError, match="'t' is not in input 'b'"):
        between(TimeWindow(5, time="t"), "a", "b", NAMES, known)
    with pytest.raises(WindowError, match="'x' and 'y'"):
        pair_window(TimeWindow(5, time=("x", "y")), "a", "b", NAMES)
