"""The streaming join on Spark: its share of an empty pipeline, speed-up, state and recovery.

Each workload runs in a process of its own, because a Spark session's cores are fixed at its start.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import Report, in_process, in_turns, run_workload
from benchmarks.peers import Q1
from thetajoin.cli.generate import make_correlated

MODULE = "benchmarks.spark_stream"
WINDOW = 1_000_000
BATCH = 400_000
ROUNDS = 5
MEASURED = 7
# Batches before anything is measured, for Spark's compiler to settle.
WARM = 25
TARGETS = {
    "share_of_empty_pipeline": ">= 0.9",
    "emitting_share_of_empty_pipeline": "",
    "vs_rows_by_spark": "",
    "share_of_empty_pipeline_100": "",
    "vs_constant_key_join": ">= 1000",
    "speedup_2_cores": ">= 1.3",
    "work_of_8_units": "",
    "state_bytes_per_row": "<= 3",
    "recovery_s_per_million_rows": "",
    "spark_stream_equality_vs_spark_v4": "",
}
SPARKS_DEFAULT_STORE = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
Progress = Callable[[str], None]


def run(progress: Progress, scale: float = 1.0) -> Report:
    """All figures; `scale` shrinks windows and batches for a quick look."""
    report = Report("spark-stream", targets=TARGETS)

    def measure(workload: str, cores: int) -> Any:
        progress(f"{workload}, local[{cores}]")
        arguments = [workload, "--scale", str(scale)]
        found = in_process(MODULE, arguments, cores, timeout=3600)
        report.details[f"{workload}, local[{cores}]"] = found
        return found

    share = measure("share", 2)
    report.figures["share_of_empty_pipeline"] = share["join"] / share["empty"]
    report.figures["emitting_share_of_empty_pipeline"] = share["echo"] / share["empty"]
    report.figures["vs_rows_by_spark"] = share["join"] / share["plain"]
    progress("many, local[1] and local[2] in turns")
    turns = in_turns(MODULE, ["many", "--scale", str(scale)], (1, 2), ROUNDS)
    report.details["many"] = turns
    many = {
        cores: statistics.median(turn["rows_per_s"] for turn in taken)
        for cores, taken in turns.items()
    }
    report.figures["share_of_empty_pipeline_100"] = many[2] / share["empty"]
    report.figures["speedup_2_cores"] = many[2] / many[1]
    work = measure("work", 1)
    report.figures["work_of_8_units"] = work["all"]["8"] / work["all"]["1"]
    peer = measure("constant_key", 2)
    report.figures["vs_constant_key_join"] = peer["join"] / peer["constant_key"]
    recovery = measure("recovery", 2)
    report.figures["state_bytes_per_row"] = recovery["state_bytes_per_row"] / 24
    report.figures["recovery_s_per_million_rows"] = recovery["s_per_million_rows"]
    progress("equality against Spark's state format 4, local[2]")
    arguments = ["spark_stream_equality_v4", "--scale", str(scale)]
    against = in_process("benchmarks.joins_spark", arguments, 2, timeout=3600)
    report.figures |= against.pop("figures")
    report.details["equality against format 4, local[2]"] = against
    report.figures = {key: report.figures.get(key) for key in TARGETS}
    return report


@dataclass(frozen=True)
class Streams:
    """Two streams of correlated rows, made by Spark itself at no cost worth naming."""

    session: Any
    rows: int
    window: int
    matches: float

    def side(self, seed: int, rows: int | None = None) -> Any:
        """One stream: ``(id, a, b)``, with `a` uniform and `b` following it closely."""
        source = (
            self.session.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", rows or self.rows // 2)
            .option("numPartitions", 1)
            .load()
        )
        uniform = "(CAST(xxhash64(value, {}) AS DOUBLE) / 18446744073709551616D + 0.5D)"
        a, noise = uniform.format(seed * 10 + 1), uniform.format(seed * 10 + 2)
        width = 6.0 * self.matches / self.window
        return source.selectExpr("value AS id", f"{a} AS a", f"{a} + {noise} * {width!r}D AS b")


def join_streams(streams: Streams, window: int, unit: str = "join") -> Any:
    """The join of both streams, by its own units or by others that do less."""
    import thetajoin as tj
    from benchmarks.empty_unit import EchoUnit, EmptyUnit, instead
    from thetajoin.spark import stream
    from thetajoin.spark.unit import JoinUnit

    units = {"join": JoinUnit, "empty": EmptyUnit, "echo": EchoUnit}
    with instead(stream, "JoinUnit", units[unit]):
        return tj.join(
            streams.side(1),
            streams.side(2),
            Q1,
            window=tj.CountWindow(window),
            order_by="id",
            units=streams.session.sparkContext.defaultParallelism,
        )


def _plain(streams: Streams) -> Any:
    from benchmarks.empty_unit import PlainUnit
    from thetajoin.spark.unit_keys import UNIT_KEYS

    one, two = UNIT_KEYS[:2]
    rows = streams.side(1).union(streams.side(2))
    keyed = rows.selectExpr("*", f"IF(id % 2 = 0, {one}, {two}) AS unit")
    return keyed.groupBy("unit").transformWithStateInPandas(
        PlainUnit(), "rows bigint", "Append", "None"
    )


def batches_of(
    df: Any, warm: int, measured: int, checkpoint: Path, mode: str = "append"
) -> list[Any]:
    """Progress of a query's batches after the warm-up."""
    writer = df.writeStream.format("noop").outputMode(mode)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        while True:
            if query.exception() is not None:
                raise RuntimeError(str(query.exception()))
            # All reports cost the driver a second of processor time: only the last is looked at.
            last = query.lastProgress
            if last is not None and last.batchId + 1 >= warm + measured:
                filled = [p for p in query.recentProgress if p.numInputRows]
                if len(filled) >= warm + measured:
                    return filled[warm : warm + measured]
            time.sleep(0.2)
    finally:
        query.stop()


