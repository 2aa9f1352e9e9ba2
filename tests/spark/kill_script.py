"""Running totals of two streams, a file for each micro-batch; made to be killed and run again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import thetajoin as tj
from thetajoin.spark.session import PROVIDER, ROCKSDB, use_java


def main(folder: Path) -> None:
    local = folder / "local"
    local.mkdir(exist_ok=True)
    use_java(local)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.local.dir", str(local))
    builder = builder.config("spark.sql.shuffle.partitions", "2").config(PROVIDER, ROCKSDB)
    session = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    sides = []
    for side in "lr":
        schema = session.read.parquet(str(folder / side)).schema
        source = session.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        sides.append(source.parquet(str(folder / side)))

    def write(part: Any, number: int) -> None:
        """A micro-batch that runs again writes its file again."""
        pq.write_table(part.toArrow(), folder / "out.tmp")
        (folder / "out.tmp").rename(folder / "out" / f"{number:04d}.parquet")

    totals = tj.join_agg(
        *sides,
        "l.a < r.b AND l.c >= r.d",
        group_by="l.a",
        aggs={"n": "count(*)", "s": "sum(r.d)", "hi": "max(r.rid)"},
        window=tj.CountWindow(40, slide=5),
        order_by=("lid", "rid"),
    )
    writer = totals.writeStream.outputMode("update").foreachBatch(write)
    writer = writer.option("checkpointLocation", str(folder / "ck"))
    writer.trigger(availableNow=True).start().awaitTermination()
    (folder / "done").touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
