"""One call at a time: operators whose state several threads may reach."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class _Locked(Protocol):
    _lock: threading.RLock


S = TypeVar("S", bound=_Locked)


def serial(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """A method that waits until no other such method of the same object runs."""

    @functools.wraps(method)
    def one_at_a_time(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._lock:
            return method(self, *args, **kwargs)

    return one_at_a_time


class SerialIterator(Iterator[T]):
    """An iterator that several threads may take from: each item goes to one of them.

    >>> next(SerialIterator(iter([1, 2])))
    1
    """

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._lock = threading.RLock()

    @serial
    def __next__(self) -> T:
        return next(self._items)
