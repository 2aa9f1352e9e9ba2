"""Aggregates over a join's matches: against listing the pairs, against peers, on Spark.

Each workload runs in a process of its own, and so does each peer, which may take too long.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import Report, alternate, in_process, medians, run_workload
from benchmarks.peers import Q1, list_installed
from thetajoin.cli.generate import make_correlated

ROUNDS = 5
PEERS = ("duckdb", "chdb", "janitor")
PEER_SECONDS = 120
TARGETS = {
    "count_vs_enumerate": ">= 100",
    "count_vs_best_peer": ">= 20",
    "cost_vs_matches": "<= 1.5",
    "grouped_sum_vs_enumerate": ">= 50",
    "stream_agg_share_of_empty_pipeline": ">= 0.7",
}
Progress = Callable[[str], None]


def run(progress: Progress, scale: float = 1.0) -> Report:
    """All figures; `scale` shrinks the tables for a quick look."""
    report = Report("aggregates", targets=TARGETS)
    module = "benchmarks.aggregates"

    def measure(workload: str, threads: int, seconds: float = 1800) -> Any:
        progress(workload)
        found = in_process(module, [workload, "--scale", str(scale)], threads, timeout=seconds)
        report.details[workload] = found
        return found

    listed = measure("count", 1)
    report.figures["count_vs_enumerate"] = listed["median"]["list"] / listed["median"]["count"]
    ours = measure("ours", 2)["median"]["ours"]
    peers: dict[str, float] = {}
    for peer in list_installed(*PEERS):
        try:
            peers[peer] = measure(peer, 2, PEER_SECONDS + 60)["seconds"]
        except (subprocess.TimeoutExpired, RuntimeError) as error:
            report.details[peer] = {"failed": str(error)[:200]}
    done = {name: seconds for name, seconds in peers.items() if seconds <= PEER_SECONDS}
    # Where no peer finishes in time, the time they were given is a lower bound.
    report.figures["count_vs_best_peer"] = min(done.values(), default=float(PEER_SECONDS)) / ours
    report.details["peers"] = {"finished": done, "ours": ours}
    cost = measure("matches", 1)
    report.figures["cost_vs_matches"] = cost["median"]["many"] / cost["median"]["few"]
    grouped = measure("grouped", 1)
    figure = grouped["median"]["list"] / grouped["median"]["totals"]
    report.figures["grouped_sum_vs_enumerate"] = figure
    if list_installed("pyspark"):
        share = measure("spark", 2)
        figure = share["aggregate"] / share["empty"]
        report.figures["stream_agg_share_of_empty_pipeline"] = figure
    report.figures = {key: report.figures.get(key) for key in TARGETS}
    return report


def _summary(seconds: dict[str, list[float]], **more: Any) -> dict[str, Any]:
    return {"median": medians(seconds), "seconds": seconds, **more}


class _Window:
    """A window of the right side's rows in an operator, asked by new rows of the left side."""

    def __init__(self, rows: int, new: int, matches: float, aggs: dict[str, str]) -> None:
        import thetajoin as tj
        from thetajoin.aggregate.totals import TotalsJoin
        from thetajoin.engine.compiled import CompiledJoin
        from thetajoin.engine.spec import JoinSpec
        from thetajoin.engine.state import JoinState

        self._shape, self._seed, self._new = (rows, matches), 100, new
        stored = make_correlated(rows, rows, matches, 7)
        options = {"threads": 1, "merge": "inline"}
        window = tj.CountWindow(rows)
        schemas = stored.schema, stored.schema
        spec = JoinSpec(Q1, window=window, options=options)
        self.listing = JoinState(CompiledJoin(spec, *schemas))
        counted = replace(spec, group_by="l.id", aggs=aggs)
        query = TotalsJoin(counted, *schemas)
        self.state, self.totals = JoinState(query.join), query.aggregator()
        step = rows // 10
        for start in range(0, rows, step):
            batch = stored.slice(start, step).combine_chunks().to_batches()[0]
            for _ in self.listing.run(None, batch):
                pass
            self._store(None, batch)

    def rows(self) -> pa.RecordBatch:
        """New rows of the left side."""
        self._seed += 1
        window, matches = self._shape
        return make_correlated(self._new, window, matches, self._seed).to_batches()[0]

    def list_pairs(self, rows: pa.RecordBatch) -> int:
        """Every pair, chunk by chunk, counted and let go."""
        return sum(batch.num_rows for batch in self.listing.run(rows, None))

    def count(self, rows: pa.RecordBatch) -> int:
        """The number of matches of each row, as a column; their sum."""
        return int(self._store(rows, None).pairs.sum())

    def _store(self, left: pa.RecordBatch | None, right: pa.RecordBatch | None) -> Any:
        step = self.state.begin(left, right)
        totals = self.totals.totals(step)
        self.state.commit(step)
        return totals


def _count(threads: int, scale: float) -> dict[str, Any]:
    """Q2's slides of 50,000 rows over a window of 500,000, 249 million matches a slide.

    A step may also merge segments; eleven of them are what the window goes through.
    """
    window, new = int(500_000 * scale), int(50_000 * scale)
    stream = _Window(window, new, 249e6 / 50_000 * scale, {"n": "count(*)"})
    rows = stream.rows()
    pairs = stream.list_pairs(rows)
    if stream.count(rows) != pairs:
        raise RuntimeError("the count is not the number of pairs listed")
    runs = {"list": lambda: stream.list_pairs(rows), "count": lambda: stream.count(rows)}
    return _summary(alternate(runs, 11, warm_up=False), pairs=pairs)


def _million(scale: float) -> tuple[pa.Table, pa.Table]:
    rows = int(1_000_000 * scale)
    return make_correlated(rows, rows, 10_000 * scale, 1), make_correlated(
        rows, rows, 10_000 * scale, 2
    )


