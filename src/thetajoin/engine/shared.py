"""The parallel join of two streams over one shared index for each (PIM-Tree, Section 4).

Threads take tasks, a few hundred tuples each, from one queue in arrival order. A task looks its
tuples up in the other stream's PIM-Tree, up to that stream's edge tuple (the first that is not
indexed yet), scans the few rows from there on, and puts its own tuples into its stream's index.
Results are handed on in arrival order. A full T_I is merged without stopping the others, in two
phases. Threads may join and leave at any time.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from thetajoin.batch.keys import Int64
from thetajoin.errors import OptionError
from thetajoin.index.b_plus_tree import F_B, BTree
from thetajoin.index.css_tree import Css
from thetajoin.index.structure import Int32
from thetajoin.kernels.shared import shared_insert, shared_probe

OnResult = Callable[[int, Int64, Int32], Any]
# Tasks that may wait before `push` does.
QUEUED = 64
_MOST_ROWS = (1 << 31) - 1


class SharedIndex:
    """A PIM-Tree whose partitions have locks; nodes for all rows that may come are there."""

    def __init__(self, T_S: Css, D_I: int, rows: int) -> None:
        """Partitions under `T_S` with room for `rows` rows: arrays that are shared cannot grow."""
        self.T_S = T_S
        depth = min(D_I, T_S.levels)
        partitions = T_S.nodes(depth)
        self._trees = BTree(F_B, partitions, rows + partitions * F_B)
        self.tree = T_S.keys, T_S.rid, T_S.directory, T_S.offsets, T_S.f_ib
        locks = np.zeros(partitions, np.int64)
        trees = self._trees
        self.parts = trees.trees, trees.leaves, trees.inners, locks, F_B, depth
        self.size = 0

    def insert(self, keys: Int64, first: int) -> None:
        """Put rows in, numbered from `first`; other threads may do the same."""
        shared_insert(keys, first, self.tree, self.parts, self._trees.alloc)

    def rows(self) -> tuple[Int64, Int32]:
        """What T_I holds, in key order."""
        self._trees.size = self.size
        return self._trees.rows()


@dataclass
class Task:
    """Tuples of one stream that came together, and the rows of the other that they may see."""

    side: int
    start: int
    keys: Int64
    low: Int64
    high: Int64
    first: int
    last: int
    probes: Int32 | None = None
    rows: Int32 | None = None


@dataclass
class _Stream:
    index: SharedIndex
    ring: Int64
    count: int = 0
    edge: int = 0
    indexed: list[tuple[int, int]] = field(default_factory=list)
    pending: list[Task] = field(default_factory=list)
    merging: bool = False
    frozen: bool = False
    merges: int = 0


class SharedJoin:
    """Two streams joined on one key over count windows of `window` rows.

    A tuple brings the interval of the other stream's keys that it matches. m: merge ratio (the
    paper finds 1 best with several threads). D_I: insertion depth. task_size: tuples of a task.
    `on_result(side, tuples, rows)` is called in arrival order, from one thread at a time.
    """

    def __init__(
        self,
        window: int,
        on_result: OnResult,
        *,
        threads: int = 1,
        m: float = 1.0,
        D_I: int = 2,
        task_size: int = 512,
    ) -> None:
        """Start the threads."""
        if window < 1 or task_size < 1 or not 0 < m <= 1:
            raise OptionError("window and task_size must be at least 1, and m above 0 and up to 1")
        self.window, self.task_size, self.D_I = window, task_size, D_I
        self._limit = max(task_size, int(m * window))
        self._most = 2 * self._limit + window
        self._on_result = on_result
        capacity = 1 << (2 * window + (QUEUED + 64) * task_size).bit_length()
        self._mask = capacity - 1
        self._streams = [
            _Stream(self._new_index(Css()), np.zeros(capacity, np.int64)) for _ in range(2)
        ]
        self._queue: deque[Task] = deque()
        self._unsent: deque[Task] = deque()
        self._lock = threading.Condition()
        self._sending = threading.Lock()
        self._active = 0
        self._barrier = False
        self._failure: BaseException | None = None
        self._threads: dict[threading.Thread, threading.Event] = {}
        for _ in range(threads):
            self.add_thread()

    def _new_index(self, T_S: Css) -> SharedIndex:
        # A quarter more than `_crowded` lets in, for the tasks that are under way then.
        return SharedIndex(T_S, self.D_I, self._most + self._most // 4 + 64 * self.task_size)

    def add_thread(self) -> None:
        """One more thread takes tasks from now on."""
        leave = threading.Event()
        thread = threading.Thread(target=self._work, args=(leave,), daemon=True)
        with self._lock:
            self._threads[thread] = leave
        thread.start()

    def remove_thread(self) -> None:
        """One thread leaves as soon as its task is done; tasks that are queued wait for others."""
        with self._lock:
            thread, leave = self._threads.popitem()
            leave.set()
            self._lock.notify_all()
        thread.join()

    def push(self, side: int, keys: Int64, low: Int64, high: Int64) -> None:
        """The next tuples of a stream (0 or 1), after all that were pushed before."""
        for at in range(0, keys.size, self.task_size):
            piece = slice(at, at + self.task_size)
            with self._lock:
                self._lock.wait_for(lambda: len(self._queue) < QUEUED or self._failure)
                self._raise()
                own, other = self._streams[side], self._streams[1 - side]
                size = keys[piece].size
                if own.count + size > _MOST_ROWS:
                    raise OptionError(f"a shared join takes at most {_MOST_ROWS:,} rows a stream")
                places = np.arange(own.count, own.count + size) & self._mask
                own.ring[places] = keys[piece]
                seen = max(0, other.count - self.window), other.count
                task = Task(side, own.count, keys[piece], low[piece], high[piece], *seen)
                own.count += size
                self._queue.append(task)
                self._unsent.append(task)
                self._lock.notify_all()

    def drain(self) -> None:
        """Wait until every tuple is joined and its results are handed on."""
        with self._lock:
            self._lock.wait_for(
                lambda: self._failure or not (self._queue or self._active or self._merges_run())
            )
            self._raise()
        self._send()

    def close(self) -> None:
        """Let all threads leave."""
        while self._threads:
            self.remove_thread()

    def _merges_run(self) -> bool:
        return any(stream.merging for stream in self._streams)

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _work(self, leave: threading.Event) -> None:
        busy = False
        try:
            while True:
                with self._lock:
                    self._lock.wait_for(
                        lambda: (
                            leave.is_set()
                            or (self._queue and not self._barrier and not self._crowded())
                        )
                    )
                    if leave.is_set():
                        return
                    task = self._queue.popleft()
                    self._active += 1
                    busy = True
                    own, other = self._streams[task.side], self._streams[1 - task.side]
                    index, edge, frozen = other.index, other.edge, own.frozen
                    self._lock.notify_all()
                self._probe(task, other, index, edge)
                if not frozen:
                    own.index.insert(task.keys, task.start)
                with self._lock:
                    if frozen:
                        own.pending.append(task)
                    else:
                        self._mark(own, task)
                    self._active -= 1
                    busy = False
                    merge = own.index.size >= self._limit and not own.merging and not self._barrier
                    if merge:
                        own.merging = self._barrier = True
                    self._lock.notify_all()
                self._send()
                if merge:
                    self._merge(task.side)
        except BaseException as error:
            with self._lock:
                self._failure = error
                self._active -= busy
                self._barrier = False
                self._lock.notify_all()

    def _crowded(self) -> bool:
        """Whether tasks must wait for a merge that does not keep up."""
        return any(
            stream.merging
            and stream.index.size * (not stream.frozen)
            + sum(task.keys.size for task in stream.pending)
            >= self._most
            for stream in self._streams
        )

    def _probe(self, task: Task, other: _Stream, index: SharedIndex, edge: int) -> None:
        room = 4 * task.keys.size
        while True:
            probes, rows = np.empty(room, np.int32), np.empty(room, np.int32)
            found = shared_probe(
                task.low,
                task.high,
                task.first,
                task.last,
                edge,
                index.tree,
                index.parts,
                other.ring,
                self._mask,
                probes,
                rows,
            )
            if found >= 0:
                task.probes, task.rows = probes[:found], rows[:found]
                return
            room *= 4

    def _mark(self, stream: _Stream, task: Task) -> None:
        """A task's tuples are indexed: move the edge tuple to the first that is not."""
        stream.index.size += task.keys.size
        heapq.heappush(stream.indexed, (task.start, task.start + task.keys.size))
        while stream.indexed and stream.indexed[0][0] == stream.edge:
            stream.edge = heapq.heappop(stream.indexed)[1]

    def _send(self) -> None:
        """Hand on results from the head of the queue, if no other thread is at it."""
        while self._unsent and self._unsent[0].rows is not None:
            if not self._sending.acquire(blocking=False):
                return
            try:
                while self._unsent and self._unsent[0].rows is not None:
                    task = self._unsent.popleft()
                    assert task.probes is not None
                    assert task.rows is not None
                    self._on_result(task.side, task.start + task.probes.astype(np.int64), task.rows)
            finally:
                self._sending.release()

    def _pause(self) -> None:
        """Wait, with the lock held, until no task is under way; none begins while `_barrier`."""
        self._lock.wait_for(lambda: self._active == 0)

    def _merge(self, side: int) -> None:
        """The two phases of Section 4.2."""
        stream = self._streams[side]
        with self._lock:
            self._pause()
            stream.frozen, self._barrier = True, False
            waiting = [task.first for task in self._queue if task.side != side]
            first = min(waiting, default=max(0, stream.count - self.window))
            self._lock.notify_all()
        merged = stream.index.T_S.merged(*stream.index.rows(), first)
        fresh = self._new_index(merged)
        with self._lock:
            # Another stream's merge may be at one of its barriers.
            self._lock.wait_for(lambda: not self._barrier)
            self._barrier = True
            self._pause()
            stream.index, stream.frozen, self._barrier = fresh, False, False
            pending, stream.pending = stream.pending, []
            self._lock.notify_all()
        for task in pending:
            fresh.insert(task.keys, task.start)
            with self._lock:
                self._mark(stream, task)
        with self._lock:
            stream.merging = False
            stream.merges += 1
            self._lock.notify_all()

    @property
    def merges(self) -> int:
        """Merges done."""
        return sum(stream.merges for stream in self._streams)
