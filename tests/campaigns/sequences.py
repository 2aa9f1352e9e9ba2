"""Random sequences of calls in one process, in many fresh processes; every result is checked.

What one call leaves behind, another may meet: kernels compiled or not, a failed call, another
thread, a fork. Calls of a sequence are drawn each from its own seed, so some can be left out and
the others stay as they are: that is how a failing sequence is made short.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Report
from thetajoin.errors import OptionError

TARGETS = {"wrong": "0"}
# Seconds for one process; compiling everything takes half a minute on a quiet machine.
PATIENCE = 300
MOST_REPLAYS, LONGEST_S = 40, 900  # for making one sequence short


def run_process(
    seed: int, calls: int, kept: Sequence[int] | None = None, *, cold: bool = False
) -> dict[str, Any]:
    """Run a sequence in a fresh process; `kept` names the calls to make, if not all."""
    from tempfile import TemporaryDirectory

    words = [str(seed), str(calls), *([] if kept is None else [",".join(map(str, kept))])]
    with TemporaryDirectory(prefix="sequences-") as folder:
        environment = dict(os.environ)
        if cold:
            environment["NUMBA_CACHE_DIR"] = folder
        try:
            done = subprocess.run(
                [sys.executable, "-m", "tests.campaigns.sequence_calls", *words],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=PATIENCE,
            )
        except subprocess.TimeoutExpired:
            return {"calls": 0, "wrong": [{"call": -1, "what": "did not end"}]}
    try:
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        what = f"ended with {done.returncode}: {done.stderr[-2000:]}"
        return {"calls": 0, "wrong": [{"call": -1, "what": what}]}
    return found


def shrink(seed: int, calls: int, failing: int) -> list[int]:
    """The fewest calls found that still go wrong."""
    kept = list(range(failing + 1 if failing >= 0 else calls))
    size, replays, until = max(1, len(kept) // 2), 0, time.monotonic() + LONGEST_S
    while True:
        for start in range(0, len(kept), size):
            fewer = [*kept[:start], *kept[start + size :]]
            replays += bool(fewer)
            if fewer and run_process(seed, calls, fewer)["wrong"]:
                kept = fewer
                break
            if replays >= MOST_REPLAYS or time.monotonic() > until:
                return kept
        else:
            if size == 1:
                break
            size = max(1, size // 2)
    return kept


def run(
    progress: Callable[[str], None],
    scale: float = 1.0,
    *,
    cases: int = 100_000,
    processes: int = 1000,
    seed: int = 1,
    jobs: int = 2,
    cold: int = 250,
    replay: str = "",
) -> Report:
    """So many calls in all; sequences that fail are made short and written down.

    `jobs` processes run at a time, and one in `cold` compiles its kernels. `replay` names calls of
    one seed, such as ``3,17``, which are made again. `scale` shrinks the number of processes.
    """
    for name, value in (("cases", cases), ("processes", processes), ("jobs", jobs)):
        if value < 1:
            raise OptionError(f"--{name} {value}: must be at least 1")
    began = time.monotonic()
    calls = -(-cases // processes)
    seeds = range(seed, seed + (1 if replay else max(1, round(processes * scale))))
    kept = [int(word) for word in replay.split(",")] if replay else None

    def run_one(seed: int) -> tuple[int, dict[str, Any]]:
        compiles = bool(cold) and seed % cold == 0 and kept is None
        return seed, run_process(seed, calls, kept, cold=compiles)

    total = 0
    wrong: list[str] = []
    scripts: list[str] = []
    folder: Path | None = None
    with ThreadPoolExecutor(jobs) as pool:
        for one, found in pool.map(run_one, seeds):
            total += found["calls"]
            for fault in found["wrong"]:
                wrong.append(f"seed {one}, call {fault['call']}: {fault['what']}")
            progress(f"{total:,} calls, {len(wrong)} wrong")
            if found["wrong"] and len(scripts) < 5 and kept is None:
                folder = folder or Path(tempfile.mkdtemp(prefix="wrong-sequences-"))
                fewest = shrink(one, calls, found["wrong"][0]["call"])
                scripts.append(str(_write_script(folder, one, calls, fewest)))
    figures: dict[str, float | None] = {
        "processes": len(seeds),
        "cases": total,
        "wrong": len(wrong),
        "seconds": round(time.monotonic() - began),
    }
    return Report("sequences", figures, TARGETS, {"wrong": wrong[:50], "scripts": scripts})


def _write_script(folder: Path, seed: int, calls: int, kept: list[int]) -> Path:
    path = folder / f"sequence-{seed}.sh"
    found = run_process(seed, calls, kept)
    told = "".join(f"# {line}\n" for line in found.get("told", []))
    listed = ",".join(map(str, kept))
    path.write_text(
        f"{told}python -m tests.campaigns sequences --seed {seed} --processes 1 "
        f"--cases {calls} --replay {listed}\n"
    )
    return path
