"""The command ``thetajoin``.

Nothing is imported here but what Python has loaded anyway, so that Ctrl-C is heeded from the start.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as type checkers know it, without importing typing
if TYPE_CHECKING:
    from typing import NoReturn

INTERRUPTED = 130  # the exit code of a command that Ctrl-C has ended


def main() -> None:
    """Run a command, and end Python with its exit code."""
    try:
        from thetajoin.cli import entry
    except KeyboardInterrupt:
        end_at_once()
    entry.main()


def end_at_once(*, told: bool = False) -> NoReturn:
    """End Python without tidying up; that it was stopped is told if it has not been."""
    if not told:
        os.write(2, b"thetajoin: stopped\n")
    os._exit(INTERRUPTED)
