"""A user's mistakes: one clear line each, and an operator that has lost nothing by them."""

from __future__ import annotations

from datetime import date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

import thetajoin as tj
from strategies import all_ids, ids

LEFT = pa.table({"lid": [0, 1], "rp": [1, 5], "name": ["x", "y"], "ok": [True, False], "t": [0, 1]})
RIGHT = pa.table(
    {"rid": [0, 1], "rp": [3, 9], "cp": [1.5, 2.5], "when": pa.array([0, 1], pa.date32())}
)


def refused(call, *matches):
    """The error's text, after checking that it is ours and one line."""
    with pytest.raises(tj.ThetaJoinError) as caught:
        call()
    message = str(caught.value)
    assert message
    assert "\n" not in message
    for match in matches:
        assert match in message, message
    return message


CONDITIONS = {
    "unknown left column": ("l.rq < r.rp", ["rq", "rp"]),
    "unknown right column": ("l.rp < r.pc", ["pc", "cp"]),
    "column of the other side": ("l.cp < r.rp", ["cp"]),
    "unknown alias": ("x.rp < r.rp", ["x"]),
    "unknown function": ("frobnicate(l.rp) < r.rp", ["frobnicate"]),
    "number against boolean": ("l.ok < r.rp", ["l.ok"]),
    "number against date": ("l.rp < r.when", ["r.when"]),
    "arithmetic on text": ("l.name - 1 < r.when", ["name"]),
    "left side only": ("l.rp < 3", []),
    "left side only, two columns": ("l.rp < l.lid", []),
    "right side only": ("r.rp > 0 AND r.cp < 2", []),
    "constant": ("1 < 2", []),
    "true": ("TRUE", []),
    "not a condition": ("l.rp + r.rp", []),
    "empty": ("", []),
    "blank": ("   ", []),
    "unfinished": ("l.rp <", []),
    "unbalanced": ("(l.rp < r.rp", []),
    "two statements": ("l.rp < r.rp; DROP TABLE x", []),
    "a query": ("SELECT 1", []),
    "garbage": ("l.rp <<>> r.rp !!", []),
    "aggregate": ("MAX(l.rp) < r.rp", []),
    "subquery": ("l.rp < (SELECT MAX(rp) FROM r)", []),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_bad_conditions(name):
    on, matches = CONDITIONS[name]
    refused(lambda: tj.join(LEFT, RIGHT, on), *matches)
    refused(lambda: tj.explain(LEFT, RIGHT, on), *matches)
    refused(
        lambda: tj.StreamJoin(
            on, window=tj.FullHistory(), left_schema=LEFT.schema, right_schema=RIGHT.schema
        ),
        *matches,
    )


@pytest.mark.parametrize("on", [None, 3, [], [3], {"l.rp": "r.rp"}, b"l.rp < r.rp", True])
def test_conditions_that_are_no_conditions(on):
    refused(lambda: tj.join(LEFT, RIGHT, on))


def test_join_batches_reports_mistakes_at_the_call():
    refused(lambda: tj.join_batches(LEFT, RIGHT, "l.rq < r.rp"), "rq")
    refused(lambda: tj.join_batches(LEFT, RIGHT, "l.rp < r.rp", how="sideways"), "sideways")


def test_built_expressions_have_no_truth_value():
    """`and` and chained comparisons would silently drop half of the condition."""
    with pytest.raises((TypeError, tj.ThetaJoinError)):
        tj.join(LEFT, RIGHT, (tj.l.rp < tj.r.rp) and (tj.l.lid < tj.r.rid))
    with pytest.raises((TypeError, tj.ThetaJoinError)):
        tj.join(LEFT, RIGHT, tj.l.lid < tj.l.rp < tj.r.rp)


@pytest.mark.parametrize(
    "make",
    [
        lambda: tj.TimeWindow(0, time="t"),
        lambda: tj.CountWindow(0),
        lambda: tj.TimeWindow("-1 s", time="t"),
        lambda: tj.CountWindow(-5),
        lambda: tj.CountWindow(5, slide=0),
    ],
)
def test_negative_and_zero_windows(make):
    refused(make)


@pytest.mark.parametrize("window", ["10 minutes", 10, timedelta(1), object()])
def test_windows_that_are_no_windows(window):
    refused(lambda: tj.join(LEFT, RIGHT, "l.rp < r.rp", window=window), "TimeWindow")
    refused(lambda: tj.StreamJoin("l.rp < r.rp", window=window), "TimeWindow")


def test_a_stream_needs_a_window():
    message = refused(lambda: tj.StreamJoin("l.rp < r.rp", window=None))
    for choice in ("TimeWindow", "CountWindow", "FullHistory"):
        assert choice in message


@pytest.mark.parametrize("how", ["left", "right", "full", "anti"])
def test_full_history_never_gives_unmatched_rows_of_a_stream(how):
    refused(lambda: tj.StreamJoin("l.rp < r.rp", how=how, window=tj.FullHistory()), how)


@pytest.mark.parametrize(
    ("window", "matches"),
    [
        (tj.TimeWindow(3, time="when"), ["when"]),
        (tj.TimeWindow(3, time=("t", "nope")), ["nope"]),
        (tj.TimeWindow("3 s", time=("t", "rid")), []),
        (tj.TimeWindow(3, time=("name", "rp")), []),
        (tj.TimeWindow(3, time=("t", "cp")), []),
        (tj.TimeWindow("1 day", time=("t", "when")), []),
    ],
    ids=repr,
)
def test_windows_over_unfit_columns(window, matches):
    refused(lambda: tj.join(LEFT, RIGHT, "l.rp < r.rp", window=window), *matches)


@pytest.mark.parametrize(
    "order_by", ["nope", ("t", "nope"), ("nope", "rid"), ("t", "when"), 3, ("t",)]
)
def test_bad_order_by(order_by):
    refused(
        lambda: tj.join(LEFT, RIGHT, "l.rp < r.rp", window=tj.CountWindow(3), order_by=order_by)
    )


@pytest.mark.parametrize(
    "options",
    [
        {"thread": 2},
        {"threads": -1},
        {"threads": 1.5},
        {"threads": True},
        {"chunk_rows": 0},
        {"chunk_rows": "many"},
        {"shards": 3},
    ],
)
def test_bad_options(options):
    name = next(iter(options))
    refused(lambda: tj.join(LEFT, RIGHT, "l.rp < r.rp", **options), name)
    refused(lambda: tj.StreamJoin("l.rp < r.rp", window=tj.FullHistory(), **options), name)


@pytest.mark.parametrize("bad", [None, 3, [1, 2], {"rp": [1]}, "table", np.zeros(3)])
def test_inputs_that_are_no_tables(bad):
    refused(lambda: tj.join(bad, RIGHT, "l.rp < r.rp"), "left")
    refused(lambda: tj.join(LEFT, bad, "l.rp < r.rp"), "right")


def test_repeated_column_names():
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["rp", "rp"])
    refused(lambda: tj.join(twice, RIGHT, "l.rp < r.rp"), "rp")


