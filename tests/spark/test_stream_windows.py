"""Streaming joins on Spark give what the oracle gives: all windows, all kinds of join."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import naive
import thetajoin as tj
from spark.harness import (
    CLOSING,
    Streams,
    at,
    closing,
    distinct_times,
    expected,
    random_batches,
    seconds,
    with_watermarks,
)
from strategies import HOWS

pytestmark = [pytest.mark.spark]

ON = "l.a < r.b AND l.c >= r.d"
PRED = naive.conj(("a", "<", "b"), ("c", ">=", "d"))
FAST = [0]
SLOW = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6)]


def units_of(how: str, seed: int) -> int:
    """Any number of units; a full join has one."""
    return 1 if how == "full" else 1 + seed % 3


def time_window(seed: int) -> tuple[tj.TimeWindow, naive.Time]:
    before, after = [(10, 10), (20, 0), (5, 15), (0, 12)][seed % 4]
    oracle = naive.Time(seconds(before), seconds(after))
    if before == after:
        return tj.TimeWindow(f"{before} seconds", time="t"), oracle
    ends = {"before": f"{before} seconds", "after": f"{after} seconds"}
    return tj.TimeWindow(**ends, time=("t", "t")), oracle


@pytest.mark.parametrize("seed", FAST + SLOW)
def test_time_window_with_late_and_unordered_rows(streams: Streams, seed: int) -> None:
    batches = [*random_batches(seed, batches=3), closing()]
    streams.push(*batches)
    delay = 5
    queries: dict[str, Any] = {}
    for i, how in enumerate(HOWS if seed else ("inner", "full", "anti")):
        window, oracle = time_window(seed + i)
        inputs = streams.both(f"{delay} seconds")
        df = tj.join(*inputs, ON, how=how, window=window, units=units_of(how, seed + i))
        queries[how] = streams.start(df), oracle
    for how, (query, oracle) in queries.items():
        run = streams.wait(query)
        steps = with_watermarks(batches, seconds(delay))
        want, result = expected(steps, PRED, how=how, window=oracle)
        assert run.ids == want, how
        assert run.total("late_rows") == result.late_rows, how
        assert run.total("null_times") == result.null_times, how
    assert seed or result.late_rows > 0


def test_a_condition_that_bounds_both_times_is_the_window(streams: Streams) -> None:
    batches = [*random_batches(7, batches=3), closing()]
    streams.push(*batches)
    on = f"{ON} AND r.t BETWEEN l.t AND l.t + INTERVAL 12 SECONDS"
    oracle = naive.Time(seconds(0), seconds(12))
    inputs = streams.both("5 seconds")
    query = streams.start(tj.join(*inputs, on, how="left", units=2))
    totals = tj.join_agg(*inputs, on, group_by="l.t", aggs={"n": "count(*)"})
    assert totals.isStreaming
    run = streams.wait(query)
    steps = with_watermarks(batches, seconds(5))
    want, result = expected(steps, PRED, how="left", window=oracle)
    assert run.ids == want
    assert run.total("late_rows") == result.late_rows
    told = str(tj.explain(*inputs, on))
    assert "window: TimeWindow(after='12 seconds', time='t'): the condition bounds" in told
    for frames, text in ((inputs, f"{ON} AND r.t >= l.t"), (streams.both(), on)):
        with pytest.raises(tj.ThetaJoinError, match="a stream needs a window"):
            tj.join(*frames, text)


# A simulated cluster runs every kind of join under this routing.
@pytest.mark.parametrize(
    "hows", [("left", "full", "anti"), pytest.param(tuple(HOWS), marks=pytest.mark.slow)], ids=len
)
def test_an_equality_sends_each_row_to_one_unit(streams: Streams, hows: tuple[str, ...]) -> None:
    """Several kinds of join in several units, a full one too; late rows are counted once."""
    delay = 2
    batches = [*random_batches(4, batches=3), closing()]
    streams.push(*batches)
    on, pred = "l.a = r.b AND l.c >= r.d", naive.conj(("a", "=", "b"), ("c", ">=", "d"))
    window, oracle = time_window(1)
    queries = {}
    for units, how in enumerate(hows, 2):
        df = tj.join(*streams.both(f"{delay} seconds"), on, how=how, window=window, units=units)
        queries[how] = streams.start(df)
    for how, query in queries.items():
        run = streams.wait(query)
        steps = with_watermarks(batches, seconds(delay))
        want, result = expected(steps, pred, how=how, window=oracle)
        assert run.ids == want, how
        assert run.total("late_rows") == result.late_rows, how
        assert run.total("null_times") == result.null_times, how
        stored = sum(unit["stored_rows"] for unit in run.units[0])
        assert stored <= len(batches[0].left) + len(batches[0].right), "no row is stored twice"
    plan = tj.explain(*streams.both(f"{delay} seconds"), on, window=window)
    assert "routing: hash of l.a = r.b: one copy of each row" in str(plan)


@pytest.mark.parametrize("seed", FAST + SLOW)
def test_count_window_with_ties_across_sides(streams: Streams, seed: int) -> None:
    batches = [*distinct_times(random_batches(seed, batches=3), seed), closing(20)]
    streams.push(*batches)
    queries: dict[str, Any] = {}
    for i, how in enumerate(HOWS if seed else ("left", "right", "semi")):
        size, slide = [(7, 1), (8, 3), (5, 5), (4, 9), (10, 4), (1, 1)][(seed + i) % 6]
        window, oracle = tj.CountWindow(size, slide=slide), naive.Count(size, slide)
        order = ["t", ("lid", "rid")][(seed + i) % 2]
        units = units_of(how, seed + i)
        df = tj.join(*streams.both(), ON, how=how, window=window, order_by=order, units=units)
        queries[how] = streams.start(df), oracle, order
    for how, (query, oracle, order) in queries.items():
        want, _ = expected(batches, PRED, how=how, window=oracle, order_by=order)
        assert streams.wait(query).ids == want, how


def test_count_window_with_ties_on_one_side_is_the_same_in_all_units(streams: Streams) -> None:
    """Which of two tied rows comes first is open, but all units must agree on it."""
    streams.push(*[naive.Push(b.left, b.right) for b in _tied(3)])
    inputs = {"window": tj.CountWindow(5, slide=2), "order_by": "t"}
    queries = [
        streams.start(tj.join(*streams.both(), ON, **inputs, units=units)) for units in (1, 3)
    ]
    results = [streams.wait(query).ids for query in queries]
    assert results[0] == results[1]
    assert sum(results[0].values()) > 0


def _tied(seed: int) -> list[naive.Push]:
    def tie(rows: Any) -> list[naive.Row]:
        return [row | {"t": at(i // 5)} for i, row in enumerate(rows)]

    return [naive.Push(tie(b.left), tie(b.right)) for b in random_batches(seed, batches=3)]


@pytest.mark.parametrize("seed", FAST + SLOW)
def test_full_history(streams: Streams, seed: int) -> None:
    batches = random_batches(seed + 10, batches=3)
    streams.push(*batches)
    kinds = [("inner", 3), ("semi", 2), *([("inner", 1), ("inner", 2)] if seed else [])]
    queries = {
        (how, units): streams.start(
            tj.join(*streams.both(), ON, how=how, window=tj.FullHistory(), units=units)
        )
        for how, units in kinds
    }
    for (how, units), query in queries.items():
        want, _ = expected(batches, PRED, how=how)
        assert streams.wait(query).ids == want, (how, units)


def test_event_times_before_1970(streams: Streams) -> None:
    """Spark's watermark starts at 0, and no row before that is late because of it."""
    early = -2_000_000_000
    left = [{"lid": i, "a": 0, "c": 0, "t": at(early + 10 * i)} for i in range(3)]
    right = [{"rid": 0, "b": 1, "d": 0, "t": at(early + 10)}]
    streams.push(naive.Push(left, right), closing())
    window = tj.TimeWindow("5 seconds", time="t")
    run = streams.run(tj.join(*streams.both("1 second"), ON, how="left", window=window))
    assert run.ids == Counter({(0, None): 1, (1, 0): 1, (2, None): 1})
    assert run.total("late_rows") == 0


def test_unmatched_rows_come_when_only_the_watermark_moves(streams: Streams) -> None:
    """No row arrives for a unit any more; its timer makes it give out what it preserved."""
    streams.push(
        naive.Push(
            [{"lid": i, "a": 0, "c": 0, "t": at(i)} for i in range(4)],
            [{"rid": i, "b": -1, "d": 0, "t": at(i)} for i in range(4)],
        ),
        naive.Push(
            [{"lid": CLOSING, "a": None, "c": None, "t": at(21)}],
            [{"rid": CLOSING, "b": None, "d": None, "t": at(18)}],
        ),
    )
    window = tj.TimeWindow("10 seconds", time="t")
    df = tj.join(*streams.both("5 seconds"), ON, how="anti", window=window, units=2)
    run = streams.run(df)
    # The watermark ends at 13 s: rows before 3 s have no future, the one of 3 s has.
    assert run.ids == Counter({(0, None): 1, (1, None): 1, (2, None): 1})
    assert run.progress[-1].numInputRows == 0
    assert sum(unit["unmatched"] for unit in run.units[-1]) == 3
