"""The fault benchmark: streaming joins on Spark whose processes are killed, against a naive join.

One history is one checkpoint and one sink. Its driver is killed and started again many times, then
its Python workers and its executors are. Afterwards the micro-batches are read from the
checkpoint's own logs, joined by brute force, and compared with what the sink holds.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from thetajoin.bench import fault_oracle as oracle
from thetajoin.bench.fault_oracle import compare, newest
from thetajoin.bench.harness import Report
from thetajoin.errors import OptionError

DRIVER_KILLS, WORKER_KILLS, EXECUTOR_KILLS = 20, 5, 2
KINDS = ("count", "time")
SIDES = ("l", "r")
TARGETS = {
    "lost_pairs": "0",
    "duplicate_pairs": "0",
    "wrong_pairs": "0",
    "driver_kills": f">= {DRIVER_KILLS} a window",
    "worker_kills": f">= {WORKER_KILLS} a window",
    "executor_kills": f">= {EXECUTOR_KILLS} a window",
}
LOCAL, CLUSTER = "local[2,4]", "local-cluster[2,1,1024]"
CONDITION = "l.a <= r.a AND l.b >= r.b"
DELAY = 20_000  # milliseconds
EPOCH = 1_767_225_600_000
# Files written ahead of the query, so that it is never idle.
AHEAD = 8
# Kills of Python workers or executors for one that hits a task.
TRIES = 10
PATIENCE = 300.0
# Where a kill is aimed at: what must have grown first, and the seconds within which it then falls.
MOMENTS: dict[str, tuple[str | None, float]] = {
    "any": (None, 3.0),
    "planning": ("offsets", 0.15),
    "executing": ("offsets", 1.0),
    "state": ("state", 0.1),
    "sink": ("sink", 0.05),
    "between": ("commits", 0.2),
}
Progress = Callable[[str], None]


def run(progress: Progress, scale: float = 1.0) -> Report:
    """Both histories; `scale` shrinks the number of kills for a quick look."""
    if importlib.util.find_spec("pyspark") is None:
        raise OptionError("bench faults needs PySpark: pip install 'thetajoin[spark]'")
    report = Report("faults", targets=TARGETS)
    plan = Kills(
        max(2, round(DRIVER_KILLS * scale)),
        max(1, round(WORKER_KILLS * scale)),
        int(EXECUTOR_KILLS * scale),
    )
    for kind in KINDS:
        folder = Path(tempfile.mkdtemp(prefix="thetajoin-faults-"))
        try:
            found = history(folder, kind, plan, progress)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        if any(found[key] for key in TARGETS if key.endswith("pairs")):
            found["evidence"] = str(folder)  # checkpoint, sink and log are kept to be looked into
        else:
            shutil.rmtree(folder, ignore_errors=True)
        report.details[kind] = found
    for key in TARGETS:
        numbers = [report.details[kind][key] for kind in KINDS]
        report.figures[key] = min(numbers) if key.endswith("kills") else sum(numbers)
    return report


@dataclass
class Kills:
    """How many processes of each sort are, or have been, killed in a history."""

    driver_kills: int = 0
    worker_kills: int = 0
    executor_kills: int = 0


def history(
    folder: Path, kind: str, plan: Kills, progress: Progress, seed: int = 3
) -> dict[str, Any]:
    """Run one query through all of its kills to its end, and compare it with the naive join."""
    begun = time.perf_counter()
    ordeal = Ordeal(folder, kind, np.random.default_rng(seed))
    try:
        for number in range(1, plan.driver_kills + 1):
            progress(f"{kind} window, driver kill {number} of {plan.driver_kills}")
            ordeal.start(LOCAL)
            if number == plan.driver_kills // 2 + 1:
                ordeal.kill_workers(plan.worker_kills)
            ordeal.kill_driver()
        progress(f"{kind} window, {plan.executor_kills} executor kills and the end")
        ordeal.start(CLUSTER if plan.executor_kills else LOCAL)
        ordeal.kill_executors(plan.executor_kills)
        ordeal.finish()
    finally:
        ordeal.kill_all()
    return {
        **asdict(ordeal.done),
        **compare(folder, kind),
        "killed_while": dict(ordeal.phases),
        "killed_in_a_replay": ordeal.replays,
        "tasks_lost": ordeal.tasks_lost(),
        "seconds": round(time.perf_counter() - begun, 1),
    }


# The query


def drive(master: str, folder: Path, kind: str) -> None:
    """The driver's work: join until the file `stop` appears, then finish what is there."""
    import thetajoin as tj
    from thetajoin.spark.session import LOCAL_CHECKPOINTS, local_session

    spark = local_session(
        master,
        memory="1g",
        shuffle_partitions=2,
        settings={**LOCAL_CHECKPOINTS, **settings(folder)},
        scratch=folder / "local",
        log=folder / "log",
    )
    spark.sparkContext.setLogLevel("WARN")  # tells of lost tasks
    left, right = (_source(spark, folder, kind, side) for side in SIDES)
    window: Any = tj.CountWindow(oracle.SIZE, slide=oracle.SLIDE)
    if kind == "time":
        before, after = (f"{ms} milliseconds" for ms in (oracle.BEFORE, oracle.AFTER))
        window = tj.TimeWindow(before=before, after=after, time="at")
    order = "at" if kind == "count" else None
    joined = tj.join(left, right, CONDITION, window=window, order_by=order, units=2)
    query = (
        joined.select("id", "id_right")
        .writeStream.format("parquet")
        .option("path", f"{folder}/out")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .start()
    )
    while query.isActive and not query.status["isTriggerActive"]:
        time.sleep(0.01)
    Path(folder, "running").touch()
    while query.isActive and not Path(folder, "stop").exists():
        time.sleep(0.1)
    query.processAllAvailable()
    query.stop()
    spark.stop()


