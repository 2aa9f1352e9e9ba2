"""The engine's benchmark: streaming steps, one-shot joins, bands, and what they cost in memory.

`measure` runs in a process of its own for each number of threads, because Polars reads it once.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.data import independent, uniform
from benchmarks.harness import Report, alternate, in_process, medians, run_workload
from benchmarks.peers import Q1, DuckDB, Polars, join_runs, list_installed
from benchmarks.plots import plot_panels
from thetajoin.cli.generate import make_correlated

ROUNDS = 5
# Steps measured together, so that each measurement has its share of merges in it.
CYCLE = 16
BATCH = 10_000
TARGETS = {
    "step_vs_duckdb": ">= 100",
    "step_vs_polars": ">= 25",
    "step_vs_duckdb_own_table": "",
    "oneshot_vs_best_peer": ">= 2",
    "oneshot_vs_best_peer_2_threads": ">= 2",
    "band_vs_best_peer": ">= 3",
    "band_vs_best_peer_2_threads": "",
    "pairs_vs_copy": "<= 2",
    "pairs_vs_copy_two_predicates": "",
    "growth_250k_to_4m": "<= 2",
    "bytes_per_row": "<= 40",
    "import_s": "<= 0.3",
    "tables_vs_spark": "",
}
# Rows a side of a join that Spark does as a nested loop.
SPARK_ROWS = 50_000
Progress = Callable[[str], None]


def run(progress: Progress, scale: float = 1.0) -> Report:
    """All figures of the benchmark; `scale` shrinks the tables for a quick look."""
    report = Report("engine", targets=TARGETS, details={"scale": scale})
    workloads = [("step", 1), ("oneshot", 1), ("oneshot", 2), ("band", 1), ("band", 2)]
    workloads += [("pairs", 1), ("growth", 1)]
    for workload, threads in workloads:
        progress(f"{workload}, {threads} thread{'s' if threads > 1 else ''}")
        arguments = [workload, "--scale", str(scale)]
        found = in_process("benchmarks.engine", arguments, threads, timeout=3600)
        name = workload if threads == 1 else f"{workload}_{threads}_threads"
        report.details[name] = found["details"]
        report.figures |= found["figures"]
    if list_installed("pyspark"):
        progress("tables on Spark, 2 cores")
        arguments = ["spark", "--scale", str(scale)]
        found = in_process("benchmarks.engine", arguments, 2, timeout=3600)
        report.details["spark"] = found
        report.figures["tables_vs_spark"] = found["median"]["Spark"] / found["median"]["thetajoin"]
    progress("import")
    report.figures["import_s"] = import_seconds()
    report.figures = {key: report.figures.get(key) for key in TARGETS}
    return report


def plot(report: Report, folder: Path) -> list[Path]:
    """Seconds of each engine, a panel for each kind of join."""
    details = report.details
    step = details["step"]["seconds_per_step"]
    # DuckDB with the windows in tables of its own, its faster way.
    step = {name: step.get(name) for name in ("thetajoin", "duckdb_own_table", "polars")}
    scale = details.get("scale", 1.0)
    rows, spark_rows = int(1_000_000 * scale), int(SPARK_ROWS * scale)
    sizes, spark_sizes = f"{rows:,} x {rows:,} rows", f"{spark_rows:,} x {spark_rows:,} rows"
    panels: dict[str, dict[str, float | None]] = {
        f"Stream: 2 x {BATCH:,} new rows\nagainst the last {rows:,} of each side": step,
        f"Tables: two inequalities,\n{sizes}": details["oneshot_2_threads"]["median"],
        f"Tables: values at most d apart,\n{sizes}": details["band_2_threads"]["median"],
    }
    if "spark" in details:
        title = f"Tables on Spark: two inequalities,\n{spark_sizes}"
        panels[title] = details["spark"]["median"]
    names = {"thetajoin": "thetajoin", "duckdb": "DuckDB", "polars": "Polars", "chdb": "chDB"}
    names["duckdb_own_table"] = "DuckDB"
    shown = {
        title: {names.get(name, name): seconds for name, seconds in taken.items() if seconds}
        for title, taken in panels.items()
    }
    unit = "Seconds on 2 cores; shorter is better"
    return [plot_panels(shown, unit, folder / "speed.png", columns=2)]


def _spark(cores: int, scale: float) -> dict[str, Any]:
    """A join of tables on Spark, by this engine and by Spark itself; results are compared first."""
    import thetajoin as tj
    from benchmarks.spark_stream import spark_on

    session, rows = spark_on(cores), int(SPARK_ROWS * scale)
    left, right = (
        session.createDataFrame(make_correlated(rows, rows, 5.0, seed)).cache() for seed in (1, 2)
    )
    left.count(), right.count()

    left.createOrReplaceTempView("l")
    right.createOrReplaceTempView("r")

    def own() -> int:
        found = session.sql(f"SELECT count(*), sum(r.b) FROM l JOIN r ON {Q1}")
        return int(found.collect()[0][0])

    def ours() -> int:
        found = tj.join(left, right, Q1).selectExpr("count(*)", "sum(b_right)")
        return int(found.collect()[0][0])

    pairs = {"thetajoin": ours(), "Spark": own()}
    if len(set(pairs.values())) != 1:
        raise RuntimeError(f"the joins disagree: {pairs}")
    seconds = alternate({"thetajoin": ours, "Spark": own}, 3)
    return {"pairs": pairs["Spark"], "median": medians(seconds), "seconds": seconds}


class _Stream:
    """A StreamJoin in its steady state, fed with fresh batches."""

    def __init__(self, window: int, matches: float, threads: int) -> None:
        import thetajoin as tj

        empty = independent(0, window, matches, 0, left=True).schema
        self._window, self._matches, self._seed = window, matches, 0
        self.pairs = 0
        self.join = tj.StreamJoin(
            Q1,
            window=tj.CountWindow(window),
            left_schema=empty,
            right_schema=empty,
            threads=threads,
            merge="inline",
        )
        while self.join.stats.left_rows < window + window // 8:
            self.step(self.batches())

    def batches(self) -> tuple[pa.Table, pa.Table]:
        self._seed += 2
        shape = BATCH, self._window, self._matches
        left = independent(*shape, self._seed, left=True)
        return left, independent(*shape, self._seed + 1, left=False)

    def step(self, batches: tuple[pa.Table, pa.Table]) -> None:
        self.pairs += self.join.push(*batches).num_rows

    def cycle(self, steps: list[tuple[pa.Table, pa.Table]]) -> None:
        for batches in steps:
            self.step(batches)


def _step(threads: int, scale: float) -> dict[str, Any]:
    """Streaming steps against peers that join each batch with the other side's window."""
    window, matches = int(1_000_000 * scale), 100.0
    stream = _Stream(window, matches, threads)
    windows = [independent(window, window, matches, 10**9 + s, left=not s) for s in (0, 1)]
    left, right = stream.batches()
    peers: dict[str, Callable[[], int]] = {}
    present = list_installed("duckdb", "polars")
    if "duckdb" in present:
        duck = DuckDB(threads)
        duck.store("wl", windows[0])
        duck.store("wr", windows[1])
        # A window that moves lives in Arrow; a table of DuckDB's own is faster to join, but would
        # have to be rewritten with each batch, which is not counted here.
        peers["duckdb"] = lambda: duck.join(left, windows[1], Q1) + duck.join(windows[0], right, Q1)
        peers["duckdb_own_table"] = lambda: duck.join(left, "wr", Q1) + duck.join("wl", right, Q1)
    if "polars" in present:
        polars = Polars()
        frames = [polars.frame(table) for table in windows]
        new = [polars.frame(table) for table in (left, right)]
        peers["polars"] = lambda: (
            polars.join(new[0], frames[1], _q1) + polars.join(frames[0], new[1], _q1)
        )
    steps = [[stream.batches() for _ in range(CYCLE)] for _ in range(ROUNDS + 1)]
    turns = iter(steps)
    before = stream.pairs
    seconds = alternate({"thetajoin": lambda: stream.cycle(next(turns)), **peers}, ROUNDS)
    middle = medians(seconds)
    ours = middle["thetajoin"] / CYCLE
    return {
        "figures": {f"step_vs_{name}": middle[name] / ours for name in peers},
        "details": {
            "seconds_per_step": {"thetajoin": ours, **{n: middle[n] for n in peers}},
            "pairs_per_step": (stream.pairs - before) / (CYCLE * (ROUNDS + 1)),
            "seconds": seconds,
        },
    }


