"""Garbage for every argument ends in one line of ours, never in a traceback of someone else's."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import thetajoin as tj

TABLE = pa.table({"a": [1, 2], "b": [3, 4], "t": [1, 2]})
ON = "l.a < r.a"


class Rude:
    """Something that cannot even be printed."""

    def __str__(self) -> str:
        raise ZeroDivisionError


JUNK: list[Any] = [
    None, True, 0, -1, 2**70, 2.5, float("nan"), "", "x", "\x00", "\ud800", b"x", [], ["x"], [None],
    (), ("a",), ("a", "b", "c"), ("a", 3), {}, {"a": 1}, {1: 2}, set(), object(), int, np.zeros(2),
    np.int64(3), pd.Series([1]), pa.array([1]), pa.schema({}), TABLE, Decimal(1), dt.timedelta(1),
    range(3), tj.l, tj.l.a, tj.l.a < tj.r.a, "a" * 100_000, "('" * 500, slice(1), Rude(),
]  # fmt: skip


def pushed(**arguments: Any) -> Any:
    return tj.StreamJoin(**arguments).push(TABLE, TABLE)


def advanced(watermark: Any) -> None:
    window = tj.TimeWindow(3, time="t")
    schemas = {"left_schema": TABLE.schema, "right_schema": TABLE.schema}
    tj.StreamJoin(ON, window=window, **schemas).advance(watermark)


def compared(value: Any) -> Any:
    near = tj.l.b.between(value, 3) & tj.l.b.isin(value) & (tj.l.a < value)
    return tj.join(TABLE, TABLE, (tj.l.a < tj.r.a) & near)


BOTH = {"left": TABLE, "right": TABLE, "on": ON}
TWO = {"inputs": {"r": TABLE, "s": TABLE}, "on": "r.a < s.a"}
OPTIONS = ["threads", "chunk_rows", "head_rows", "merge", "index", "index_options", "nonsense"]
SIDES = ["left", "right", "on", "how", "window", "order_by", "suffix"]
STREAM = {"on": ON, "window": tj.FullHistory()}
CALLS: dict[str, tuple[Any, dict[str, Any], list[str]]] = {
    "join": (tj.join, BOTH, [*SIDES, *OPTIONS]),
    "join_batches": (lambda **k: list(tj.join_batches(**k)), BOTH, SIDES),
    "self_join": (tj.self_join, {"df": TABLE, "on": ON}, ["df", *SIDES[2:3], *SIDES[4:]]),
    "join_many": (tj.join_many, TWO, ["inputs", "on", "window", "order_by", "threads"]),
    "join_agg": (
        tj.join_agg,
        BOTH | {"aggs": {"n": "count(*)"}},
        ["left", "right", "on", "group_by", "aggs", "window", "order_by", "index"],
    ),
    "explain": (tj.explain, BOTH, [*SIDES, "group_by", "aggs"]),
    "StreamJoin": (pushed, STREAM, [*SIDES[2:], "left_schema", "right_schema", *OPTIONS]),
    "push": (
        lambda **k: tj.StreamJoin(ON, window=tj.FullHistory()).push(**k),
        {"left": TABLE, "right": TABLE},
        ["left", "right"],
    ),
    "advance": (advanced, {}, ["watermark"]),
    "restore": (tj.StreamJoin.restore, {}, ["data"]),
    "TimeWindow": (tj.TimeWindow, {"length": "3 s", "time": "t"}, ["length", "time"]),
    "before": (tj.TimeWindow, {"before": "3 s", "time": "t"}, ["before", "after"]),
    "CountWindow": (tj.CountWindow, {"size": 3}, ["size", "slide"]),
    "column": (lambda name: tj.join(TABLE, TABLE, tj.l[name] < tj.r.a), {}, ["name"]),
    "constant": (compared, {}, ["value"]),
    "cast": (lambda value: tj.join(TABLE, TABLE, tj.l.a.cast(value) < tj.r.a), {}, ["value"]),
}


@pytest.mark.parametrize(
    ("name", "argument"), [(name, arg) for name, call in CALLS.items() for arg in call[2]]
)
def test_arguments(name: str, argument: str) -> None:
    call, arguments, _ = CALLS[name]
    for junk in JUNK:
        try:
            call(**arguments | {argument: junk})
        except tj.ThetaJoinError as error:
            assert_readable(error)


def assert_readable(error: Exception) -> None:
    message = str(error)
    assert message
    assert "\n" not in message
    assert len(message) < 2000
    message.encode()
