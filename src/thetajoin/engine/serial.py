"""One call at a time, whole or not at all: operators whose state several threads may reach."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from thetajoin.errors import ThetaJoinError
from thetajoin.kernels.threads import new_lock

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class _Locked(Protocol):
    _lock: threading.RLock


class _Operator(_Locked, Protocol):
    # All that calls change: one value, which is replaced and never changed itself.
    _now: Any


L = TypeVar("L", bound=_Locked)
S = TypeVar("S", bound=_Operator)


class ForgottenError(Exception):
    """A call that fails because of an earlier one, which `now` has forgotten."""

    def __init__(self, now: Any, cause: ThetaJoinError) -> None:
        super().__init__(str(cause))
        self.now, self.cause = now, cause


def serial(method: Callable[Concatenate[L, P], R]) -> Callable[Concatenate[L, P], R]:
    """A method that waits until no other such method of the same object runs."""

    @functools.wraps(method)
    def one_at_a_time(self: L, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._lock: return method(self, *args, **kwargs)  # noqa: E701  # fmt: skip

    return one_at_a_time


def atomic(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """A `serial` method that happens whole or not at all, whatever is raised in it and where.

    It makes what is to become the state aside and assigns that to `_now`. An exception that comes
    even later, as Ctrl-C may, puts the old value back, which is still as it was.
    """

    @functools.wraps(method)
    def whole_or_not(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        before = self._now
        try:
            return method(self, *args, **kwargs)
        except ForgottenError as error:
            self._now = error.now
            raise error.cause from None
        except BaseException:
            self._now = before
            raise

    @functools.wraps(method)
    def one_at_a_time(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        # On one line, as above, so that nothing is interrupted between the result and the caller.
        with self._lock: return whole_or_not(self, *args, **kwargs)  # noqa: E701  # fmt: skip

    return one_at_a_time


class SerialIterator(Iterator[T]):
    """An iterator that several threads may take from: each item goes to one of them.

    >>> next(SerialIterator(iter([1, 2])))
    1
    """

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._lock = new_lock(self)

    @serial
    def __next__(self) -> T:
        return next(self._items)
