"""Joins of tables on Spark: against Spark's own join, the bucketing trick, growth, skew, cores.

Each workload runs in a process of its own, because a Spark session's cores are fixed at its start.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import Report, in_process, in_turns, run_workload
from benchmarks.peers import Q1
from thetajoin.cli.generate import make_correlated

MODULE = "benchmarks.spark_batch"
ROUNDS = 5
# Runs before those that count: Spark's compiler takes some to settle.
WARM_UP = 3
# Runs until it has settled, where its own threads would take part of the second core.
SETTLED = 40
# Ways to bucket that are measured as thoroughly as ours.
FINALISTS = 3
TARGETS = {
    "vs_spark_200k": ">= 50",
    "growth_1m_to_4m": "<= 6",
    "band_vs_bucketing": ">= 2",
    "equality_vs_bucketing": "",
    "skew_ratio": "<= 1.5",
    "speedup_2_cores": ">= 1.4",
}
BAND = "l.t BETWEEN r.start AND r.end"
Progress = Callable[[str], None]


def run(progress: Progress, scale: float = 1.0) -> Report:
    """All figures; `scale` shrinks the tables for a quick look."""
    report = Report("spark-batch", targets=TARGETS)

    def measure(workload: str, cores: int) -> Any:
        progress(f"{workload}, local[{cores}]")
        arguments = [workload, "--scale", str(scale)]
        found = in_process(MODULE, arguments, cores, timeout=3600)
        report.details[f"{workload}, local[{cores}]"] = found
        return found["median"]

    peer = measure("vs_spark", 2)
    report.figures["vs_spark_200k"] = peer["spark"] / peer["ours"]
    growth = measure("growth", 2)
    report.figures["growth_1m_to_4m"] = growth["4m"] / growth["1m"]
    band = measure("band", 2)
    report.figures["band_vs_bucketing"] = band["bucketing"] / band["ours"]
    report.figures["equality_vs_bucketing"] = band["bucketing"] / band["equality"]
    skew = measure("skew", 2)
    report.figures["skew_ratio"] = skew["zipf"] / skew["uniform"]
    progress("cores, local[1] and local[2] in turns")
    turns = in_turns(MODULE, ["cores", "--scale", str(scale)], (1, 2), 2 * ROUNDS)
    cores = _report(**{f"local[{number}]": seconds for number, seconds in turns.items()})
    report.details["cores"] = cores
    report.figures["speedup_2_cores"] = cores["median"]["local[1]"] / cores["median"]["local[2]"]
    return report


def plot(report: Report, folder: Path) -> list[Path]:
    """Seconds of every workload as bars."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names, seconds = [], []
    for workload, found in report.details.items():
        for who, value in found["median"].items():
            names.append(f"{workload}: {who}")
            seconds.append(value)
    figure, axes = plt.subplots(figsize=(8, 0.4 * len(names) + 1.2))
    axes.barh(names[::-1], seconds[::-1])
    axes.set_xscale("log")
    axes.set_xlabel("seconds (median)")
    figure.tight_layout()
    path = folder / "spark-batch.png"
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return [path]


@contextmanager
def tables(session: Any, **made: pa.Table) -> Iterator[list[Any]]:
    """Tables as DataFrames over Parquet files, two of each."""
    folder = Path(tempfile.mkdtemp(prefix="thetajoin-bench-"))
    try:
        frames = []
        for name, table in made.items():
            (folder / name).mkdir()
            half = table.num_rows // 2
            for part in (0, 1):
                rows = table.slice(0, half) if part == 0 else table.slice(half)
                pq.write_table(rows, folder / name / f"{part}.parquet")
            frames.append(session.read.parquet(str(folder / name)))
        yield frames
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def through(df: Any) -> None:
    """Compute every row and column, and keep none."""
    df.write.format("noop").mode("overwrite").save()


def _seconds(query: Callable[[], Any], rounds: int = ROUNDS, warm_up: int = 2) -> list[float]:
    for _ in range(warm_up):
        through(query())
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        through(query())
        taken.append(time.perf_counter() - start)
    return taken


