"""The parallel join over shared indexes gives what a nested loop gives, in arrival order."""

from __future__ import annotations

import numpy as np
import pytest

from thetajoin.errors import OptionError
from thetajoin.papers.pim_join import SharedJoin


def run(threads: int, window: int, batches: list[int], seed: int, **options) -> SharedJoin:
    """Join two random streams and compare; threads come and go on the way."""
    random = np.random.default_rng(seed)
    sent: list[tuple[int, int, int]] = []
    order: list[tuple[int, int]] = []

    def take(side: int, tuples: np.ndarray, rows: np.ndarray) -> None:
        order.extend((side, int(t)) for t in tuples)
        sent.extend((side, int(t), int(r)) for t, r in zip(tuples, rows, strict=True))

    join = SharedJoin(window, take, threads=threads, **options)
    seen: list[np.ndarray] = [np.zeros(0, np.int64), np.zeros(0, np.int64)]
    expected: list[tuple[int, int, int]] = []
    arrival: dict[tuple[int, int], int] = {}
    for at, size in enumerate(batches):
        side = int(random.integers(0, 2))
        keys = random.integers(0, 300, size)
        width = int(random.integers(0, 4))
        other = seen[1 - side]
        start = max(0, other.size - window)
        for i, key in enumerate(keys):
            number = seen[side].size + i
            arrival[side, number] = len(arrival)
            hits = np.flatnonzero(np.abs(other[start:] - key) <= width) + start
            expected += [(side, number, int(r)) for r in hits]
        seen[side] = np.concatenate([seen[side], keys])
        join.push(side, keys, keys - width, keys + width)
        if at % 7 == 3:
            join.add_thread()
        if at % 7 == 5 and len(join._threads) > 1:
            join.remove_thread()
    join.drain()
    join.close()
    assert sorted(sent) == sorted(expected)
    places = [arrival[pair] for pair in order]
    assert places == sorted(places), "results come in the order of arrival"
    return join


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("m", [0.2, 1.0])
def test_every_pair_once_in_order(threads: int, m: float) -> None:
    random = np.random.default_rng(threads)
    batches = random.integers(1, 200, 40).tolist()
    join = run(threads, 400, batches, threads, m=m, task_size=32)
    assert join.merges > 1


def test_a_small_window_and_single_tuples() -> None:
    run(2, 5, [1, 3, 2, 40, 1, 1, 17], 3, task_size=1)


def test_a_failing_consumer_is_reported() -> None:
    def fail(side: int, tuples: np.ndarray, rows: np.ndarray) -> None:
        raise RuntimeError("no room")

    join = SharedJoin(10, fail, threads=2, task_size=4)
    keys = np.arange(100)

    def use() -> None:
        join.push(0, keys, keys, keys)
        join.push(1, keys, keys, keys)
        join.drain()

    with pytest.raises(RuntimeError, match="no room"):  # by whichever call comes next
        use()


def test_bad_parameters() -> None:
    with pytest.raises(OptionError, match="at least 1"):
        SharedJoin(0, lambda *_: None)
