"""A real job with its page, metrics and log: the numbers are those of its rows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

pytest.importorskip("uvicorn", reason="the extra 'page' is not installed")
pytest.importorskip("prometheus_client", reason="the extra 'metrics' is not installed")

import naive
from spark.harness import Streams, random_batches
from spark.test_jobs import PRED, job, taken
from thetajoin.cli.app import app
from thetajoin.jobs.history import history_file, load

pytestmark = pytest.mark.spark
WORDS = ("--page", "--port", "0", "--metrics", "0", "--log", "json")


def test_a_job_tells_all_of_its_micro_batches(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thetajoin.spark.session.local_session", lambda *_, **__: streams.spark)
    asked: list[tuple[dict[str, Any], str]] = []
    _ask_before_the_end(monkeypatch, asked)
    query = "SELECT x.lid, y.rid FROM x JOIN y ON x.a < y.b WHERE x.c >= y.d"
    path = job(streams, query, '[window]\ncount = 20\non = ["lid", "rid"]')
    batches = random_batches(31, batches=4, nulls=False)
    steps, lines = [], []
    for part in (batches[:2], batches[2:]):
        streams.push(*part)
        steps.append(taken(*part))
        result = CliRunner().invoke(app, ["run", str(path), *WORDS])
        assert result.exit_code == 0, f"{result.output} {result.exception}"
        told = [line for line in result.stderr.splitlines() if line.startswith("{")]
        lines.append([json.loads(line) for line in told])
    pairs = [
        len(
            naive.naive_stream(
                steps[:n], PRED, window=naive.Count(20), order_by=("lid", "rid")
            ).rows
        )
        for n in (1, 2)
    ]
    rows = sum(len(step.left) + len(step.right) for step in steps)
    logged = [line for run in lines for line in run if line["event"] == "batch"]
    assert sum(line["matches"] for line in logged) == pairs[1] > pairs[0] > 0
    assert sum(line["input_rows"] for line in logged) == rows
    assert [run[-1]["event"] for run in lines] == ["end", "end"]
    _check_asked(asked, pairs, rows)
    kept = load(history_file(path.parent / "ck"))
    assert (kept.totals.runs, kept.totals.matches, kept.totals.rows) == (2, pairs[1], rows)


def _ask_before_the_end(monkeypatch: pytest.MonkeyPatch, asked: list[Any]) -> None:
    """Ask the page and the endpoint for their numbers when the query has ended, over HTTP."""
    from thetajoin.jobs.stream import RunningJob

    usual = RunningJob.follow

    def follow(job: RunningJob, view: Any, told: Any) -> Any:
        follower = usual(job, view, told)
        with urlopen(f"{told.page.address}state", timeout=10) as answer:
            state = json.loads(answer.read())
        with urlopen(told.metrics_address, timeout=10) as answer:
            asked.append((state, answer.read().decode()))
        return follower

    monkeypatch.setattr(RunningJob, "follow", follow)


def _check_asked(asked: list[tuple[dict[str, Any], str]], pairs: list[int], rows: int) -> None:
    (first, one), (second, two) = asked
    assert (first["totals"]["matches"], second["totals"]["matches"]) == tuple(pairs)
    assert second["totals"]["rows"] == rows
    assert (second["status"], second["totals"]["runs"]) == ("ended", 2)
    assert "broadcast" in second["picture"]["routing"]
    assert [source["name"] for source in second["picture"]["sources"]] == ["x", "y"]
    assert Path(second["picture"]["sink"].split()[1]).name == "out"
    assert second["batch"]["units"]
    # Counters begin anew with a process.
    found = [
        re.search(r'^thetajoin_matches_total\{query="job"\} (\S+)$', t, re.M) for t in (one, two)
    ]
    assert [float(f[1]) for f in found if f] == [pairs[0], pairs[1] - pairs[0]]
