"""Many threads at once: one operator they share, and joins of their own side by side."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

import thetajoin as tj
from strategies import all_ids, ids
from thetajoin.limits import change_limits

THREADS, PUSHES, ROWS = 4, 25, 6


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    """Threads take turns every few instructions, so that what can go wrong does."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(work: Callable[[int], Any]) -> list[Any]:
    """The results of all threads, which begin at the same time."""
    start = threading.Barrier(THREADS)

    def begin(number: int) -> Any:
        start.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(begin, range(THREADS)))


def batch(side: str, thread: int, push: int) -> pa.Table:
    first = (thread * PUSHES + push) * ROWS
    numbers = range(first, first + ROWS)
    return pa.table(
        {
            "lid" if side == "l" else "rid": numbers,
            "a": [(7 * n + (side == "r")) % 11 for n in numbers],
            "t": [0] * ROWS,
        }
    )


def expected() -> Counter[tuple[int | None, int | None]]:
    numbers = range(THREADS * PUSHES * ROWS)
    return Counter((l, r) for l in numbers for r in numbers if 7 * l % 11 > (7 * r + 1) % 11 + 6)


def unmatched(pairs: Counter[Any], side: int) -> Counter[Any]:
    found = {pair[side] for pair in pairs}
    missing = [n for n in range(THREADS * PUSHES * ROWS) if n not in found]
    return Counter((n, None) if side == 0 else (None, n) for n in missing)


@pytest.mark.parametrize("how", ["inner", "full"])
@pytest.mark.parametrize("index", ["auto", "b_plus_tree"])
def test_one_join_that_all_threads_push_to(how: str, index: str) -> None:
    join = tj.StreamJoin(
        "l.a > r.a + 6", how=how, window=tj.TimeWindow(5, time="t"), index=index, head_rows=16
    )
    schemas = batch("l", 0, 0).schema, batch("r", 0, 0).schema
    join.push(*(schema.empty_table() for schema in schemas))

    def push(thread: int) -> list[pa.Table]:
        got = []
        for at in range(PUSHES):
            got.append(join.push(batch("l", thread, at), batch("r", thread, at)))
            assert join.stats.left_rows % ROWS == 0
            join.advance(0)
        return got

    results = [table for tables in together(push) for table in tables]
    pairs = expected()
    want = pairs if how == "inner" else pairs + unmatched(pairs, 0) + unmatched(pairs, 1)
    assert all_ids([*results, join.finish()]) == want
    assert join.stats.left_rows == THREADS * PUSHES * ROWS
    assert join.stats.pairs == pairs.total()


def test_a_join_that_begins_in_all_threads() -> None:
    """Rows that wait for the other side's columns are taken in once."""
    join = tj.StreamJoin("l.a > r.a + 6", window=tj.FullHistory())

    def push(thread: int) -> list[pa.Table]:
        got = []
        for at in range(PUSHES):
            got.append(join.push(left=batch("l", thread, at)))
            got.append(join.push(right=batch("r", thread, at)))
        return got

    results = [table for tables in together(push) for table in tables if table.num_columns]
    assert all_ids(results) == expected()


def test_snapshots_while_others_push() -> None:
    """A snapshot holds whole pushes: what it finds later is what it had not found before."""
    join = tj.StreamJoin("l.a > r.a + 6", window=tj.FullHistory(), head_rows=16)
    taken: list[bytes] = []

    def push(thread: int) -> None:
        for at in range(PUSHES):
            join.push(batch("l", thread, at), batch("r", thread, at))
            if thread == 0:
                taken.append(join.snapshot())

    together(push)
    for data in taken[::5]:
        restored = tj.StreamJoin.restore(data)
        stats = restored.stats
        assert stats.left_rows == stats.right_rows
        probe = pa.table({"rid": [-1], "a": [-99], "t": [0]})
        assert restored.push(right=probe).num_rows == stats.left_rows


def test_totals_that_all_threads_push_to() -> None:
    totals = tj.StreamJoin(
        "l.a > r.a + 6",
        aggs={"n": "count(*)", "s": "sum(r.rid)"},
        window=tj.FullHistory(),
        left_schema=batch("l", 0, 0).schema,
        right_schema=batch("r", 0, 0).schema,
    )

    def push(thread: int) -> None:
        for at in range(PUSHES):
            totals.push(batch("l", thread, at), batch("r", thread, at))

    together(push)
    pairs = expected()
    want = {"n": [pairs.total()], "s": [sum(r for _, r in pairs)]}
    assert totals.finish().to_pydict() == want


