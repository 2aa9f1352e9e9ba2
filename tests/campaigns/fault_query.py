"""The queries that are put through faults: their data, and the driver that is killed."""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SIDES = ("l", "r")
CONDITION = "l.a <= r.a AND l.b >= r.b"
SIZE, SLIDE = 1500, 100
BEFORE, AFTER = 45_000, 15_000  # milliseconds
DELAY = 20_000
EPOCH = 1_767_225_600_000
# Files of a side that a micro-batch takes: each is an input partition of its own.
FILES = 2
# The last files move the watermark past all other rows; they are at times from here on.
END = EPOCH + 1000 * 86_400_000
LAST_BATCHES = 3
LOCAL, CLUSTER = "local[2,4]", "local-cluster[2,1,1024]"
AGGREGATES = {"n": "count(*)", "s": "sum(r.b)", "hi": "max(r.a)", "lo": "min(r.q)"}


@dataclass(frozen=True)
class Case:
    """A streaming query, and the processes that are killed while it runs."""

    window: str
    how: str
    units: int
    master: str
    drivers: int
    workers: int
    executors: int = 0
    totals: bool = False
    full_disk: bool = False

    @property
    def kills(self) -> int:
        """How many processes are killed."""
        return self.drivers + self.workers + self.executors

    def scaled(self, scale: float) -> Case:
        """The same query with fewer kills."""

        def fewer(number: int) -> int:
            return max(1, round(number * scale)) if number else 0

        return replace(
            self,
            drivers=fewer(self.drivers),
            workers=fewer(self.workers),
            executors=fewer(self.executors),
        )


CASES = {
    "count": Case("count", "inner", 3, LOCAL, 10, 12, full_disk=True),
    "count_left": Case("count", "left", 3, CLUSTER, 2, 6, 6),
    "count_totals": Case("count", "inner", 3, LOCAL, 6, 8, totals=True),
    "time": Case("time", "inner", 3, CLUSTER, 2, 6, 6),
    "time_full": Case("time", "full", 1, LOCAL, 6, 8),
    "time_totals": Case("time", "inner", 3, CLUSTER, 1, 4, 4, totals=True),
    "history": Case("history", "inner", 3, CLUSTER, 2, 4, 6),
    "history_semi": Case("history", "semi", 3, CLUSTER, 1, 4, 4),
}


# The data


def make_rows(window: str, side: str, number: int, seed: int = 7) -> pa.Table:
    """A source's file: keys with ties and NULLs, times that are out of order and partly late.

    The files of a micro-batch share rows: some are in both; some differ only in which of two
    columns is NULL, or in the sign of a zero, which Spark's hashes take for equal. In a count
    window different rows of a side have different places in the order, so that the contract alone
    says what it holds; also where a restarted query takes more files at once than it should.
    """
    batch, file = divmod(number, FILES)
    random = np.random.default_rng([seed, SIDES.index(side), batch])
    rows = 0 if batch % 9 == 4 + SIDES.index(side) else int(random.integers(60, 160))
    # Kinds: in one of the files, twins, twice the same, zeros of either sign.
    kind = random.choice(4, rows, p=[0.4, 0.3, 0.2, 0.1])
    a = random.integers(-400, 400, rows).astype(np.float64)
    b = a.astype(np.int64) + random.integers(0, 40, rows)
    value = random.integers(-2, 3, rows).astype(np.float64)
    missing = random.random((2, rows)) < 0.03
    swapped = (kind == 1) & (file == 1)
    a = np.where(kind == 3, -0.0 if file else 0.0, a)
    at = _places if window == "count" else _times
    columns = {
        "a": pa.array(a, mask=missing[0]),
        "b": pa.array(b, mask=missing[1]),
        "p": pa.array(value, mask=swapped),
        "q": pa.array(value, mask=~swapped),
        "at": at(random, batch, rows, (kind % 2 == 1) * file),
    }
    here = np.flatnonzero((kind != 0) | (np.arange(rows) % FILES == file))
    again = np.flatnonzero(kind == 2)[::3]
    return pa.table(columns).take(pa.array(np.concatenate([here, again])))


def _places(random: np.random.Generator, batch: int, rows: int, file: Any) -> pa.Array:
    place = random.permutation(2 * rows)[:rows] * 16 + batch % 16
    return pa.array(place * FILES + file)


def _times(random: np.random.Generator, batch: int, rows: int, _: Any) -> pa.Array:
    at = 100 * random.integers(0, 100, rows)
    draw = random.random(rows)
    at = at - np.where(draw < 0.3, 100 * random.integers(0, 250, rows), 0)
    at = at - np.where(draw > 0.95, 100 * random.integers(2000, 4000, rows), 0)
    return instants(EPOCH + batch * 10_000 + at)