def _q1(left: Any, right: Any) -> list[Any]:
    return [left("a") < right("a"), left("b") > right("b")]


def _compare(name: str, threads: int, runs: dict[str, Callable[[], int]]) -> dict[str, Any]:
    """Our one-shot join against peers on the same tables, with the number of pairs checked."""
    counts = {peer: run() for peer, run in runs.items()}
    if len(set(counts.values())) > 1:
        raise RuntimeError(f"{name}: the engines disagree on the number of pairs: {counts}")
    seconds = alternate(runs, ROUNDS, warm_up=False)
    middle = medians(seconds)
    peers = {peer: s for peer, s in middle.items() if peer != "thetajoin"}
    best = min(peers.values()) if peers else None
    key = f"{name}_vs_best_peer" if threads == 1 else f"{name}_vs_best_peer_{threads}_threads"
    return {
        "figures": {key: None if best is None else best / middle["thetajoin"]},
        "details": {"pairs": counts["thetajoin"], "median": middle, "seconds": seconds},
    }


def oneshot_runs(threads: int, scale: float) -> dict[str, Callable[[], int]]:
    """Two predicates, five matches a row, by every engine."""
    import thetajoin as tj

    rows = int(1_000_000 * scale)
    left, right = (make_correlated(rows, rows, 5.0, seed) for seed in (1, 2))
    runs = join_runs(threads, left, right, Q1, _q1)
    runs["thetajoin"] = lambda: tj.join(left, right, Q1, threads=threads).num_rows
    return runs


