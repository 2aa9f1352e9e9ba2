"""The command ``thetajoin``.

Nothing is imported here but what Python has loaded anyway, so that Ctrl-C is heeded from the start.
"""

from __future__ import annotations

import os

INTERRUPTED = 130  # the exit code of a command that Ctrl-C has ended
STOPPED = b"thetajoin: stopped\n"


def main() -> None:
    """Run a command, and end Python with its exit code."""
    try:
        from thetajoin.cli import command
    except KeyboardInterrupt:
        os.write(2, STOPPED)
        os._exit(INTERRUPTED)
    command.main()
