"""How kernels are declared, and the machine instructions that numba does not offer.

Importing numba takes longer than most joins, so it is put off until a kernel must be fast. Until
then, tables of a few rows are joined by running the kernels as the Python functions they are. The
two never mix: a thread that runs one kernel as Python runs all of them that way, and numba compiles
copies of the functions, whose own globals hold the compiled callees. With ``NUMBA_DISABLE_JIT=1``
kernels are always Python, which is how the tests step through them.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, update_wrapper
from types import CodeType, FunctionType
from typing import Any

import numpy as np

COMPILES = os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
FEW_ROWS = 64
# Seconds of joining with kernels as Python after which numba would have been the better choice.
PATIENCE = 0.2

_making = threading.RLock()


class _Plain(threading.local):
    """Whether this thread runs kernels as Python."""

    on = False


_plain = _Plain()
_left = PATIENCE
_loaded = False


# What a fork holds, so that no other thread is compiling just then: in the child that thread would
# not be there to release its locks, and the next call would wait for ever.
_held_by_fork: list[Any] = []


def _hold_locks() -> None:
    numba = sys.modules.get("numba.core.compiler_lock")
    for lock in (_making, getattr(numba, "global_compiler_lock", None)):
        if lock is not None:
            lock.acquire()
            _held_by_fork.append(lock)


def _release_locks() -> None:
    while _held_by_fork:
        _held_by_fork.pop().release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_hold_locks, after_in_parent=_release_locks, after_in_child=_release_locks
    )


class Kernel:
    """A function that numba compiles at its first call, together with the kernels it calls.

    `make` gives the dispatcher that numba makes of a function, or the intrinsic it has instead.
    """

    def __init__(
        self, function: Callable[..., Any], make: Callable[[Callable[..., Any]], Any]
    ) -> None:
        update_wrapper(self, function)
        self.py_func = function
        self._make = make
        self._compiled: Any = None

    def __call__(self, *args: Any) -> Any:
        """Call the compiled function, and compile it first if it is not compiled yet."""
        if _plain.on:
            return self.py_func(*args)
        compiled = self._compiled
        if compiled is None:
            compiled = self.compile()
        return compiled(*args)

    def compile(self) -> Any:
        """The dispatcher or intrinsic; this imports numba."""
        global _loaded
        with _making:
            if self._compiled is None:
                self._compiled = self._make(_with_compiled_callees(self.py_func))
                _loaded = True
        return self._compiled


def _with_compiled_callees(function: Callable[..., Any]) -> Callable[..., Any]:
    """A copy of a function that calls compiled kernels: numba looks for them in its globals."""
    assert isinstance(function, FunctionType)
    callees = _compile_callees(function.__code__, function.__globals__)
    if not callees:
        return function
    names = function.__globals__ | callees
    copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__)
    return update_wrapper(copy, function)


def _compile_callees(code: CodeType, names: dict[str, Any]) -> dict[str, Any]:
    """The compiled kernels that a function calls, by their names."""
    found = {
        name: names[name].compile() for name in code.co_names if isinstance(names.get(name), Kernel)
    }
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _compile_callees(constant, names)
    return found


def _kernel(function: Callable[..., Any], **options: Any) -> Any:
    def make(function: Callable[..., Any]) -> Any:
        from thetajoin.kernels.compiler import compile_kernel

        return compile_kernel(function, **options)

    return Kernel(function, make) if COMPILES else function


def instruction(module: str) -> Callable[[Callable[..., Any]], Any]:
    """An instruction: numba takes that of the same name in `module`, Python the function itself."""

    def decorate(function: Callable[..., Any]) -> Any:
        def make(function: Callable[..., Any]) -> Any:
            from importlib import import_module

            return getattr(import_module(module), function.__name__)

        return Kernel(function, make) if COMPILES else function

    return decorate


@contextmanager
def few_rows(rows: int) -> Iterator[None]:
    """Run kernels as Python in this thread where so few rows are not worth importing numba.

    Once some kernel has been compiled, all are.
    """
    global _left
    if _plain.on or _loaded or rows > FEW_ROWS or _left <= 0 or not COMPILES:
        yield
        return
    began = time.thread_time()
    _plain.on = True
    try:
        with np.errstate(all="ignore"):  # integers wrap around, as compiled ones do
            yield
    finally:
        _plain.on = False
        _left -= time.thread_time() - began


kernel = partial(_kernel, nogil=True, error_model="numpy")
inlined = partial(_kernel, nogil=True, error_model="numpy", inline="always")

_step = instruction("thetajoin.kernels.compiler")


@_step
def trailing_zeros(word: Any) -> int:
    """Position of the lowest set bit of a non-zero 64-bit word."""
    value = int(word)
    return (value & -value).bit_length() - 1


@_step
def population(word: Any) -> int:
    """Number of set bits of a 64-bit word."""
    return int(word).bit_count()


@_step
def bits_of(value: Any) -> np.int64:
    """A double's bits as an integer."""
    return np.float64(value).view(np.int64)


@_step
def double_of(bits: Any) -> np.float64:
    """The double that has these bits."""
    return np.int64(bits).view(np.float64)


ONE = np.uint64(1)
ALL_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)
WORD_MASK = np.uint64(63)
