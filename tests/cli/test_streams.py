"""A streaming job's rows on stdout, as lines that other programs read."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pyarrow as pa
import pytest
from rich.console import Console

from thetajoin.cli.run import print_batches
from thetajoin.jobs.job_file import Job


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
    show = print_batches(Job("", {}, shown=form), Console())
    for number, values in enumerate(([1, 2], [], [3])):
        show(Batch(pa.table({"k": pa.array(values, pa.int64())})), number)
    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.spark
@pytest.mark.slow
def test_all_rows_as_json(stream_job):
    command = "import sys; from thetajoin.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", command, "run", "job.toml", "--json"],
        cwd=stream_job(),
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    pairs = sorted((row["k"], row["j"]) for row in found)
    assert pairs == [(a, b) for a in range(30) for b in range(a + 1, 30)]
    assert {row["s"] for row in found} == {f"[red]{at}[/b]" for at in range(1, 30)}
    assert "60 rows in" in done.stderr
