"""What one Spark has written, the next goes on with. The environments are `make test-spark`'s."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")
from benchmarks.pipeline_kills import COMMAND
from thetajoin.spark.unit_keys import keys_of, spark_hash
from thetajoin.spark.versions import SPARKS, minor, read_spark_version

ROOT = Path(__file__).parents[2]
JOB = """
query = "SELECT a.k, b.k AS j FROM a LEFT JOIN b ON a.k < b.k AND a.v >= b.v"
checkpoint = "ck"
[sources.a]
path = "a"
stream = true
watermark = "ts 0 seconds"
[sources.b]
path = "b"
stream = true
watermark = "ts 0 seconds"
[window]
time = "1 hour"
on = "ts"
[sink]
path = "out"
format = "parquet"
"""
ROWS = 6


def python_of(spark: str) -> Path | None:
    """The Python that has this Spark."""
    if read_spark_version().startswith(f"{spark}."):
        return Path(sys.executable)
    found = ROOT / ".venv" / f"spark-{spark}" / "bin" / "python"
    return found if found.exists() else None


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_checkpoint_goes_on_under_the_next_spark(tmp_path: Path) -> None:
    pythons = {spark: python_of(spark) for spark in SPARKS}
    there = {spark: python for spark, python in pythons.items() if python is not None}
    if len(there) < 2:
        pytest.skip("only one Spark is installed: run make test-spark first")
    (tmp_path / "job.toml").write_text(JOB)
    second, numbers = 1_000_000, []
    for at, (spark, python) in enumerate([*there.items(), *list(there.items())[-1:]]):
        last = at == len(there)  # one more row, far away, lets unmatched ones out
        new = [10**6] if last else list(range(ROWS * at, ROWS * at + ROWS))
        numbers += [] if last else new
        for side in "ab":
            (tmp_path / side).mkdir(exist_ok=True)
            values = [(7 * k + (side == "b")) % 5 for k in new]
            times = pa.array(
                [(k * 10 + 10**5 * last) * second for k in new], pa.timestamp("us", "UTC")
            )
            table = pa.table(
                {"k": new, "v": values, "ts": pa.array(times, pa.timestamp("us", "UTC"))}
            )
            pq.write_table(table, tmp_path / side / f"{at}.parquet")
        command = [str(python), "-c", COMMAND, "run", "job.toml"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"Spark {spark}: {done.stderr}"
    rows = pq.read_table(tmp_path / "out").to_pydict()
    found = Counter(zip(rows["k"], rows["j"], strict=True))
    pairs = Counter(
        (k, j) for k in numbers for j in numbers if k < j and 7 * k % 5 >= (7 * j + 1) % 5
    )
    alone = Counter((k, None) for k in numbers if not any(k == left for left, _ in pairs))
    assert found - Counter({(10**6, None): 1}) == pairs + alone
    assert pairs
    assert alone


def test_keys_for_the_spark_that_has_only_hashes() -> None:
    for count in (1, 2, 7, 64, 500):
        assert [spark_hash(key) % count for key in keys_of(count)] == list(range(count))


def test_versions_are_compared_as_numbers() -> None:
    assert minor("4.10.0") > minor("4.9.1")
    assert minor("4.1.0-preview1") == (4, 1)
