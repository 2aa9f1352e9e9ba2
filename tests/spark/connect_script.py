"""Joins through Spark Connect, checked against brute force; run in a process of its own.

A process has either a classic session or Connect's, so the tests' own session is not for this.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import thetajoin as tj
from thetajoin.jobs.progress import ProgressListener
from thetajoin.spark import whole
from thetajoin.spark.session import PROVIDER, ROCKSDB

CONDITION = "l.a < r.a AND l.b > r.b"
BATCHES, ROWS, WINDOW = 3, 60, 25


def main(folder: Path) -> None:
    session = SparkSession.builder.remote("local[2]").getOrCreate()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set(PROVIDER, ROCKSDB)
    random = np.random.default_rng(0)
    rows: dict[str, list[dict[str, int]]] = {}
    for side in "lr":
        (folder / side).mkdir()
        tables = [
            pa.table(
                {
                    "id": np.arange(at * ROWS, (at + 1) * ROWS),
                    "a": random.integers(0, 50, ROWS),
                    "b": random.integers(0, 50, ROWS),
                }
            )
            for at in range(BATCHES)
        ]
        for at, table in enumerate(tables):
            pq.write_table(table, folder / side / f"{at}.parquet")
        rows[side] = pa.concat_tables(tables).to_pylist()

    def stream(side: str) -> Any:
        reader = session.readStream.schema("id long, a long, b long")
        return reader.option("maxFilesPerTrigger", 1).parquet(str(folder / side))

    def pairs_of(df: Any, name: str) -> Counter[tuple[int, int]]:
        out = folder / name
        writer = df.writeStream.format("parquet").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(folder / f"{name}-checkpoint"))
        query = writer.option("path", str(out)).start()
        assert query.awaitTermination(240)
        assert query.exception() is None, query.exception()
        table = pq.read_table(out)
        return Counter(zip(table["id"].to_pylist(), table["id_right"].to_pylist(), strict=True))

    def brute(left: Any, right: Any, seen: Any = lambda l, r: True) -> Counter[tuple[int, int]]:
        return Counter(
            (l["id"], r["id"])
            for l in left
            for r in right
            if l["a"] < r["a"] and l["b"] > r["b"] and seen(l["id"], r["id"])
        )

    matches: list[int] = []
    session.streams.addListener(ProgressListener(lambda progress: matches.append(progress.matches)))
    all_history = brute(rows["l"], rows["r"])
    joined = tj.join(stream("l"), stream("r"), CONDITION, window=tj.FullHistory())
    assert pairs_of(joined, "joined") == all_history
    assert sum(matches) == all_history.total(), (matches, all_history.total())
    table = session.read.parquet(str(folder / "r"))
    for small in (whole.SMALL, 0):
        whole.SMALL = small  # no broadcast is asked for, whatever the size
        with_table = tj.join(stream("l"), table, CONDITION, window=tj.FullHistory())
        assert pairs_of(with_table, f"with_table_{small}") == all_history
    whole.MOST_CONNECT = 100
    with pytest.raises(tj.ThetaJoinError, match="takes more than"):
        tj.join(stream("l"), table, CONDITION, window=tj.FullHistory())
    window = tj.CountWindow(WINDOW)
    itself = tj.self_join(stream("l"), CONDITION, window=window, order_by="id")
    near = brute(rows["l"], rows["l"], lambda l, r: 0 < abs(l - r) <= WINDOW)
    assert pairs_of(itself, "itself") == near
    tables = [session.read.parquet(str(folder / side)) for side in "lr"]
    for options in ({}, {"broadcast_rows": 0}):
        table = tj.join(*tables, CONDITION, **options).select("id", "id_right").toPandas()
        found = Counter(zip(table["id"].tolist(), table["id_right"].tolist(), strict=True))
        assert found == all_history, options
    column = (F.col("l.a") < F.col("r.a")) & (F.col("l.b") > F.col("r.b"))
    table = tj.join(*tables, column).select("id", "id_right").toPandas()
    assert (
        Counter(zip(table["id"].tolist(), table["id_right"].tolist(), strict=True)) == all_history
    )
    counted = tj.join_agg(*tables, "l.a = r.a AND l.b > r.b", aggs={"n": "count(*)"}, units=3)
    equal = sum(l["a"] == r["a"] and l["b"] > r["b"] for l in rows["l"] for r in rows["r"])
    assert counted.collect()[0].n == equal
    sys.stdout.write(f"exact {all_history.total()} {near.total()}\n")
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
