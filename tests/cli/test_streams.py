"""A streaming job's rows on stdout, as lines that other programs read."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pyarrow as pa
import pytest
from pyarrow import parquet

from thetajoin.cli.streams import _Rows
from thetajoin.errors import ThetaJoinError
from thetajoin.spark.session import find_java

JOB = """
query = "SELECT a.k, b.k AS j, b.s FROM a, b WHERE a.k < b.k"
[sources.a]
path = "a"
stream = true
[sources.b]
path = "b"
stream = true
[window]
count = 50
on = "k"
[sink]
format = "console"
"""


class Batch:
    """A micro-batch, of which only its rows are asked for."""

    def __init__(self, table):
        self.toArrow = lambda: table


@pytest.mark.parametrize(
    ("form", "lines"),
    [
        ("json", ['{"k": 1}', '{"k": 2}', '{"k": 3}']),
        ("csv", ['"k"', "1", "2", "3"]),
    ],
)
def test_batches_follow_each_other(capsys, form, lines):
    rows = _Rows(form)
    for number, values in enumerate(([1, 2], [], [3])):
        rows.write(None, Batch(pa.table({"k": pa.array(values, pa.int64())})), number)
    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.spark
@pytest.mark.slow
def test_all_rows_as_json(tmp_path):
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    try:
        find_java()
    except ThetaJoinError as error:
        pytest.skip(str(error))
    table = pa.table({"k": range(30), "s": [f"[red]{at}" for at in range(30)]})
    for side in "ab":
        (tmp_path / side).mkdir()
        parquet.write_table(table, tmp_path / side / "0.parquet")
    (tmp_path / "job.toml").write_text(JOB)
    command = "import sys; from thetajoin.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", command, "run", "job.toml", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    pairs = sorted((row["k"], row["j"]) for row in found)
    assert pairs == [(a, b) for a in range(30) for b in range(a + 1, 30)]
    assert {row["s"] for row in found} == {f"[red]{at}" for at in range(1, 30)}
    assert "60 rows in" in done.stderr
