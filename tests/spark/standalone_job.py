"""A streaming join for a cluster, checked against the oracle; `test_standalone` submits it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import naive
import thetajoin as tj
from spark.harness import Streams, closing, expected, random_batches, seconds, with_watermarks


def main(folder: Path) -> None:
    session = SparkSession.builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")

    def where(_: object) -> list[tuple[str, str, str]]:
        import os
        import sys
        import time

        import thetajoin

        time.sleep(2)
        return [(os.getcwd(), sys.executable, thetajoin.__file__)]

    streams = Streams(session, folder)
    batches = [*random_batches(61, batches=3), closing()]
    streams.push(*batches)
    window = tj.TimeWindow("10 seconds", time="t")
    late = folder / "late"
    on = "l.a < r.b AND l.c >= r.d"
    df = tj.join(*streams.both("5 seconds"), on, how="left", window=window, units=4, late=str(late))
    run = streams.run(df)
    pred = naive.conj(("a", "<", "b"), ("c", ">=", "d"))
    want, result = expected(
        with_watermarks(batches, seconds(5)),
        pred,
        how="left",
        window=naive.Time(seconds(10), seconds(10)),
    )
    assert run.ids == want, (run.ids - want, want - run.ids)
    assert run.total("late_rows") == result.late_rows
    # Each task takes a while, so that no executor can have all of them.
    found = session.sparkContext.parallelize(range(6), 6).mapPartitions(where).collect()
    told = {
        "executors": len({root for root, _, _ in found}),
        "pythons": sorted({python for _, python, _ in found}),
        "libraries": sorted({file for _, _, file in found}),
        "rows": sum(run.ids.values()),
    }
    (folder / "told.json").write_text(json.dumps(told))
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