def _source(spark: Any, folder: Path, kind: str, side: str) -> Any:
    at = "bigint" if kind == "count" else "timestamp"
    reader = spark.readStream.schema(f"id bigint, a bigint, b bigint, at {at}")
    df = reader.option("maxFilesPerTrigger", 1).parquet(f"{folder}/{side}")
    return df if kind == "count" else df.withWatermark("at", f"{DELAY} milliseconds")


def settings(folder: Path) -> dict[str, str]:
    """Spark's configuration: short starts, all logs kept, snapshots of the state now and then."""
    java = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={folder}/tmp"
    return {
        "spark.driver.extraJavaOptions": java,
        "spark.executor.extraJavaOptions": java,
        "spark.executor.memory": "1g",
        "spark.sql.streaming.minBatchesToRetain": "100000",
        "spark.sql.streaming.stateStore.maintenanceInterval": "5s",
    }


# The data


def make_rows(kind: str, side: str, number: int, seed: int = 7) -> pa.Table:
    """A source's file: keys with ties, and times (or order) that are out of order and partly late.

    No two rows of a side that may share a micro-batch have the same place in the order, so that the
    contract alone says what a count window holds. They may be of several files: a driver killed
    after a source has noted its next file and before the query has takes one more with it.
    """
    random = np.random.default_rng([seed, SIDES.index(side), number])
    rows = 0 if number % 9 == 4 + SIDES.index(side) else int(random.integers(100, 300))
    a = random.integers(0, 2000, rows)
    columns = {"id": number * 1000 + np.arange(rows), "a": a, "b": a + random.integers(0, 40, rows)}
    if kind == "count":
        columns["at"] = random.permutation(2 * rows)[:rows] * 16 + number % 16
        return pa.table(columns)
    at = 100 * random.integers(0, 100, rows)
    kinds = random.random(rows)
    at = at - np.where(kinds < 0.3, 100 * random.integers(0, 250, rows), 0)
    at = at - np.where(kinds > 0.95, 100 * random.integers(2000, 4000, rows), 0)
    instants = (EPOCH + number * 10_000 + at) * 1000
    return pa.table(columns | {"at": pa.array(instants, pa.timestamp("us", tz="UTC"))})


def write_file(folder: Path, kind: str, number: int) -> None:
    """The next file of each side, whole before Spark can see it and newer than those before."""
    for side in SIDES:
        (folder / side).mkdir(exist_ok=True)
        partial = folder / side / f".{number:05d}.partial"
        pq.write_table(make_rows(kind, side, number), partial)
        os.utime(partial, (1_700_000_000 + number,) * 2)
        partial.rename(folder / side / f"{number:05d}.parquet")


# The kills