def _session(cores: int) -> Any:
    from thetajoin.spark.session import NARROW_ROWS, local_session

    return local_session(cores, memory="6g", shuffle_partitions=cores, settings=NARROW_ROWS)


def _report(**seconds: list[float]) -> dict[str, Any]:
    median = {name: statistics.median(values) for name, values in seconds.items()}
    return {"median": median, "seconds": seconds}


def _expect(what: str, found: int, expected: int) -> None:
    if found != expected:
        raise RuntimeError(f"{what} gave {found} rows, not {expected}")


def _join_embedded(left: pa.Table, right: pa.Table, on: str) -> int:
    import thetajoin as tj

    return sum(batch.num_rows for batch in tj.join_batches(left, right, on))


def _vs_spark(cores: int, scale: float) -> dict[str, Any]:
    """Two inequalities, one match a row, against Spark's nested loop."""
    import thetajoin as tj

    rows = int(200_000 * scale)
    left, right = make_correlated(rows, rows, 1.0, 1), make_correlated(rows, rows, 1.0, 2)
    with tables(_session(cores), left=left, right=right) as (l, r):  # noqa: E741
        ours = _seconds(lambda: tj.join(l, r, Q1))
        peer = r.select("a", "b").toDF("a2", "b2")
        condition = (l.a < peer.a2) & (l.b > peer.b2)
        start = time.perf_counter()
        counted = l.join(peer, condition).count()
        spark = [time.perf_counter() - start]
        _expect("the join", tj.join(l, r, Q1).count(), counted)
    return _report(ours=ours, spark=spark)


def _growth(cores: int, scale: float) -> dict[str, Any]:
    import thetajoin as tj

    session = _session(cores)
    seconds = {}
    for name, rows in (("1m", int(1_000_000 * scale)), ("4m", int(4_000_000 * scale))):
        left, right = make_correlated(rows, rows, 1.0, 1), make_correlated(rows, rows, 1.0, 2)
        with tables(session, left=left, right=right) as (one, two):

            def query(one: Any = one, two: Any = two) -> Any:
                return tj.join(one, two, Q1)

            _expect(name, query().count(), _join_embedded(left, right, Q1))
            seconds[name] = _seconds(query, 3, WARM_UP)
    return _report(**seconds)


def intervals(points: int, number: int, seed: int) -> tuple[pa.Table, pa.Table]:
    """Points in time, and intervals of varying length of which one holds each point on average."""
    random = np.random.default_rng(seed)
    span = 1_000_000_000
    start = random.integers(0, span, number)
    length = random.exponential(span / number, number).astype(np.int64)
    left = pa.table({"id": np.arange(points), "t": random.integers(0, span, points)})
    right = pa.table({"iid": np.arange(number), "start": start, "end": start + length})
    return left, right


