"""Many histories one after the other, and what came of them."""

from __future__ import annotations

import faulthandler
import gc
import logging
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from simulation.history import Outcome, run_history

# Seconds after which a history hangs; its process ends then.
MOST_SECONDS = 300
MEMORY = Path("/dev/shm")
_frozen = False


@dataclass
class Tally:
    """Histories that were run, those that went wrong, and what happened in all of them."""

    histories: int = 0
    # Seed, what is wrong, and what repeats it.
    wrong: list[tuple[int, str, str]] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    origins: Counter[str] = field(default_factory=Counter)
    rows: int = 0

    def add(self, outcome: Outcome) -> None:
        """One more history."""
        self.histories += 1
        self.faults += outcome.faults
        self.origins += outcome.origins
        self.rows += outcome.rows
        if outcome.wrong:
            self.wrong.append((outcome.seed, outcome.wrong, outcome.script))


def simulate(first: int, stop: int) -> Tally:
    """The histories of these seeds."""
    tally = Tally()
    logging.getLogger("thetajoin").addHandler(logging.NullHandler())  # late rows are meant here
    room = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="thetajoin-simulate-", dir=room) as folder:
        for seed in range(first, stop):
            faulthandler.dump_traceback_later(MOST_SECONDS, exit=True, file=sys.__stderr__)
            tally.add(run_history(seed, Path(folder)))
    faulthandler.cancel_dump_traceback_later()
    _set_aside()
    return tally


def died(seed: int) -> Tally:
    """A history that took its process with it."""
    outcome = Outcome.of(seed)
    outcome.wrong = "the process died, or hung"
    tally = Tally()
    tally.add(outcome)
    return tally


def _set_aside() -> None:
    """Spare the collector what is loaded by now; it would be gone through every few histories."""
    global _frozen
    if not _frozen:
        _frozen = True
        gc.collect()
        gc.freeze()
