"""`thetajoin explain JOB --rate`: what a job's streams need, without starting Spark."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

JOB = """
query = "SELECT x.id FROM x JOIN y ON x.v < y.v"
checkpoint = "ck"
[sources.x]
path = "x"
stream = true
watermark = "ts 5 seconds"
[sources.y]
path = "y"
stream = true
watermark = "ts 10 seconds"
[window]
time = "1 minute"
on = "ts"
[sink]
format = "console"
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    for side in ("x", "y"):
        (tmp_path / side).mkdir()
        times = pa.array(range(200), pa.int64()).cast(pa.timestamp("us"))
        rows = pa.table({"id": range(200), "v": [n % 7 for n in range(200)], "ts": times})
        pq.write_table(rows, tmp_path / side / "0.parquet")
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    return path


def test_the_arithmetic_is_shown(job: Path, run) -> None:
    code, out, err = run("explain", str(job), "--rate", "6k/min")
    assert code == 0, err
    assert "inner join on x.v < y.v" in out
    shares = re.findall(r"(?:about|x) (\S+) of all pairs", out)
    assert len(shares) == 2
    assert len(set(shares)) == 1
    assert float(re.search(r"x ([\d.]+) ns = ", out)[1]) >= 10
    assert "100/s x (60 s window + 10 s watermark) = 7,000 rows in the window" in out
    for line in ("state:", "disk:", "matches:", "cores:", "memory:"):
        assert line in out


def test_mistakes_are_told_in_a_line(job: Path, run) -> None:
    for words, said in (
        (["explain", str(job), "--rate", "many"], "write rows and a unit"),
        (["explain", "a.csv", "b.csv", "l.x < r.x", "--rate", "1/s"], "is for a job or a query"),
    ):
        code, out, err = run(*words)
        assert code == 1
        assert said in err
        assert out == ""
    job.write_text(JOB.replace("[window]", "[other]"))
    code, _, err = run("explain", str(job), "--rate", "1/s")
    assert code == 1
    assert len(err.splitlines()) == 1
