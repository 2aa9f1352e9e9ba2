"""A unit alone, with the simulator's state store: what it keeps, what it removes, when it wakes."""

from __future__ import annotations

import logging
import os
import shutil
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import naive
import thetajoin as tj
from spark.harness import EPOCH, LEFT, at, random_batches
from spark.one_unit import (
    blobs,
    description,
    ids,
    make_spec,
    make_tester,
    millis,
    numbers_of,
    push,
    push_frame,
    rows_at,
    sorted_by_hash,
    state_of,
    stored,
    timers,
)
from thetajoin.errors import ResourceError, SnapshotError
from thetajoin.index.probe import Arrivals
from thetajoin.ipc import from_ipc
from thetajoin.planner.routing import choose_route
from thetajoin.spark import unit as unit_module
from thetajoin.spark.unit import JoinUnit
from thetajoin.spark.unit_keys import UNIT_KEYS
from thetajoin.spark.unit_spec import ARRIVALS, Entry, pack_rows, rows_from

pytestmark = pytest.mark.usefixtures("local_dir")


def test_rows_are_stored_once_a_batch_and_removed_whole() -> None:
    tester = make_tester(make_spec(tj.CountWindow(3)))
    assert push(tester, rows_at(0, 1, 2)) == Counter(
        {(i, j): 1 for i in range(3) for j in range(3)}
    )
    assert stored(tester) == {"l0", "r0"}
    push(tester, rows_at(0, 1, first=3))
    assert stored(tester) == {"l0", "r0", "l3", "r3"}
    push(tester, rows_at(0, first=5))
    assert stored(tester) == {"l3", "r3", "l5", "r5"}
    assert description(tester)["counts"] == {"l": 6, "r": 6}


def test_every_update_has_a_new_token() -> None:
    tester = make_tester(make_spec(tj.FullHistory()))
    tokens = set()
    for n in range(3):
        push(tester, rows_at(n, first=n))
        tokens.add(description(tester)["token"])
    assert len(tokens) == 3


@pytest.mark.parametrize("index", ["pim_tree", "rap_table", "auto"])
@pytest.mark.parametrize("how", ["inner", "left"])
def test_any_index_gives_the_same_and_is_built_again_from_the_state(index: str, how: str) -> None:
    window = tj.CountWindow(9, slide=2)
    testers = [
        make_tester(make_spec(window, how, label=name, options={"index": name}))
        for name in (index, "po_join")
    ]
    for number, batch in enumerate(random_batches(3, batches=8, rows=6)):
        batch = naive.Push(sorted_by_hash(batch.left), sorted_by_hash(batch.right))
        if number % 3 == 2:
            unit_module._REMEMBERED.clear()
        one, other = (push(tester, batch) for tester in testers)
        assert one == other


def test_a_timer_wakes_the_unit_whenever_the_watermark_moves() -> None:
    window = tj.TimeWindow(before="7 seconds", after="3 seconds", time="t")
    tester = make_tester(make_spec(window, "left"))
    assert push(tester, rows_at(10, 12, value=5)) == Counter()
    assert timers(tester) == [1]
    # The row of 10 s can match up to 13 s, and the watermark must be past that.
    assert ids(tester.set_watermark(millis(13))) == Counter()
    assert timers(tester) == [millis(13) + 1]
    assert ids(tester.set_watermark(millis(13) + 1)) == Counter({(0, None): 1})
    assert timers(tester) == [millis(13) + 2]
    assert ids(tester.set_watermark(millis(100))) == Counter({(1, None): 1})
    assert stored(tester) == set()


