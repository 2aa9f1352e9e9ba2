"""Python workers that are ready before the first rows come.

A worker takes a second to import pandas, numba and the join. Spark starts workers with a query's
first rows, when everything waits for them; while it plans the query, a core has nothing to do. So a
session of ours has its workers started at once, beside what the program does next. Measured on two
cores: a stream's first result came 0.7 s earlier, of 10.6 s after the session's start.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

# A worker more is not worth the memory before anybody has asked for it: a join has four units.
MOST = 4


def warm_workers(session: Any, cores: int) -> threading.Thread:
    """Start workers of a local session in the background; what fails there is nobody's concern."""
    thread = threading.Thread(
        target=_warm, args=(session, min(cores, MOST)), name="thetajoin-warm-workers", daemon=True
    )
    thread.start()
    return thread


def _warm(session: Any, workers: int) -> None:
    # The session may be stopped meanwhile, and a worker that cannot start will say so to a query.
    with contextlib.suppress(Exception):
        from thetajoin.spark.exchange import BLOBS
        from thetajoin.spark.tasks import map_batches

        frame = session.range(0, workers, 1, workers)
        map_batches(frame, _imported, BLOBS).write.format("noop").mode("overwrite").save()


def _imported(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a packer and a unit import, and numba, which a kernel's first call loads; no rows."""
    import thetajoin.spark.unit  # noqa: F401
    from thetajoin.kernels.order import is_sorted

    is_sorted(np.zeros(1, np.int64))
    for _ in batches:
        yield from ()