def test_a_suffix_that_does_not_help():
    left = pa.table({"rp": [1], "rp_right": [2]})
    refused(lambda: tj.join(left, RIGHT, "l.rp < r.rp"), "rp_right", "suffix")


def test_empty_tables_are_no_mistake():
    for how in ("inner", "left", "right", "full", "semi", "anti"):
        got = tj.join(LEFT.slice(0, 0), RIGHT.slice(0, 0), "l.rp < r.rp", how=how)
        assert got.num_rows == 0
        assert "rp" in got.column_names


def test_keys_that_are_all_null_are_no_mistake():
    nulls = pa.table({"lid": [0, 1], "rp": pa.nulls(2, pa.int64())})
    assert tj.join(nulls, RIGHT, "l.rp < r.rp").num_rows == 0
    assert ids(tj.join(nulls, RIGHT, "l.rp < r.rp", how="left")) == {(0, None): 1, (1, None): 1}


# --- an operator survives ------------------------------------------------------------------------


def lefts(*values, first=0):
    return pa.table({"lid": range(first, first + len(values)), "a": values, "t": [0] * len(values)})


def rights(*values, first=0):
    return pa.table({"rid": range(first, first + len(values)), "b": values, "t": [0] * len(values)})


BAD_PUSHES = {
    "another type": {"left": lefts(1).set_column(1, "a", pa.array(["1"]))},
    "a wider type": {"left": lefts(1).set_column(1, "a", pa.array([1.0]))},
    "a missing column": {"left": lefts(1).drop_columns("a")},
    "one column more": {"left": lefts(1).append_column("more", pa.array([1]))},
    "another name": {"left": lefts(1).rename_columns(["lid", "A", "t"])},
    "no table": {"left": [1, 2, 3]},
    "bad right, good left": {"left": lefts(2, first=7), "right": rights(1).drop_columns("b")},
    "good right, bad left": {"left": 7, "right": rights(1, first=7)},
}


@pytest.mark.parametrize(
    "window", [tj.FullHistory(), tj.CountWindow(100), tj.TimeWindow(5, time="t")], ids=repr
)
@pytest.mark.parametrize("name", BAD_PUSHES)
def test_a_bad_push_changes_nothing(name, window):
    join = tj.StreamJoin("l.a < r.b", window=window)
    results = [join.push(lefts(1, 5), rights(3))]
    stats = join.stats
    refused(lambda: join.push(**BAD_PUSHES[name]))
    assert join.stats == stats
    results.append(join.push(lefts(2, first=2), rights(9, first=1)))
    assert all_ids(results) == {(0, 0): 1, (0, 1): 1, (1, 1): 1, (2, 0): 1, (2, 1): 1}


