"""Two executors in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

JOB = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
import naive, thetajoin as tj
from spark.harness import Streams, closing, distinct_times, expected, random_batches

builder = SparkSession.builder.master("local-cluster[2,1,1024]")
for key, value in {
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


def test_two_executors(tmp_path: Path) -> None:
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
        [sys.executable, "-c", JOB, str(data)],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