def tables(rows: int) -> tuple[pa.Table, pa.Table]:
    left = pa.table({"lid": range(rows), "a": [7 * n % 11 for n in range(rows)]})
    return left, pa.table({"rid": range(rows), "a": [(7 * n + 1) % 11 for n in range(rows)]})


def test_joins_side_by_side() -> None:
    left, right = tables(600)
    want = ids(tj.join(left, right, "l.a > r.a + 6"))
    for got in together(lambda _: [tj.join(left, right, "l.a > r.a + 6") for _ in range(5)]):
        assert all(ids(table) == want for table in got)


def test_batches_that_all_threads_take_from() -> None:
    left, right = tables(600)
    batches = tj.join_batches(left, right, "l.a > r.a + 6", chunk_rows=64, threads=1)
    got = [batch for taken in together(lambda _: list(batches)) for batch in taken]
    assert ids(pa.Table.from_batches(got)) == ids(tj.join(left, right, "l.a > r.a + 6"))


FIRST_USE = """
import threading, pyarrow as pa
import thetajoin as tj
table = pa.table({"a": range(50), "b": [n % 7 for n in range(50)]})
start, got = threading.Barrier(6), []
def work(number):
    start.wait()
    on = ["l.a < r.a", "l.a < r.a AND l.b > r.b", "ABS(l.a - r.a) <= 3"][number % 3]
    got.append((number % 3, tj.join(table, table, on).num_rows))
threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sorted(got))
"""


def test_first_use_in_many_threads() -> None:
    """Imports and compiled kernels are loaded while six threads ask for them."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", FIRST_USE], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    a = range(50)
    near = sum(abs(x - y) <= 3 for x in a for y in a)
    both = sum(x < y and x % 7 > y % 7 for x in a for y in a)
    want = sorted([(0, 1225), (0, 1225), (1, both), (1, both), (2, near), (2, near)])
    assert done.stdout.strip() == str(want)


NEAR = {"key": "t", "window": tj.TimeWindow(before=1000, time="t"), "direction": "backward"}


def near_batch(side: str, thread: int, push: int) -> pa.Table:
    first = (thread * PUSHES + push) * ROWS
    numbers = range(first, first + ROWS)
    # Left times are odd and right ones even, so that each left row has one nearest right row.
    times = [2 * (n % 400) + (side == "l") for n in numbers]
    return pa.table({"lid" if side == "l" else "rid": numbers, "t": times})


def nearest_rows() -> Counter[Any]:
    numbers = range(THREADS * PUSHES * ROWS)
    rights = {2 * (n % 400) for n in numbers}
    times = (2 * (n % 400) + 1 for n in numbers)
    return Counter((t, max(r for r in rights if r <= t)) for t in times)


def test_nearest_that_all_threads_push_to() -> None:
    """Pushes, watermarks, snapshots and looks from all threads: each left row comes out once."""
    join = tj.StreamJoin.nearest(**NEAR)
    schemas = near_batch("l", 0, 0).schema, near_batch("r", 0, 0).schema
    join.push(*(schema.empty_table() for schema in schemas))
    seen: list[bytes] = []

    def push(thread: int) -> list[pa.Table]:
        got = []
        for at in range(PUSHES):
            got.append(join.push(near_batch("l", thread, at), near_batch("r", thread, at)))
            join.advance(0)
            assert join.stats.left_rows % ROWS == 0
            assert join.schema is not None
            if thread == 0 and at % 8 == 0:
                seen.append(join.snapshot())
        return got

    results = [table for tables in together(push) for table in tables]
    restored = tj.StreamJoin.restore(seen[-1])
    assert restored.finish().num_rows == restored.stats.left_rows
    results.append(join.finish())
    found = pa.concat_tables(results)
    pairs = Counter(zip(found["t"].to_pylist(), found["t_right"].to_pylist(), strict=True))
    assert pairs == nearest_rows()
    assert Counter(found["lid"].to_pylist()) == Counter(range(THREADS * PUSHES * ROWS))


def test_one_finish_among_many() -> None:
    """Of threads that all finish a join, one gets what it owes, and the others an error."""
    join = tj.StreamJoin("l.a > r.a + 6", how="left", window=tj.TimeWindow(5, time="t"))
    join.push(batch("l", 0, 0), batch("r", 0, 0))

    def finish(thread: int) -> pa.Table | str:
        try:
            return join.finish()
        except tj.ThetaJoinError as error:
            return str(error)

    results = together(finish)
    tables = [result for result in results if isinstance(result, pa.Table)]
    assert len(tables) == 1
    assert all("was finished" in result for result in results if isinstance(result, str))


def test_watermarks_from_all_threads() -> None:
    """Unmatched rows come out once, whichever thread moves event time past them."""
    join = tj.StreamJoin("l.a > r.a + 6", how="left", window=tj.TimeWindow(5, time="t"))
    numbers = range(THREADS * PUSHES)
    left = pa.table({"lid": numbers, "a": [0] * len(numbers), "t": [10 * n for n in numbers]})
    join.push(left, batch("r", 0, 0).slice(0, 0))

    def advance(thread: int) -> list[pa.Table]:
        got = []
        for at in range(PUSHES):
            join.advance(10 * (at * THREADS + thread))
            got.append(join.push())
        return got

    results = [table for tables in together(advance) for table in tables]
    assert all_ids([*results, join.finish()]) == Counter((n, None) for n in numbers)


# Forks: a child has the operator as it was, and none of the parent's threads.

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
with_threads = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def begun() -> tj.StreamJoin:
    """A join that has the rows of thread 0 and merges in the background."""
    join = tj.StreamJoin("l.a > r.a + 6", window=tj.FullHistory(), head_rows=16)
    go_on(join, 0)
    return join


def go_on(join: tj.StreamJoin, thread: int) -> tuple[Counter[Any], int]:
    """What one process gets for a thread's rows, and how many segments there are at the end."""
    got = []
    for at in range(PUSHES):
        got.append(join.push(left=batch("l", thread, at)))
        got.append(join.push(right=batch("r", thread, at)))
    again = tj.StreamJoin.restore(join.snapshot())
    assert again.stats.left_rows == join.stats.left_rows
    return all_ids([table for table in got if table.num_columns]), join.stats.segments