@pytest.mark.parametrize("how", ["inner", "left", "full", "semi"])
def test_a_row_is_late_by_the_watermark_of_the_micro_batch_before(how: str) -> None:
    """Spark's operators upstream give out rows that the newest watermark has just passed."""
    tester = make_tester(make_spec(tj.TimeWindow("5 seconds", time="t"), how))
    assert push(tester, rows_at(10)) == Counter({(0, None if how == "semi" else 0): 1})
    late = description(tester)["counters"]["late_rows"]
    # The watermark moves with a micro-batch that has rows, which Spark hands over before timers.
    tester.set_watermark(millis(20), wake=False)
    found = push(tester, rows_at(12, first=1))
    assert found[1, None if how == "semi" else 1] == 1
    assert description(tester)["counters"]["late_rows"] == late
    found = push(tester, rows_at(19, 20, first=2))
    assert description(tester)["counters"]["late_rows"] == late + 2
    assert {pair for pair in found if 2 in pair} == set()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"on": "l.a <= r.b"}, "condition"),
        ({"how": "left"}, "how"),
        ({"window": tj.CountWindow(4)}, "window"),
        ({"order_by": ("lid", "rid")}, "order_by"),
        ({"units": 2}, "number of units"),
        ({"left_schema": LEFT.append(pa.field("z", pa.int8())).serialize().to_pybytes()}, "left"),
        (
            {"self_join": True, "right_schema": LEFT.serialize().to_pybytes(), "on": "l.a < r.a"},
            "condition",
        ),
    ],
)
def test_state_of_another_join_is_refused(changes: dict[str, Any], named: str) -> None:
    first = make_spec(tj.CountWindow(3))
    tester = make_tester(first)
    push(tester, rows_at(0))
    changed = JoinUnit(make_spec(**({"window": tj.CountWindow(3)} | changes)))
    tester.use(changed)
    with pytest.raises(SnapshotError, match=named):
        push(tester, rows_at(1))


@pytest.mark.parametrize(
    "changes",
    [
        {"on": "  r.d<=l.c   and (r.b > l.a)"},
        {"window": tj.TimeWindow("120 seconds", time="t")},
        {"left_schema": pa.schema([f.with_nullable(False) for f in LEFT]).serialize().to_pybytes()},
    ],
)
def test_another_way_to_write_the_same_join_goes_on(changes: dict[str, Any]) -> None:
    window = tj.TimeWindow("2 minutes", time="t")
    tester = make_tester(make_spec(window))
    push(tester, rows_at(0))
    unit_module._REMEMBERED.clear()
    changed = JoinUnit(make_spec(**({"window": window, "label": "again"} | changes)))
    tester.use(changed)
    assert push(tester, rows_at(1, first=1)) == Counter({(0, 1): 1, (1, 0): 1, (1, 1): 1})


@pytest.mark.parametrize("forget", [False, True])
@pytest.mark.parametrize(
    ("before", "after", "pairs"), [(9, 1, {(1, 0): 1}), (1, 9, {(0, 1): 1}), (9, 9, None)]
)
def test_rows_of_a_self_join_stay_while_either_role_needs_them(
    before: int, after: int, pairs: dict[Any, int] | None, forget: bool
) -> None:
    """A row is stored once for both roles, and a window may reach further back in one of them."""
    window = tj.TimeWindow(before=f"{before} seconds", after=f"{after} seconds", time="t")
    schema = LEFT.serialize().to_pybytes()
    spec = make_spec(window, on="l.a = r.a", self_join=True, right_schema=schema)
    tester = make_tester(spec)
    push(tester, naive.Push([{"lid": 0, "a": 1, "c": 0, "t": at(10)}]))
    tester.set_watermark(millis(15))
    if forget:
        unit_module._REMEMBERED.clear()
        shutil.rmtree(Path(os.environ["SPARK_LOCAL_DIRS"]) / "thetajoin-test")
    found = push(tester, naive.Push([{"lid": 1, "a": 1, "c": 0, "t": at(16)}]))
    assert found == Counter({(0, 1): 1, (1, 0): 1} if pairs is None else pairs)
    tester.set_watermark(millis(60))
    assert stored(tester) == set()


def test_entries_of_older_checkpoints_end_where_their_rows_do() -> None:
    assert Entry("l", 3, 4, None, 0).end == 6
    assert Entry("l", 3, 4, None, 0, 9).end == 9


@pytest.mark.parametrize("routing", ["broadcast", "hash", "matrix", "cells"])
def test_late_rows_are_counted_once(routing: str) -> None:
    """However many units are sent a copy of them."""
    spec = make_spec(
        tj.TimeWindow("5 seconds", time="t"), units=3, on="l.a = r.b AND ABS(l.c - r.d) <= 3"
    )
    spec = replace(spec, routing=choose_route(spec.compile(), 3, routing))
    tester = make_tester(spec)

    def late_rows(batch: naive.Push) -> int:
        sent = blobs(batch, spec)
        frames = [
            tester.put_in(UNIT_KEYS[unit], sent[sent["unit"] == UNIT_KEYS[unit]])
            for unit in range(3)
        ]
        return sum(numbers_of(frame)["late_rows"] for frame in frames)

    assert late_rows(rows_at(10)) == 0
    tester.set_watermark(millis(20))
    assert late_rows(rows_at(12, 21, first=1)) == 2


