"""Measuring: alternating runs after a warm-up, medians, and peers that may be missing or slow."""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import thetajoin

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

# The checkout.
ROOT = Path(__file__).resolve().parents[1]
Run = Callable[[], Any]


class TooSlowError(RuntimeError):
    """A peer did not give its result in the time that it had."""


@dataclass
class Report:
    """A benchmark's figures, and the raw measurements they come from."""

    name: str
    figures: dict[str, float | None] = field(default_factory=dict)
    targets: dict[str, str] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    curves: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """One JSON object; counts are exact, all else has four digits."""
        rounded = {
            key: value if value is None or isinstance(value, int) else float(f"{value:.4g}")
            for key, value in self.figures.items()
        }
        content = {"name": self.name, "figures": rounded, "details": self.details}
        return json.dumps(content | ({"curves": self.curves} if self.curves else {}))


def alternate(
    runs: Mapping[str, Run],
    rounds: int,
    *,
    warm_up: bool = True,
    memory: dict[str, list[Memory]] | None = None,
) -> dict[str, list[float]]:
    """Seconds of each run in each round, the runs taking turns so that noise hits all alike.

    `memory` is given what each of them took of it.
    """
    if warm_up:
        for run in runs.values():
            run()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            gc.collect()
            before = Memory.take()
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
            if memory is not None:
                memory.setdefault(name, []).append(Memory.take() - before)
    return seconds


@dataclass(frozen=True)
class Memory:
    """What this process took of memory: fresh pages, seconds in the system, bytes of Arrow's pool.

    On a virtual machine that gives free memory back to its host, fresh pages are what a join that
    allocates much takes longest for. An engine that allocates by itself has no bytes here.
    """

    page_faults: int
    system_s: float
    arrow_bytes: int

    @classmethod
    def take(cls) -> Memory:
        """Since the process began; zeros where the system does not tell."""
        pool = pa.default_memory_pool()
        told = getattr(pool, "total_bytes_allocated", None)
        arrow = int(told()) if told is not None else 0
        if resource is None:
            return cls(0, 0.0, arrow)
        used = resource.getrusage(resource.RUSAGE_SELF)
        return cls(used.ru_minflt, used.ru_stime, arrow)

    def __sub__(self, before: Memory) -> Memory:
        return Memory(
            self.page_faults - before.page_faults,
            self.system_s - before.system_s,
            self.arrow_bytes - before.arrow_bytes,
        )


def medians(seconds: Mapping[str, list[float]]) -> dict[str, float]:
    """The median of each run's seconds."""
    return {name: statistics.median(values) for name, values in seconds.items()}


def import_path(*folders: Path) -> str:
    """What other processes need as PYTHONPATH to import the benchmarks and this same thetajoin.

    `folders` are more places to import from.
    """
    package = Path(thetajoin.__file__).parents[1]
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = [*map(str, (package, ROOT, *folders)), *filter(None, given)]
    return os.pathsep.join(dict.fromkeys(paths))


def in_process(module: str, arguments: list[str], threads: int, timeout: float) -> Any:
    """Run ``python -m module`` with all libraries held to `threads`, and read the JSON it prints.

    Some peers read their number of threads only when they are imported.
    """
    done = subprocess.run(
        _command(module, arguments, threads),
        env=_environment(threads),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode != 0:
        # A Python error is in the last line, the reason why a process was killed in the first.
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise RuntimeError(f"{module} failed: {lines[0 if done.returncode < 0 else -1]}")
    return json.loads(done.stdout.splitlines()[-1])


def in_turns(
    module: str, arguments: list[str], threads: Sequence[int], rounds: int
) -> dict[int, list[Any]]:
    """What a workload gives with each number of threads, round by round.

    All processes stay alive and take turns, so that a slow minute of the machine hits all alike;
    the workload must be a generator.
    """
    found: dict[int, list[Any]] = {number: [] for number in threads}
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(tempfile.TemporaryFile("w+"))
        running = {}
        for number in threads:
            process = subprocess.Popen(
                _command(module, arguments, number),
                env=_environment(number),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
            # At the end its input is closed, which has it clean up after itself.
            running[number] = stack.enter_context(process)
        for _ in range(rounds):
            for number, process in running.items():
                assert process.stdin is not None
                assert process.stdout is not None
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write("go\n")
                    process.stdin.flush()
                line = process.stdout.readline()
                if not line:
                    log.seek(0)
                    told = log.read().strip().splitlines() or ["no message"]
                    raise RuntimeError(f"{module} failed: {told[-1]}")
                found[number].append(json.loads(line))
    return found


def _command(module: str, arguments: list[str], threads: int) -> list[str]:
    return [sys.executable, "-m", module, *arguments, "--threads", str(threads)]


def _environment(threads: int) -> dict[str, str]:
    names = ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
    return os.environ | dict.fromkeys(names, str(threads)) | {"PYTHONPATH": import_path()}


def run_workload(workloads: Mapping[str, Callable[[int, float], Any]]) -> None:
    """What a benchmark's own process does: measure one workload and print it as JSON.

    A workload that is a generator gives a measurement for each line that comes in (`in_turns`).
    `--threads` is the number of threads, or of cores for a Spark session.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=workloads)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0)
    given = parser.parse_args()
    found = workloads[given.workload](given.threads, given.scale)
    if not isinstance(found, Generator):
        sys.stdout.write(json.dumps(found) + "\n")
        return
    for _ in sys.stdin:
        sys.stdout.write(json.dumps(next(found)) + "\n")
        sys.stdout.flush()
    found.close()
