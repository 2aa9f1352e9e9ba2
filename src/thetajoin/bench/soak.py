"""The soak benchmark: one streaming query on Spark through thousands of micro-batches.

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
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from thetajoin.bench.fault_logs import newest
from thetajoin.bench.harness import Report
from thetajoin.errors import OptionError

BATCHES = 5_000
TARGETS = {
    "batches": f">= {BATCHES}",
    "memory_growth": "<= 1.05",
    "files_growth": "<= 1.05",
    "restart_growth": "<= 1.05",
}
# Rows of a side in a micro-batch, and the windows: full after a few dozen micro-batches.
ROWS, SECONDS = 10, 20
WINDOW, SIZE, SLIDE = 30, 250, 10
# Samples of memory, and of files, in the whole run. Each of the first collects the JVM's garbage.
LOOKS, FILE_LOOKS = 100, 1_000
PATIENCE = 600.0
Progress = Callable[[str], None]


def run(progress: Progress, scale: float = 1.0, *, batches: int | None = None) -> Report:
    """Growth over so many micro-batches; `scale` shrinks their number."""
    if importlib.util.find_spec("pyspark") is None:
        raise OptionError("bench soak needs PySpark: pip install 'thetajoin[spark]'")
    wanted = round(BATCHES * scale) if batches is None else batches
    if wanted < LOOKS:
        raise OptionError(f"bench soak: batches={wanted}: must be at least {LOOKS}")
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
    watch = Watch(folder, batches)
    command = [sys.executable, "-m", "thetajoin.bench.soak", "--folder", str(folder)]
    source = str(Path(__file__).parents[2])
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    with (folder / "log").open("ab") as log:
        driver = subprocess.Popen(
            command,
            env=os.environ | {"PYTHONPATH": path},
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
    from thetajoin.spark.session import LOCAL_CHECKPOINTS, local_session

    (folder / "local").mkdir()
    spark = local_session(
        "local[2]",
        memory="1g",
        shuffle_partitions=1,
        settings={**LOCAL_CHECKPOINTS, **SETTINGS},
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
    full = 2 * max(SIZE // ROWS, 2 * WINDOW // SECONDS) + 10
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
    "spark.sql.streaming.numRecentProgressUpdates": "100",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.ui.retainedJobs": "5",
    "spark.ui.retainedStages": "5",
    "spark.ui.retainedTasks": "20",
}


def _joined(spark: Any) -> Any:
    import thetajoin as tj

    # What comes and what matches are the same in every micro-batch: values go on by ROWS, and the
    # condition looks at differences and at remainders that divide it.
    on = "r.value - l.value BETWEEN -400 AND 300 AND l.value % 5 <= r.value % 2 + 2"
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


# The looks


@dataclass
class Watch:
    """What the query keeps, sample by sample.

    files, bytes: in the checkpoint and in the segments' folders. restart: bytes that a restart
    would read. heap: the JVM's after a collection. workers: the Python workers' memory.
    """

    folder: Path
    batches: int
    samples: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    def follow(self, driver: subprocess.Popen[bytes]) -> Iterator[int]:
        """Look at the query while it goes on, giving the micro-batches done from time to time."""
        looked = {"files": 0, "memory": 0}
        spaced = {"files": self.batches / FILE_LOOKS, "memory": self.batches / LOOKS}
        done, moved = -1, time.monotonic()
        while done < self.batches:
            now = newest(self.folder / "checkpoint" / "commits") + 1
            if now > done:
                done, moved = now, time.monotonic()
            if driver.poll() is not None or time.monotonic() > moved + PATIENCE:
                raise RuntimeError(f"the query stands still: {self.last_words()}")
            for what, look in (("files", self.look_at_files), ("memory", self.look_at_memory)):
                if done >= (looked[what] + 1) * spaced[what]:
                    looked[what] = int(done / spaced[what])
                    look(done, driver.pid)
                    if what == "memory":
                        yield done
            time.sleep(0.05)

    def look_at_files(self, batch: int, _: int) -> None:
        """Count what lies on disk."""
        checkpoint = self.folder / "checkpoint"
        segments = (self.folder / "local").glob("**/thetajoin-*")
        sizes = [size for root in (checkpoint, *segments) for size in _sizes(root)]
        restart = sum(restart_bytes(path) for path in (checkpoint / "state").glob("[0-9]*/[0-9]*"))
        self._note(batch, files=len(sizes), bytes=sum(sizes), restart=restart)

    def look_at_memory(self, batch: int, driver: int) -> None:
        """Have the JVM collect its garbage, and see what is left."""
        java = next(iter(_children(driver)), None)
        if java is None or (heap := heap_bytes(java)) is None:
            return
        workers = sum(_own_memory(pid) for pid in _descendants(java))
        self._note(batch, heap=heap, workers=workers, memory=heap + workers)

    def _note(self, batch: int, **values: float) -> None:
        for name, value in values.items():
            self.samples.setdefault(name, []).append((batch, value))

    def growth(self) -> dict[str, float | None]:
        """The last tenth of the samples over the second tenth."""
        ratios = {name: grown(values, self.batches) for name, values in self.samples.items()}
        return {
            "batches": self.batches,
            "memory_growth": ratios.get("memory"),
            "files_growth": max(ratios["files"], ratios["bytes"]),
            "restart_growth": ratios["restart"],
            **{f"{name}_growth": ratios[name] for name in ("heap", "workers") if name in ratios},
        }

    def last_words(self) -> str:
        """What the query's log says last of an error."""
        log = self.folder / "log"
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        errors = [line for line in lines if "Error" in line or "Exception" in line]
        return (errors or lines or ["no message"])[-1].strip()


