"""Where the command begins, and how it ends: its exit code, and one line for what went wrong.

Little is imported here, so that Ctrl-C is handled before anything slow is.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from thetajoin.cli import INTERRUPTED
from thetajoin.cli.interrupts import interrupted, stopped, take_over
from thetajoin.errors import ThetaJoinError, one_line

# Set, it has an error that this program did not expect shown with its traceback.
TRACEBACK = "THETAJOIN_TRACEBACK"


def main(command: Callable[[], int] | None = None) -> None:
    """Run a command; a user's mistake is one line on stderr and exit code 1.

    `command` runs and gives its exit code; by default it is ``thetajoin``, as typed.
    """
    take_over()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A terminal may have fewer letters than a user's data.
            stream.reconfigure(errors="backslashreplace")
    warnings.showwarning = lambda message, *_where, **_more: _warn(message)
    try:
        code = (command or _called)()
        sys.stdout.flush()
    except BaseException as error:
        # What Ctrl-C raised may have become another error on its way.
        code = INTERRUPTED if interrupted() else _ended_by(error)
    if code == INTERRUPTED:
        stopped()
    sys.exit(code)


def _warn(message: Warning | str) -> None:
    """A warning in one line; where in the program it was given is of no use to who types."""
    from thetajoin.cli.terminal import complain

    complain(one_line(f"warning: {message}"))


def _called() -> int:
    from thetajoin.cli.app import app

    ended = app(args=sys.argv[1:] or ["--help"], prog_name="thetajoin", standalone_mode=False)
    return ended if isinstance(ended, int) else 0


def _ended_by(error: BaseException) -> int:
    """The exit code of a command that an error has ended, which is told if it is to be."""
    from thetajoin.cli.terminal import complain
    from thetajoin.secrets import any_known, redact

    if isinstance(error, SystemExit):
        raise error
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort":
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        _discard_output()
        return 0  # whoever reads has had enough
    message = _message(error)
    if message is None:
        if os.environ.get(TRACEBACK):
            if not any_known():
                raise error
            sys.stderr.write(redact("".join(traceback.format_exception(error))))
            return 1
        message = f"unexpected {type(error).__name__}: {error} ({TRACEBACK}=1 shows where)"
    complain(one_line(message))
    return 1


def _message(error: BaseException) -> str | None:
    """What to tell of an error that has to be expected."""
    if isinstance(error, ThetaJoinError):
        return str(error)
    # The base of all that is wrong with a command's words; typer has it from a copy of click or
    # from click itself, and gives it no name of its own.
    if any(kind.__name__ == "ClickException" for kind in type(error).__mro__):
        return _about_words(error)
    if isinstance(error, OSError):
        return _about_system(error)
    if isinstance(error, MemoryError):
        return "there is not enough memory for this"
    return None


def _about_words(error: Any) -> str:
    command = error.ctx.command_path if getattr(error, "ctx", None) is not None else "thetajoin"
    return f"{error.format_message().rstrip('.')} (see {command} --help)"


def _about_system(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return f"no space is left on the disk{f' of {error.filename}' if error.filename else ''}"
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)


def _discard_output() -> None:
    """Have nothing said of what Python still has to write when it ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