def test_a_bad_first_push_changes_nothing():
    join = tj.StreamJoin("l.a < r.b", window=tj.FullHistory())
    refused(lambda: join.push(left=lefts(1).drop_columns("a"), right=rights(3)), "a")
    got = join.push(lefts(1), rights(3))
    assert ids(got) == {(0, 0): 1}


def test_the_same_columns_in_another_order_are_the_same():
    join = tj.StreamJoin("l.a < r.b", window=tj.FullHistory())
    join.push(lefts(1))
    got = [join.push(lefts(2, first=1).select(["t", "a", "lid"])), join.push(right=rights(9))]
    assert all_ids(got) == {(0, 0): 1, (1, 0): 1}


@pytest.mark.parametrize(
    ("on", "bad"),
    [
        ("10 / l.a < r.b", {"left": lefts(0, first=9)}),
        ("CAST(l.a AS TINYINT) < r.b", {"left": lefts(1000, first=9)}),
        ("l.a * 4611686018427387904 < r.b", {"left": lefts(8, first=9)}),
    ],
)
def test_a_value_the_condition_cannot_take(on, bad):
    """Spark in ANSI mode stops on these; the rows pushed with them are not taken in."""
    join = tj.StreamJoin(on, window=tj.FullHistory())
    join.push(lefts(1), rights(100))
    stats = join.stats
    refused(lambda: join.push(**bad))
    assert join.stats == stats
    got = join.push(right=rights(2**62, first=1))
    assert {lid for lid, _ in ids(got)} <= {0}


WATERMARKS = ["soon", datetime(2024, 1, 1), date(2024, 1, 1), None, 1.5, object()]


@pytest.mark.parametrize("watermark", WATERMARKS, ids=lambda w: type(w).__name__)
def test_a_watermark_of_the_wrong_kind(watermark):
    join = tj.StreamJoin("l.a < r.b", window=tj.TimeWindow(5, time="t"))
    join.push(lefts(1), rights(3))
    refused(lambda: join.advance(watermark), "watermark")
    join.advance(0)
    assert join.push(lefts(1, first=1)).num_rows == 1


@pytest.mark.parametrize("watermark", WATERMARKS, ids=lambda w: type(w).__name__)
def test_a_watermark_of_the_wrong_kind_before_any_row(watermark):
    """Whether it is refused at once or when the schemas are known, the join can go on."""
    join = tj.StreamJoin("l.a < r.b", window=tj.TimeWindow(5, time="t"))
    join.push(lefts(1))
    try:
        join.advance(watermark)
    except tj.ThetaJoinError:
        pass
    else:
        refused(lambda: join.push(right=rights(3)), "watermark")
    assert ids(join.push(right=rights(3))) == {(0, 0): 1}


def test_advance_needs_a_time_window():
    join = tj.StreamJoin("l.a < r.b", window=tj.CountWindow(5))
    refused(lambda: join.advance(3), "TimeWindow")


def test_a_finished_join_takes_nothing_more():
    join = tj.StreamJoin("l.a < r.b", window=tj.FullHistory())
    join.push(lefts(1), rights(3))
    join.finish()
    refused(lambda: join.push(lefts(1)), "finish")
    refused(join.finish, "finish")


# --- snapshots -----------------------------------------------------------------------------------


def saved():
    join = tj.StreamJoin("l.a < r.b", how="full", window=tj.TimeWindow(5, time="t"))
    join.push(lefts(1, 5), rights(3))
    return join.snapshot()


@pytest.mark.parametrize(
    "data",
    [b"", b"thetajoin", b"\x80\x04N.", b"x" * 1000, b"PK\x03\x04" + bytes(100), "text", None],
)
def test_foreign_snapshots(data):
    refused(lambda: tj.StreamJoin.restore(data), "snapshot")


def test_damaged_snapshots():
    data = saved()
    assert ids(tj.StreamJoin.restore(data).push(right=rights(9, first=1))) == {(0, 1): 1, (1, 1): 1}
    for cut in (1, len(data) // 2, len(data) - 1):
        refused(lambda cut=cut: tj.StreamJoin.restore(data[:cut]), "snapshot")
    refused(lambda: tj.StreamJoin.restore(data + b"\x00"), "snapshot")
    for place in range(0, len(data), max(1, len(data) // 200)):
        damaged = bytearray(data)
        damaged[place] ^= 0x40
        refused(lambda damaged=damaged: tj.StreamJoin.restore(bytes(damaged)), "snapshot")


def test_time_columns_that_only_seem_to_fit():
    left = pa.table({"a": [1], "t": [datetime(2024, 1, 1)]})
    right = pa.table({"b": [2], "t": [date(2024, 1, 1)]})
    refused(lambda: tj.join(left, right, "l.a < r.b", window=tj.TimeWindow(5, time="t")), "unit")
