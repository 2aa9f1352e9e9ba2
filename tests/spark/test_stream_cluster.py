"""Two executors in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SESSION = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
import naive, thetajoin as tj
from thetajoin.spark.session import PROVIDER, ROCKSDB
from spark.harness import Streams, closing, distinct_times, expected, random_batches

builder = SparkSession.builder.master("local-cluster[2,1,1024]")
for key, value in {
    PROVIDER: ROCKSDB,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.executor.memory": "1g",
    "spark.driver.host": "127.0.0.1",
}.items():
    builder = builder.config(key, value)
session = builder.getOrCreate()
session.sparkContext.setLogLevel("ERROR")
streams = Streams(session, Path(sys.argv[1]))
"""

COUNTED = """
batches = [*distinct_times(random_batches(30, batches=4), 30), closing(20)]
streams.push(*batches)
on = "l.a < r.b AND l.c >= r.d"
pred = naive.conj(("a", "<", "b"), ("c", ">=", "d"))
for how, units in (("inner", 2), ("left", 3)):
    window = tj.CountWindow(8, slide=3)
    df = tj.join(*streams.both(), on, how=how, window=window, order_by="t", units=units)
    run = streams.run(df)
    want, _ = expected(batches, pred, how=how, window=naive.Count(8, 3), order_by="t")
    assert run.ids == want, (how, run.ids - want, want - run.ids)
session.stop()
"""

# Rows that Spark's own hash takes for one another, in files that the executors fetch in different
# orders; each left row must meet each right row once. Only p, q and the file tell them apart.
ALIKE = """
from collections import Counter
import pyarrow as pa
schema = pa.schema([("k", pa.int64()), ("p", pa.int64()), ("q", pa.int64()), ("x", pa.float64())])
for batch in range(4):
    for side in "lr":
        for p, q in ((True, False), (False, True)):
            rows = [
                {"k": 1, "p": v if p else None, "q": v if q else None, "x": -0.0 if p else 0.0}
                for v in range(40)
            ]
            streams.write(side, rows, schema)
sides = [
    session.readStream.schema("k long, p long, q long, x double")
    .option("maxFilesPerTrigger", 2).parquet(str(streams.folder / side)) for side in "lr"
]
rows = 4 * 2 * 40
inner = tj.join(*sides, "l.k <= r.k", window=tj.FullHistory(), units=3)
found = streams.run(inner).rows
pairs = Counter(zip(*(found[n].to_pylist() for n in ("p", "q", "p_right", "q_right"))))
assert len(pairs) == 80 * 80 and set(pairs.values()) == {16}, Counter(pairs.values())
semi = tj.join(*sides, "l.k <= r.k", how="semi", window=tj.FullHistory(), units=3)
found = streams.run(semi).rows
each = Counter(zip(*(found[n].to_pylist() for n in ("p", "q"))))
assert len(each) == 80 and set(each.values()) == {4}, Counter(each.values())
session.stop()
"""

# The same rows sent by content: nobody has to agree on an order, and every pair is found once.
ROUTED = (
    ALIKE.replace("units=3)", 'units=9, routing="matrix")')
    .replace('semi = tj.join(*sides, "l.k <= r.k"', 'semi = tj.join(*sides, "ABS(l.k - r.k) <= 1"')
    .replace(
        'how="semi", window=tj.FullHistory(), units=9, routing="matrix"',
        'how="semi", window=tj.FullHistory(), units=9, routing="cells"',
    )
)


@pytest.mark.parametrize(
    "job",
    [COUNTED, ALIKE, ROUTED],
    ids=["count windows", "rows that are alike", "sent by what they hold"],
)
def test_two_executors(tmp_path: Path, job: str) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    tests = Path(__file__).resolve().parent.parent
    env = os.environ | {
        "PYTHONPATH": f"{tests}{os.pathsep}{tests.parent / 'src'}",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
    }
    data = tmp_path / "data"
    data.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SESSION + job, str(data)],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