def instants(millis: Any) -> pa.Array:
    """Times of milliseconds since 1970."""
    return pa.array(np.asarray(millis, np.int64) * 1000, pa.timestamp("us", tz="UTC"))


def last_rows(number: int) -> pa.Table:
    """A file that only moves the watermark: its row is after all others and matches none."""
    columns = {"a": [None], "b": [None], "p": [0.0], "q": [0.0]}
    at = instants([END + 1000 * DELAY * number])
    return pa.table(columns | {"at": at}, schema=make_rows("time", "l", 0).schema)


def write_file(folder: Path, number: int, tables: dict[str, pa.Table]) -> None:
    """The next file of each side, whole before Spark can see it and newer than those before."""
    for side, table in tables.items():
        (folder / side).mkdir(exist_ok=True)
        partial = folder / side / f".{number:05d}.partial"
        pq.write_table(table, partial)
        os.utime(partial, (1_700_000_000 + number,) * 2)
        partial.rename(folder / side / f"{number:05d}.parquet")


# The query


def drive(case: Case, folder: Path) -> None:
    """The driver's work: join until the file `stop` appears, then finish what is there."""
    from thetajoin.spark.session import local_session
    from thetajoin.spark.versions import local_checkpoints

    spark = local_session(
        case.master,
        memory="1g",
        shuffle_partitions=3,
        settings={**local_checkpoints(), **settings(folder)},
        scratch=folder / "local",
        log=folder / "log",
    )
    spark.sparkContext.setLogLevel("WARN")  # tells of lost tasks
    query = _writer(spark, case, folder).start()
    while query.isActive and not query.status["isTriggerActive"]:
        time.sleep(0.01)
    Path(folder, "running").touch()
    while query.isActive and not Path(folder, "stop").exists():
        time.sleep(0.1)
    query.processAllAvailable()
    query.stop()
    spark.stop()


def _writer(spark: Any, case: Case, folder: Path) -> Any:
    import thetajoin as tj
    from thetajoin.engine.layout import parse_how

    left, right = (_source(spark, folder, case, side) for side in SIDES)
    window: Any = tj.CountWindow(SIZE, slide=SLIDE)
    if case.window == "time":
        before, after = (f"{ms} milliseconds" for ms in (BEFORE, AFTER))
        window = tj.TimeWindow(before=before, after=after, time="at")
    elif case.window == "history":
        window = tj.FullHistory()
    given = {
        "window": window,
        "order_by": "at" if case.window == "count" else None,
        "units": case.units,
    }
    checkpoint = f"{folder}/checkpoint"
    if not case.totals:
        joined = tj.join(left, right, CONDITION, how=parse_how(case.how), **given)
        writer = joined.writeStream.format("parquet").option("path", f"{folder}/out")
        return writer.option("checkpointLocation", checkpoint)
    totals = tj.join_agg(left, right, CONDITION, group_by="l.p", aggs=AGGREGATES, **given)
    (folder / "out").mkdir(exist_ok=True)

    def write(part: Any, number: int) -> None:
        # A micro-batch that runs again writes its file again.
        pq.write_table(part.toArrow(), folder / "partial")
        (folder / "partial").rename(folder / "out" / f"{number}.parquet")

    writer = totals.writeStream.outputMode("update").foreachBatch(write)
    return writer.option("checkpointLocation", checkpoint)


def _source(spark: Any, folder: Path, case: Case, side: str) -> Any:
    at = "bigint" if case.window == "count" else "timestamp"
    reader = spark.readStream.schema(f"a double, b bigint, p double, q double, at {at}")
    df = reader.option("maxFilesPerTrigger", FILES).parquet(f"{folder}/{side}")
    return df.withWatermark("at", f"{DELAY} milliseconds") if case.window == "time" else df


def settings(folder: Path) -> dict[str, str]:
    """Spark's configuration: short starts, all logs kept, snapshots of the state now and then."""
    java = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={folder}/tmp"
    return {
        "spark.driver.extraJavaOptions": java,
        "spark.executor.extraJavaOptions": java,
        "spark.executor.memory": "1g",
        # Many executors are lost in one session, which Spark would take for a broken query.
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.task.maxFailures": "20",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.streaming.minBatchesToRetain": "100000",
        "spark.sql.streaming.stateStore.maintenanceInterval": "5s",
    }


def main() -> None:
    """Be a driver."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args()
    drive(CASES[given.case], given.folder)


if __name__ == "__main__":
    main()
