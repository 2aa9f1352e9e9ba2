"""Loops over arrays on several threads: kernels release Python's lock while they run."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

# Fewer items of an array than this are not worth a thread.
LEAST_ITEMS = 1 << 16


@dataclass(frozen=True)
class Mapper:
    """Calls a function with each of several items, on the threads of a pool if there is one.

    Such a function must not use the same mapper: all its threads may be waiting.
    """

    pool: Executor | None = None
    threads: int = 1

    def __call__(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """The results in the order of the items."""
        items = list(items)
        if self.pool is None or len(items) < 2:
            return [function(item) for item in items]
        return list(self.pool.map(function, items))

    def pieces(self, size: int) -> list[tuple[int, int]]:
        """About equal ranges of an array, one for each thread; one for all if it is small.

        >>> Mapper(threads=2).pieces(5)
        [(0, 5)]
        """
        count = max(1, min(self.threads, size // LEAST_ITEMS))
        return list(pairwise(size * at // count for at in range(count + 1)))


ALONE = Mapper()


@contextmanager
def use_threads(threads: int) -> Iterator[Mapper]:
    """A mapper with that many threads, which live as long as the context."""
    if threads < 2:
        yield ALONE
        return
    with ThreadPoolExecutor(threads) as pool:
        yield Mapper(pool, threads)


_with_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def new_lock(owner: object) -> threading.RLock:
    """A lock for an object's `_lock`, which is replaced by a free one in the child of a fork.

    The thread that held the lock in the parent is not there to release it.
    """
    _with_locks.add(owner)
    return threading.RLock()


def _renew_locks() -> None:
    for owner in list(_with_locks):
        owner._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)
