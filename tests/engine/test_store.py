"""The chain of segments: merges in the background, swaps, expiry, rows that arrive meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import thetajoin as tj
from thetajoin.engine import block as blocks
from thetajoin.engine import store as stores
from thetajoin.engine.store import FANOUT, SEGMENTS, next_merge
from thetajoin.limits import change_limits, limits

Q1 = "l.a < r.a AND l.b > r.b"


def table(random: np.random.Generator, rows: int, first: int) -> pa.Table:
    return pa.table(
        {
            "id": np.arange(first, first + rows),
            "a": random.integers(0, 30, rows),
            "b": random.integers(0, 30, rows),
        }
    )


def brute(left: pa.Table, right: pa.Table) -> np.ndarray:
    la, lb, ra, rb = (np.asarray(t[c]) for t in (left, right) for c in ("a", "b"))
    hit = (la[:, None] < ra[None, :]) & (lb[:, None] > rb[None, :])
    rows, others = np.nonzero(hit)
    return numbered(np.asarray(left["id"])[rows], np.asarray(right["id"])[others])


def pairs(*results: pa.Table) -> np.ndarray:
    """The pairs of several results, sorted; a pair is a number, as there are millions of them."""
    found = [r for r in results if r.num_columns]
    return numbered(*(np.concatenate([r[c] for r in found]) for c in ("id", "id_right")))


def numbered(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.sort(left << 32 | right)


def check(join: tj.StreamJoin) -> None:
    for store in join._state.stores.values():
        store._check()


@given(st.lists(st.integers(0, 400), min_size=1, max_size=25), st.integers(0, 2**32 - 1))
def test_random_pushes_keep_the_store_sound(sizes: list[int], seed: int) -> None:
    """Small heads and classes, so that heads close and segments merge all the time."""
    random = np.random.default_rng(seed)
    with change_limits(smallest_class=8):
        join = tj.StreamJoin(Q1, window=tj.FullHistory(), head_rows=32, threads=1)
        seen: dict[str, list[pa.Table]] = {"left": [], "right": []}
        found: list[pa.Table] = []
        first = 0
        for size in sizes:
            side = "left" if random.random() < 0.5 else "right"
            rows = table(random, size, first)
            first += size
            seen[side].append(rows)
            found.append(join.push(**{side: rows}))
            if join._state is not None:
                check(join)
    if seen["left"] and seen["right"]:
        expected = brute(*(pa.concat_tables(seen[side]) for side in ("left", "right")))
        assert np.array_equal(pairs(*found), expected)


def test_rows_that_arrive_during_a_merge_are_joined_once(
    monkeypatch: pytest.MonkeyPatch, set_limits: Callable[..., None]
) -> None:
    """A merge is held up while the stream goes on; nothing waits for it, nothing is lost."""
    begun, release = threading.Event(), threading.Event()
    merge = blocks.merge_blocks

    def slow(parts: list[blocks.Block]) -> blocks.Block:
        if len(parts) > 1:
            begun.set()
            assert release.wait(30)
        return merge(parts)

    monkeypatch.setattr(stores, "merge_blocks", slow)
    set_limits(smallest_class=64)
    random = np.random.default_rng(3)
    join = tj.StreamJoin(Q1, window=tj.FullHistory(), head_rows=32, threads=1)
    lefts, rights, found = [], [], []
    for step in range(20):
        lefts.append(table(random, 100, 100 * step))
        rights.append(table(random, 100, 100 * step))
        found.append(join.push(lefts[-1], rights[-1]))
        check(join)
    assert begun.is_set(), "a merge was due"
    assert join.stats.merges == 0, "and the stream went on before it was done"
    release.set()
    join._state.close()
    assert join.stats.merges > 0
    for step in range(20, 25):
        lefts.append(table(random, 100, 100 * step))
        rights.append(table(random, 100, 100 * step))
        found.append(join.push(lefts[-1], rights[-1]))
        check(join)
    expected = brute(pa.concat_tables(lefts), pa.concat_tables(rights))
    assert np.array_equal(pairs(*found), expected)


def test_a_count_window_keeps_a_bounded_number_of_rows_and_segments() -> None:
    random = np.random.default_rng(4)
    size = 40_000
    join = tj.StreamJoin(
        "l.a < r.a AND l.b > r.b AND l.id = r.id", window=tj.CountWindow(size), merge="inline"
    )
    most = 0
    for step in range(60):
        join.push(table(random, 3000, 3000 * step), table(random, 3000, 3000 * step))
        check(join)
        if step > 20:
            most = max(most, join.stats.window_left)
    assert size <= most <= size * (1 + 2 / SEGMENTS) + 3000
    assert join.stats.segments <= 2 * 2 * (SEGMENTS + 2 * FANOUT)


@pytest.mark.parametrize("batch", [500, 1100, 5000])
@pytest.mark.parametrize("window", [10_000, 50_000, 100_000])
def test_a_stream_of_small_batches_keeps_few_segments(batch: int, window: int) -> None:
    sizes: list[int] = []
    for _ in range(3 * window // batch):
        sizes.append(batch)
        while sum(sizes) - sizes[0] >= window:
            del sizes[0]
        while (due := next_merge(sizes, bounded=True)) is not None:
            sizes[due[0] : due[1]] = [sum(sizes[due[0] : due[1]])]
        assert len(sizes) <= SEGMENTS + 2 * FANOUT


@given(st.lists(st.integers(1, 10 * limits.smallest_class), max_size=200), st.booleans())
def test_merging_ends_with_few_segments(sizes: list[int], bounded: bool) -> None:
    total = sum(sizes)
    steps = 0
    while (due := next_merge(sizes, bounded=bounded)) is not None:
        start, end = due
        assert end - start >= 2
        sizes[start:end] = [sum(sizes[start:end])]
        steps += 1
    assert sum(sizes) == total
    classes = 1 + int(np.log(max(1, total / limits.smallest_class)) / np.log(FANOUT))
    assert len(sizes) <= (FANOUT - 1) * (classes + 1) + (4 * SEGMENTS if bounded else 0)
