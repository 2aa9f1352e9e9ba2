"""Steps that no other thread can come between, which numba does not offer for processors."""

from __future__ import annotations

import time
from typing import Any

from thetajoin.kernels.jit import instruction

_step = instruction("thetajoin.papers.kernels.instructions")


@_step
def exchange(array: Any, index: Any, value: Any) -> int:
    """Put a value into an element and return the one before."""
    before = int(array[index])
    array[index] = value
    return before


@_step
def fetch_add(array: Any, index: Any, value: Any) -> int:
    """Add to an element and return what it was before."""
    before = int(array[index])
    array[index] += value
    return before


@_step
def give_way() -> int:
    """Let another thread have this core."""
    time.sleep(0)
    return 0