def rows_per_s(batches: list[Any]) -> float:
    """Rows a second, from the median batch."""
    rows = statistics.median(p.numInputRows for p in batches)
    return float(rows / statistics.median(p.durationMs["triggerExecution"] for p in batches) * 1000)


def checkpoints() -> Iterator[Path]:
    """A folder for each query; all are removed at the end."""
    root = Path(tempfile.mkdtemp(prefix="thetajoin-bench-"))
    number = 0
    try:
        while True:
            number += 1
            yield root / str(number)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def spark_on(cores: int) -> Any:
    """A session on that many cores."""
    from thetajoin.spark.session import NARROW_ROWS, local_session

    return local_session(cores, memory="6g", shuffle_partitions=cores, settings=NARROW_ROWS)


def _fill(window: int, rows: int) -> int:
    """Batches until the window is full, and a few for Spark to warm up."""
    return -(-window // (rows // 2)) + 3


def run_in_turns(
    queries: dict[str, Callable[[], Any]], window: int, rows: int, mode: dict[str, str]
) -> dict[str, Any]:
    """Rows a second of each query, in turns, after a round of each for Spark's compiler."""
    places = checkpoints()
    rates: dict[str, list[float]] = {name: [] for name in queries}
    taken: dict[str, list[list[int]]] = {name: [] for name in queries}
    for turn in range(1 + ROUNDS):
        for name, query in queries.items():
            warm = _fill(window, rows) + (0 if turn else WARM)
            how = mode.get(name, "append")
            batches = batches_of(query(), warm, MEASURED, next(places), mode=how)
            if turn:
                rates[name].append(rows_per_s(batches))
                taken[name].append([p.durationMs["triggerExecution"] for p in batches])
    found: dict[str, Any] = {name: statistics.median(kept) for name, kept in rates.items()}
    return {**found, "rates": rates, "ms": taken}


def _share(cores: int, scale: float) -> dict[str, Any]:
    """One match a row, against units that unpack their rows and emit nothing.

    And against units that emit as many rows and do not join, and what Spark itself costs: the rows
    grouped and handed over by Spark, each to one operator, that counts them.
    """
    window, rows = int(WINDOW * scale), int(BATCH * scale)
    streams = Streams(spark_on(cores), rows, window, 1.0)
    queries = {
        "join": lambda: join_streams(streams, window),
        "empty": lambda: join_streams(streams, window, "empty"),
        "echo": lambda: join_streams(streams, window, "echo"),
        "plain": lambda: _plain(streams),
    }
    return run_in_turns(queries, window, rows, {})


def _many(cores: int, scale: float) -> Iterator[dict[str, Any]]:
    """A hundred matches a row, all of them counted by the sink's side of the plan.

    Each turn goes on from the windows of the last.
    """
    session, places = spark_on(cores), checkpoints()
    window, rows = int(WINDOW * scale), int(BATCH * scale)
    place = next(places)

    def batches(warm: int, measured: int) -> list[Any]:
        df = join_streams(Streams(session, rows, window, 100.0), window)
        counted = df.groupBy().agg({"b": "sum", "*": "count"})
        return batches_of(counted, warm, measured, place, mode="complete")

    batches(_fill(window, rows), 1)
    while True:
        before, begun = _cpu(), time.perf_counter()
        taken = batches(1, 2)
        yield {
            "rows_per_s": rows_per_s(taken),
            "pairs": [sum(unit["pairs"] for unit in units_in(p)) for p in taken],
            "cpu_s_per_wall_s": (_cpu() - before) / (time.perf_counter() - begun),
        }


def _work(cores: int, scale: float) -> dict[str, Any]:
    """Processor seconds of the units' own work in a micro-batch, without Spark: all and busiest.

    What does not become less with more units is what keeps a large cluster from being faster.
    """
    import thetajoin as tj
    from thetajoin.engine.spec import JoinSpec
    from thetajoin.spark.unit_spec import UnitSpec

    window, rows = int(WINDOW * scale), int(BATCH * scale) // 2

    def batch(seed: int, number: int) -> Any:
        made = make_correlated(rows, window, 1.0, 1000 * seed + number, first=number * rows)
        return made.combine_chunks().to_batches()[0]

    schema = batch(1, 0).schema
    join = JoinSpec(Q1, window=tj.CountWindow(window), order_by=("id", "id"))
    specs = {number: UnitSpec.of(join, schema, schema, units=number) for number in (1, 2, 4, 8)}
    units = {number: [spec.state(u) for u in range(number)] for number, spec in specs.items()}
    taken: dict[int, list[list[float]]] = {number: [] for number in units}
    fill = _fill(window, 2 * rows)
    for number in range(fill + MEASURED):
        left, right = batch(1, number), batch(2, number)
        for together, states in units.items():
            seconds = []
            for state in states:
                begun = time.thread_time()
                for _ in state.run(left, right):
                    pass
                seconds.append(time.thread_time() - begun)
            if number >= fill:
                taken[together].append(seconds)
    return {
        "all": {str(n): statistics.median(map(sum, each)) for n, each in taken.items()},
        "busiest": {str(n): statistics.median(map(max, each)) for n, each in taken.items()},
    }


def _cpu() -> float:
    """CPU seconds of this process and of all it started that have ended or can be seen."""
    seconds = time.process_time()
    tick = 1.0 / 100
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        name = stat.read_text().split("(", 1)[1].rsplit(")", 1)[0] if stat.exists() else ""
        if name in ("java", "python", "python3"):
            seconds += (int(fields[11]) + int(fields[12])) * tick
    return seconds


def _constant_key(cores: int, scale: float) -> dict[str, Any]:
    """What a Spark user can do today: both streams under one key, the inequality as a filter.

    Only its left window is filled, so that its batches probe one window and ours two; its state is
    in the store that Spark uses by default, which is the faster one for it.
    """
    from thetajoin.spark.session import PROVIDER

    session, places = spark_on(cores), checkpoints()
    window, probes = int(50_000 * scale), 200
    ours = Streams(session, int(BATCH * scale), window, 1.0)
    join = rows_per_s(batches_of(join_streams(ours, window), 6, MEASURED, next(places)))
    session.conf.set(PROVIDER, SPARKS_DEFAULT_STORE)
    streams = Streams(session, probes, window, 1.0)
    left = streams.side(1, window).where(f"id < {window}").selectExpr("*", "1 AS key")
    right = streams.side(2, probes).selectExpr("1 AS key", "id AS id2", "a AS a2", "b AS b2")
    both = left.join(right, "key").where("a < a2 AND b > b2")
    batches = batches_of(both, 2, 3, next(places))
    ms = statistics.median(p.durationMs["triggerExecution"] for p in batches)
    return {"join": join, "constant_key": probes / ms * 1000, "ms": ms}


def _recovery(cores: int, scale: float) -> dict[str, Any]:
    """From the start of a query that was ended to its first batch, full windows against empty."""
    session, places = spark_on(cores), checkpoints()
    window, rows = int(WINDOW * scale), int(BATCH * scale)
    streams = Streams(session, rows, window, 1.0)
    place = next(places)
    batches = batches_of(join_streams(streams, window), _fill(window, rows), 1, place)
    units = units_in(batches[-1])
    stored = sum(unit["stored_rows"] for unit in units)
    held = sum(unit["state_bytes"] for unit in units)

    def first_batch(checkpoint: Path) -> float:
        begun = time.perf_counter()
        batches_of(join_streams(streams, window), 0, 1, checkpoint)
        return time.perf_counter() - begun

    times: dict[str, list[float]] = {"full": [], "empty": []}
    for _ in range(ROUNDS):
        times["full"].append(first_batch(place))
        times["empty"].append(first_batch(next(places)))
    full, empty = (statistics.median(times[name]) for name in ("full", "empty"))
    return {
        "state_bytes_per_row": held / stored,
        "s_per_million_rows": (full - empty) / (2 * window / 1_000_000),
        "times": times,
    }


def units_in(progress: Any) -> list[dict[str, Any]]:
    """Each unit's numbers of a batch."""
    from thetajoin.jobs.progress import unit_numbers

    return [numbers for _, numbers in unit_numbers(progress)]


_WORKLOADS = {
    "share": _share,
    "many": _many,
    "work": _work,
    "constant_key": _constant_key,
    "recovery": _recovery,
}


if __name__ == "__main__":
    run_workload(_WORKLOADS)
