"""Ctrl-C: the first ends a command in order, the second at once, both with one line."""

from __future__ import annotations

import _thread
import atexit
import logging
import os
import signal
import sys
import threading
from typing import Any

from thetajoin.cli import INTERRUPTED, STOPPED

AGAIN_S = 0.05  # until a Ctrl-C that was lost is tried again
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


def check_interrupted() -> None:
    """Raise a Ctrl-C again that a library has caught; for what must not go on after one."""
    if _came.is_set():
        raise KeyboardInterrupt


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
    """Python has lost an exception; a Ctrl-C among them comes again, where it will be heard."""
    if not _came.is_set():
        sys.__unraisablehook__(given)
    elif given.exc_type is KeyboardInterrupt:
        signal.signal(signal.SIGINT, _first)
        again = threading.Timer(AGAIN_S, _again)
        again.daemon = True
        again.start()


def _again() -> None:
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:  # Windows, where it is heard with the next step that Python takes
        _thread.interrupt_main()


def _at_the_end() -> None:
    """Python forgets handlers before it has ended, and a late Ctrl-C would change the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _first(_number: int, _frame: Any) -> None:
    _came.set()
    signal.signal(signal.SIGINT, _second)
    raise KeyboardInterrupt


def _second(_number: int, _frame: Any) -> None:
    """Whoever presses twice will not wait for what is being put away; Spark's JVM ends with us."""
    if not _told.is_set():
        os.write(2, STOPPED)
    os._exit(INTERRUPTED)