@dataclass
class Ordeal:
    """A query's history of kills."""

    folder: Path
    kind: str
    random: np.random.Generator
    done: Kills = field(default_factory=Kills)
    phases: Counter[str] = field(default_factory=Counter)
    replays: int = 0
    _files: int = 0
    _driver: subprocess.Popen[bytes] | None = None
    _begun_with: dict[str, int] = field(default_factory=dict)

    def start(self, master: str) -> None:
        """Start the driver and wait until its query has begun a micro-batch."""
        for name in ("tmp", "local"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir()
        (self.folder / "running").unlink(missing_ok=True)
        self._feed()
        self._begun_with = self.marks()
        given = ["--child", self.kind, "--master", master, "--folder", str(self.folder)]
        with (self.folder / "log").open("ab") as log:
            self._driver = subprocess.Popen(
                [sys.executable, "-m", "thetajoin.bench.faults", *given],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait("the query to run", (self.folder / "running").exists)

    def _environment(self) -> dict[str, str]:
        source = str(Path(__file__).parents[2])
        paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
        return os.environ | {
            "PYTHONPATH": os.pathsep.join(paths),
            "SPARK_HOME": str(spark_home(self.folder)),
            "TMPDIR": str(self.folder / "tmp"),
        }

    def kill_driver(self) -> None:
        """Kill the driver, its JVM and its workers at a moment of a running query."""
        batches = int(self.random.integers(0, 3))
        grown, within = self._choose()
        self._grown("commits", self.marks()["commits"] + batches - 1)
        if grown is not None:
            self._grown(grown, self.marks()[grown])
        time.sleep(self.random.uniform(0, within))
        self._alive()
        self.kill_all()
        self.done.driver_kills += 1
        self.phases[self._phase()] += 1
        now = self.marks()
        self.replays += now["commits"] < now["offsets"] == self._begun_with["offsets"]

    def _choose(self) -> tuple[str | None, float]:
        """The moments take turns in an order that changes from turn to turn."""
        turn, at = divmod(self.done.driver_kills, len(MOMENTS))
        order = np.random.default_rng(turn).permutation(len(MOMENTS))
        return list(MOMENTS.values())[int(order[at])]

    def kill_workers(self, number: int) -> None:
        """Kill Python workers, each while it has a task."""
        for _ in range(number):
            self._until_a_task_is_lost("worker", lambda worker: worker)
            self.done.worker_kills += 1

    def kill_executors(self, number: int) -> None:
        """Kill executors of the local cluster, each while it has a task."""
        for _ in range(number):
            self._until_a_task_is_lost("executor", lambda worker: _parent(_parent(worker)))
            self.done.executor_kills += 1

    def _until_a_task_is_lost(self, what: str, victim: Callable[[int], int]) -> None:
        """Kill what belongs to a busy Python worker, of a unit or of packing in turns."""
        for turn in range(TRIES):
            # Spark starts the daemon that forks workers for packing first, that for units then.
            daemon = (turn + self.done.worker_kills + self.done.executor_kills) % 2 - 1
            lost = self.tasks_lost()
            self._grown("offsets", self.marks()["offsets"])
            time.sleep(self.random.uniform(0, 0.3))

            def kill(at: int = daemon) -> bool:
                busy = self._busy(at)
                return bool(busy) and self._kill(victim(int(self.random.choice(busy))))

            self._wait(f"a busy {what}", kill)
            self._grown("commits", self.marks()["offsets"])
            if self.tasks_lost() > lost:  # else the task had just ended
                self.phases[f"{what} that {'joins' if daemon else 'packs'}"] += 1
                return
        raise RuntimeError(f"no kill of a Spark {what} has hit a task")

    def tasks_lost(self) -> int:
        """How many tasks Spark has told of that it had to run again."""
        return (self.folder / "log").read_text(errors="replace").count("] Lost task ")

    def finish(self) -> None:
        """Let the query take all that is there, and end."""
        assert self._driver is not None
        (self.folder / "stop").touch()
        code = self._driver.wait(PATIENCE)
        if code != 0:
            raise RuntimeError(f"the query failed at its end: {self._last_words()}")

    def kill_all(self) -> None:
        """Kill every process of the driver's session: JVMs, and Python workers of their groups."""
        if self._driver is None:
            return
        while alive := processes(self._driver.pid):
            for pid in alive:
                self._kill(pid)
            self._driver.poll()
        self._driver.wait()
        self._driver = None

    def _kill(self, pid: int) -> bool:
        """Kill a process of the driver's session, and no other."""
        status = _status(pid)
        if self._driver is None or not status or int(status[3]) != self._driver.pid:
            return False
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def marks(self) -> dict[str, int]:
        """The newest micro-batch that each of the query's logs knows of."""
        checkpoint = self.folder / "checkpoint"
        state = [newest(p) for p in (checkpoint / "state" / "0").glob("[0-9]*")]
        return {
            "offsets": newest(checkpoint / "offsets"),
            "commits": newest(checkpoint / "commits"),
            "sink": newest(self.folder / "out" / "_spark_metadata"),
            # The state after micro-batch n is version n + 1.
            "state": max(state, default=0) - 1,
        }

    def _phase(self) -> str:
        now = self.marks()
        if now["commits"] == now["offsets"]:
            return "between batches"
        if now["sink"] == now["offsets"]:
            return "sink written, batch not committed"
        if now["state"] == now["offsets"]:
            return "state being written"
        return "executing"

    def _grown(self, mark: str, above: int) -> None:
        self._wait(f"{mark} to grow", lambda: self.marks()[mark] > above)

    def _busy(self, daemon: int) -> list[int]:
        """Python workers of each JVM's first or last daemon that have just used a processor."""
        assert self._driver is not None
        found = processes(self._driver.pid)
        parents = {pid: _parent(pid) for pid, what in found.items() if "pyspark.daemon" in what}
        daemons: dict[int, list[int]] = {}
        for pid, parent in sorted(parents.items()):
            if parent not in parents:
                daemons.setdefault(parent, []).append(pid)
        asked = {pids[daemon] for pids in daemons.values() if len(pids) > 1}
        before = {pid: _ran(pid) for pid, parent in parents.items() if parent in asked}
        time.sleep(0.004)
        return sorted(pid for pid, ran in before.items() if _ran(pid) > ran)

    def _feed(self) -> None:
        # A stopped query takes no more than one file of a side in each micro-batch.
        while self._files < self.marks()["offsets"] + AHEAD:
            write_file(self.folder, self.kind, self._files)
            self._files += 1

    def _wait(self, what: str, ready: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        turn = 0
        while not ready():
            if turn % 20 == 0:
                self._alive()
                self._feed()
            turn += 1
            if time.monotonic() > end:
                raise RuntimeError(f"waited {PATIENCE} s for {what}: {self._last_words()}")
            time.sleep(0.005)

    def _alive(self) -> None:
        if self._driver is None or self._driver.poll() is not None:
            raise RuntimeError(f"the query ended by itself: {self._last_words()}")

    def _last_words(self) -> str:
        kept = Path(tempfile.gettempdir()) / "thetajoin-faults.log"
        shutil.copyfile(self.folder / "log", kept)
        lines = kept.read_text(errors="replace").strip().splitlines()
        errors = [line for line in lines if "Error" in line or "Exception" in line]
        return f"{(errors or lines or ['no message'])[-1].strip()} (all of its log: {kept})"


def spark_home(folder: Path) -> Path:
    """PySpark's own folder behind links: a local cluster writes its logs into Spark's home."""
    home = folder / "spark"
    if not home.exists():
        spec = importlib.util.find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        home.mkdir()
        for entry in Path(spec.origin).parent.iterdir():
            if entry.name != "work":
                (home / entry.name).symlink_to(entry)
    return home


def processes(session: int) -> dict[int, str]:
    """Command lines of the living processes of a session, by their id."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        status = _status(int(entry))
        if status and int(status[3]) == session and status[0] not in "ZX":
            try:
                found[int(entry)] = Path(f"/proc/{entry}/cmdline").read_text().replace("\0", " ")
            except (OSError, UnicodeDecodeError):
                continue
    return found


def _status(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; none if there is no such process."""
    if pid <= 1:
        return []
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _parent(pid: int) -> int:
    status = _status(pid)
    return int(status[1]) if status else -1


def _ran(pid: int) -> int:
    """Nanoseconds a process has had of a processor."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
    except OSError:
        return -1


def main() -> None:
    """Be a driver."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--child", choices=KINDS, required=True)
    parser.add_argument("--master", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args()
    drive(given.master, given.folder, given.child)


if __name__ == "__main__":
    main()
