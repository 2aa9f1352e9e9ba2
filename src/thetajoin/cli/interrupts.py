"""Ctrl-C: the first ends a command in order, the second at once, both with one line."""

from __future__ import annotations

import atexit
import logging
import signal
import sys
import threading
from typing import Any

from thetajoin.cli import end_at_once

_came = threading.Event()
_told = threading.Event()
_after: list[str] = []


def take_over() -> None:
    """Handle Ctrl-C here, and keep others from reporting it.

    PySpark's connection to the JVM logs a traceback when Ctrl-C comes while it waits for an answer.
    Python itself reports one that comes while it tidies an object up, and goes on.
    """
    _came.clear()
    _told.clear()
    _after.clear()
    logging.getLogger().addHandler(logging.NullHandler())
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _first)
        sys.unraisablehook = _unraisable
        atexit.unregister(_at_the_end)
        atexit.register(_at_the_end)


def interrupted() -> bool:
    """Whether Ctrl-C was pressed, whatever has become of the exception that it raised."""
    return _came.is_set()


def after_stopping(text: str) -> None:
    """What to say beside that it was stopped."""
    _after[:] = [f": {text}"]


def stopped() -> None:
    """Say so, once."""
    if not _told.is_set():
        _told.set()
        from thetajoin.cli.terminal import complain

        complain(f"stopped{''.join(_after)}")


def _unraisable(given: Any) -> None:
    if not _came.is_set():
        sys.__unraisablehook__(given)


def _at_the_end() -> None:
    """Python forgets handlers before it has ended, and a late Ctrl-C would change the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _first(_number: int, _frame: Any) -> None:
    _came.set()
    signal.signal(signal.SIGINT, _second)
    raise KeyboardInterrupt


def _second(_number: int, _frame: Any) -> None:
    """Whoever presses twice will not wait for what is being put away; Spark's JVM ends with us."""
    end_at_once(told=_told.is_set())