def _ours(threads: int, scale: float) -> dict[str, Any]:
    """One count of 1,000,000 by 1,000,000 rows with 10 billion matches."""
    import thetajoin as tj

    left, right = _million(scale)
    found: list[int] = []

    def count() -> None:
        result = tj.join_agg(left, right, Q1, aggs={"n": "count(*)"}, threads=threads)
        found.append(result["n"][0].as_py())

    return _summary(alternate({"ours": count}, ROUNDS), matches=found[-1])


def _peer(name: str) -> Callable[[int, float], dict[str, Any]]:
    def measure(threads: int, scale: float) -> dict[str, Any]:
        left, right = _million(scale)
        begun = time.perf_counter()
        if name == "duckdb":
            import duckdb

            connection = duckdb.connect(config={"threads": threads})
            connection.register("l", left)
            connection.register("r", right)
            begun = time.perf_counter()
            counted = connection.sql(f"SELECT COUNT(*) AS n FROM l JOIN r ON {Q1}")
            matches = counted.to_arrow_table()["n"][0].as_py()
        elif name == "chdb":
            from benchmarks.peers import ChDB

            house = ChDB(threads)
            house.store("l", left)
            house.store("r", right)
            begun = time.perf_counter()
            query = f"SELECT COUNT(*) FROM bench.l AS l JOIN bench.r AS r ON {Q1}"
            matches = house.scalar(query)
        else:
            import janitor  # noqa: F401

            frames: Any = left.to_pandas(), right.to_pandas()
            begun = time.perf_counter()
            found = frames[0].join_agg(
                frames[1], ("a", "a", "<"), ("b", "b", ">"), aggfunc=[("id", "size")]
            )
            matches = int(np.asarray(found).sum())
        return {"seconds": time.perf_counter() - begun, "matches": matches}

    return measure


def _matches(threads: int, scale: float) -> dict[str, Any]:
    """Windows of 1,000,000 rows and 10,000 new ones: 10,000 matches a row against one."""
    window = int(1_000_000 * scale)
    aggs = {"n": "count(*)", "s": "sum(r.id)"}
    streams = {
        name: _Window(window, 10_000, matches, aggs)
        for name, matches in (("many", 10_000.0 * scale), ("few", 1.0))
    }
    rows = {name: stream.rows() for name, stream in streams.items()}
    counts = {name: streams[name].count(rows[name]) for name in streams}
    runs = {name: lambda name=name: streams[name].count(rows[name]) for name in streams}
    return _summary(alternate(runs, 9), matches=counts)


def _group_sums(threads: int, scale: float) -> dict[str, Any]:
    """BiStream's example: ``R.a1 > S.b1``, by 1,000 groups of ``R.a2``, the sum of ``S.b2``."""
    import thetajoin as tj

    rows = int(20_000 * scale**0.5)
    random = np.random.default_rng(5)
    left = pa.table({"a1": random.random(rows), "a2": random.integers(0, 1000, rows)})
    right = pa.table({"b1": random.random(rows), "b2": random.integers(0, 10**6, rows)})
    on = "l.a1 > r.b1"

    def totals() -> pa.Table:
        return tj.join_agg(
            left, right, on, group_by="l.a2", aggs={"s": "sum(r.b2)"}, threads=threads
        )

    def listed() -> pa.Table:
        parts = [
            pa.table(batch).group_by("a2").aggregate([("b2", "sum")])
            for batch in tj.join_batches(left, right, on, threads=threads)
        ]
        both = pa.concat_tables(parts).group_by("a2").aggregate([("b2_sum", "sum")])
        return both.rename_columns(["a2", "s"])

    if totals().sort_by("a2").to_pydict() != listed().sort_by("a2").to_pydict():
        raise RuntimeError("the sums differ")
    runs = {"totals": totals, "list": listed}
    return _summary(alternate(runs, 3, warm_up=False), rows=rows)


def _spark(threads: int, scale: float) -> dict[str, Any]:
    """Count and sum for each of 1,000 groups on a stream, windows of a million rows.

    The window slides as the papers' queries do, by a tenth of its size. Beside the same query with
    units that emit nothing there is the join's pipeline with such units, which has no second phase.
    """
    import thetajoin as tj
    from benchmarks.empty_unit import EmptyUnit, instead
    from benchmarks.spark_stream import BATCH, WINDOW, Streams, join_streams, run_in_turns, spark_on
    from thetajoin.spark import stream
    from thetajoin.spark.unit import JoinUnit

    window, rows = int(WINDOW * scale), int(BATCH * scale)
    streams = Streams(spark_on(threads), rows, window, 10_000.0 * scale)

    def aggregated(unit: Any) -> Any:
        left, right = (streams.side(seed).selectExpr("*", "id % 1000 AS g") for seed in (1, 2))
        with instead(stream, "JoinUnit", unit):
            return tj.join_agg(
                left,
                right,
                Q1,
                group_by="l.g",
                aggs={"n": "count(*)", "s": "sum(r.id)"},
                window=tj.CountWindow(window, window // 10),
                order_by="id",
                units=threads,
            )

    queries = {
        "aggregate": lambda: aggregated(JoinUnit),
        "empty": lambda: aggregated(EmptyUnit),
        "empty, one phase": lambda: join_streams(streams, window, "empty"),
    }
    return run_in_turns(queries, window, rows, {"aggregate": "update", "empty": "update"})


_WORKLOADS: dict[str, Callable[[int, float], dict[str, Any]]] = {
    "count": _count,
    "ours": _ours,
    "matches": _matches,
    "grouped": _group_sums,
    "spark": _spark,
    **{peer: _peer(peer) for peer in PEERS},
}


if __name__ == "__main__":
    run_workload(_WORKLOADS)
