"""Ctrl-C: the first ends a command in order, the second at once, both with one line."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import threading
from typing import Any

from thetajoin.cli.terminal import complain

INTERRUPTED = 130  # the exit code of a command that Ctrl-C has ended
_told = threading.Event()


def take_over() -> None:
    """Handle Ctrl-C here, and keep others from reporting it.

    PySpark's connection to the JVM logs a traceback when Ctrl-C comes while it waits for an answer.
    """
    _told.clear()
    logging.getLogger().addHandler(logging.NullHandler())
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _first)
        atexit.unregister(_at_the_end)
        atexit.register(_at_the_end)


def stopped() -> None:
    """Say so, once."""
    if not _told.is_set():
        _told.set()
        complain("stopped")


def _at_the_end() -> None:
    """Python forgets handlers before it has ended, and a late Ctrl-C would change the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _first(_number: int, _frame: Any) -> None:
    signal.signal(signal.SIGINT, _second)
    raise KeyboardInterrupt


def _second(_number: int, _frame: Any) -> None:
    """Whoever presses twice will not wait for what is being put away; Spark's JVM ends with us."""
    if not _told.is_set():
        os.write(2, b"thetajoin: stopped\n")
    os._exit(INTERRUPTED)
