"""Tables, late rows and files at s3://: the oracle's pairs; and mistakes, one line each."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import naive
import thetajoin as tj
from naive import Push
from spark.harness import LEFT, RIGHT, Streams, expected, random_batches, seconds, with_watermarks
from spark.object_store import BUCKET, NOWHERE, PYTHON, environment, moto_python, running

pytest.importorskip("pyspark", reason="pyspark is not installed")
deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")

from spark import test_late  # noqa: E402
from spark.test_lakes import JOB, PRED, full_batches, pairs, run  # noqa: E402

__all__ = ["run"]  # a fixture
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
PLACE = f"s3://{BUCKET}"
SOON_S = 30


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    python = moto_python()
    if python is None:
        pytest.skip(f"moto is not installed, and {PYTHON} names no Python that has it")
    with running(python, tmp_path_factory.mktemp("moto")) as endpoint:
        yield endpoint


@pytest.fixture
def store(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The store's address, with everything set that a user sets."""
    for name, value in environment(server).items():
        monkeypatch.setenv(name, value)
    return server


def command(job: Path) -> None:
    """Run a job as a user does: workers of a new Spark have this environment too."""
    call = [sys.executable, "-c", "from thetajoin.cli import main; main()", "run", str(job)]
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        call, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def write(place: Path | str, batches: Sequence[Push]) -> None:
    for batch in batches:
        for name, rows, schema in (("x", batch.left, LEFT), ("y", batch.right, RIGHT)):
            new = pa.Table.from_pylist(rows, schema)
            deltalake.write_deltalake(f"{place}/{name}", new, mode="append")


def test_delta_streams_into_a_delta_table(delta: None, store: str, tmp_path: Path) -> None:
    """With a restart in between, after which the job goes on with what was added."""
    place = f"{PLACE}/streams"
    source = f'delta = "{place}/%s"\nstream = true\nmax_files_per_trigger = 1'
    job = tmp_path / "job.toml"
    job.write_text(JOB.format(left=source % "x", right=source % "y", sink=f'delta = "{place}/out"'))
    batches = full_batches(61, 3)
    for first, last in ((0, 2), (2, 3)):
        write(place, batches[first:last])
        command(job)
        rows = deltalake.DeltaTable(f"{place}/out").to_pyarrow_table()
        found = zip(rows["lid"].to_pylist(), rows["rid"].to_pylist(), strict=True)
        assert Counter(found) == pairs(batches[:last])
    assert pairs(batches) - pairs(batches[:2])


def test_late_rows(store: str, streams: Streams) -> None:
    """The session's workers have another environment, so all is in the URI."""
    batches = random_batches(51, batches=6, rows=15)
    _, result = expected(with_watermarks(batches, seconds(2)), PRED, window=test_late.TEN)
    host = store.removeprefix("http://")
    late = f"s3://somebody:hunter22@{BUCKET}/late?scheme=http&endpoint_override={host}"
    window = tj.TimeWindow("10 seconds", time="t")
    streams.push(*batches)
    both = streams.both("2 seconds")
    streams.resume(tj.join(*both, test_late.ON, window=window, late=late, units=2), "cp")
    fs.copy_files(f"{PLACE}/late", str(streams.folder / "late"))
    assert test_late.written(streams.folder / "late") == test_late.wanted(result)
    assert result.late


def test_files_and_tables_in_this_process(store: str, tmp_path: Path, run: Any) -> None:
    [batch] = full_batches(62, 1)
    place = f"{PLACE}/files"
    files, root = fs.FileSystem.from_uri(place)
    for name, rows, schema in (("x", batch.left, LEFT), ("y", batch.right, RIGHT)):
        new = pa.Table.from_pylist(rows, schema)
        pq.write_table(new, f"{root}/{name}.parquet", filesystem=files)
    want = Counter(
        (l["lid"], r["rid"]) for l, r in naive.naive_join(batch.left, batch.right, PRED) if l and r
    )
    on = "l.a < r.b AND l.c >= r.d"
    found = tj.join(f"{place}/x.parquet", f"{place}/y*.parquet", on)
    assert Counter(zip(*(found[n].to_pylist() for n in ("lid", "rid")), strict=True)) == want
    write(place, [batch])
    job = tmp_path / "job.toml"
    job.write_text(
        'query = "SELECT x.lid, y.rid FROM x JOIN y ON x.a < y.b AND x.c >= y.d"\n'
        f'[sources.x]\ndelta = "{place}/x"\n[sources.y]\ndelta = "{place}/y"\n'
        '[sink]\npath = "out.parquet"\n'
    )
    assert run(job)[1] == 0
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert Counter((row["lid"], row["rid"]) for row in rows) == want
    assert want