def _band(cores: int, scale: float) -> dict[str, Any]:
    """Points in intervals, against intervals exploded into bins that are joined by equality.

    Bins of several widths are tried, with the exploded intervals broadcast or shuffled, each once
    before and twice after Spark's compiler has seen all of them. The best few then take turns with
    ours, and the one with the best median counts: a single best time may be a lucky one. In turn
    with them comes Spark's own join of the same tables by equality, one match a row and nothing to
    filter, as a measure of how much faster than bucketing anything on Spark could be.
    """
    import thetajoin as tj

    left, right = intervals(int(2_000_000 * scale), int(200_000 * scale), 3)
    mean = int(1_000_000_000 / right.num_rows)
    with tables(_session(cores), left=left, right=right) as (l, r):  # noqa: E741
        expected = _join_embedded(left, right, BAND)

        def bucketed(width: int, hint: str) -> Any:
            bins = r.selectExpr(
                "*", f"explode(sequence(start DIV {width}, `end` DIV {width})) AS bin"
            )
            keyed = l.selectExpr("*", f"t DIV {width} AS bin")
            return keyed.join(bins.hint(hint), "bin").where("t BETWEEN start AND `end`").drop("bin")

        def by_equality() -> Any:
            keyed = l.selectExpr("*", f"LEAST(t DIV {mean}, {right.num_rows - 1}) AS iid")
            return keyed.join(r.hint("broadcast"), "iid")

        tried: dict[str, float] = {}
        ways = {
            f"{width} {hint}": (width, hint)
            for width in (mean, 2 * mean, 4 * mean, 8 * mean)
            for hint in ("broadcast", "shuffle_hash")
        }
        for last in (False, True):
            for name, way in ways.items():
                tried[name] = min(_seconds(partial(bucketed, *way), 2 if last else 1, 0))
            _seconds(lambda: tj.join(l, r, BAND), 2 * WARM_UP, 0)
            _seconds(by_equality, 2 * WARM_UP, 0)
        finalists = sorted(tried, key=lambda name: tried[name])[:FINALISTS]
        names = ["ours", "equality", *finalists]
        seconds: dict[str, list[float]] = {name: [] for name in names}
        for name in finalists:
            _expect("bucketing", bucketed(*ways[name]).count(), expected)
        _expect("the join", tj.join(l, r, BAND).count(), expected)
        _expect("the join by equality", by_equality().count(), left.num_rows)
        for _ in range(2 * ROUNDS):
            seconds["ours"] += _seconds(lambda: tj.join(l, r, BAND), 1, 0)
            seconds["equality"] += _seconds(by_equality, 1, 0)
            for name in finalists:
                seconds[name] += _seconds(partial(bucketed, *ways[name]), 1, 0)
        best = min(finalists, key=lambda name: statistics.median(seconds[name]))
    found = _report(ours=seconds["ours"], equality=seconds["equality"], bucketing=seconds[best])
    return {**found, "tried": tried, "finalists": _report(**seconds)["median"], "best": best}


def make_skewed(rows: int, alpha: float | None, seed: int) -> pa.Table:
    """Rows ``(id, k)`` with `k` among `rows` values: uniform, or Zipf with its ranks shuffled."""
    random = np.random.default_rng(seed)
    if alpha is None:
        return pa.table({"id": np.arange(rows), "k": random.integers(1, rows - 1, rows)})
    ranks = random.zipf(alpha, 4 * rows)
    ranks = ranks[ranks < rows - 1][:rows]
    place = np.random.default_rng(0).permutation(np.arange(1, rows - 1))
    return pa.table({"id": np.arange(rows), "k": place[ranks - 1]})


def _skew(cores: int, scale: float) -> dict[str, Any]:
    """Each row has three matches whatever its key, so that only the skew differs."""
    import thetajoin as tj

    rows = int(1_000_000 * scale)
    on = "ABS(l.k - r.k) <= 1"
    every = np.random.default_rng(7).permutation(rows)
    right = pa.table({"rid": np.arange(rows), "k": every})
    zipf, uniform = make_skewed(rows, 1.2, 4), make_skewed(rows, None, 4)
    seconds: dict[str, list[float]] = {"zipf": [], "uniform": []}
    with tables(_session(cores), zipf=zipf, uniform=uniform, right=right) as (z, u, r):
        for name, frame in (("zipf", z), ("uniform", u)):
            _expect(name, tj.join(frame, r, on).count(), 3 * rows)
        for _ in range(ROUNDS):
            seconds["zipf"] += _seconds(lambda: tj.join(z, r, on), 1, 0)
            seconds["uniform"] += _seconds(lambda: tj.join(u, r, on), 1, 0)
    return _report(**seconds)


def _cores(cores: int, scale: float) -> Iterator[float]:
    """Seconds of one join after another."""
    import thetajoin as tj

    rows = int(2_000_000 * scale)
    left, right = make_correlated(rows, rows, 1.0, 1), make_correlated(rows, rows, 1.0, 2)
    with tables(_session(cores), left=left, right=right) as (l, r):  # noqa: E741
        _seconds(lambda: tj.join(l, r, Q1), 0, SETTLED)
        while True:
            yield _seconds(lambda: tj.join(l, r, Q1), 1, 0)[0]


_WORKLOADS = {
    "vs_spark": _vs_spark,
    "growth": _growth,
    "band": _band,
    "skew": _skew,
    "cores": _cores,
}


if __name__ == "__main__":
    run_workload(_WORKLOADS)
