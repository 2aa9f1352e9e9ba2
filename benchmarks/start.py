"""How fast the first answer comes: on a new install, in a later process, in a stream, with LIMIT.

The install is a real one: pip builds this source tree and puts it into an environment made for
it, DuckDB beside it. Before each first join its caches are emptied, and homes are new folders.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import thetajoin
from benchmarks.harness import ROOT, Report, alternate, in_process, medians, run_workload
from thetajoin.errors import ResourceError

MODULE = "benchmarks.start"
ROUNDS = 5
SPARK_ROUNDS = 3
FEW, MANY = 3, 100_000
OPEN = 8_000
STREAM_ROWS = 2_000
TARGETS = {
    "first_join_vs_duckdb_s": "<= 0.8",
    "first_join_vs_duckdb_100k_s": "<= 2",
    "later_process_s": "<= 0.5",
    "later_process_100k_s": "<= 0.6",
    "spark_first_batch_s": "<= 3",
    "limit_vs_full": "<= 0.05",
    "install_mb": "",
}
Progress = Callable[[str], None]

# Both programs make the same tables, join them and say how many pairs there are.
TABLES = """
import sys
import numpy as np, pyarrow as pa
rows, tables = int(sys.argv[1]), {}
for side in "lr":
    random = np.random.default_rng(ord(side))
    a = random.random(rows)
    b = a + random.random(rows) * 60 / rows
    tables[side] = pa.table({"id": np.arange(rows), "a": a, "b": b})
"""
OURS = (
    TABLES
    + """
import thetajoin as tj
print(tj.join(tables["l"], tables["r"], "l.a < r.a AND l.b > r.b").num_rows)
"""
)
DUCKDB = (
    TABLES
    + """