@pytest.mark.parametrize(
    ("part", "wrong", "told"),
    [
        ("source", "bucket", "there is no such bucket"),
        ("source", "credentials", "there are no credentials: set AWS_ACCESS_KEY_ID"),
        ("source", "endpoint", f"no store answers at {NOWHERE}: check AWS_ENDPOINT_URL"),
        ("source", "http", "set AWS_ALLOW_HTTP=true"),
        ("late", "bucket", "there is no such bucket"),
        ("late", "endpoint", "no store answers"),
        ("file", "bucket", "there is no such file"),
    ],
)
def test_mistakes_are_one_line(
    store: str,
    tmp_path: Path,
    run: Any,
    monkeypatch: pytest.MonkeyPatch,
    part: str,
    wrong: str,
    told: str,
) -> None:
    [batch] = full_batches(63, 1)
    bad = f"s3://{'nosuch' if wrong == 'bucket' else BUCKET}/{part}"
    for name, rows, schema in (("x", batch.left, LEFT), ("y", batch.right, RIGHT)):
        (tmp_path / name).mkdir()
        pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / name / "0.parquet")
    left = pa.Table.from_pylist(batch.left, LEFT)
    deltalake.write_deltalake(f"{PLACE}/source", left, mode="append")
    source = {"source": f'delta = "{bad}"', "file": f'path = "{bad}.parquet"'}
    stream = '\nstream = true\nwatermark = "t 2 seconds"' if part == "late" else ""
    text = JOB.format(
        left=source.get(part, 'path = "x"' + stream),
        right='path = "y"' + stream,
        sink='path = "out.parquet"' if part != "late" else 'path = "out"\nformat = "parquet"',
    )
    window = 'count = 30\nslide = 4\non = ["lid", "rid"]'
    if part == "late":
        text = text.replace(window, 'time = "10 seconds"\non = "t"')
        text = f'late = "{bad}"\n{text}'
    else:
        text = text.replace('checkpoint = "checkpoint"\n', "")
    if wrong == "endpoint":
        monkeypatch.setenv("AWS_ENDPOINT_URL", NOWHERE)
    elif wrong == "http":
        monkeypatch.delenv("AWS_ALLOW_HTTP")
    elif wrong == "credentials":
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    job = tmp_path / "job.toml"
    job.write_text(text)
    began = time.monotonic()
    said, code = run(job)
    lines = [line for line in said.splitlines() if told in line]
    assert code == 1
    assert len(lines) == 1, said
    assert bad in lines[0]
    assert "hunter22" not in said
    assert "Traceback" not in said
    assert time.monotonic() - began < SOON_S


@pytest.mark.parametrize("key", ["checkpoint", "path"])
def test_places_that_must_be_local(tmp_path: Path, run: Any, key: str) -> None:
    """They were taken for a folder named 's3:' otherwise."""
    (tmp_path / "x").mkdir()
    pq.write_table(LEFT.empty_table(), tmp_path / "x" / "0.parquet")
    source = 'path = "x"\nstream = true'
    text = JOB.format(left=source, right=source, sink='path = "out"\nformat = "parquet"')
    old = {"checkpoint": 'checkpoint = "checkpoint"', "path": 'path = "out"'}[key]
    job = tmp_path / "job.toml"
    job.write_text(text.replace(old, f'{key} = "{PLACE}/x"'))
    said, code = run(job)
    assert code == 1
    assert f"{key} = 's3://lake/x' must be on a disk of this machine" in said
    assert not (tmp_path / "s3:").exists()
