"""Compiling before the first join rather than during it."""

from __future__ import annotations

from rich.progress import Progress

from thetajoin.cli.terminal import say, screen
from thetajoin.kernels.jit import COMPILES
from thetajoin.kernels.store import written_to
from thetajoin.warm import warm


def warm_up() -> None:
    """Compile what ordinary joins need, and say where it is kept."""
    folder = written_to() if COMPILES else None
    if folder is None:
        say(screen(), "nothing is kept here: no folder can be written, or numba is switched off")
        return
    progress = screen(errors=True)
    with Progress(console=progress, transient=True, disable=not progress.is_terminal) as bar:
        task = bar.add_task("compiling")
        seconds = warm(lambda done, of: bar.update(task, completed=done, total=of))
    say(screen(), f"compiled kernels are in {folder} ({seconds:.0f} s)")
