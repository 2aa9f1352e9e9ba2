"""The same joins through Spark Connect, in a process of its own: a session is of one kind only."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from spark.conftest import _java

pytest.importorskip("pyspark", reason="pyspark is not installed")

SCRIPT = """
from pyspark.sql import SparkSession
import thetajoin as tj

LEFT, RIGHT = "lid long, a double, c int", "rid long, b double, d int"
spark = SparkSession.builder.remote("local[2]").getOrCreate()
left = spark.createDataFrame([(i, float(i % 7), i % 5) for i in range(50)], LEFT)
right = spark.createDataFrame([(i, float(i % 6), i % 4) for i in range(60)], RIGHT)
for options in ({"broadcast_rows": 0}, {}, {"broadcast_rows": 0, "how": "full"}):
    got = tj.join(left, right, "l.a < r.b AND l.c >= r.d", **options)
    own = left.join(right, (left.a < right.b) & (left.c >= right.d), options.get("how", "inner"))
    rows = [sorted(map(str, df.select("lid", "rid").collect())) for df in (got, own)]
    assert rows[0] == rows[1] and rows[0], options
print("the same")
"""


@pytest.mark.slow
@pytest.mark.spark
def test_joins_through_connect() -> None:
    if not _java():
        pytest.skip("Spark needs Java 17 or newer, and no java is on the PATH or in JAVA_HOME")
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    if "pyspark[connect]" in done.stderr:
        pytest.skip("Spark Connect's packages are not installed")
    assert done.stdout.splitlines()[-1:] == ["the same"], done.stderr[-2000:]
