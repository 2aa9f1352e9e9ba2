"""Streaming joins on Spark give what the oracle gives: all windows, all kinds of join."""

from __future__ import annotations

import pytest

import naive
import thetajoin as tj
from spark.harness import (
    Streams,
    closing,
    distinct_times,
    expected,
    random_batches,
    seconds,
    with_watermarks,
)
from strategies import HOWS

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

ON = "l.a < r.b AND l.c >= r.d"
PRED = naive.conj(("a", "<", "b"), ("c", ">=", "d"))


def units_of(how: str, seed: int) -> int:
    """Any number of units; a full join has one."""
    return 1 if how == "full" else 1 + seed % 3


def time_windows(seed: int) -> tuple[tj.TimeWindow, naive.Time]:
    before, after = [(10, 10), (20, 0), (5, 15), (0, 12)][seed % 4]
    oracle = naive.Time(seconds(before), seconds(after))
    if before == after:
        return tj.TimeWindow(f"{before} seconds", time="t"), oracle
    ends = {"before": f"{before} seconds", "after": f"{after} seconds"}
    return tj.TimeWindow(**ends, time=("t", "t")), oracle


@pytest.mark.parametrize("seed", [0, 1])
def test_time_window(streams: Streams, seed: int) -> None:
    batches = [*random_batches(seed), closing()]
    streams.push(*batches)
    delay = 15
    queries = {}
    for i, how in enumerate(HOWS):
        window, oracle = time_windows(seed + i)
        df = tj.join(
            *streams.both(f"{delay} seconds"),
            ON,
            how=how,
            window=window,
            units=units_of(how, seed + i),
        )
        queries[how] = streams.start(df), oracle
    for how, (query, oracle) in queries.items():
        run = streams.wait(query)
        want, result = expected(
            with_watermarks(batches, seconds(delay)), PRED, how=how, window=oracle
        )
        assert run.ids == want, how
        assert run.total("late_rows") == result.late_rows
        assert result.late_rows > 0
        assert run.total("null_times") == result.null_times