def test_late_rows_are_told_once(caplog: pytest.LogCaptureFixture, local_dir: Path) -> None:
    """By whichever worker sees the first; workers of a host share the join's folder."""
    tester = make_tester(make_spec(tj.TimeWindow("5 seconds", time="t")))
    push(tester, rows_at(10))
    tester.set_watermark(millis(20))
    with caplog.at_level(logging.WARNING, "thetajoin"):
        push(tester, rows_at(21, first=1))
        assert not caplog.records
        push(tester, rows_at(12, 22, first=2))
        push(tester, rows_at(12, first=4))
    (told,) = [record.getMessage() for record in caplog.records]
    assert "a unit dropped 2 rows that came behind the watermark" in told
    assert "withWatermark" in told
    # A join whose files cannot be written says it too, if more often.
    shutil.rmtree(local_dir / "thetajoin-test")
    (local_dir / "thetajoin-test").write_text("in the way")
    with caplog.at_level(logging.WARNING, "thetajoin"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        push(tester, rows_at(12, first=5))
    assert len(caplog.records) == 2


def test_rows_before_1970_are_not_late_while_nothing_is_known_of_time() -> None:
    tester = make_tester(make_spec(tj.TimeWindow("5 seconds", time="t")))
    long_ago = -round(EPOCH.timestamp()) - 1000
    push(tester, rows_at(long_ago))
    assert push(tester, rows_at(long_ago, first=1)) == Counter({(0, 1): 1, (1, 0): 1, (1, 1): 1})
    assert description(tester)["counters"]["late_rows"] == 0


def test_a_side_may_be_behind_the_watermark_by_its_lag() -> None:
    """Rows of a join carry the time of their older half: they are late only past the lag."""
    window = tj.TimeWindow("5 seconds", time="t")
    tester = make_tester(make_spec(window, lags=(4_000_000, 0)))
    push(tester, rows_at(10))
    tester.set_watermark(millis(14))
    found = push(tester, rows_at(11, first=1))
    assert found == Counter({(1, 0): 1}), "the left row is within its lag, the right one is late"
    assert stored(tester) == {"l0", "r0", "l1"}
    tester.set_watermark(millis(18))
    assert stored(tester) == {"l0", "r0", "l1"}, "rows go when neither side may still need them"
    tester.set_watermark(millis(30))
    assert stored(tester) == set()


def test_rows_that_cannot_be_written_fail_the_task() -> None:
    tester = make_tester(make_spec(tj.FullHistory()))

    def fails(operation: str) -> None:
        if operation == "write":
            raise OSError("the state store is gone")

    tester.handle.step = fails
    with pytest.raises(OSError, match="the state store is gone"):
        push(tester, rows_at(0))


def test_each_side_is_ordered_by_its_own_column() -> None:
    tester = make_tester(make_spec(tj.CountWindow(1), order_by=("lid", "rid")))
    left = [{"lid": i, "a": 0, "c": 0, "t": at(0)} for i in (2, 0, 1)]
    right = [{"rid": i, "b": 1, "d": 0, "t": at(0)} for i in (1, 2, 0)]
    found = push(tester, naive.Push(left, right))
    assert found == Counter({(0, 0): 1, (1, 0): 1, (1, 1): 1, (2, 1): 1, (2, 2): 1})


@pytest.mark.parametrize("numbers", [[7, 8, 9], [7, 9, 12]])
def test_stored_rows_keep_their_arrival_numbers(numbers: list[int]) -> None:
    """Those without gaps need no list of them."""
    batch = pa.record_batch({"a": pa.array([1, 2, 3], pa.int16())})
    blob = pack_rows(batch, Arrivals.of(np.array(numbers)))
    schema = pa.schema([pa.field("a", pa.int16(), metadata={"b": "c"}), ("b", pa.int8())])
    table, found = rows_from(blob, 7, schema)
    assert found.first == 7
    assert found.last == numbers[-1]
    assert found.rows == 3
    assert table.column(0).to_pylist() == [1, 2, 3]
    assert table.schema.field(0).metadata == {b"b": b"c"}
    has_list = ARRIVALS in (from_ipc(blob).schema.metadata or {})
    assert has_list == (numbers[-1] == 12)


@pytest.mark.parametrize("how", ["inner", "left"])
def test_many_micro_batches_leave_few_entries(how: str, local_dir: Path, set_limits: Any) -> None:
    """A day of micro-batches is not a list of a day's entries, and nothing is lost by that."""
    set_limits(most_entries=4, smallest_class=2)
    tester = make_tester(make_spec(tj.TimeWindow("1000 seconds", time="t"), how))
    for n in range(60):
        # Every third left row matches nothing here, and may do so later.
        push(tester, rows_at(n, first=n, value=5 if n % 3 == 0 else 0))
        entries = description(tester)["entries"]
        assert len(entries) <= 2 * 12
        assert stored(tester) == {f"{side}{first}" for side, first, *_ in entries}
    assert sum(rows for _, _, rows, *_ in entries) == 120
    unit_module._REMEMBERED.clear()
    shutil.rmtree(local_dir / "thetajoin-test")
    found = push(tester, naive.Push([], [{"rid": 99, "b": 9, "d": 0, "t": at(59)}]))
    assert found == Counter({(n, 99): 1 for n in range(60)})
    given = ids(tester.set_watermark(millis(10_000)))
    assert given == Counter(), "each left row has found a match"
    assert stored(tester) == set()


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("units", [1, 2])
def test_many_rows_are_stored_in_small_blobs(
    how: str, units: int, local_dir: Path, set_limits: Any
) -> None:
    """Spark has several copies of a blob in memory at once, and none may have 2 GB.

    A unit of two stores a share of the rows, whose arrival numbers have gaps.
    """
    most = 800
    set_limits(blob_bytes=most, most_entries=4, smallest_class=16)
    window = tj.CountWindow(10_000)
    tester = make_tester(make_spec(window, how, units=units))
    alone = make_tester(make_spec(window, how, units=units, label="at hand"))
    for n in range(6):
        given = [(100 * n + i, i % 11, at(100 * n + i)) for i in range(60)]
        left = [{"lid": i, "a": key, "c": 0, "t": t} for i, key, t in given]
        right = [{"rid": i, "b": key - 8, "d": 0, "t": t} for i, key, t in given]
        batch = naive.Push(left, right)
        assert push(tester, batch) == push(alone, batch)
        entries = [Entry(*saved) for saved in description(tester)["entries"]]
        assert stored(tester) == {entry.key[0] for entry in entries}
        kept = state_of(tester).maps["rows"]
        assert {key[0]: len(value[0]) for key, value in kept.items()} == {
            entry.key[0]: entry.size for entry in entries
        }
        assert len(entries) >= 2 * 2, "the rows of one micro-batch are several blobs"
        # A blob of Arrow's has some hundred bytes beside its rows.
        assert max(entry.size for entry in entries) <= most + 1000
    assert len(entries) < 6 * 2 * 2 * 2, "small ones are written anew as few"
    unit_module._REMEMBERED.clear()
    shutil.rmtree(local_dir / "thetajoin-test")
    last = naive.Push([], [{"rid": 999, "b": 99, "d": 0, "t": at(9999)}])
    found = push_frame(tester, last)
    assert numbers_of(found)["from"] == "state"
    assert ids(found) == push(alone, last)
    every = Counter({(100 * n + i, 999): 1 for n in range(6) for i in range(60)})
    assert ids(found) == every if units == 1 else 0 < len(ids(found)) < len(every), len(ids(found))


@pytest.mark.parametrize("error", [EOFError(), BrokenPipeError()])
def test_a_state_store_that_is_gone_is_told_in_a_line(error: Exception) -> None:
    """As on a full disk, where Spark's side of the connection ends without a word."""
    tester = make_tester(make_spec(tj.FullHistory()))

    def gone(operation: str) -> None:
        if operation == "write":
            raise error

    tester.handle.step = gone
    with pytest.raises(ResourceError, match="Most often a disk is full"):
        push(tester, rows_at(0))
