"""Where a command begins, and how it ends: Ctrl-C, its exit code, and one line for what went wrong.

Little is imported here, so that Ctrl-C is handled before anything slow is. The first Ctrl-C ends a
command in order, the second at once.
"""

from __future__ import annotations

import _thread
import atexit
import errno
import logging
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from thetajoin.cli import INTERRUPTED, STOPPED
from thetajoin.edge import TRACEBACK, Shown
from thetajoin.errors import ThetaJoinError, one_line

AGAIN_S = 0.05  # until a Ctrl-C that was lost is tried again
_came = threading.Event()
_said = threading.Event()
_after: list[str] = []


def main(command: Callable[[], int] | None = None) -> None:
    """Run a command; a user's mistake is one line on stderr and exit code 1.

    `command` runs and gives its exit code; by default it is ``thetajoin``, as typed.
    """
    take_over()
    Shown.allowed = False
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A terminal may have fewer letters than a user's data.
            stream.reconfigure(errors="backslashreplace")
    warnings.showwarning = lambda message, *_where, **_more: _warn(message)
    try:
        code = (command or _call_app)()
        sys.stdout.flush()
    except BaseException as error:
        # What Ctrl-C raised may have become another error on its way.
        code = INTERRUPTED if was_interrupted() else _end_by(error)
    if code == INTERRUPTED:
        say_stopped()
    sys.exit(code)


def _warn(message: Warning | str) -> None:
    """Print a warning in one line, without the place in the program that gave it."""
    from thetajoin.cli.terminal import complain

    complain(one_line(f"warning: {message}"))


def _call_app() -> int:
    from thetajoin.cli.app import app

    ended = app(args=sys.argv[1:] or ["--help"], prog_name="thetajoin", standalone_mode=False)
    return ended if isinstance(ended, int) else 0


def _end_by(error: BaseException) -> int:
    """Report the error that ended a command, unless nobody needs to know; gives the exit code."""
    from thetajoin.cli.terminal import complain
    from thetajoin.secrets import any_known, redact

    if isinstance(error, SystemExit):
        raise error
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort":
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        _discard_output()
        return 0  # whoever reads has had enough
    message = _explain(error)
    if message is None:
        if os.environ.get(TRACEBACK):
            if not any_known():
                raise error
            sys.stderr.write(redact("".join(traceback.format_exception(error))))
            return 1
        message = f"unexpected {type(error).__name__}: {error} ({TRACEBACK}=1 shows where)"
    complain(one_line(message))
    return 1


def _explain(error: BaseException) -> str | None:
    """The message of an error that can be expected; None for a bug."""
    if isinstance(error, ThetaJoinError):
        return str(error)
    # The base of all that is wrong with a command's words; typer has it from a copy of click or
    # from click itself, and gives it no name of its own.
    if any(kind.__name__ == "ClickException" for kind in type(error).__mro__):
        return _explain_words(error)
    if isinstance(error, OSError):
        return _explain_system(error)
    if isinstance(error, MemoryError):
        return "there is not enough memory for this"
    return None


def _explain_words(error: Any) -> str:
    command = error.ctx.command_path if getattr(error, "ctx", None) is not None else "thetajoin"
    return f"{error.format_message().rstrip('.')} (see {command} --help)"


def _explain_system(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return f"no space is left on the disk{f' of {error.filename}' if error.filename else ''}"
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)


def _discard_output() -> None:
    """Discard what Python still has to write, so that it does not complain at its end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def take_over() -> None:
    """Handle Ctrl-C here, and keep others from reporting it.

    PySpark's connection to the JVM logs a traceback when Ctrl-C comes while it waits for an answer.
    Python itself reports one that comes while it tidies an object up, and goes on.
    """
    _came.clear()
    _said.clear()
    _after.clear()
    logging.getLogger().addHandler(logging.NullHandler())
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _on_first)
        sys.unraisablehook = _on_unraisable
        atexit.unregister(_ignore_late)
        atexit.register(_ignore_late)


def was_interrupted() -> bool:
    """Whether Ctrl-C was pressed, whatever has become of the exception that it raised."""
    return _came.is_set()


def check_interrupted() -> None:
    """Raise Ctrl-C again if a library has caught it; for work that must not go on after one."""
    if _came.is_set():
        raise KeyboardInterrupt


def after_stopping(text: str) -> None:
    """Set what is said in addition when the command has been stopped."""
    _after[:] = [f": {text}"]


def say_stopped() -> None:
    """Say that the command was stopped, once."""
    if not _said.is_set():
        _said.set()
        from thetajoin.cli.terminal import complain

        complain(f"stopped{''.join(_after)}")


def _on_unraisable(given: Any) -> None:
    """Python has lost an exception; a Ctrl-C among them comes again, where it will be heard."""
    if not _came.is_set():
        sys.__unraisablehook__(given)
    elif given.exc_type is KeyboardInterrupt:
        signal.signal(signal.SIGINT, _on_first)
        again = threading.Timer(AGAIN_S, _interrupt_again)
        again.daemon = True
        again.start()


def _interrupt_again() -> None:
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:  # Windows, where it is heard with the next step that Python takes
        _thread.interrupt_main()


def _ignore_late() -> None:
    """Python forgets handlers before it has ended, and a late Ctrl-C would change the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _on_first(_number: int, _frame: Any) -> None:
    _came.set()
    signal.signal(signal.SIGINT, _on_second)
    raise KeyboardInterrupt


def _on_second(_number: int, _frame: Any) -> None:
    """Whoever presses twice will not wait for what is being put away; Spark's JVM ends with us."""
    if not _said.is_set():
        os.write(2, STOPPED)
    os._exit(INTERRUPTED)
