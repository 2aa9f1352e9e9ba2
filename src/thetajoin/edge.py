"""Where a user's call comes in: what they see of an error, and of a call that takes long."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import ParamSpec, TypeVar

from thetajoin.errors import ThetaJoinError, UnknownOptionError, enough_memory

# Set, it has errors shown with where in this package they were raised, and why.
TRACEBACK = "THETAJOIN_TRACEBACK"
AFTER_S, EVERY_S = 2.0, 0.5  # until a call shows that it goes on; between two pictures of that

P = ParamSpec("P")
R = TypeVar("R")
_calls = threading.local()


class Shown:
    """Whether calls show that they go on; the command does that itself."""

    allowed = True


def public(advice: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A function that users call; `advice` is for when memory runs out.

    What goes wrong is raised from here, so that a traceback shows little but the user's own lines.
    A call that takes long shows a line: on a terminal, or wherever ``progress=True`` asks for it.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if getattr(_calls, "inside", False):
                return function(*args, **kwargs)
            asked = kwargs.pop("progress") if isinstance(kwargs.get("progress"), bool) else None
            if asked is None:  # Spark shows its own progress
                modules = (str(getattr(type(arg), "__module__", "")) for arg in args)
                on_spark = any(module.startswith("pyspark.") for module in modules)
                asked = Shown.allowed and not on_spark and sys.stderr.isatty()
            try:
                _calls.inside, _calls.rows = True, [0]
                with enough_memory(advice), _shown(_calls.rows) if asked else nullcontext():
                    return function(*args, **kwargs)
            except UnknownOptionError as error:
                if not error.known:
                    raise plain(error) from None
                arguments = inspect.signature(function).parameters
                raise UnknownOptionError.of(error.name, error.known, arguments) from None
            except (ThetaJoinError, KeyboardInterrupt) as error:
                if os.environ.get(TRACEBACK):
                    raise
                raise plain(error) from None
            finally:
                _calls.inside = False

        return call

    return decorate


E = TypeVar("E", bound=BaseException)


def plain(error: E) -> E:
    """The error without where in this package it was raised."""
    return error if os.environ.get(TRACEBACK) else error.with_traceback(None)


def count_rows(rows: int) -> None:
    """Add to the rows that the call which goes on has found."""
    if (found := getattr(_calls, "rows", None)) is not None:
        found[0] += rows


@contextmanager
def _shown(rows: list[int]) -> Iterator[None]:
    """Show a line on stderr once the block has taken long, and take it away at its end."""
    ended = threading.Event()
    shower = threading.Thread(
        target=_show, args=(ended, rows), name="thetajoin-progress", daemon=True
    )
    shower.start()
    try:
        yield
    finally:
        ended.set()
        shower.join()


def _show(ended: threading.Event, rows: list[int]) -> None:
    begun, told = time.monotonic(), ""
    while not ended.wait(EVERY_S if told else AFTER_S):
        found = f"{rows[0]:,} rows so far, " if rows[0] else ""
        told = f"thetajoin: {found}{time.monotonic() - begun:,.0f} s; Ctrl-C stops it"
        sys.stderr.write(f"\r{told}")
        sys.stderr.flush()
    if told:
        sys.stderr.write(f"\r{' ' * len(told)}\r")
        sys.stderr.flush()
