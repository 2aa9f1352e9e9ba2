"""Streaming joins on Spark whose processes are killed, against a naive join.

One history is one checkpoint and one sink. Its driver is killed and started again several times,
and between that its Python workers and its executors are. Afterwards the micro-batches are read
from the checkpoint's own logs, joined by brute force, and compared with what the sink holds.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Report
from campaigns.fault_oracle import compare
from campaigns.fault_ordeal import Ordeal
from campaigns.fault_query import CASES, Case
from thetajoin.errors import OptionError

DIFFERENCES = ("lost", "duplicate", "wrong")
TARGETS = {"kills": ">= 100", **dict.fromkeys(DIFFERENCES, "0")}
Progress = Callable[[str], None]


def run(progress: Progress, scale: float = 1.0) -> Report:
    """All histories; `scale` shrinks the number of kills for a quick look."""
    if importlib.util.find_spec("pyspark") is None:
        raise OptionError("campaign faults needs PySpark: pip install 'thetajoin[spark]'")
    report = Report("faults", targets=TARGETS)
    for name, case in CASES.items():
        progress(f"{name}: {case.scaled(scale).kills} kills")
        folder = Path(tempfile.mkdtemp(prefix="thetajoin-faults-"))
        try:
            found = history(folder, name, case.scaled(scale))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        if any(found[key] for key in DIFFERENCES):
            found["evidence"] = str(folder)  # checkpoint, sink and log are kept to be looked into
        else:
            shutil.rmtree(folder, ignore_errors=True)
        report.details[name] = found
    for key in TARGETS:
        report.figures[key] = sum(found[key] for found in report.details.values())
    return report


def history(folder: Path, name: str, case: Case, seed: int = 3) -> dict[str, Any]:
    """Run one query through all of its kills to its end, and compare it with the naive join."""
    begun = time.perf_counter()
    ordeal = Ordeal(folder, name, case, np.random.default_rng(seed))
    try:
        ordeal.run()
    finally:
        ordeal.kill_all()
    killed = asdict(ordeal.done)
    return {
        "kills": sum(killed.values()),
        "killed": killed,
        **compare(folder, case),
        "killed_while": dict(ordeal.phases),
        "killed_in_a_replay": ordeal.replays,
        "tasks_lost": ordeal.tasks_lost(),
        "full_disk": ordeal.full_disk,
        "seconds": round(time.perf_counter() - begun, 1),
    }
