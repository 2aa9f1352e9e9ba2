"""Tables, late rows and files at s3://: the oracle's pairs; and mistakes, one line each."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import naive
import thetajoin as tj
from spark.harness import LEFT, RIGHT, Streams, expected, random_batches, seconds, with_watermarks
from spark.iceberg_tables import catalog_options
from spark.object_store import BUCKET, NOWHERE, PYTHON, environment, moto_python, running

pytest.importorskip("pyspark", reason="pyspark is not installed")
deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")

from spark import test_late  # noqa: E402
from spark.test_table_stream_jobs import (  # noqa: E402
    DELTA,
    JOB,
    PRED,
    full_batches,
    pairs,
    run,
    write,
    written,
)

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


def test_a_delta_and_an_iceberg_stream_into_a_delta_table(store: str, tmp_path: Path) -> None:
    """With a restart in between, after which the job goes on with what was added."""
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed")
    pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed")
    from pyiceberg.catalog import load_catalog

    place = f"{PLACE}/streams"
    catalog = {
        **catalog_options(tmp_path),
        "warehouse": f"{place}/iceberg",
        "s3.endpoint": store,
        "s3.region": "us-east-1",
    }
    here = load_catalog("here", **catalog)
    here.create_namespace("db")
    lake = here.create_table("db.y", schema=RIGHT)
    options = "".join(f'"{key}" = "{value}"\n' for key, value in catalog.items())
    right = DELTA.replace('delta = "y"', 'iceberg = "here.db.y"')
    right = f"{right}\n[sources.y.options]\n{options}"
    text = JOB.format(right=right, sink=f'delta = "{place}/out"')
    job = tmp_path / "job.toml"
    job.write_text(text.replace('delta = "x"', f'delta = "{place}/x"'))
    batches = full_batches(61, 3)
    for first, last in ((0, 2), (2, 3)):
        write(place, batches[first:last], sides="x")
        for batch in batches[first:last]:
            lake.append(pa.Table.from_pylist(batch.right, RIGHT))
        command(job)
        assert written(place) == pairs(batches[:last])
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


def test_two_writers_lose_no_commit(store: str) -> None:
    """With the package's defaults a commit is put only where there is none of its number yet."""
    from thetajoin.spark.connectors.specs import TableSink
    from thetajoin.spark.connectors.tables import append_batch

    sink = TableSink("delta", f"{PLACE}/writers")
    append_batch(sink, pa.table({"who": ["first"], "n": [0]}), "first", 0)

    def append(who: str) -> None:
        for n in range(15):
            for _ in range(2):  # the second finds the first
                append_batch(sink, pa.table({"who": [who], "n": [n]}), who, n)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(append, "abc"))
    table = deltalake.DeltaTable(sink.place)
    found = Counter((row["who"], row["n"]) for row in table.to_pyarrow_table().to_pylist())
    assert found == Counter([("first", 0), *((who, n) for who in "abc" for n in range(15))])
    assert table.version() == 45


@pytest.mark.parametrize(
    ("part", "wrong", "told"),
    [
        ("source", "bucket", "there is no such bucket"),
        ("source", "credentials", "there are no credentials: set AWS_ACCESS_KEY_ID"),
        ("source", "endpoint", f"no store answers at {NOWHERE}: check AWS_ENDPOINT_URL"),
        ("source", "http", "set AWS_ALLOW_HTTP=true"),
        ("sink", "bucket", "there is no such bucket"),
        ("late", "bucket", "there is no such bucket"),
        ("late", "endpoint", "no store answers"),
        ("file", "bucket", "there is no such file"),
        ("file", "spark", "Spark cannot read files at s3://"),
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
    good = tmp_path if part in ("sink", "late") else f"{PLACE}/mistakes{wrong}"
    write(good, [batch])
    bad = f"s3://{'nosuch' if wrong == 'bucket' else BUCKET}/{part}"
    text = JOB.format(right=DELTA, sink=f'delta = "{bad if part == "sink" else tmp_path / "out"}"')
    for name in "xy":
        text = text.replace(f'delta = "{name}"', f'delta = "{good}/{name}"')
    if part == "source":
        bad = "s3://nosuch/x" if wrong == "bucket" else f"{good}/x"
        text = text.replace(f"{good}/x", bad)
    elif part == "late":
        window = 'count = 30\nslide = 4\non = ["lid", "rid"]'
        text = text.replace(window, 'time = "10 seconds"\non = "t"')
        text = text.replace("stream = true", 'stream = true\nwatermark = "t 2 seconds"')
        text = f'late = "{bad}"\n{text}'
    elif part == "file":
        bad = f"{bad}.parquet"
        if wrong == "spark":
            files, path = fs.FileSystem.from_uri(bad)
            rows = pa.Table.from_pylist(batch.left, LEFT)
            pq.write_table(rows, path, filesystem=files)
        text = text.replace(f'delta = "{good}/x"', f'path = "{bad}"', 1)
        text = text.replace("max_files_per_trigger = 1\n[sources.y]", "[sources.y]")
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
    assert told == "Spark cannot read files at s3://" or bad in lines[0]
    assert "hunter22" not in said
    assert "Traceback" not in said
    assert time.monotonic() - began < SOON_S


@pytest.mark.parametrize("key", ["checkpoint", "path"])
def test_places_that_must_be_local(tmp_path: Path, run: Any, key: str) -> None:
    """They were taken for a folder named 's3:' otherwise."""
    text = JOB.format(right=DELTA, sink='path = "out"\nformat = "parquet"')
    old = {"checkpoint": 'checkpoint = "checkpoint"', "path": 'path = "out"'}[key]
    job = tmp_path / "job.toml"
    job.write_text(text.replace(old, f'{key} = "{PLACE}/x"'))
    said, code = run(job)
    assert code == 1
    assert f"{key} = 's3://lake/x' must be on a disk of this machine" in said
    assert not (tmp_path / "s3:").exists()
