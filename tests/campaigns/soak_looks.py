"""Looking at a streaming query while it runs: its memory, its files, what a restart would read."""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaigns.fault_logs import newest

# Samples of memory in a whole run, each of which collects the JVM's garbage.
LOOKS = 100
# Seconds after which a segment file that no layout names is one that nobody will remove.
STALE = 100.0


@dataclass
class Watch:
    """What the query keeps, sample by sample.

    files, bytes: in the checkpoint and in the segments' folders. restart: bytes that a restart
    would read. heap: the JVM's after a collection. workers: the Python workers' memory.
    """

    folder: Path
    batches: int
    patience: float
    samples: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    def follow(self, driver: subprocess.Popen[bytes]) -> Iterator[int]:
        """Look at the query while it goes on, giving the micro-batches done from time to time."""
        looks, done, moved = 0, -1, time.monotonic()
        while done < self.batches:
            now = newest(self.folder / "checkpoint" / "commits") + 1
            if driver.poll() is not None or time.monotonic() > moved + self.patience:
                raise RuntimeError(f"the query stands still: {self.last_words()}")
            if now > done:
                done, moved = now, time.monotonic()
                self.look_at_files(done)
            if done >= (looks + 1) * self.batches / LOOKS:
                looks = int(done * LOOKS / self.batches)
                self.look_at_memory(done, driver.pid)
                yield done
            time.sleep(0.05)

    def look_at_files(self, batch: int) -> None:
        """Count what lies on disk."""
        checkpoint = self.folder / "checkpoint"
        sizes = list(files_in(checkpoint).values())
        for unit in (self.folder / "local").glob("**/thetajoin-*/[0-9]*/"):
            sizes += kept_segments(unit)
        restart = sum(restart_bytes(path) for path in (checkpoint / "state").glob("[0-9]*/[0-9]*"))
        kept = sum(about.st_size for about in sizes)
        self._note(batch, files=len(sizes), bytes=kept, restart=restart)

    def look_at_memory(self, batch: int, driver: int) -> None:
        """Have the JVM collect its garbage, and see what is left."""
        java = next((pid for pid in descendants(driver) if _program(pid) == "java"), None)
        heap = None if java is None else heap_bytes(java)
        if java is None or heap is None:
            return
        workers = sum(_own_memory(pid) for pid in descendants(java))
        self._note(batch, heap=heap, workers=workers, memory=heap + workers)

    def _note(self, batch: int, **values: float) -> None:
        for name, value in values.items():
            self.samples.setdefault(name, []).append((batch, value))

    def growth(self) -> dict[str, Any]:
        """The last tenth of the samples over the second tenth."""
        ratios = {name: grown(values, self.batches) for name, values in self.samples.items()}
        return {
            "batches": self.batches,
            "memory_growth": ratios.get("memory"),
            "files_growth": max(ratios["files"], ratios["bytes"]),
            "restart_growth": ratios["restart"],
            "ratios": ratios,
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


# Files


def files_in(folder: Path, *, deep: bool = True) -> dict[Path, os.stat_result]:
    """The files of a folder that others write to and remove from meanwhile."""
    found = {}
    for root, folders, names in os.walk(folder):
        for name in names:
            path = Path(root, name)
            try:
                found[path] = path.stat()
            except FileNotFoundError:
                continue
        if not deep:
            folders.clear()
    return found


def kept_segments(folder: Path) -> list[os.stat_result]:
    """The files that a unit's layouts name, the layouts, and what was left behind.

    Files that no layout names any more are removed after a minute: how many there are until then
    depends on how quickly micro-batches follow each other.
    """
    files = files_in(folder)
    named: set[str] = set()
    for path in files:
        if path.suffix == ".json":
            named.update(re.findall(r'"([^"]+)"', _text(path)))
    old = time.time() - STALE
    return [
        about
        for path, about in files.items()
        if path.suffix == ".json" or path.name in named or about.st_mtime < old
    ]


def restart_bytes(folder: Path) -> int:
    """Bytes that a state partition is restored from: its newest snapshot, and what changed since.

    A snapshot is a zip of small files, one of which names the large ones it shares with others.
    """
    sizes = {path: about.st_size for path, about in files_in(folder, deep=False).items()}
    versions = {path: int(m[1]) for path in sizes if (m := re.match(r"(\d+)[._]", path.name))}
    zips = [path for path in versions if path.suffix == ".zip"]
    newest_zip = max(zips, key=lambda path: versions[path], default=None)
    since = -1 if newest_zip is None else versions[newest_zip]
    total = sum(
        sizes[path]
        for path, version in versions.items()
        if path.suffix == ".changelog" and version > since
    )
    if newest_zip is not None:
        total += sizes[newest_zip] + sum(_shared_sizes(newest_zip))
    return total


def _shared_sizes(snapshot: Path) -> Iterator[int]:
    try:
        with zipfile.ZipFile(snapshot) as files:
            listed = files.read("metadata").decode()
    except (OSError, KeyError, zipfile.BadZipFile):
        return  # just removed, or being written
    for file in json.loads(listed.partition("\n")[2])["sstFiles"]:
        yield int(file["sizeBytes"])


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


# Memory


def heap_bytes(java: int) -> int | None:
    """Bytes in use of a JVM's heap after a collection; None where there is no `jcmd`."""
    program = shutil.which("jcmd")
    if program is None:
        return None
    for command in ("GC.run", "GC.heap_info"):
        asked = [program, str(java), command]
        told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    used = re.findall(r"(?:generation|heap)\s+total \d+K, used (\d+)K", told)
    return sum(map(int, used)) * 1024 if used else None


def descendants(pid: int) -> Iterator[int]:
    """The processes that a process has started, and theirs."""
    for entry in os.listdir("/proc"):
        if entry.isdigit() and _parent(int(entry)) == pid:
            yield int(entry)
            yield from descendants(int(entry))


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return -1


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _own_memory(pid: int) -> int:
    """A process's part of the memory it shares with others, in bytes."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0
