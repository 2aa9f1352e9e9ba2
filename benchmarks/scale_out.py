"""What more units gain: work of each, rows sent, and the same on Spark itself.

Units one after the other in one process show what each would do on a cluster (`scale_units`). On
Spark: what 64 units cost on two cores, what routing gains with two, rows sent against BiStream's
equations 5 and 6, and repartitioning of a checkpoint's state.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import Report, in_process, run_workload
from benchmarks.plots import plot_curves
from benchmarks.scale_units import ROWS, WORKLOADS, measure
from benchmarks.spark_stream import (
    BATCH,
    batches_of,
    checkpoints,
    rows_per_s,
    spark_on,
    units_in,
)

MODULE = "benchmarks.scale_out"
MANY = 64
CURVE = (1, 4, 16, 64, 256)
# Rows a side of a micro-batch of growing times: in the window all of them meet.
DRIFT_ROWS = 20_000
ROUNDS, WARM, MEASURED = 3, 6, 5
TARGETS = {
    "copies_hash": "<= 1.05",
    "copies_band": "<= 2.2",
    "speedup_64_hash": ">= 40",
    "speedup_64_band": ">= 30",
    "intake_64_ranges_related": "<= 0.1",
    "intake_64_ranges_unrelated": "<= 0.3",
    "speedup_64_zipf": ">= 20",
    "imbalance_drift": "<= 1.5",
    "work_64_vs_1_hash": "<= 1.5",
    "rows_sent_vs_model": "0.99 to 1.01",
    "units_64_on_2_cores": "<= 1.4",
    "share_vs_today": "<= 1.05",
    "repartition_lost": "0",
}
Progress = Callable[[str], None]


def run(progress: Progress, scale: float = 1.0) -> Report:
    """All figures; `scale` shrinks the micro-batches for a quick look."""
    report = Report("scale-out", targets=TARGETS)
    figures = report.figures

    def measured(workload: str, cores: int = 1) -> Any:
        progress(workload)
        found = in_process(MODULE, [workload, "--scale", str(scale)], cores, timeout=3600)
        report.details[workload] = found
        return found

    made = {name: measured(name) for name in WORKLOADS}
    at = {name: {step["units"]: step for step in steps} for name, steps in made.items()}
    for name in ("hash", "band"):
        figures[f"copies_{name}"] = at[name][MANY]["copies"]
    for name in ("hash", "band", "zipf"):
        one, many = at[name][1], at[name][MANY]
        figures[f"speedup_64_{name}"] = one["seconds_all"] / many["seconds_busiest"]
    for name in ("ranges_related", "ranges_unrelated"):
        figures[f"intake_64_{name}"] = at[name][MANY]["intake"]
    figures["imbalance_drift"] = at["drift"][MANY]["imbalance"]
    figures["work_64_vs_1_hash"] = at["hash"][MANY]["seconds_all"] / at["hash"][1]["seconds_all"]
    sent = measured("sent", 2)
    figures["rows_sent_vs_model"] = max(sent["ratios"].values(), key=lambda r: abs(r - 1))
    spark = measured("spark", 2)
    figures["units_64_on_2_cores"] = spark["many_units"]["2"] / spark["many_units"]["64"]
    figures["share_vs_today"] = spark["routing"]["broadcast"] / spark["routing"]["hash"]
    figures["repartition_lost"] = measured("repartition", 2)["wrong"]
    lines = {
        label: [at[name][1]["seconds_all"] / at[name][units]["seconds_busiest"] for units in CURVE]
        for name, label in (("hash", "equality and band (hash)"), ("band", "band (cells)"))
    }
    report.curves = {
        "speedup": {
            "title": "One unit's time over that of the busiest of many",
            "x": "units",
            "y": "times as fast",
            "at": list(CURVE),
            "lines": {**lines, "as many times as there are units": list(CURVE)},
        }
    }
    report.figures = {key: figures.get(key) for key in TARGETS}
    return report


def plot(report: Report, folder: Path) -> list[Path]:
    """What more units gain, as a picture."""
    return plot_curves(report.curves, folder)


def _in_units(name: str) -> Callable[[int, float], list[dict[str, Any]]]:
    def workload(threads: int, scale: float) -> list[dict[str, Any]]:
        rows = max(int((DRIFT_ROWS if name == "drift" else ROWS) * scale), 1000)
        measure(name, 4, max(rows // 50, 1000))  # compiles what is called
        curve = CURVE if name in ("hash", "band") else (1, MANY)
        return [measure(name, units, rows) for units in curve]

    return workload


def _sides(session: Any, rows: int) -> tuple[Any, Any]:
    """Two streams of keys and values, made by Spark itself."""

    def side(seed: int) -> Any:
        source = session.readStream.format("rate-micro-batch").option("rowsPerBatch", rows // 2)
        keyed = (
            f"pmod(xxhash64(value, {seed}), {rows}) AS k",
            f"xxhash64(value, {seed}1) % 1000 AS v",
        )
        return source.option("numPartitions", 2).load().selectExpr("value AS id", *keyed)

    return side(1), side(2)


def _spark(cores: int, scale: float) -> dict[str, Any]:
    """Rows a second with few and many units, and with every row sent to two of them or one."""
    import thetajoin as tj

    session, places = spark_on(cores), checkpoints()
    rows = int(BATCH * scale)
    on = "l.k = r.k AND ABS(l.v - r.v) <= 50"

    left, right = _sides(session, rows)

    def rate(**options: Any) -> float:
        df = tj.join(left, right, on, window=tj.FullHistory(), **options)
        return rows_per_s(batches_of(df, WARM, MEASURED, next(places)))

    rate(units=2)
    found: dict[str, dict[str, list[float]]] = {"many_units": {}, "routing": {}}
    for _ in range(ROUNDS):
        for units in (2, MANY):
            found["many_units"].setdefault(str(units), []).append(rate(units=units))
        for routing in ("hash", "broadcast"):
            found["routing"].setdefault(routing, []).append(rate(units=2, routing=routing))
    medians = {
        what: {name: statistics.median(rates) for name, rates in taken.items()}
        for what, taken in found.items()
    }
    return {**medians, "rates": found}


def _count_sent(cores: int, scale: float) -> dict[str, Any]:
    """Rows that reach the units on executors in processes of their own, and the model's number.

    BiStream's equation 6 for a matrix; its equation 5 for subgroups, less the copy that is stored,
    for here the units that store are among those that are probed.
    """
    import thetajoin as tj
    from thetajoin.spark.session import local_session

    session = local_session("local-cluster[2,1,1024]", shuffle_partitions=2)
    places = checkpoints()
    rows = max(int(40_000 * scale), 2000)
    left, right = _sides(session, rows)
    found: dict[str, Any] = {"ratios": {}, "bytes_per_row": {}}
    for name, on, units, copies in (
        ("hash", "l.k = r.k", 8, 2.0),
        ("matrix", "l.v < r.v AND l.k < r.k", 16, 8.0),
        ("broadcast", "l.v < r.v AND l.k < r.k", 4, 8.0),
    ):
        few = f"{on} AND l.k % 100 = 1"
        options: dict[str, Any] = {"units": units, "routing": name}
        df = tj.join(left, right, few, window=tj.FullHistory(), **options)
        batches = batches_of(df, 1, 3, next(places))
        received = sum(unit["received"] for batch in batches for unit in units_in(batch))
        sent = sum(unit["received_bytes"] for batch in batches for unit in units_in(batch))
        given = sum(batch.numInputRows for batch in batches)
        found["ratios"][name] = received / (given / 2 * copies)
        found["bytes_per_row"][name] = sent / given
    return found


def _repartition(cores: int, scale: float) -> dict[str, Any]:
    """A query stopped in the middle and gone on with, its state repartitioned ten times."""
    import thetajoin as tj
    from thetajoin.spark.versions import state_mover

    session = spark_on(cores)
    rows, rounds = max(int(3000 * scale), 300), 10
    with tempfile.TemporaryDirectory(prefix="thetajoin-scale-") as folder:
        root = Path(folder)
        tables = [_files(root / name, seed, rounds + 1, rows) for seed, name in enumerate("lr")]
        given: dict[int, Counter[Any]] = {}

        def keep(batch: Any, number: int) -> None:
            pairs = batch.select("id", "id_right").toArrow().to_pydict()
            given[number] = Counter(zip(*pairs.values(), strict=True))

        def start(*, more: bool) -> Any:
            sides = []
            for name in "lr":
                for waiting in sorted((root / f"{name} to come").iterdir())[: int(more)]:
                    waiting.rename(root / name / waiting.name)
                source = session.readStream.schema("id long, k long, v long")
                sides.append(source.option("maxFilesPerTrigger", 1).parquet(str(root / name)))
            left, right = sides
            df = tj.join(left, right, "l.k = r.k AND l.v <= r.v", window=tj.FullHistory(), units=8)
            writer = df.writeStream.foreachBatch(keep).trigger(availableNow=True)
            return writer.option("checkpointLocation", str(root / "checkpoint")).start()

        partitions = [4, 8, 3, 6, 2, 5, 8, 4, 7, 2]
        for at in range(rounds + 1):
            query = start(more=True)
            time.sleep(0.7)
            query.stop()  # in the middle of a micro-batch
            start(more=False).awaitTermination()
            if at < rounds:
                state_mover(session).repartition(str(root / "checkpoint"), partitions[at])
        found = sum(given.values(), Counter())
        whole = tj.join(tables[0], tables[1], "l.k = r.k AND l.v <= r.v")
        want = whole.select(["id", "id_right"]).to_pydict()
        wanted = Counter(zip(*want.values(), strict=True))
    lost, more = wanted - found, found - wanted
    wrong = sum(lost.values()) + sum(more.values())
    return {"wrong": wrong, "pairs": sum(wanted.values()), "repartitionings": rounds}


def _files(folder: Path, seed: int, number: int, rows: int) -> pa.Table:
    """Files that a source will find one by one, and all their rows."""
    to_come = folder.with_name(f"{folder.name} to come")
    for place in (folder, to_come):
        place.mkdir()
    random, tables = np.random.default_rng(seed), []
    for at in range(number):
        k, v = random.integers(0, rows, rows), random.integers(0, 1000, rows)
        tables.append(pa.table({"id": np.arange(rows) + at * rows, "k": k, "v": v}))
        pq.write_table(tables[-1], to_come / f"{at:03}.parquet")
    return pa.concat_tables(tables)


_SPARK = {"spark": _spark, "sent": _count_sent, "repartition": _repartition}

if __name__ == "__main__":
    run_workload({**{name: _in_units(name) for name in WORKLOADS}, **_SPARK})
