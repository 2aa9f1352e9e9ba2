"""What the machine gives this process: cores, and memory, which a result may not fit into."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pyarrow as pa

from thetajoin.errors import ResourceError
from thetajoin.limits import limits

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
    """Whether a process may still be running; always True on Windows, where asking would end it."""
    if os.name == "nt":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's, which cannot be signalled but lives
        return True
    return True


MEMORY = Path("/proc/meminfo")
GROUPS = Path("/proc/self/cgroup")
MOUNT = Path("/sys/fs/cgroup")
# A container's limit, what it uses, and the line of its statistics that says how much of that the
# kernel would give back: of cgroups' second version and of their first.
_NEW = "memory.max", "memory.current", "inactive_file"
_OLD = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
# The share of the room that a result may have before anything is estimated.
FIRST_LOOK = 1 / 16
# The share of the room that stays free.
RESERVE = 0.05


def available_memory() -> int | None:
    """Bytes of memory that the machine and the container still have for this process.

    None where the platform does not say, as on macOS and Windows.
    """
    found = [_machine(), *(_container(*group) for group in _groups())]
    known = [value for value in found if value is not None]
    return max(0, min(known)) if known else None


def _machine() -> int | None:
    try:
        lines = MEMORY.read_text().splitlines()
        [kilobytes] = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
        return int(kilobytes) * 1024
    except (OSError, ValueError, IndexError):
        return None


def _groups() -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """Folders that may have a limit for this process, and what their files are called."""
    try:
        lines = GROUPS.read_text().splitlines()
    except (OSError, ValueError):
        lines = []
    for line in lines:
        _, _, rest = line.partition(":")
        kinds, _, path = rest.partition(":")
        if kinds and "memory" not in kinds.split(","):
            continue
        root, names = (MOUNT / "memory", _OLD) if kinds else (MOUNT, _NEW)
        # Inside a container the path may be the one outside, which is not there.
        for place in (PurePosixPath(path), *PurePosixPath(path).parents):
            yield root / str(place).lstrip("/"), names


def _container(folder: Path, names: tuple[str, str, str]) -> int | None:
    limit, used, given_back = names
    try:
        most = (folder / limit).read_text().strip()
        now = int((folder / used).read_text())
        if not most.isdecimal():  # "max"
            return None
        statistics = (folder / "memory.stat").read_text().splitlines()
        idle = [int(line.split()[1]) for line in statistics if line.split()[:1] == [given_back]]
        return int(most) - now + sum(idle)
    except (OSError, ValueError, IndexError):
        return None


@dataclass(frozen=True)
class Size:
    """How many rows a result has; not exact if it was estimated from samples."""

    rows: float
    exact: bool


def check_room(
    batches: Generator[pa.RecordBatch, None, None],
    advice: str,
    *,
    copies: int = 1,
    too_large: Callable[[float], Size | None] = lambda _: None,
) -> Generator[pa.RecordBatch, None, None]:
    """The batches of a result that is kept whole, unless it will not fit into memory.

    Nothing is asked until a result has some size (`limits.large_result`), and its rows are counted
    or estimated only when it has a good part of what is free.

    advice: what to do instead. copies: how often the whole result is in memory at the end.
    too_large: the number of rows, where there are more than fit; None where there are not, or
    where nobody can say.
    """
    taken = rows = 0
    next_look: float = limits.large_result
    counted = False
    with closing(batches):  # threads that look for more stop at once
        for batch in batches:
            taken += _bytes(batch)
            rows += batch.num_rows
            if taken >= next_look:
                free = available_memory()
                if free is None:
                    yield batch
                    yield from batches
                    return
                room = (taken + free) * (1 - RESERVE) / copies
                if taken > room:
                    raise _refusal(f"more than {rows:,} rows", taken, room, advice)
                if not counted and taken >= FIRST_LOOK * room:
                    counted = True
                    if found := too_large(room * rows / taken):
                        about = "" if found.exact else "about "
                        size = found.rows * taken / rows
                        raise _refusal(f"{about}{found.rows:,.0f} rows", size, room, advice)
                step = FIRST_LOOK * room
                next_look = max(taken + limits.large_result, step if not counted else taken + step)
            yield batch


def _bytes(batch: pa.RecordBatch) -> int:
    """The bytes of a batch, without dictionaries, which it shares with others."""
    total = 0
    for column in batch.columns:
        total += (column.indices if pa.types.is_dictionary(column.type) else column).nbytes
    return total


def _refusal(rows: str, size: float, room: float, advice: str) -> ResourceError:
    return ResourceError(
        f"the result has {rows} ({_text(size)}), and there is room for {_text(room)} in memory: "
        f"{advice}"
    )


def _text(size: float) -> str:
    """A size for people.

    >>> _text(3 << 30), _text(5e6)
    ('3.0 GiB', '4.8 MiB')
    """
    unit = "GiB" if size >= 1 << 30 else "MiB"
    return f"{size / (1 << (30 if unit == 'GiB' else 20)):.1f} {unit}"
