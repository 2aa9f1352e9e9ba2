"""Jobs over streams of files into tables and databases, and beside a Delta table."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.pipeline_kills import COMMAND

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

PAIRS = Counter((a, b) for a in range(20) for b in range(a + 1, 20))
JOB = """
query = "SELECT a.k, b.k AS j FROM a, b WHERE a.k < b.k"
checkpoint = "ck"
[sources.a]
path = "a"
stream = true
[sources.b]
{right}
[window]
count = 50
on = "k"
[sink]
{sink}
"""


@pytest.fixture
def job(spark: Any, tmp_path: Path) -> Any:
    """Runs a job twice, and gives what both have told; `spark` says where Spark cannot run."""
    for side in "ab":
        (tmp_path / side).mkdir()
        pq.write_table(pa.table({"k": range(20)}), tmp_path / side / "0.parquet")

    def run(sink: str, right: str = 'path = "b"\nstream = true') -> str:
        text = JOB.format(right=right, sink=sink)
        text = text if "stream" in right else text.replace('count = 50\non = "k"\n', "all = true\n")
        (tmp_path / "job.toml").write_text(text)
        told = ""
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-c", COMMAND, "run", "job.toml"],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
                env=os.environ | {"DB": f"jdbc:derby:{tmp_path}/db;create=true"},
            )
            assert done.returncode == 0, done.stderr
            told += done.stdout + done.stderr
        return told

    return run


def counted(rows: pa.Table) -> Counter[tuple[int, int]]:
    return Counter(zip(rows[0].to_pylist(), rows[1].to_pylist(), strict=True))


def test_a_database(spark: Any, job: Any, tmp_path: Path) -> None:
    told = job('jdbc = "${DB}"\ntable = "PAIRS"\nid = "match_id"\nkey = ["k", "j"]')
    assert "the result is in the database's table PAIRS" in told
    assert str(tmp_path) not in told
    url = f"jdbc:derby:{tmp_path}/db"
    found = spark.read.format("jdbc").options(url=url, dbtable="PAIRS").load()
    assert counted(found.select('"k"' if '"k"' in found.columns else "k", "j").toArrow()) == PAIRS
