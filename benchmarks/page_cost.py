"""What the live page costs the driver: processor seconds a second, while a browser has it open.

A query of small micro-batches runs on Spark, one a second. The page's own threads are measured, the
one that follows the query and the one that serves: they are all that it adds to the driver's
process. What the JVM does to write a report as JSON is not seen; the same query without a page is
measured too, and the difference of the whole driver is among the details.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SECONDS = 30.0
TRIGGER = "1 second"
ROWS = 500  # a second and stream
TARGET = "<= 0.03"
# A tab that reads what it is sent; a browser's own work is not the driver's.
TAB = """
import sys, urllib.request
page = sys.argv[1]
urllib.request.urlopen(page).read()
got = 0
for line in urllib.request.urlopen(page + "events"):
    got += line.startswith(b"data: ")
    print(got, flush=True)
"""


def measure(seconds: float = SECONDS) -> dict[str, Any]:
    """`page_cost`, and what it was computed from; Spark is started and stopped.

    Costs about twice the seconds, and the start of Spark.
    """
    from thetajoin.spark.session import local_session

    with tempfile.TemporaryDirectory(prefix="thetajoin-page-cost-") as folder:
        spark = local_session(2, memory="1g", shuffle_partitions=2)
        try:
            return _measure(spark, Path(folder), seconds)
        finally:
            spark.stop()


def _measure(spark: Any, folder: Path, seconds: float) -> dict[str, Any]:
    from thetajoin.jobs.page import serve

    with _query(spark, folder) as query:
        without = _driver_seconds(seconds)
        page = serve(query, port=0, keep=folder / "history.json")
        try:
            with _tab(page.address) as told:
                time.sleep(3)  # what is opened once is not what staying open costs
                assert page.follower is not None
                threads = page.follower.thread, page.thread
                before, events, batches = _thread_seconds(threads), told(), _batches(query)
                begun, driver = time.perf_counter(), time.process_time()
                time.sleep(seconds)
                elapsed = time.perf_counter() - begun
                cost = [b - a for a, b in zip(before, _thread_seconds(threads), strict=True)]
                return {
                    "page_cost": sum(cost) / elapsed,
                    "follower": cost[0] / elapsed,
                    "server": cost[1] / elapsed,
                    "driver_with_page": (time.process_time() - driver) / elapsed,
                    "driver_without_page": without,
                    "seconds": elapsed,
                    "batches": _batches(query) - batches,
                    "events": told() - events,
                }
        finally:
            page.stop()


@contextmanager
def _query(spark: Any, folder: Path) -> Iterator[Any]:
    """A join of two streams, past its first micro-batches."""
    import thetajoin as tj

    rate = spark.readStream.format("rate").option("rowsPerSecond", ROWS)
    left, right = (
        rate.load().selectExpr("timestamp AS ts", "value % 1000 AS a", f"{sign} value % 997 AS b")
        for sign in ("", "-")
    )
    window = tj.TimeWindow("2 seconds", time="ts")
    left, right = (side.withWatermark("ts", "1 second") for side in (left, right))
    joined = tj.join(left, right, "l.a < r.a AND l.b < r.b", window=window, units=4)
    query = (
        joined.writeStream.format("noop")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime=TRIGGER)
        .start()
    )
    try:
        while query.isActive and _batches(query) < 3:
            time.sleep(0.2)
        if not query.isActive:
            raise RuntimeError(f"the query has ended: {query.exception()}")
        yield query
    finally:
        query.stop()


def _batches(query: Any) -> int:
    newest = query.lastProgress
    return 0 if newest is None else int(newest.batchId) + 1


@contextmanager
def _tab(address: str) -> Iterator[Callable[[], int]]:
    """A process that has the page open; what is yielded says how many events it has got."""
    command = [sys.executable, "-c", TAB, address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tab:
        got = [0]

        def read() -> None:
            assert tab.stdout is not None
            for line in tab.stdout:
                got[0] = int(line)

        threading.Thread(target=read, daemon=True).start()
        try:
            yield lambda: got[0]
        finally:
            tab.kill()


def _thread_seconds(threads: tuple[threading.Thread, ...]) -> list[float]:
    clocks = [time.pthread_getcpuclockid(thread.ident or 0) for thread in threads]
    return [time.clock_gettime(clock) for clock in clocks]


def _driver_seconds(seconds: float) -> float:
    """Processor seconds a second of this process while it does nothing but run a query."""
    begun, spent = time.perf_counter(), time.process_time()
    time.sleep(seconds)
    return (time.process_time() - spent) / (time.perf_counter() - begun)
