"""Sizing from a sample: what is said is what a join of that rate then holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import thetajoin as tj
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.spec import JoinSpec
from thetajoin.errors import OptionError
from thetajoin.ipc import to_ipc
from thetajoin.planner.sizing import parse_rate, size_join

RATE, SECONDS = 500, 30


def rows(seed: int) -> pa.Table:
    """A stream's rows, so many a second."""
    random, n = np.random.default_rng(seed), RATE * SECONDS
    at = np.arange(n) * (1_000_000 // RATE)
    time = pa.array(at, pa.int64()).cast(pa.timestamp("us"))
    return pa.table({"t": time, "x": random.random(n), "k": random.integers(0, 50, n)})


def join_of(on: str, window: Any, how: str = "inner") -> CompiledJoin:
    schema = rows(0).schema
    return CompiledJoin(JoinSpec.of(on, how, window).for_stream(), schema, schema)


def test_a_window_holds_what_was_said() -> None:
    left, right = rows(1), rows(2)
    window = tj.TimeWindow(before="6 seconds", after="3 seconds", time="t")
    on = "l.k = r.k AND l.x < r.x"
    said = size_join(join_of(on, window), left, right, RATE, units=4, delay=1.0)
    join = tj.StreamJoin(on, window=window)
    pairs = []
    for second in range(SECONDS):
        part = slice(second * RATE, RATE)
        before = join.stats.pairs
        join.push(left.slice(part.start, part.stop), right.slice(part.start, part.stop))
        pairs.append(join.stats.pairs - before)
        join.advance(left["t"][second * RATE].as_py())
    # What is held is dropped in whole segments, so that it may be somewhat more.
    for held, found in (
        (said.held["l"], join.stats.window_left),
        (said.held["r"], join.stats.window_right),
    ):
        assert held * 0.6 < found < held * 1.8
    assert np.mean(pairs[12:]) == pytest.approx(said.pairs, rel=0.15)
    assert said.found.row_bytes["l"] == to_ipc(left.to_batches()[0]).size / left.num_rows


def test_copies_and_kinds_of_windows() -> None:
    left, right = rows(1), rows(2)
    plain = tj.TimeWindow("10 seconds", time="t")
    hashed = size_join(join_of("l.k = r.k", plain), left, right, 1000, units=4)
    assert hashed.found.stored == {"l": 1.0, "r": 1.0}
    matrix = size_join(join_of("l.x < r.x", plain), left, right, 1000, units=16)
    assert matrix.found.stored == {"l": 4.0, "r": 4.0}
    assert matrix.state == pytest.approx(4 * hashed.state, rel=0.01)
    outer = size_join(join_of("l.x < r.x", plain, "left"), left, right, 1000, units=4)
    assert outer.found.stored == {"l": 1.0, "r": 4.0}
    counted = size_join(join_of("l.x < r.x", tj.CountWindow(700)), left, right, 1000, units=4)
    assert counted.held == {"l": 700, "r": 700}
    endless = size_join(join_of("l.x < r.x", tj.FullHistory()), left, right, 10, units=4)
    assert endless.held["l"] == 864_000
    assert "grows without end" in str(endless)
    twice = size_join(join_of("l.k = r.k", plain), left, right, 2000, units=4)
    assert twice.state == pytest.approx(2 * hashed.state)
    assert twice.pairs == pytest.approx(4 * hashed.pairs)


@pytest.mark.parametrize("text", ["50000", "5/fortnight", "/s", "x/s", "0/s", "-3/s", "1..2/s"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="50000/s"):
        parse_rate(text)


def test_no_rows_are_refused() -> None:
    empty = rows(1).slice(0, 0)
    with pytest.raises(OptionError, match="has none"):
        size_join(join_of("l.x < r.x", tj.FullHistory()), empty, empty, 1, units=1)
