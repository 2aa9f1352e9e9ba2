"""What the machine gives this process, asked in a way that every platform answers."""

from __future__ import annotations

import os
from pathlib import Path

# The processor time a container may use, of cgroups' second version and of their first.
QUOTA = Path("/sys/fs/cgroup/cpu.max")
OLD_QUOTA = (
    Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"),
    Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us"),
)


def available_cores() -> int:
    """The cores this process may use: those it is bound to, and no more than its container's share.

    macOS and Windows bind no process to cores; there it is all the machine has.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, min(cores, _quota() or cores))


def _quota() -> int | None:
    """The container's share of processor time in whole cores, rounded up; None without a limit."""
    try:
        used, period = QUOTA.read_text().split()
    except (OSError, ValueError):
        try:
            used, period = (path.read_text().strip() for path in OLD_QUOTA)
        except (OSError, ValueError):
            return None
    if not used.isdecimal() or not period.isdecimal() or int(period) == 0:
        return None  # "max", or -1
    return -(-int(used) // int(period))


def memory_bytes() -> int | None:
    """The machine's memory; None where the platform does not say."""
    try:
        return int(os.sysconf("SC_PAGE_SIZE")) * int(os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return None


def may_be_alive(process: int) -> bool:
    """Whether a process may still be running; always where asking would end it, on Windows."""
    if os.name == "nt":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's, which cannot be signalled but lives
        return True
    return True
