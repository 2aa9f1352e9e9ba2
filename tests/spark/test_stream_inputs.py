"""Mistakes are reported by the call itself, in one line that says what would be right."""

from __future__ import annotations

from typing import Any

import pytest

import naive
import thetajoin as tj
from spark.harness import Streams, at
from thetajoin import ThetaJoinError

pytestmark = [pytest.mark.spark]

ON = "l.a < r.b"
TIME_WINDOW = tj.TimeWindow("10 seconds", time="t")


@pytest.fixture
def made(streams: Streams) -> Streams:
    streams.push(
        naive.Push(
            [{"lid": 0, "a": 0, "c": 0, "t": at(0)}],
            [{"rid": 0, "b": 1, "d": 0, "t": at(0)}],
        )
    )
    return streams


def test_windows(made: Streams) -> None:
    left, right = made.both()
    marked = made.both("5 seconds")
    cases: list[tuple[Any, Any, dict[str, Any], list[str]]] = [
        (left, right, {}, ["TimeWindow", "CountWindow", "FullHistory"]),
        (left, right, {"window": tj.CountWindow(5)}, ["order_by"]),
        (left, right, {"window": TIME_WINDOW}, ["left", "withWatermark('t'"]),
        (marked[0], right, {"window": TIME_WINDOW}, ["right", "withWatermark('t'"]),
        (left, marked[1], {"window": TIME_WINDOW}, ["left", "withWatermark('t'"]),
        (*marked, {"window": tj.TimeWindow("1 s", time="u")}, ["'u'", "left", "lid"]),
        (*marked, {"window": tj.TimeWindow("1 s", time=("t", "u"))}, ["'u'", "right", "rid"]),
        (*marked, {"window": tj.TimeWindow(5, time="t")}, ["5", "no unit"]),
        (left, right, {"window": tj.FullHistory(), "units": 0}, ["units", "0"]),
        (left, right, {"window": tj.FullHistory(), "units": True}, ["units"]),
        (left, right, {"window": tj.FullHistory(), "unit": 2}, ["unit"]),
        (left, right, {"window": tj.FullHistory(), "how": "sideways"}, ["sideways"]),
        (
            left,
            right,
            {"window": tj.CountWindow(5), "order_by": ("t", "z")},
            ["'z'", "right"],
        ),
        (*marked, {"window": TIME_WINDOW, "how": "full", "units": 2}, ["full", "units=1"]),
        *(
            (left, right, {"window": tj.FullHistory(), "how": how}, ["FullHistory", how])
            for how in ("left", "right", "full", "anti")
        ),
    ]
    for l, r, options, words in cases:
        with pytest.raises(ThetaJoinError) as caught:
            tj.join(l, r, ON, **options)
        text = str(caught.value)
        assert "\n" not in text
        assert [word for word in words if word not in text] == [], (options, text)


@pytest.mark.parametrize(
    ("on", "words"),
    [
        ("l.x < r.b", ["x", "left"]),
        ("l.a < r.zz", ["zz", "right"]),
        ("1 = 1", []),
        ("l.a < r.t", ["BIGINT", "TIMESTAMP"]),
        ("l.a <", []),
    ],
)
def test_conditions(made: Streams, on: str, words: list[str]) -> None:
    with pytest.raises(ThetaJoinError) as caught:
        tj.join(*made.both(), on, window=tj.FullHistory())
    text = str(caught.value)
    assert [word for word in words if word not in text] == [], text


def test_names_with_odd_characters(made: Streams) -> None:
    left, right = made.both()
    left = left.withColumnRenamed("a", "an `odd` na.me").withColumnRenamed("c", "rid")
    df = tj.join(left, right, "l.`an ``odd`` na.me` < r.b", window=tj.FullHistory())
    assert df.columns == ["lid", "an `odd` na.me", "rid", "t", "rid_right", "b", "d", "t_right"]
    assert made.run(df).rows.num_rows == 1


def test_the_state_store_is_the_users_to_choose(made: Streams) -> None:
    from thetajoin.spark.session import PROVIDER, ROCKSDB

    made.spark.conf.unset(PROVIDER)
    try:
        with pytest.raises(ThetaJoinError, match=r"spark\.conf\.set") as caught:
            tj.join(*made.both(), ON, window=tj.FullHistory())
        assert PROVIDER in str(caught.value)
        assert ROCKSDB in str(caught.value)
        assert made.spark.conf.get(PROVIDER, "") != ROCKSDB, "it is not set behind their back"
    finally:
        made.spark.conf.set(PROVIDER, ROCKSDB)
