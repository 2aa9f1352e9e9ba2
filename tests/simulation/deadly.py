"""Work that ends its process: for the test of what deals out blocks."""

from __future__ import annotations

import os
from dataclasses import dataclass, field


@dataclass
class Tally:
    """As little of a tally as is looked at."""

    histories: int
    wrong: list[tuple[int, str, str]] = field(default_factory=list)


def simulate(start: int, stop: int) -> Tally:
    """Case 2 is the deadly one."""
    if start <= 2 < stop:
        os._exit(1)
    return Tally(stop - start)


def died(seed: int) -> Tally:
    """What is left of it."""
    return Tally(1, [(seed, "died", "")])
