"""The parallel join of two streams over one shared index for each (PIM-Tree, Section 4).

Threads take tasks, a few hundred tuples each, from one queue in arrival order. A task puts its
tuples into its stream's PIM-Tree, looks them up in the other stream's, up to that stream's edge
tuple (the first that is not indexed yet), and searches the few rows from there on in the window.
Results are handed on in arrival order. Threads may join and leave at any time.

A full T_I is merged without stopping the others, in two phases. While the merging thread builds the
new tree, new rows go to a second T_I beside the full one; then it moves those to the new tree, and
only the tasks that come while the last of them move leave their rows to the window search.
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
from thetajoin.papers.kernels.pim_join import Parts, Seen, Tree, shared_insert, shared_probe
from thetajoin.papers.structures.b_plus_tree import F_B, BTree
from thetajoin.papers.structures.css_tree import Css
from thetajoin.papers.structures.structure import Int32

OnResult = Callable[[int, Int64, Int32], Any]
# Tasks that may wait before `push` does, and threads that may take them.
QUEUED, MOST_THREADS = 64, 64
# Rounds in which rows of a second T_I move to the new tree while more may come.
MOVES = 3
_MOST_ROWS = (1 << 31) - 1


class SharedIndex:
    """A PIM-Tree whose partitions have locks; nodes for all rows that may come are there."""

    def __init__(self, T_S: Css, D_I: int, rows: int) -> None:
        """Partitions under `T_S` with room for `rows` rows: arrays that are shared cannot grow."""
        self.T_S = T_S
        depth = min(D_I, T_S.levels)
        partitions = T_S.nodes(depth)
        self._trees = trees = BTree(F_B, partitions, rows + partitions * F_B)
        self.tree = Tree(T_S.keys, T_S.rid, T_S.directory, T_S.offsets, T_S.f_ib)
        locks = np.zeros(partitions, np.int64)
        self.parts = Parts(trees.pool, trees.leaves, locks, depth)
        self.size = 0
        # Tasks that are putting rows in.
        self.inserting = 0

    def insert(self, keys: Int64, first: int) -> None:
        """Put rows in, numbered from `first`; other threads may do the same."""
        shared_insert(keys, first, self.tree, self.parts)

    def rows(self) -> tuple[Int64, Int32]:
        """What T_I holds, in key order."""
        self._trees.size = self.size
        return self._trees.rows()


@dataclass(eq=False)
class Task:
    """Tuples of one stream that came together, and the rows of the other that they may see."""

    side: int
    start: int
    keys: Int64
    low: Int64
    high: Int64
    first: int
    last: int
    target: SharedIndex | None = None
    probes: Int32 | None = None
    rows: Int32 | None = None


@dataclass
class _Stream:
    """One stream's rows.

    layers: the index, and during a merge the second T_I. target: where new rows go. limit: the
    first row that the layers may lack though it is before the edge tuple.
    """

    ring: Int64
    layers: list[SharedIndex]
    target: SharedIndex
    count: int = 0
    edge: int = 0
    limit: int = _MOST_ROWS
    indexed: list[tuple[int, int]] = field(default_factory=list)
    moving: list[Task] = field(default_factory=list)
    merging: bool = False
    merges: int = 0

    def mark(self, task: Task) -> None:
        """A task's tuples are indexed: move the edge tuple to the first that is not."""
        heapq.heappush(self.indexed, (task.start, task.start + task.keys.size))
        while self.indexed and self.indexed[0][0] == self.edge:
            self.edge = heapq.heappop(self.indexed)[1]


