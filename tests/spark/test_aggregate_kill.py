"""Streaming totals whose driver is killed again and again: each pair counts once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import naive
from naive import Push, naive_groups
from spark.harness import Streams, random_batches
from strategies import assert_same_groups

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KILLS = 4
PRED = naive.conj(("a", "<", "b"), ("c", ">=", "d"))


def started(folder: Path) -> Any:
    command = [sys.executable, str(Path(__file__).with_name("kill_script.py")), str(folder)]
    return subprocess.Popen(command, start_new_session=True, cwd=folder)


def stop(process: Any) -> None:
    """Kill the driver, its JVM and their Python workers at once."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def taken(checkpoint: Path, batches: list[Push]) -> list[Push]:
    """The micro-batches as Spark noted them.

    A driver killed after a source has noted its next file and before the query has takes one more
    file of that side with it, so the sides may be out of step.
    """
    first = (checkpoint / "sources" / "0" / "0").read_text()
    sides = (0, 1) if "/l/0000.parquet" in first else (1, 0)
    steps, done = [], [0, 0]
    for number in range(len(list((checkpoint / "offsets").glob("[0-9]*")))):
        lines = (checkpoint / "offsets" / str(number)).read_text().splitlines()[-2:]
        ends = [json.loads(lines[side])["logOffset"] + 1 for side in sides]
        parts = [batches[start:end] for start, end in zip(done, ends, strict=True)]
        left = [row for batch in parts[0] for row in batch.left]
        steps.append(Push(left, [row for batch in parts[1] for row in batch.right]))
        done = ends
    assert done == [len(batches)] * 2
    return steps


def check(folder: Path, batches: list[Push]) -> None:
    """The last totals of each group are those of the oracle."""
    files = sorted((folder / "out").iterdir())
    assert [int(file.stem) for file in files] == list(range(len(files)))
    latest: dict[Any, Any] = {}
    for file in files:
        latest |= {row["a"]: row for row in pq.read_table(file).to_pylist()}
    steps = taken(folder / "ck", batches)
    window = naive.Count(40, 5)
    pairs = naive.naive_stream(steps, PRED, window=window, order_by=("lid", "rid")).rows
    want = naive_groups(
        pairs,
        [lambda l, r: l["a"]],
        [("count", None), ("sum", lambda l, r: r["d"]), ("max", lambda l, r: r["rid"])],
    )
    schema = pq.read_schema(files[0])
    assert_same_groups(pa.Table.from_pylist(list(latest.values()), schema=schema), want, 1)


@pytest.mark.timeout(1800)
def test_a_killed_driver_loses_and_repeats_nothing(streams: Streams) -> None:
    batches = random_batches(31, batches=16, rows=30, nulls=False)
    streams.push(*batches)
    out, draw = streams.folder / "out", random.Random(1)
    out.mkdir()
    killed = 0
    for _ in range(KILLS):
        process, before = started(streams.folder), len(list(out.iterdir()))
        while process.poll() is None and len(list(out.iterdir())) < before + 2:
            time.sleep(0.02)
        time.sleep(draw.random())
        if process.poll() is None:
            stop(process)
            killed += 1
    assert killed >= 2, "the query was over before it was killed"
    # On a busy machine Spark may give up on its first worker: one more restart, then.
    assert any(started(streams.folder).wait() == 0 for _ in range(3))
    assert (streams.folder / "done").exists()
    check(streams.folder, batches)
