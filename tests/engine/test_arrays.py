"""Large arrays: memory of those that are gone is there for the next ones, for a while."""

from __future__ import annotations

import gc
import multiprocessing
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from thetajoin import arrays
from thetajoin.arrays import KEPT_BYTES, empty
from thetajoin.errors import ResourceError, enough_memory

SIZE = KEPT_BYTES // 4


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A store of its own for each test, which lets go of nothing however slow the machine is."""
    own = arrays._Kept()
    monkeypatch.setattr(arrays, "KEPT_S", 600.0)
    monkeypatch.setattr(arrays, "_kept", own)
    yield own
    own.drop(0.0)


def test_nothing_is_kept_once_memory_has_run_out(kept: Any) -> None:
    """Whoever ran out of memory may not get it from here; what the call had in hand goes too."""

    def run_out() -> None:
        rows = empty(SIZE, np.int64)
        rows.fill(1)
        raise MemoryError

    earlier = empty(SIZE, np.int64)
    before = pa.total_allocated_bytes()
    del earlier
    with pytest.raises(ResourceError, match="join fewer rows"), enough_memory("join fewer rows"):
        run_out()
    assert pa.total_allocated_bytes() <= before - SIZE * 8
    assert kept.take(SIZE * 8).size == SIZE * 8  # and goes on


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def test_memory_is_used_again_when_the_last_view_is_gone() -> None:
    first = empty(SIZE, np.int64)
    first.fill(7)
    view, place = first[10:20], address(first)
    del first
    second = empty(SIZE, np.int64)
    second.fill(8)
    assert address(second) != place
    assert view.tolist() == [7] * 10
    del view
    gc.collect()
    assert address(empty(2 * SIZE - 9, np.int32)) == place


def test_many_arrays_at_once_have_memory_of_their_own(kept: Any) -> None:
    for _ in range(3):
        held = [empty(SIZE + 100 * at, np.int64) for at in range(20)]
        for at, array in enumerate(held):
            array.fill(at)
        assert all((array == at).all() for at, array in enumerate(held))
        del held, array
        gc.collect()
    assert kept._bytes > 0


def test_no_more_is_kept_than_may_be(monkeypatch: pytest.MonkeyPatch, kept: Any) -> None:
    monkeypatch.setattr(arrays, "MOST_KEPT", 6 * KEPT_BYTES)
    held = [empty(SIZE, np.int64) for _ in range(8)]
    held.clear()
    assert kept._bytes == 6 * KEPT_BYTES


def test_what_nobody_asks_for_is_dropped(kept: Any) -> None:
    held = [empty(SIZE, np.int64), empty(3 * SIZE, np.int64)]
    held.clear()
    assert kept.drop(60.0)
    assert kept._bytes == 8 * KEPT_BYTES
    assert not kept.drop(0.0)
    assert kept._bytes == 0


def test_without_a_thread_to_drop_it_nothing_is_kept(
    monkeypatch: pytest.MonkeyPatch, kept: Any
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(arrays.threading, "Thread", refuse)
    array = empty(SIZE, np.int64)
    del array
    assert kept._bytes == 0


def test_the_thread_ends_when_there_is_nothing_to_drop(
    monkeypatch: pytest.MonkeyPatch, kept: Any
) -> None:
    monkeypatch.setattr(arrays, "KEPT_S", 0.02)
    before = set(threading.enumerate())
    array = empty(SIZE, np.int64)
    (thread,) = set(threading.enumerate()) - before
    del array
    thread.join(10)
    assert not thread.is_alive()
    assert kept._bytes == 0
    assert not kept._sweeps
    empty(SIZE, np.int64)
    assert kept._sweeps


def test_memory_that_is_kept_goes_first_where_there_is_too_little(
    monkeypatch: pytest.MonkeyPatch, kept: Any
) -> None:
    array = empty(SIZE, np.int64)
    del array
    allocate = arrays.pa.allocate_buffer

    def scarce(size: int) -> Any:
        if kept._bytes:
            raise MemoryError
        return allocate(size)

    monkeypatch.setattr(arrays.pa, "allocate_buffer", scarce)
    assert len(empty(2 * SIZE, np.int64)) == 2 * SIZE


def _child(sent: Any) -> None:
    array = empty(SIZE, np.int64)
    array.fill(3)
    sent.put((int(array.sum()), arrays._kept._sweeps))


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="there is no fork here"
)
def test_the_child_of_a_fork_begins_anew() -> None:
    array = empty(SIZE, np.int64)
    del array
    context = multiprocessing.get_context("fork")
    sent = context.SimpleQueue()
    child = context.Process(target=_child, args=(sent,))
    child.start()
    assert sent.get() == (3 * SIZE, True)
    child.join()