class SharedJoin:
    """Two streams joined on one key over count windows of `window` rows.

    A tuple brings the interval of the other stream's keys that it matches. m: merge ratio (the
    paper finds 1 best with several threads). D_I: insertion depth. task_size: tuples of a task.
    `on_result(side, tuples, rows)` is called in arrival order, from one thread at a time, with the
    numbers of the pushed tuples and of the other stream's rows that they match.

    >>> import numpy as np
    >>> found = []
    >>> join = SharedJoin(1000, lambda *match: found.append(match), threads=2)
    >>> left, right = np.array([10, 20, 30]), np.array([19, 50])
    >>> join.push(0, left, left - 2, left + 2)
    >>> join.push(1, right, right - 2, right + 2)
    >>> join.drain()
    >>> [(side, tuples.tolist(), rows.tolist()) for side, tuples, rows in found]
    [(0, [], []), (1, [0], [1])]
    >>> join.close()
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
        self._full = max(task_size, int(m * window))
        self._on_result = on_result
        capacity = 1 << (2 * window + (QUEUED + MOST_THREADS) * task_size).bit_length()
        self._mask = capacity - 1
        self._streams = [self._new_stream(capacity) for _ in range(2)]
        self._queue: deque[Task] = deque()
        self._active: set[Task] = set()
        self._unsent: deque[Task] = deque()
        self._lock = threading.RLock()
        self._ready, self._room, self._calm, self._idle = (
            threading.Condition(self._lock) for _ in range(4)
        )
        self._sending = threading.Lock()
        self._failure: BaseException | None = None
        self._threads: dict[threading.Thread, threading.Event] = {}
        for _ in range(threads):
            self.add_thread()

    def _new_stream(self, capacity: int) -> _Stream:
        index = self._new_index(Css())
        return _Stream(np.zeros(capacity, np.int64), [index], index)

    def _new_index(self, T_S: Css) -> SharedIndex:
        # The rows of a second T_I, which `_must_wait` bounds, then as many as make a merge due; and
        # the tasks that are under way at either time.
        return SharedIndex(T_S, self.D_I, 2 * self._full + 2 * MOST_THREADS * self.task_size)

    def add_thread(self) -> None:
        """One more thread takes tasks from now on."""
        leave = threading.Event()
        thread = threading.Thread(target=self._work, args=(leave,), daemon=True)
        with self._lock:
            if len(self._threads) == MOST_THREADS:
                raise OptionError(f"a shared join has at most {MOST_THREADS} threads")
            self._threads[thread] = leave
        thread.start()

    def remove_thread(self) -> None:
        """One thread leaves as soon as its task is done; tasks that are queued wait for others."""
        with self._lock:
            thread, leave = self._threads.popitem()
            leave.set()
            self._ready.notify_all()
        thread.join()

    def push(self, side: int, keys: Int64, low: Int64, high: Int64) -> None:
        """The next tuples of a stream (0 or 1), after all that were pushed before."""
        own, other = self._streams[side], self._streams[1 - side]
        for at in range(0, keys.size, self.task_size):
            piece = slice(at, at + self.task_size)
            size = keys[piece].size
            with self._lock:
                if len(self._queue) >= QUEUED:
                    # Room for many at once: being woken for each would cost more than the task.
                    self._room.wait_for(lambda: len(self._queue) <= QUEUED // 2 or self._failure)
                self._raise()
                if own.count + size > _MOST_ROWS:
                    raise OptionError(f"a shared join takes at most {_MOST_ROWS:,} rows a stream")
                own.ring[np.arange(own.count, own.count + size) & self._mask] = keys[piece]
                seen = max(0, other.count - self.window), other.count
                task = Task(side, own.count, keys[piece], low[piece], high[piece], *seen)
                own.count += size
                self._queue.append(task)
                self._unsent.append(task)
                self._ready.notify()

    def drain(self) -> None:
        """Wait until every tuple is joined and its results are handed on."""
        with self._lock:
            self._idle.wait_for(lambda: self._failure or self._done())
            self._raise()

    def close(self) -> None:
        """Let all threads leave."""
        while self._threads:
            self.remove_thread()

    @property
    def merges(self) -> int:
        """Merges done."""
        return sum(stream.merges for stream in self._streams)

    def _done(self) -> bool:
        merging = any(stream.merging for stream in self._streams)
        return not (self._queue or self._active or merging)

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _work(self, leave: threading.Event) -> None:
        task: Task | None = None
        try:
            while (task := self._next(leave)) is not None:
                assert task.target is not None
                task.target.insert(task.keys, task.start)
                self._probe(task, *self._publish(task, task.target))
                self._send()
                if self._finish(task):
                    self._merge(task.side)
        except BaseException as error:
            with self._lock:
                self._failure = error
                if task is not None:
                    self._active.discard(task)
                for waiting in (self._ready, self._room, self._calm, self._idle):
                    waiting.notify_all()

    def _next(self, leave: threading.Event) -> Task | None:
        """The next task, with the index that its rows go to; None if this thread is to leave."""
        with self._lock:
            self._ready.wait_for(lambda: leave.is_set() or (self._queue and not self._must_wait()))
            if leave.is_set():
                self._ready.notify()  # for a task that this thread was woken for
                return None
            task = self._queue.popleft()
            self._active.add(task)
            task.target = self._streams[task.side].target
            task.target.inserting += 1
            if len(self._queue) == QUEUED // 2:
                self._room.notify_all()
            return task

    def _must_wait(self) -> bool:
        """Whether tasks must wait for a merge that does not keep up."""
        return any(s.merging and s.target.size >= self._full for s in self._streams)

    def _publish(self, task: Task, target: SharedIndex) -> tuple[list[SharedIndex], int]:
        """A task's rows are in; what it may look into now, and up to which row that is complete."""
        own, other = self._streams[task.side], self._streams[1 - task.side]
        with self._lock:
            target.inserting -= 1
            target.size += task.keys.size
            if own.merging:
                if target is own.layers[-1] and len(own.layers) == 2:
                    own.moving.append(task)
                if not target.inserting:
                    self._calm.notify_all()
            own.mark(task)
            return other.layers, min(other.edge, other.limit)

    def _probe(self, task: Task, layers: list[SharedIndex], edge: int) -> None:
        other = self._streams[1 - task.side]
        parts = tuple(index.parts for index in layers)
        seen = Seen(task.first, task.last, edge, other.ring, self._mask)
        room = 4 * task.keys.size
        while True:
            probes, rows = np.empty(room, np.int32), np.empty(room, np.int32)
            found = shared_probe(task.low, task.high, seen, layers[0].tree, parts, probes, rows)
            if found >= 0:
                task.probes, task.rows = probes[:found], rows[:found]
                return
            room *= 4

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

    def _finish(self, task: Task) -> bool:
        """A task is done; whether its stream's merge is due, and this thread's to do."""
        own = self._streams[task.side]
        with self._lock:
            self._active.discard(task)
            due = own.target.size >= self._full and not own.merging
            own.merging |= due
            if self._done():
                self._idle.notify_all()
            return due

    def _merge(self, side: int) -> None:
        """The two phases of Section 4.2; no task waits for them."""
        stream = self._streams[side]
        full = stream.target
        second = self._new_index(full.T_S)
        with self._lock:
            stream.layers, stream.target = [full, second], second
            self._wait_for_inserters(full)
            waiting = [t.first for t in (*self._queue, *self._active) if t.side != side]
            first = min(waiting, default=max(0, stream.count - self.window))
        fresh = self._new_index(full.T_S.merge(*full.rows(), first))
        for _ in range(MOVES):
            self._move(stream, fresh)
        with self._lock:
            later = (task.start for task in self._queue if task.side == side)
            stream.target, stream.limit = fresh, next(later, stream.count)
            self._wait_for_inserters(second)
        self._move(stream, fresh)
        with self._lock:
            stream.layers, stream.limit, stream.merging = [fresh], _MOST_ROWS, False
            stream.merges += 1
            self._ready.notify_all()
            if self._done():
                self._idle.notify_all()

    def _wait_for_inserters(self, index: SharedIndex) -> None:
        self._calm.wait_for(lambda: not index.inserting or self._failure)
        self._raise()

    def _move(self, stream: _Stream, fresh: SharedIndex) -> None:
        """Put the rows that the second T_I got into the new tree as well."""
        with self._lock:
            moving, stream.moving = stream.moving, []
        for task in moving:
            fresh.insert(task.keys, task.start)
        with self._lock:
            fresh.size += sum(task.keys.size for task in moving)