def expected_after(thread: int) -> Counter[Any]:
    """The pairs that a thread's rows bring where those of thread 0 are stored."""
    rows = PUSHES * ROWS
    mine = range(thread * rows, (thread + 1) * rows)
    both = [*range(rows), *mine]
    return Counter(
        (l, r)
        for l in both
        for r in both
        if (l in mine or r in mine) and 7 * l % 11 > (7 * r + 1) % 11 + 6
    )


def put_result(join: tj.StreamJoin, results: Any) -> None:
    results.put(go_on(join, 1))


@needs_fork
@with_threads
def test_multiprocessing_with_forks() -> None:
    with change_limits(smallest_class=2):
        join = begun()
        forks = multiprocessing.get_context("fork")
        results = forks.Queue()
        child = forks.Process(target=put_result, args=(join, results))
        child.start()
        here, _ = go_on(join, 2)
        there, segments = results.get(timeout=60)
        child.join(60)
    assert here == expected_after(2)
    assert there == expected_after(1)
    assert segments <= 20  # of 50 without merges


@needs_fork
@with_threads
def test_a_server_that_loads_first_and_forks_then() -> None:
    with change_limits(smallest_class=2):
        join = begun()
        workers = []
        for thread in range(1, THREADS):
            read, write = os.pipe()
            process = os.fork()
            if process == 0:
                try:
                    signal.alarm(60)
                    found, segments = go_on(join, thread)
                    same = found == expected_after(thread)
                    os.write(write, f"{same} {segments <= 20}".encode())
                finally:
                    os._exit(0)
            os.close(write)
            workers.append((process, read))
        for process, read in workers:
            with open(read, "rb") as answer:
                assert answer.read() == b"True True"
            os.waitpid(process, 0)
    found, _ = go_on(join, 1)
    assert found == expected_after(1)