def _oneshot(threads: int, scale: float) -> dict[str, Any]:
    return _compare("oneshot", threads, oneshot_runs(threads, scale))


def band_runs(threads: int, scale: float) -> dict[str, Callable[[], int]]:
    """A band of two matches a row; peers get it as a range, which all of them run faster."""
    import thetajoin as tj

    rows = int(1_000_000 * scale)
    width = 1.0 / rows
    left, right = uniform(rows, 1), uniform(rows, 2)
    band = f"ABS(l.x - r.x) <= {width!r}"
    between = f"l.x BETWEEN r.x - {width!r} AND r.x + {width!r}"
    runs = join_runs(
        threads,
        left,
        right,
        between,
        lambda here, there: [
            here("x") >= there("x") - width,
            here("x") <= there("x") + width,
        ],
    )
    runs["thetajoin"] = lambda: tj.join(left, right, band, threads=threads).num_rows
    return runs


def _band(threads: int, scale: float) -> dict[str, Any]:
    return _compare("band", threads, band_runs(threads, scale))


def _pairs(threads: int, scale: float) -> dict[str, Any]:
    """Writing pair ids, over copying as many bytes."""
    from thetajoin.batch.keys import float_keys
    from thetajoin.index.interval import interval_of
    from thetajoin.index.po_join import PoJoin
    from thetajoin.index.probe import Arrivals, Dim, Probe, Shape

    rows, probes, room = int(1_000_000 * scale), 1_000, 1 << 17
    random = np.random.default_rng(5)
    keys = [float_keys(random.random(rows)) for _ in range(2)]
    rid = np.arange(rows, dtype=np.int32)
    near = 0.01 * random.random(probes)
    one = PoJoin(Shape((Dim(),)), keys[:1], rid)
    two = PoJoin(Shape((Dim(), Dim())), keys, rid)
    asked_one = interval_of("<", float_keys(0.895 + near))
    side = np.sqrt(0.1)
    asked_two = [interval_of("<", float_keys(np.full(probes, 1 - side) + 0 * near))] * 2

    def write(index: PoJoin, intervals: list[Any]) -> int:
        probe = Probe(tuple(intervals), probes)
        streams = index.pairs(probe, Arrivals.dense(0, rows), room=room)
        return sum(len(chunk[0]) for stream in streams for chunk in stream)

    count = write(one, [asked_one])
    source, target = np.ones(count * 2, np.int32), np.empty(count * 2, np.int32)

    def copy() -> int:
        np.copyto(target, source)
        return count

    runs = {
        "copy": copy,
        "one": lambda: write(one, [asked_one]),
        "two": lambda: write(two, list(asked_two)),
    }
    middle = medians(alternate(runs, ROUNDS * 2))
    two_count = write(two, list(asked_two))
    return {
        "figures": {
            "pairs_vs_copy": middle["one"] / middle["copy"],
            "pairs_vs_copy_two_predicates": middle["two"] / middle["copy"] * count / two_count,
        },
        "details": {"pairs": count, "pairs_two_predicates": two_count, "median": middle},
    }


def _growth(threads: int, scale: float) -> dict[str, Any]:
    """Cost of a row in windows of 250 thousand and 4 million, a hundred matches a row in both."""
    sizes = {"250k": int(250_000 * scale), "4m": int(4_000_000 * scale)}
    streams = {name: _Stream(size, 100.0, threads) for name, size in sizes.items()}
    feeds = {
        name: iter([[s.batches() for _ in range(CYCLE)] for _ in range(ROUNDS + 1)])
        for name, s in streams.items()
    }
    runs = {name: (lambda n=name: streams[n].cycle(next(feeds[n]))) for name in sizes}
    middle = medians(alternate(runs, ROUNDS))
    large = streams["4m"].join.stats
    return {
        "figures": {
            "growth_250k_to_4m": middle["4m"] / middle["250k"],
            "bytes_per_row": large.index_bytes / (2 * sizes["4m"]),
        },
        "details": {
            "seconds_per_step": {name: s / CYCLE for name, s in middle.items()},
            "index_bytes_per_held_row": large.index_bytes
            / (large.window_left + large.window_right),
        },
    }


def import_seconds() -> float:
    """Seconds that ``import thetajoin`` takes in a new process."""
    code = "from time import perf_counter as now; t = now(); import thetajoin; print(now() - t)"

    def imported() -> float:
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return float(done.stdout)

    imported()
    return statistics.median(imported() for _ in range(2 * ROUNDS))


_WORKLOADS = {
    "step": _step,
    "oneshot": _oneshot,
    "band": _band,
    "pairs": _pairs,
    "growth": _growth,
    "spark": _spark,
}


if __name__ == "__main__":
    run_workload(_WORKLOADS)
