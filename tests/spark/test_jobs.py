"""`thetajoin run` of streaming jobs: files in, files out, and on again from the checkpoint."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import naive
from naive import Push, naive_groups
from spark.harness import NOT_STARTED, Streams, at, random_batches, seconds
from strategies import assert_same_groups
from thetajoin.cli.app import app

pytestmark = pytest.mark.spark

PRED = naive.conj(("a", "<", "b"), ("c", ">=", "d"))
JOB = """
query = "{query}"
checkpoint = "ck"
trigger = "available-now"
[sources.x]
path = "l"
stream = true
watermark = "t 1000 seconds"
[sources.y]
path = "r"
stream = true
watermark = "t 1000 seconds"
{window}
[sink]
path = "out"
"""


@pytest.fixture
def run(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a job file in the tests' own session."""
    monkeypatch.setattr("thetajoin.spark.session.local_session", lambda *_, **__: streams.spark)

    def run(path: Path) -> str:
        result = CliRunner().invoke(app, ["run", str(path)])
        if NOT_STARTED in str(result.exception):
            result = CliRunner().invoke(app, ["run", str(path)])
        assert result.exit_code == 0, f"{result.output} {result.exception}"
        return result.output

    return run


def job(streams: Streams, query: str, window: str) -> Path:
    path = streams.folder / "job.toml"
    path.write_text(JOB.format(query=query, window=window))
    return path


def taken(*batches: Push) -> Push:
    """What one run takes in: all files that are there, as one micro-batch."""
    return Push([r for b in batches for r in b.left], [r for b in batches for r in b.right])


def test_matches_go_on_after_a_restart(streams: Streams, run: Any) -> None:
    batches = random_batches(21, batches=4, nulls=False)
    query = "SELECT x.lid, y.rid FROM x JOIN y ON x.a < y.b WHERE x.c >= y.d"
    path = job(streams, query, '[window]\ncount = 20\non = ["lid", "rid"]')
    steps = []
    for part in (batches[:2], batches[2:], []):
        streams.push(*part)
        steps.append(taken(*part))
        rows = len(steps[-1].left) + len(steps[-1].right)
        assert f"{rows:,} rows in" in run(path)
    window = naive.Count(20)
    pairs = naive.naive_stream(steps, PRED, window=window, order_by=("lid", "rid")).rows
    got = streams.spark.read.parquet(str(streams.folder / "out")).collect()
    assert Counter(map(tuple, got)) == Counter((l["lid"], r["rid"]) for l, r in pairs)
    assert got


def test_totals_go_on_after_a_restart(streams: Streams, run: Any) -> None:
    """Each event time's totals come once, when both watermarks have passed it."""
    batches = random_batches(22, batches=4, nulls=False, step=30)
    far = [{"t": at(100_000), "lid": 99, "a": None, "c": None}]
    closing = Push(far, [{"t": at(100_000), "rid": 99, "b": None, "d": None}])
    query = (
        "SELECT x.t, count(*) AS n, sum(y.d) AS s FROM x, y "
        "WHERE x.a < y.b AND x.c >= y.d WITHIN 20 seconds ON t GROUP BY x.t"
    )
    path = job(streams, query, "")
    for part in (batches[:2], batches[2:], [closing]):
        streams.push(*part)
        run(path)
    left, right = taken(*batches).left, taken(*batches).right
    reach = naive.Time(seconds(20), seconds(20))
    pairs = naive.naive_join(left, right, PRED, window=reach)
    want = naive_groups(
        pairs, [lambda l, r: l["t"]], [("count", None), ("sum", lambda l, r: r["d"])]
    )
    got = streams.spark.read.parquet(str(streams.folder / "out")).toArrow()
    assert_same_groups(got, want, 1)
    assert got.num_rows


def test_a_console_sink_shows_each_micro_batch(streams: Streams, run: Any) -> None:
    batches = random_batches(23, batches=2, nulls=False)
    streams.push(*batches)
    query = "SELECT x.lid AS `[red]l.id`, y.rid FROM x JOIN y ON x.a < y.b WHERE x.c >= y.d"
    path = job(streams, query, '[window]\ncount = 200\non = ["lid", "rid"]')
    path.write_text(path.read_text().replace('path = "out"', 'format = "console"'))
    shown = run(path)
    step = [taken(*batches)]
    pairs = naive.naive_stream(step, PRED, window=naive.Count(200), order_by=("lid", "rid")).rows
    assert len(pairs) > 20
    assert f"micro-batch 0: {len(pairs):,} rows" in shown
    assert f"{len(pairs):,} rows, the first 20 shown" in shown
    assert "[red]l.id" in shown
    cells = [line.split("│")[1:3] for line in shown.splitlines() if line.startswith("│")]
    rows = [(int(left), int(right)) for left, right in cells]
    assert len(rows) == 20
    assert not Counter(rows) - Counter((l["lid"], r["rid"]) for l, r in pairs)


def test_a_console_sink_keeps_the_state_of_every_unit(streams: Streams, run: Any) -> None:
    """The rows of the first micro-batch that were not shown are found by the second."""
    batches = random_batches(24, batches=2, nulls=False)
    query = "SELECT x.lid, y.rid FROM x JOIN y ON x.a < y.b WHERE x.c >= y.d"
    path = job(streams, query, '[window]\ncount = 200\non = ["lid", "rid"]')
    path.write_text(path.read_text().replace('path = "out"', 'format = "console"'))
    shown = ""
    for batch in batches:
        streams.push(batch)
        shown = run(path)
    steps = [taken(batch) for batch in batches]
    window, order = naive.Count(200), ("lid", "rid")
    both = len(naive.naive_stream(steps, PRED, window=window, order_by=order).rows)
    first = len(naive.naive_stream(steps[:1], PRED, window=window, order_by=order).rows)
    assert re.search(rf"^micro-batch \d+: {both - first:,} rows$", shown, re.MULTILINE)


def test_a_job_goes_on_by_the_routing_that_its_checkpoint_began_with(
    streams: Streams, run: Any
) -> None:
    first, second = random_batches(5, batches=2, nulls=False)
    query = "SELECT x.lid, y.rid FROM x, y WHERE x.a <= y.b AND x.a >= y.b - 2"
    path = job(streams, query, '[window]\ntime = "100 seconds"\non = "t"')
    began = 'routing = "broadcast"\n' + path.read_text()
    path.write_text(began)
    streams.push(first)
    run(path)
    streams.push(second)
    path.write_text(began.partition("\n")[2])  # the join's own choice: cells of a band
    refused = CliRunner().invoke(app, ["run", str(path)])
    assert refused.exit_code == 1
    assert "pass routing='broadcast' to go on" in str(refused.exception)
    path.write_text(began)
    run(path)
    found = streams.spark.read.parquet(str(streams.folder / "out")).toArrow()
    got = Counter(zip(found["lid"].to_pylist(), found["rid"].to_pylist(), strict=True))
    band = naive.conj(("a", "<=", "b"))
    steps = [taken(first), taken(second)]
    want = naive.naive_stream(
        steps,
        naive.all_of(band, lambda l, r: l["a"] >= r["b"] - 2),
        window=naive.Time(seconds(100), seconds(100)),
    ).rows
    assert got == Counter((l["lid"], r["rid"]) for l, r in want)
    assert got
