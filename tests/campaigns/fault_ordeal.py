"""Killing processes of a streaming query on Spark, each while it is at work."""

from __future__ import annotations

import errno
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
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.harness import ROOT, import_path
from campaigns.fault_logs import newest
from campaigns.fault_query import (
    FILES,
    LAST_BATCHES,
    SIDES,
    Case,
    last_rows,
    make_rows,
    write_file,
)

# Micro-batches whose files are written ahead of the query, so that it is never idle.
AHEAD = 8
# Kills of Python workers or executors for one that hits a task.
TRIES = 10
PATIENCE = 300.0
# Bytes of the disk that is full at once.
TINY_DISK = 64 << 10
NO_SPACE = os.strerror(errno.ENOSPC)
# Where a kill is aimed at: what must have grown first, and the seconds within which it then falls.
MOMENTS: dict[str, tuple[str | None, float]] = {
    "any": (None, 3.0),
    "planning": ("offsets", 0.15),
    "executing": ("offsets", 1.0),
    "state": ("state", 0.1),
    "sink": ("sink", 0.05),
    "between": ("commits", 0.2),
}


@dataclass
class Kills:
    """How many processes of each sort have been killed in a history."""

    driver: int = 0
    worker: int = 0
    executor: int = 0


@dataclass
class Ordeal:
    """A query's history of kills."""

    folder: Path
    name: str
    case: Case
    random: np.random.Generator
    done: Kills = field(default_factory=Kills)
    phases: Counter[str] = field(default_factory=Counter)
    replays: int = 0
    full_disk: str = "not asked for"
    _mounted: Path | None = None
    _files: int = 0
    _driver: subprocess.Popen[bytes] | None = None
    _begun_with: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        """Start the query again and again, with its kills spread evenly, and let it end."""
        case = self.case
        starts = case.drivers + 1
        for number in range(starts):
            self.start()
            if case.full_disk and number == starts - 1:
                self.fill_disk()
            workers, executors = (
                n * (number + 1) // starts - n * number // starts
                for n in (case.workers, case.executors)
            )
            self.kill_workers(workers)
            self.kill_executors(executors)
            if number < case.drivers:
                self.kill_driver()
        self.finish()

    def start(self) -> None:
        """Start the driver and wait until its query has begun a micro-batch."""
        for name in ("tmp", "local"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir()
        (self.folder / "running").unlink(missing_ok=True)
        self._feed()
        self._begun_with = self.marks()
        given = ["--case", self.name, "--folder", str(self.folder)]
        with (self.folder / "log").open("ab") as log:
            self._driver = subprocess.Popen(
                [sys.executable, "-m", "campaigns.fault_query", *given],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait("the query to run", (self.folder / "running").exists)

    def _environment(self) -> dict[str, str]:
        return os.environ | {
            "PYTHONPATH": import_path(ROOT / "tests"),
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
        self.done.driver += 1
        self.phases[self._phase()] += 1
        now = self.marks()
        self.replays += now["commits"] < now["offsets"] == self._begun_with["offsets"]

    def _choose(self) -> tuple[str | None, float]:
        """The moments take turns in an order that changes from turn to turn."""
        turn, at = divmod(self.done.driver, len(MOMENTS))
        order = np.random.default_rng(turn).permutation(len(MOMENTS))
        return list(MOMENTS.values())[int(order[at])]

    def kill_workers(self, number: int) -> None:
        """Kill Python workers, each while it has a task."""
        for _ in range(number):
            self._until_a_task_is_lost("worker", lambda worker: worker)
            self.done.worker += 1

    def kill_executors(self, number: int) -> None:
        """Kill executors of the local cluster, each while it has a task."""
        for _ in range(number):
            self._until_a_task_is_lost("executor", lambda worker: _parent(_parent(worker)))
            self.done.executor += 1

    def _until_a_task_is_lost(self, what: str, victim: Callable[[int], int]) -> None:
        """Kill what belongs to a busy Python worker; the same ones pack rows and join them."""
        for _ in range(TRIES):
            lost = self.tasks_lost()
            self._grown("offsets", self.marks()["offsets"])
            time.sleep(self.random.uniform(0, 0.3))

            def kill() -> bool:
                busy = self._busy()
                return bool(busy) and self._kill(victim(int(self.random.choice(busy))))

            self._wait(f"a busy {what}", kill)
            self._grown("commits", self.marks()["offsets"])
            if self.tasks_lost() > lost:  # else the task had just ended
                self.phases[what] += 1
                return
        raise RuntimeError(f"no kill of a Spark {what} has hit a task")

    def tasks_lost(self) -> int:
        """How many tasks Spark has told of that it had to run again."""
        return self._log().count("] Lost task ")

    def _log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def fill_disk(self) -> None:
        """Put a tiny file system where the workers keep their segments, until they tell it is full.

        It takes root; elsewhere the history goes on without.
        """
        found: list[Path] = []

        def made() -> bool:
            found[:] = (self.folder / "local").glob("*/thetajoin-*/")
            return bool(found)

        self._wait("the segments' folder", made)
        options = ["-t", "tmpfs", "-o", f"size={TINY_DISK},mode=0700", "tmpfs", str(found[0])]
        done = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
        if done.returncode:
            self.full_disk = f"skipped: {done.stderr.strip() or 'no tmpfs can be mounted'}"
            return
        self._mounted = found[0]
        self._wait("a full disk", lambda: NO_SPACE in self._log())
        self._grown("commits", self.marks()["commits"] + 2)
        self.full_disk = f"was full: {TINY_DISK} bytes"

    def finish(self) -> None:
        """Let the query take all that is there, and end."""
        assert self._driver is not None
        if self.case.window == "time":
            self._write_last()
        (self.folder / "stop").touch()
        code = self._driver.wait(PATIENCE)
        if code != 0:
            raise RuntimeError(f"the query failed at its end: {self._last_words()}")

    def _write_last(self) -> None:
        for number in range(LAST_BATCHES * FILES):
            write_file(self.folder, self._files, dict.fromkeys(SIDES, last_rows(number)))
            self._files += 1

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
        if self._mounted is not None:
            subprocess.run(["umount", "--lazy", str(self._mounted)], check=True)
            self._mounted = None

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
            "sink": newest(self.folder / "out" / ("" if self.case.totals else "_spark_metadata")),
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

    def _busy(self) -> list[int]:
        """Python workers that have just used a processor."""
        assert self._driver is not None
        found = processes(self._driver.pid)
        parents = {pid: _parent(pid) for pid, what in found.items() if "pyspark.daemon" in what}
        # A daemon's parent is a JVM, a worker's its daemon.
        workers = [pid for pid, parent in parents.items() if parent in parents]
        before = {pid: _ran(pid) for pid in workers}
        time.sleep(0.004)
        return sorted(pid for pid, ran in before.items() if _ran(pid) > ran)

    def _feed(self) -> None:
        if (self.folder / "stop").exists():
            return
        while self._files < (self.marks()["offsets"] + AHEAD) * FILES:
            rows = {side: make_rows(self.case.window, side, self._files) for side in SIDES}
            write_file(self.folder, self._files, rows)
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
