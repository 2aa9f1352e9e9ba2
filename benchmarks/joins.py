"""The joins people write, against the engines they would write them in.

Each workload runs in a process of its own, because some peers read their number of threads when
they are imported. Results are compared, row by row, before times are.
"""

from __future__ import annotations

import difflib
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.asof_spark import NATIVE
from benchmarks.case import Case
from benchmarks.engine import band_runs, oneshot_runs
from benchmarks.harness import (
    Memory,
    Report,
    Run,
    alternate,
    in_process,
    in_turns,
    medians,
    run_workload,
)
from benchmarks.join_cases import CASES as JOINS
from benchmarks.joins_spark import BATCH, STREAMS
from benchmarks.kx_cases import KX
from benchmarks.micro_cases import MICRO
from benchmarks.peers import list_installed
from benchmarks.plots import plot_panels
from benchmarks.same_rows import check_same_rows
from thetajoin.errors import OptionError

MODULE = "benchmarks.joins"
SPARK_MODULE = "benchmarks.joins_spark"
ASOF_MODULE = "benchmarks.asof_spark"
THREADS = 2
ROUNDS = 5
# An engine this many times slower than the best is measured once.
SLOW = 8
CASES = JOINS | MICRO | KX
HOURS = 4 * 3600
Progress = Callable[[str], None]
THREADED = ("band", "oneshot", "scd2")
TARGETS = {
    "scd2_vs_best_peer": ">= 2.5",
    "overlap_keyed_vs_best_peer": ">= 3",
    "point_in_ranges_vs_best_peer": ">= 3",
    "attribution_vs_best_peer": ">= 50",
    "attribution_small_vs_best_peer": "",
    "overlap_vs_best_peer": ">= 3",
    "overlap_left_vs_best_peer": "",
    "asof_vs_best_peer": ">= 2",
    "asof_small_vs_best_peer": "",
    "asof_filtered_vs_best_peer": ">= 20",
    "count_overlaps_vs_best_peer": ">= 2",
    **{f"{name}_vs_best_peer": "" for name in (*MICRO, *KX)},
    "threads_2_vs_1_band": ">= 1.5",
    "threads_2_vs_1_oneshot": ">= 1.5",
    "threads_2_vs_1_scd2": ">= 1.6",
    **{f"threads_2_vs_1_{name}_best_peer": "" for name in THREADED},
    "scd2_spread": "<= 1.3",
    "band_spread": "<= 1.3",
    "spark_batch_worst_vs_spark": ">= 0.95",
    "spark_stream_equality_vs_spark": ">= 6",
    "spark_stream_equality_vs_spark_rocksdb": ">= 18",
    "spark_stream_equality_vs_spark_v4": ">= 6",
    "spark_asof_stream_rows_vs_join": ">= 0.8",
    **{
        f"spark_asof_vs_native_{name.rpartition('_')[2]}": f">= {least}"
        for name, least in zip(NATIVE, (3, 10, 50), strict=True)
    },
}
PARTS = (*CASES, "threads", *BATCH, *NATIVE, *STREAMS)


def run(progress: Progress, scale: float = 1.0, *, only: str = "") -> Report:
    """All figures; `only` names some parts, with commas, and `scale` shrinks the tables."""
    report = Report("joins", figures=dict.fromkeys(TARGETS), targets=TARGETS)
    for part in parts_of(only):
        if part == "threads":
            _threads(report, progress, scale)
            continue
        on_spark = part in (*BATCH, *NATIVE, *STREAMS)
        if on_spark and not list_installed("pyspark"):
            continue
        progress(f"{part}, {THREADS} {'cores' if on_spark else 'threads'}")
        module = ASOF_MODULE if part in NATIVE else SPARK_MODULE if on_spark else MODULE
        found = in_process(module, [part, "--scale", str(scale)], THREADS, timeout=HOURS)
        report.figures |= found.pop("figures")
        report.details[part] = found
    ratios = [report.details[part]["vs_spark"] for part in BATCH if part in report.details]
    report.figures["spark_batch_worst_vs_spark"] = min(ratios, default=None)
    for name, part, who in (
        ("scd2", "scd2", "thetajoin"),
        ("band", "threads_band", f"thetajoin, {THREADS}"),
    ):
        if part in report.details:
            least, most = report.details[part]["spread"][who]
            report.figures[f"{name}_spread"] = most / least
    return report


def parts_of(only: str) -> list[str]:
    """The parts that `only` names; all where it names none."""
    wanted = [part.strip() for part in only.split(",") if part.strip()]
    for part in wanted:
        if part not in PARTS:
            near = difflib.get_close_matches(part, PARTS, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(PARTS)}"
            raise OptionError(f"--only: no part {part!r}: {hint}")
    return [part for part in PARTS if not wanted or part in wanted]


def compare(name: str, case: Case) -> dict[str, Any]:
    """Seconds of every engine of a case, after its rows were found to be those of the others."""
    rows = _check_rows(name, case)
    memory: dict[str, list[Memory]] = {}
    seconds = in_rounds(case.runs, memory)
    middle = medians(seconds)
    best = best_peer(middle)
    ratio = None if best is None else middle[best] / middle["thetajoin"]
    return {
        "figures": {f"{name}_vs_best_peer": ratio},
        "rows": {"left": case.tables.left.num_rows, "right": case.tables.right.num_rows},
        "result_rows": rows,
        "best_peer": best,
        "peers": case.peers(),
        "left_out": case.left_out,
        "memory": {who: [asdict(each) for each in taken] for who, taken in memory.items()},
        **spread(seconds),
    }