import duckdb
duckdb.register("l", tables["l"])
duckdb.register("r", tables["r"])
print(duckdb.sql("SELECT * FROM l JOIN r ON l.a < r.a AND l.b > r.b").to_arrow_table().num_rows)
"""
)


def run(progress: Progress, scale: float = 1.0, *, rounds: int = ROUNDS) -> Report:
    """All figures; `scale` shrinks the large tables for a quick look."""
    report = Report("start", targets=TARGETS)
    with tempfile.TemporaryDirectory(prefix="thetajoin-start-", ignore_cleanup_errors=True) as name:
        install = Install(Path(name))
        progress("a new install")
        report.figures["install_mb"] = install.make()
        report.details["compiled_ahead"] = install.ready_kernels
        for rows, ending in ((FEW, ""), (max(FEW, int(MANY * scale)), "_100k")):
            progress(f"first and later joins of {rows:,} rows")
            found = first_and_later(install, rows, rounds)
            report.details[f"{rows} rows"] = found
            for key, who in (("first_join_vs_duckdb", "first"), ("later_process", "later")):
                report.figures[f"{key}{ending}_s"] = found["less_duckdb"][who]
        if importlib.util.find_spec("pyspark") is not None:
            progress("first micro-batches on Spark")
            report.details["spark"] = stream = first_batches(install)
            report.figures["spark_first_batch_s"] = stream["ours"] - stream["spark"]
    progress("LIMIT")
    limit = in_process(MODULE, ["limit", "--scale", str(scale)], os.cpu_count() or 1, timeout=3600)
    report.details["limit"] = limit
    report.figures["limit_vs_full"] = limit["median"]["limit"] / limit["median"]["full"]
    report.figures = {key: report.figures.get(key) for key in TARGETS}
    return report


@dataclass(frozen=True)
class Install:
    """An environment with thetajoin and DuckDB, and no caches that outlive a round."""

    folder: Path

    def make(self) -> float:
        """Install this source tree as a user would; the megabytes it takes without extras."""
        done = _python([sys.executable, "-m", "venv", str(self.folder / "venv")], self._environment)
        if done.returncode != 0:
            raise ResourceError(f"no new environment could be made: {_last_line(done)}")
        empty = _megabytes(self.packages)
        self._install(str(ROOT))
        taken = _megabytes(self.packages) - empty
        self._install("duckdb")
        return taken

    def _install(self, what: str) -> None:
        pip = [str(self.python), "-m", "pip", "--disable-pip-version-check", "install", "-q", what]
        # pip's own cache is left to it: what is measured is what it installs. What PYTHONPATH leads
        # to would pass for installed.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = _python(pip, kept)
        if done.returncode != 0:
            raise ResourceError(f"pip could not install {what}: {_last_line(done)}")

    @cached_property
    def python(self) -> Path:
        """The environment's interpreter."""
        programs = Path(sysconfig.get_path("scripts", "venv", {"base": str(self.folder / "venv")}))
        return programs / ("python.exe" if os.name == "nt" else "python")

    @cached_property
    def packages(self) -> Path:
        """Where it keeps packages."""
        place = {"base": str(self.folder / "venv"), "platbase": str(self.folder / "venv")}
        return Path(sysconfig.get_path("purelib", "venv", place))

    @property
    def ready_kernels(self) -> int:
        """How many compiled kernels came with it."""
        return len(list((self.packages / "thetajoin" / "kernels").rglob("ready/*/*.kernel")))

    @property
    def _environment(self) -> dict[str, str]:
        """A home and temporary files of this install's own, and nothing that leads elsewhere."""
        leads = ("NUMBA", "PYTHON", "XDG", "VIRTUAL_ENV", "LOCALAPPDATA")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(leads)}
        home, temporary = str(self.folder / "home"), str(self.folder / "temporary")
        places = dict.fromkeys(("HOME", "USERPROFILE", "LOCALAPPDATA"), home)
        return kept | places | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), temporary)

    def forget(self) -> None:
        """Empty all caches that earlier joins may have left."""
        for name in ("home", "temporary"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir()
        compiled = self.packages / "thetajoin" / "kernels" / "__pycache__" / "compiled"
        shutil.rmtree(compiled, ignore_errors=True)

    def seconds(self, program: str, rows: int) -> tuple[float, str]:
        """How long a process takes from its start to its end, and what it says."""
        began = time.perf_counter()
        done = _python([str(self.python), "-c", program, str(rows)], self._environment)
        taken = time.perf_counter() - began
        if done.returncode != 0:
            raise RuntimeError(f"a first join failed: {_last_line(done)}")
        return taken, done.stdout.strip()

    def with_spark(self) -> dict[str, str]:
        """An environment in which the Spark that is here runs this install's thetajoin."""
        paths = os.pathsep.join(map(str, (self.packages, ROOT)))
        return self._environment | {"PYTHONPATH": paths}


def first_and_later(install: Install, rows: int, rounds: int) -> dict[str, Any]:
    """Seconds of a first and of a later process, DuckDB's beside each."""
    taken: dict[str, list[float]] = {}
    for _ in range(rounds):
        install.forget()
        for when in ("first", "later"):
            said = set()
            for who, program in (("ours", OURS), ("duckdb", DUCKDB)):
                seconds, pairs = install.seconds(program, rows)
                taken.setdefault(f"{when} {who}", []).append(seconds)
                said.add(pairs)
            if len(said) > 1:
                raise RuntimeError(f"thetajoin and DuckDB find different pairs: {sorted(said)}")
    less = {
        when: statistics.median(
            ours - peer
            for ours, peer in zip(taken[f"{when} ours"], taken[f"{when} duckdb"], strict=True)
        )
        for when in ("first", "later")
    }
    return {"median": medians(taken), "less_duckdb": less, "seconds": taken}


def first_batches(install: Install) -> dict[str, float]:
    """Seconds of a stream's first micro-batch in a new session, ours and Spark's own join."""
    taken: dict[str, list[float]] = {"ours": [], "spark": []}
    for _ in range(SPARK_ROUNDS):
        install.forget()
        for who, seconds in taken.items():
            command = [sys.executable, "-m", MODULE, f"{who}_first_batch"]
            done = _python(command, install.with_spark())
            if done.returncode != 0:
                raise RuntimeError(f"a first micro-batch failed: {_last_line(done)}")
            seconds.append(json.loads(done.stdout.splitlines()[-1]))
    return medians(taken)


def _first_batch(own: bool) -> float:
    from benchmarks.spark_stream import Streams, batches_of
    from thetajoin.spark.session import local_session

    # Spark's own join has no use for Python workers: their start would only be in its way.
    session = local_session(warm=own)
    try:
        streams = Streams(session, 2 * STREAM_ROWS, STREAM_ROWS, 1.0)
        left, right = streams.side(1), streams.side(2)
        if own:
            window = thetajoin.CountWindow(STREAM_ROWS)
            on = "l.a < r.a AND l.b > r.b"
            joined = thetajoin.join(left, right, on, window=window, order_by="id")
        else:
            right = right.selectExpr("id AS other", "a AS c", "b AS d")
            joined = left.join(right, (left.id == right.other) & (left.a < right.c))
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            batch = batches_of(joined, 0, 1, Path(folder))[0]
        return float(batch.durationMs["triggerExecution"]) / 1000
    finally:
        session.stop()


def _limit(threads: int, scale: float) -> dict[str, Any]:
    import numpy as np
    import pyarrow as pa

    rows = max(10, int(OPEN * scale))
    tables = {
        side: pa.table({"a": np.random.default_rng(seed).random(rows)})
        for seed, side in enumerate("lr")
    }
    query = "SELECT l.a, r.a AS b FROM l JOIN r ON l.a < r.a"
    runs = {
        "limit": lambda: thetajoin.sql(f"{query} LIMIT 3", **tables),
        "full": lambda: thetajoin.sql(query, **tables),
    }
    seconds = alternate(runs, 5)
    return {"median": medians(seconds), "seconds": seconds}


def _python(command: list[str], environment: dict[str, str]) -> Any:
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def _last_line(done: Any) -> str:
    lines = done.stderr.strip().splitlines() or ["no message"]
    errors = [line for line in lines if line.startswith("ERROR")]
    return str((errors or lines)[-1]).removeprefix("ERROR: ")


def _megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


if __name__ == "__main__":
    run_workload(
        {
            "limit": _limit,
            "ours_first_batch": lambda threads, scale: _first_batch(True),
            "spark_first_batch": lambda threads, scale: _first_batch(False),
        }
    )
