"""Garbage for every argument ends in one line of ours, never in a traceback of someone else's."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import thetajoin as tj
from strategies import all_ids, ids

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


def refused(call: Any, *matches: str) -> None:
    with pytest.raises(tj.ThetaJoinError) as caught:
        call()
    assert_readable(caught.value)
    for match in matches:
        assert match in str(caught.value), str(caught.value)


@pytest.mark.parametrize("suffix", [None, 3, b"_r", ["_r"]])
def test_a_suffix_is_text(suffix: Any) -> None:
    refused(lambda: tj.join(TABLE, TABLE, ON, suffix=suffix), "suffix", "_right")
    refused(lambda: tj.StreamJoin(ON, window=tj.FullHistory(), suffix=suffix), "suffix")


DEEP = 3000
CONDITIONS = {
    "a whole number": f"l.a < r.a + {'9' * 100_000}",
    "a decimal number": f"l.a < r.a + 1.{'9' * 100_000}",
    "39 digits": f"l.a < r.a AND l.a < {'9' * 39}",
    "a precision": f"CAST(l.a AS DECIMAL({'9' * 5000}, 0)) < r.a",
    "an interval": "l.a < r.a AND INTERVAL '99999999999999999999' DAY > INTERVAL '1' DAY",
    "parentheses": "(" * DEEP + "l.a < r.a" + ")" * DEEP,
    "sums": "l.a" + " + 1" * DEEP + " < r.a",
    "sums that parse": "l.a" + " + 1" * 250 + " < r.a",
    "negations": "NOT " * DEEP + "(l.a < r.a)",
    "calls": "ABS(" * DEEP + "l.a" + ")" * DEEP + " < r.a",
    "cases": "CASE WHEN l.a < r.a THEN " * DEEP + "TRUE" + " END" * DEEP,
    "nested ands": "(l.a < r.a AND (l.a > r.a OR " * 800 + "l.a = r.a" + "))" * 800,
    "a half character": "l.a < r.\ud800",
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions_past_all_measure(name: str) -> None:
    on = CONDITIONS[name]
    refused(lambda: tj.join(TABLE, TABLE, on))
    refused(lambda: tj.join_many({"l": TABLE, "r": TABLE}, on))
    group = on.replace("r.", "l.")
    refused(lambda: tj.join_agg(TABLE, TABLE, ON, group_by=group, aggs={"n": "count(*)"}))


def test_integers_past_all_measure() -> None:
    refused(lambda: tj.join(TABLE, TABLE, (tj.l.a < tj.r.a) & (tj.l.a < 10**6000)), "38 digits")


def test_long_conditions_that_are_not_deep() -> None:
    assert tj.join(TABLE, TABLE, " AND ".join([ON] * 500)).num_rows == 1
    assert tj.join(TABLE, TABLE, [ON] * 500).num_rows == 1
    assert tj.join(TABLE, TABLE, "l.a" + " + 1" * 150 + " < r.a + 150").num_rows == 1


# --- types of columns ----------------------------------------------------------------------------


def runs(values: list[Any], type_: pa.DataType, ends: pa.DataType) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], ends), pa.array(values, type_))


@pytest.mark.parametrize("ends", [pa.int16(), pa.int32(), pa.int64()])
def test_run_end_encoded_columns(ends: pa.DataType) -> None:
    """They are joined as what they hold and come out as they came."""
    left = pa.table({"lid": [0, 1, 2], "k": runs([5, None], pa.int64(), ends)})
    right = pa.table(
        {
            "rid": [0, 1, 2],
            "k": runs([7, 3], pa.int64(), ends),
            "s": runs(["x", None], pa.string(), ends),
        }
    )
    for how in ("inner", "left", "full"):
        got = tj.join(left, right, "l.k < r.k", how=how)
        assert got.schema.types == [*left.schema.types, *right.schema.types]
        matched = [row for row in got.to_pylist() if row["lid"] == 0]
        assert matched == [{"lid": 0, "k": 5, "rid": 0, "k_right": 7, "s": "x"}]
    join = tj.StreamJoin("l.k < r.k", how="left", window=tj.CountWindow(9))
    first = join.push(left, right)
    join = tj.StreamJoin.restore(join.snapshot())
    found = all_ids([first, join.finish()])
    assert found == {(0, 0): 1, (1, None): 1, (2, None): 1}


PAYLOADS = {
    "dense union": pa.UnionArray.from_dense(
        pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([1]), pa.array(["a"])]
    ),
    "sparse union": pa.UnionArray.from_sparse(
        pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])]
    ),
    "list view": pa.array([[1], None], pa.list_view(pa.int64())),
    "dictionary of lists": pa.DictionaryArray.from_arrays(pa.array([0, None]), pa.array([[1]])),
    "month interval": pa.array([(1, 2, 3), None], pa.month_day_nano_interval()),
    "odd date64": pa.array([1, 2], pa.date64()),
    "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16] * 2, pa.binary(16))),
}


@pytest.mark.parametrize("name", PAYLOADS)
def test_odd_columns_pass_through(name: str) -> None:
    table = pa.table({"k": [1, 2], "v": PAYLOADS[name]})
    got = tj.join(table, table, "l.k <= r.k AND l.v IS NOT NULL", how="full")
    assert got.schema.field("v").type == PAYLOADS[name].type
    join = tj.StreamJoin("l.k < r.k", window=tj.CountWindow(9))
    join.push(table, table)
    assert tj.StreamJoin.restore(join.snapshot()).push(left=table).num_rows == 1


def test_odd_columns_have_no_order() -> None:
    for name in ("dense union", "sparse union", "list view", "dictionary of lists"):
        table = pa.table({"k": [1, 2], "v": PAYLOADS[name]})
        refused(lambda table=table: tj.join(table, table, "l.v < r.v"), "compare")


@pytest.mark.parametrize(
    "type_",
    [
        pa.struct({"x": pa.string_view()}),
        pa.list_(pa.string_view()),
        pa.struct({"x": pa.run_end_encoded(pa.int32(), pa.int64())}),
    ],
    ids=str,
)
def test_columns_whose_rows_cannot_be_picked(type_: pa.DataType) -> None:
    if type_.num_fields and pa.types.is_run_end_encoded(type_.field(0).type):
        column = pa.StructArray.from_arrays([runs([1, 2], pa.int64(), pa.int32())[:2]], ["x"])
    else:
        column = pa.nulls(2, type_)
    table = pa.table({"k": [1, 2], "v": column})
    refused(lambda: tj.join(table, TABLE, "l.k < r.a"), "'v'", "left")
    refused(lambda: tj.join(TABLE, table, "l.a < r.k"), "'v'", "right")


FRAMES: dict[str, Any] = {
    "objects of Polars": lambda: pl.DataFrame({"k": [1], "o": [object()]}),
    "objects of pandas": lambda: pd.DataFrame({"k": [1], "o": [object()]}),
    "mixed objects": lambda: pd.DataFrame({"k": [1, "x"]}),
    "integers past 64 bits": lambda: pd.DataFrame({"k": [1, 2], "o": [2**80, 1]}),
    "complex numbers": lambda: pd.DataFrame({"k": [1], "o": [1j]}),
    "sparse columns": lambda: pd.DataFrame({"k": pd.arrays.SparseArray([1, 2])}),
    "one name twice": lambda: pd.DataFrame([[1, 2]], columns=["k", "k"]),
    "one name twice as text": lambda: pd.DataFrame([[1, 2, 3]], columns=["k", 0, "0"]),
    "no columns": lambda: pd.DataFrame(),
    "no columns of Polars": lambda: pl.DataFrame(),
    "no columns of Arrow": lambda: TABLE.select([]),
}


@pytest.mark.parametrize("name", FRAMES)
def test_tables_that_cannot_be_joined(name: str) -> None:
    make = FRAMES[name]
    refused(lambda: tj.join(make(), TABLE, "l.k < r.a"))
    refused(lambda: tj.join(TABLE, make(), "l.a < r.k"))
    refused(lambda: tj.self_join(make(), "l.k < r.k"))
    refused(lambda: tj.join_many({"x": make(), "y": TABLE}, "x.k < y.a"))
    refused(lambda: tj.join_agg(make(), TABLE, "l.k < r.a", aggs={"n": "count(*)"}))
    refused(lambda: tj.StreamJoin("l.k < r.a", window=tj.FullHistory()).push(make(), TABLE))


def test_names_that_are_no_text_become_text() -> None:
    frame = pd.DataFrame({0: [1, 5], "rid": [0, 1]})
    got = tj.join(pa.table({"lid": [0], "a": [3]}), frame, "l.a < r.`0`")
    assert ids(got) == {(0, 1): 1}


# --- memory --------------------------------------------------------------------------------------

LITTLE = """
import resource
import pyarrow as pa
import thetajoin as tj
table = pa.table({"a": range(20_000), "b": range(20_000)})
tj.join(table[:100], table[:100], "l.a < r.a")
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (600 << 20),) * 2)
calls = {
    "join": lambda: tj.join(table, table, "l.a < r.a"),
    "batches": lambda: next(tj.join_batches(table, table, "l.a < r.a", chunk_rows=2**31 - 1)),
    "self": lambda: tj.self_join(table, "l.a < r.a"),
    "push": lambda: tj.StreamJoin("l.a < r.a", window=tj.FullHistory()).push(table, table),
}
for name, call in calls.items():
    try:
        call()
    except tj.ThetaJoinError as error:
        print(name, error)
print(tj.join(table[:100], table[:100], "l.a < r.a").num_rows)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit on memory is Linux's")
def test_too_little_memory() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", LITTLE], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    *told, last = done.stdout.splitlines()
    assert last == "4950"  # and goes on
    advice = {
        "join": "join_batches",
        "batches": "chunk_rows",
        "self": "join_batches",
        "push": "push",
    }
    assert [line.split()[0] for line in told] == list(advice)
    for line in told:
        name = line.split()[0]
        assert "not enough memory" in line
        assert advice[name] in line
