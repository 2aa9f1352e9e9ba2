"""One streaming query on Spark through thousands of micro-batches.

A join that runs for months must not grow by what it has forgotten. Two joins run in one query, a
left join in a time window (timers, marks, unmatched rows) and an inner one in a count window, over
rows that come for ever alike. Once the windows are full, memory, files and what a restart would
have to read must stay as they are; and every micro-batch must give as many rows as the one before.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Report, import_path
from campaigns.soak_looks import LOOKS, Watch
from thetajoin.errors import OptionError

BATCHES = 5_000
TARGETS = {
    "batches": f">= {BATCHES}",
    "memory_growth": "<= 1.05",
    "files_growth": "<= 1.05",
    "restart_growth": "<= 1.05",
}
# Rows of a side in a micro-batch, and the windows: full after a few micro-batches.
ROWS, SECONDS = 200, 20
WINDOW, SIZE, SLIDE = 60, 2_000, 200
# Seconds for the next micro-batch; the first may wait for kernels to be compiled.
PATIENCE = 600.0
Progress = Callable[[str], None]


def run(progress: Progress, scale: float = 1.0, *, batches: int | None = None) -> Report:
    """Growth over so many micro-batches; `scale` shrinks their number."""
    if importlib.util.find_spec("pyspark") is None:
        raise OptionError("campaign soak needs PySpark: pip install 'thetajoin[spark]'")
    wanted = round(BATCHES * scale) if batches is None else batches
    if wanted < LOOKS:
        raise OptionError(f"campaign soak: batches={wanted}: must be at least {LOOKS}")
    folder = Path(tempfile.mkdtemp(prefix="thetajoin-soak-"))
    try:
        found = soaked(folder, wanted, progress)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report = Report("soak", targets=TARGETS, details={"soak": found})
    report.figures = {key: found[key] for key in TARGETS}
    return report


def soaked(folder: Path, batches: int, progress: Progress) -> dict[str, Any]:
    """Run the query in a process of its own, looking at it as it goes."""
    begun = time.perf_counter()
    watch = Watch(folder, batches, PATIENCE)
    command = [sys.executable, "-m", "campaigns.soak", "--folder", str(folder)]
    with (folder / "log").open("ab") as log:
        driver = subprocess.Popen(
            command,
            env=os.environ | {"PYTHONPATH": import_path(ROOT / "tests")},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        for done in watch.follow(driver):
            progress(f"soak: {done} of {batches} micro-batches")
        (folder / "stop").touch()
        if driver.wait(PATIENCE):
            raise RuntimeError(f"the query failed at its end: {watch.last_words()}")
    finally:
        if driver.poll() is None:
            driver.kill()  # its JVM ends with it, and the JVM's workers with that
            driver.wait()
    outputs = json.loads((folder / "outputs").read_text())
    return {
        **watch.growth(),
        "outputs": check_outputs(outputs),
        "seconds": round(time.perf_counter() - begun, 1),
        "samples": watch.samples,
    }


def check_outputs(outputs: list[tuple[int, int]]) -> int:
    """Rows that each micro-batch has given out once the windows were full: always as many."""
    numbers = {rows for _, rows in outputs}
    if len(numbers) != 1 or numbers <= {0}:
        raise RuntimeError(
            f"micro-batches that are all alike gave {sorted(numbers)[:5]} rows: "
            f"{next((b for b, rows in outputs if rows != outputs[0][1]), outputs[:1])} differs"
        )
    return numbers.pop()


# The query


def drive(folder: Path) -> None:
    """The driver's work: join until the file `stop` appears."""
    from thetajoin.spark.session import local_session
    from thetajoin.spark.versions import local_checkpoints

    (folder / "local").mkdir()
    spark = local_session(
        "local[2]",
        memory="1g",
        shuffle_partitions=1,
        settings={**local_checkpoints(), **SETTINGS},
        scratch=folder / "local",
        log=folder / "log",
    )
    query = _joined(spark).writeStream.format("noop")
    running = query.option("checkpointLocation", f"{folder}/checkpoint").start()
    outputs: dict[int, int] = {}
    while running.isActive and not (folder / "stop").exists():
        time.sleep(1.0)
        for report in running.recentProgress:
            outputs[report.batchId] = report.sink.numOutputRows
    if running.exception() is not None:
        raise SystemExit(str(running.exception()))
    full = 2 * max(SIZE // ROWS, 2 * WINDOW // SECONDS)
    steady = [(batch, rows) for batch, rows in sorted(outputs.items()) if batch > full]
    (folder / "outputs").write_text(json.dumps(steady))
    running.stop()
    spark.stop()


# A short memory of what is done, so that all is as it will be for ever after a few hundred
# micro-batches; and little time for the compiler, as each of them has little to do.
SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.stateStore.maintenanceInterval": "2s",
    # RocksDB's list of its files, a part of each snapshot, gets longer with every one of them.
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "50",
    "spark.sql.streaming.numRecentProgressUpdates": "100",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.ui.retainedJobs": "5",
    "spark.ui.retainedStages": "5",
    "spark.ui.retainedTasks": "20",
}


def _joined(spark: Any) -> Any:
    import thetajoin as tj

    # What comes and what matches are the same in every micro-batch: values go on by ROWS.
    on = f"l.value % {ROWS} - r.value % {ROWS} BETWEEN 0 AND 1 AND l.value <= r.value + {3 * ROWS}"
    left, right = (_source(spark) for _ in range(2))
    timed = tj.join(
        left,
        right,
        on,
        how="left",
        window=tj.TimeWindow(f"{WINDOW} seconds", time="timestamp"),
        units=1,
    )
    counted = tj.join(
        left, right, on, window=tj.CountWindow(SIZE, slide=SLIDE), order_by="value", units=1
    )
    return timed.union(counted)


def _source(spark: Any) -> Any:
    options = {
        "rowsPerBatch": ROWS,
        "numPartitions": 1,
        "advanceMillisPerBatch": SECONDS * 1000,
        "startTimestamp": 1_767_225_600_000,
    }
    source = spark.readStream.format("rate-micro-batch").options(**options).load()
    return source.withWatermark("timestamp", f"{SECONDS} seconds")


def main() -> None:
    """Be the driver."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    drive(parser.parse_args().folder)


if __name__ == "__main__":
    main()