def _check_rows(name: str, case: Case) -> int:
    results = {who: case.results.get(who, run) for who, run in case.runs.items()}
    too_slow: dict[str, str] = {}
    rows = check_same_rows(name, results, case.columns.split(), too_slow)
    case.runs = {who: run for who, run in case.runs.items() if who not in too_slow}
    case.left_out |= too_slow
    return rows


def in_rounds(
    runs: Mapping[str, Run], memory: dict[str, list[Memory]] | None = None
) -> dict[str, list[float]]:
    """Seconds in each round, of one round for engines that are far behind."""
    seconds = alternate(runs, 1, warm_up=False, memory=memory)
    best = min(taken for (taken,) in seconds.values())
    near = [who for who in runs if seconds[who][0] <= SLOW * best or who == "thetajoin"]
    again = {who: runs[who] for who in near}
    later = alternate(again, ROUNDS - 1, warm_up=False, memory=memory)
    return {who: first + later.get(who, []) for who, first in seconds.items()}


def best_peer(middle: Mapping[str, float]) -> str | None:
    """The fastest of the others."""
    peers = [who for who in middle if who != "thetajoin"]
    return min(peers, key=lambda who: middle[who], default=None)


def spread(seconds: Mapping[str, list[float]]) -> dict[str, Any]:
    """Medians, the least and the most, and all of them."""
    least_and_most = {who: [min(taken), max(taken)] for who, taken in seconds.items()}
    return {"median": medians(seconds), "spread": least_and_most, "seconds": dict(seconds)}


def _threads(report: Report, progress: Progress, scale: float) -> None:
    """What a second thread gains: this engine, and the peer that is fastest with two."""
    for name in THREADED:
        progress(f"threads: {name}, 1 and 2 in turns")
        turns = in_turns(MODULE, [f"threads_{name}", "--scale", str(scale)], (1, 2), ROUNDS)
        middle = {
            number: {who: statistics.median(turn[who] for turn in taken) for who in taken[0]}
            for number, taken in turns.items()
        }
        gain = {who: middle[1][who] / middle[2][who] for who in middle[1]}
        best = best_peer(middle[2])
        report.figures[f"threads_2_vs_1_{name}"] = gain["thetajoin"]
        report.figures[f"threads_2_vs_1_{name}_best_peer"] = gain[best] if best else None
        seconds = {
            f"{who}, {number}": [turn[who] for turn in taken]
            for number, taken in turns.items()
            for who in taken[0]
        }
        report.details[f"threads_{name}"] = {"gain": gain, "best_peer": best, **spread(seconds)}


def _count_in_turns(name: str, runs: Mapping[str, Run]) -> Iterator[dict[str, float]]:
    """Seconds of one round after another, of runs that give the number of pairs."""
    counts = {who: run() for who, run in runs.items()}
    if len(set(counts.values())) > 1:
        raise RuntimeError(f"{name}: the engines disagree on the number of pairs: {counts}")
    yield from _in_turns(runs)


def _compare_in_turns(name: str, case: Case) -> Iterator[dict[str, float]]:
    """Seconds of one round after another, of engines that give the same rows."""
    _check_rows(name, case)
    yield from _in_turns(case.runs)


def _in_turns(runs: Mapping[str, Run]) -> Iterator[dict[str, float]]:
    while True:
        yield {who: taken for who, (taken,) in alternate(runs, 1, warm_up=False).items()}


TITLES = {
    "scd2": "price valid at the time of a sale",
    "overlap_keyed": "overlaps on the same chromosome",
    "point_in_ranges": "the range that a point lies in",
    "attribution": "a user's clicks in the hour before",
    "overlap": "overlapping intervals",
    "asof": "last quote before each trade",
    "asof_filtered": "last quote within a trade's limit",
    "count_overlaps": "overlaps counted for each interval",
    "spark_scd2": "Spark: price valid at the time",
    "spark_attribution": "Spark: clicks in the hour before",
    "spark_asof": "Spark: last quote before each trade",
    "spark_asof_1000": "Spark: last quote before each trade,\nagainst its own operator",
    "spark_asof_20": "Spark: the same with 20 symbols",
    "spark_asof_none": "Spark: the same without symbols",
    "spark_stream_equality": "Spark, two streams: within 5 minutes\na million rows",
}


def plot(report: Report, folder: Path) -> list[Path]:
    """Seconds of each engine, a panel for each workload that was measured."""
    panels = {}
    for part, title in TITLES.items():
        found = report.details.get(part, {})
        # An older Spark has no as-of join of its own, and then there is nothing to be shown.
        if "median" in found:
            rows = found.get("rows")
            sizes = f"\n{rows['left']:,} x {rows['right']:,} rows" if rows else ""
            panels[title + sizes] = found["median"]
    unit = "seconds on 2 cores, less is better"
    return [plot_panels(panels, unit, folder / "joins.png", columns=3)] if panels else []


def _case(name: str) -> Callable[[int, float], dict[str, Any]]:
    return lambda threads, scale: compare(name, CASES[name](threads, scale))


_WORKLOADS: dict[str, Callable[[int, float], Any]] = {
    **{name: _case(name) for name in CASES},
    "threads_band": lambda threads, scale: _count_in_turns("band", band_runs(threads, scale)),
    "threads_oneshot": lambda threads, scale: _count_in_turns(
        "oneshot", oneshot_runs(threads, scale)
    ),
    "threads_scd2": lambda threads, scale: _compare_in_turns("scd2", CASES["scd2"](threads, scale)),
}


if __name__ == "__main__":
    run_workload(_WORKLOADS)
