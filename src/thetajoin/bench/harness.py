"""Measuring: alternating runs after a warm-up, medians, and peers that may be missing or slow."""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Run = Callable[[], Any]


@dataclass
class Report:
    """A benchmark's figures, and the raw measurements they come from."""

    name: str
    figures: dict[str, float | None] = field(default_factory=dict)
    targets: dict[str, str] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    curves: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """One JSON object."""
        rounded = {k: None if v is None else float(f"{v:.4g}") for k, v in self.figures.items()}
        content = {"name": self.name, "figures": rounded, "details": self.details}
        return json.dumps(content | ({"curves": self.curves} if self.curves else {}))


def alternate(
    runs: Mapping[str, Run], rounds: int, *, warm_up: bool = True
) -> dict[str, list[float]]:
    """Seconds of each run in each round, the runs taking turns so that noise hits all alike."""
    if warm_up:
        for run in runs.values():
            run()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            gc.collect()
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def medians(seconds: Mapping[str, list[float]]) -> dict[str, float]:
    """The median of each run's seconds."""
    return {name: statistics.median(values) for name, values in seconds.items()}


def in_process(module: str, arguments: list[str], threads: int, timeout: float) -> Any:
    """Run ``python -m module`` with all libraries held to `threads`, and read the JSON it prints.

    Some peers read their number of threads only when they are imported.
    """
    environment = os.environ | {
        "POLARS_MAX_THREADS": str(threads),
        "OMP_NUM_THREADS": str(threads),
        "NUMBA_NUM_THREADS": str(threads),
    }
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments, "--threads", str(threads)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode != 0:
        # A Python error is told in the last line, what kills a process in the first.
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise RuntimeError(f"{module} failed: {lines[0 if done.returncode < 0 else -1]}")
    return json.loads(done.stdout.splitlines()[-1])


def run_workload(workloads: Mapping[str, Callable[[int, float], Any]]) -> None:
    """What a benchmark's own process does: measure one workload and print it as JSON.

    `--threads` is the number of threads, or of cores for a Spark session.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=workloads)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0)
    given = parser.parse_args()
    found = workloads[given.workload](given.threads, given.scale)
    sys.stdout.write(json.dumps(found) + "\n")