def grown(samples: list[tuple[int, float]], batches: int) -> float:
    """The mean of the last tenth of a run over that of its second tenth.

    >>> grown([(n, 10.0 if n < 15 else 11.0) for n in range(100)], 100)
    1.0476190476190477
    """
    tenth = batches / 10
    early = [value for batch, value in samples if tenth <= batch < 2 * tenth]
    late = [value for batch, value in samples if batch >= 9 * tenth]
    return statistics.fmean(late) / statistics.fmean(early)


def restart_bytes(folder: Path) -> int:
    """Bytes that a state partition is restored from: its newest snapshot, and what changed since.

    A snapshot is a zip of small files, one of which names the large ones it shares with others.
    """
    sizes = dict(_named_sizes(folder))
    numbers = {name: int(m[1]) for name in sizes if (m := re.match(r"(\d+)[._]", name))}
    zips = [name for name in numbers if name.endswith(".zip")]
    base = max(zips, key=lambda name: numbers[name], default=None)
    since = 0 if base is None else numbers[base]
    total = sum(
        sizes[name]
        for name, number in numbers.items()
        if name.endswith(".changelog") and number > since
    )
    if base is not None:
        shared = dict(_named_sizes(folder / "SSTs"))
        total += sizes[base]
        total += sum(size for name, size in shared.items() if name in _names_in(folder / base))
    return total


def _names_in(archive: Path) -> str:
    try:
        with zipfile.ZipFile(archive) as files:
            return files.read("metadata").decode(errors="replace")
    except (OSError, KeyError, zipfile.BadZipFile):
        return ""  # just removed, or being written


def _named_sizes(folder: Path) -> Iterator[tuple[str, int]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    if entry.is_file() and not entry.name.startswith("."):
                        yield entry.name, entry.stat().st_size
                except FileNotFoundError:
                    continue
    except FileNotFoundError:
        return


def _sizes(root: Path) -> list[int]:
    sizes = []
    for folder, _, names in os.walk(root):
        for name in names:
            try:
                sizes.append(os.stat(os.path.join(folder, name)).st_size)
            except FileNotFoundError:
                continue
    return sizes


def heap_bytes(java: int) -> int | None:
    """Bytes in use of a JVM's heap after a collection; None where there is no `jcmd`."""
    program = shutil.which("jcmd")
    if program is None:
        return None
    for command in ("GC.run", "GC.heap_info"):
        done = subprocess.run(
            [program, str(java), command], capture_output=True, text=True, check=False
        )
    used = re.findall(r"(?:generation|heap)\s+total \d+K, used (\d+)K", done.stdout)
    return sum(map(int, used)) * 1024 if used else None


def _children(pid: int) -> list[int]:
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _descendants(pid: int) -> Iterator[int]:
    # A JVM starts processes from any of its threads.
    for entry in os.listdir("/proc"):
        if entry.isdigit() and _parent(int(entry)) == pid:
            yield int(entry)
            yield from _descendants(int(entry))


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return -1


def _own_memory(pid: int) -> int:
    """A process's part of the memory it shares with others, in bytes."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def main() -> None:
    """Be the driver."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    drive(parser.parse_args().folder)


if __name__ == "__main__":
    main()
