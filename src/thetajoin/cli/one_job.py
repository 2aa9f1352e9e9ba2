"""One job at a time on a checkpoint.

Spark notices two queries on one checkpoint only when both have run a micro-batch, and a sink may
have taken the rows of both by then. So a job holds a lock beside its checkpoint for as long as it
runs; the system lets go of it when the process ends, however it ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from thetajoin.errors import OptionError

try:
    import fcntl
except ImportError:  # Windows has none: there Spark's own check is all there is
    fcntl = None  # type: ignore[assignment]


@contextmanager
def only_job_on(checkpoint: Path | None) -> Iterator[None]:
    """Refuse a checkpoint that another job of this machine runs on."""
    if checkpoint is None or fcntl is None:
        yield
        return
    place = checkpoint.with_name(f"{checkpoint.name}.lock")
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip()
            who = f" (process {holder})" if holder else ""
            raise OptionError(
                f"another job{who} runs on the checkpoint {checkpoint}: stop it first, or give "
                "this one a checkpoint of its own"
            ) from None
        except OSError:  # a file system that has no locks
            yield
            return
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield
