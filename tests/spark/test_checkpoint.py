"""A checkpoint looked into, verified and migrated: a copy goes on exactly, the old one stays."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import naive
import thetajoin as tj
from spark.harness import (
    Streams,
    closing,
    expected,
    random_batches,
    seconds,
    with_watermarks,
)
from thetajoin.cli.app import app
from thetajoin.errors import OptionError, SnapshotError

pytest.importorskip("pyspark", reason="pyspark is not installed")

from spark.one_unit import make_spec
from thetajoin.jobs.checkpoint import (
    SavedJoin,
    UnitState,
    _check_change,
    check_goes_on,
    migrate,
    read_checkpoint,
)
from thetajoin.spark.unit_spec import Entry
from thetajoin.spark.versions import minor

ON = "l.a < r.b AND l.c >= r.d"
PRED = naive.conj(("a", "<", "b"), ("c", ">=", "d"))


@pytest.fixture
def run(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Types a command, in the tests' own session."""
    monkeypatch.setattr("thetajoin.spark.session.local_session", lambda *_, **__: streams.spark)

    def run(*words: object) -> Any:
        return CliRunner().invoke(app, [str(word) for word in words])

    return run


def digest(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(p.relative_to(folder)): hashlib.md5(p.read_bytes()).hexdigest() for p in files}


def left_join(streams: Streams, **changes: Any) -> Any:
    values: dict[str, Any] = {
        "on": ON,
        "how": "left",
        "window": tj.TimeWindow("10 seconds", time="t"),
        "units": 2,
    }
    return tj.join(*streams.both("5 seconds"), **(values | changes))


@pytest.mark.spark
def test_a_copy_in_more_partitions_goes_on_exactly(streams: Streams, run: Any) -> None:
    batches = [*random_batches(41, batches=4), closing()]
    window = naive.Time(seconds(10), seconds(10))
    steps = with_watermarks(batches, seconds(5), restart_at=2)
    want, _ = expected(steps, PRED, how="left", window=window)
    old, new = streams.folder / "old", streams.folder / "new"
    streams.push(*batches[:2])
    first = streams.resume(left_join(streams), "old")
    before = digest(old)

    told = json.loads(run("checkpoint", "inspect", old, "--json").stdout)
    [join] = told["joins"]
    assert (join["condition"], join["how"], join["number of units"]) == (ON, "left", 2)
    assert join["written by"] == {"thetajoin": tj.__version__, "spark": streams.spark.version}
    last = first.units[-1]
    assert sum(join["rows held"].values()) == sum(unit["stored_rows"] for unit in last)
    assert join["bytes"] == sum(unit["state_bytes"] for unit in last)
    assert [unit["unit"] for unit in join["units"]] == [0, 1]
    assert told["micro-batches"] == len(first.progress)
    assert "is sound" in run("checkpoint", "verify", old).stdout

    done = run("checkpoint", "migrate", old, new, "--partitions", 3)
    if minor(streams.spark.version) < (4, 2):
        assert "--partitions needs Spark 4.2 or newer" in str(done.exception)
        assert digest(old) == before
        assert not new.exists()
        return
    assert "its state is in 3 partitions" in done.stdout, done.exception
    assert digest(old) == before
    shutil.rmtree(old)  # the copy needs nothing of it
    assert (
        json.loads(run("checkpoint", "inspect", new, "--json").stdout)["joins"][0]["rows held"]
        == join["rows held"]
    )
    streams.push(*batches[2:])
    second = streams.resume(left_join(streams), "new")
    assert first.ids + second.ids == want
    assert first.ids
    assert second.ids


JOB = """
query = "SELECT x.lid, y.rid, x.a, x.c, y.b, y.d FROM x JOIN y ON {on}"
checkpoint = "{checkpoint}"
[sources.x]
path = "l"
stream = true
watermark = "t 5 seconds"
[sources.y]
path = "r"
stream = true
watermark = "t 5 seconds"
[window]
time = "{window} seconds"
on = "t"
[sink]
path = "out"
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("window", "on", "pred"),
    [
        (4, "x.a < y.b AND x.c >= y.d", PRED),
        (10, "x.c < y.b", naive.conj(("c", "<", "b"))),
        (6, "x.c <= y.d AND x.a > y.b", naive.conj(("c", "<=", "d"), ("a", ">", "b"))),
    ],
)
def test_a_changed_job_goes_on_with_a_migrated_copy(
    streams: Streams, run: Any, window: int, on: str, pred: naive.Predicate
) -> None:
    """Pairs with a later row are by the new window and condition, those before by the old."""
    one, two, three = random_batches(42, batches=3, rows=20, nulls=False)
    wide, narrow = (naive.Time(seconds(n), seconds(n)) for n in (10, window))
    job = streams.folder / "job.toml"
    old, new = streams.folder / "ck", streams.folder / "ck2"
    text = JOB.format(on="x.a < y.b AND x.c >= y.d", window=10, checkpoint="ck")
    job.write_text(text)
    streams.push(one)
    assert run("run", job).exit_code == 0
    changed = streams.folder / "changed.toml"
    changed.write_text(JOB.format(on=on, window=window, checkpoint="ck2"))
    assert run("checkpoint", "verify", old, job).exit_code == 0
    refused = run("checkpoint", "verify", old, changed)
    assert refused.exit_code == 1
    assert "the state of another join: its" in refused.output
    done = run("checkpoint", "migrate", old, new, changed)
    assert "the past is not joined again" in done.stdout, done.exception
    assert run("checkpoint", "verify", new, changed).exit_code == 0
    for more in (two, three):
        streams.push(more)
        ended = run("run", changed)
        assert ended.exit_code == 0, ended.exception
    steps = _by_runs([one, two, three])
    before = naive.naive_stream(steps, PRED, window=wide)
    after = naive.naive_stream(steps, pred, window=narrow)
    pairs = [*before.steps[0], *(pair for step in after.steps[1:] for pair in step)]
    want = Counter((l["lid"], r["rid"]) for l, r in pairs)
    got = streams.spark.read.parquet(str(streams.folder / "out")).collect()
    assert Counter((row["lid"], row["rid"]) for row in got) == want
    assert before.steps[0]
    assert any(after.steps[1:])


def _by_runs(batches: list[naive.Push]) -> list[naive.Push | naive.Advance]:
    """Runs of one micro-batch each: the watermark of a run is that of all rows before it."""
    steps: list[naive.Push | naive.Advance] = []
    mark = None
    for batch in batches:
        if mark is not None:
            steps.append(naive.Advance(mark))
        steps.append(batch)
        newest = [max(r["t"] for r in rows) for rows in (batch.left, batch.right) if rows]
        if len(newest) == 2:
            reached = min(newest) - seconds(5)
            mark = reached if mark is None else max(mark, reached)
    return steps


@pytest.mark.spark
@pytest.mark.slow
def test_damage_and_other_folders_are_told_in_a_line(streams: Streams, run: Any) -> None:
    streams.push(*random_batches(43, batches=2))
    streams.resume(left_join(streams), "cp")
    checkpoint, new = streams.folder / "cp", streams.folder / "new"
    spark = streams.spark
    for path, said in (
        (streams.folder / "nowhere", "it is not a folder"),
        (streams.folder / "l", "is not a checkpoint"),
    ):
        with pytest.raises(SnapshotError, match=said):
            read_checkpoint(spark, str(path))
    with pytest.raises(OptionError, match="in 2 partitions already"):
        migrate(spark, str(checkpoint), str(new), partitions=2)
    with pytest.raises(OptionError, match="is inside the other"):
        migrate(spark, str(checkpoint), str(checkpoint / "new"))
    with pytest.raises(OptionError, match="exists"):
        migrate(spark, str(checkpoint), str(streams.folder / "l"))
    moved = streams.folder / "moved"
    checkpoint.rename(moved)
    with pytest.raises(SnapshotError, match="was copied or moved here, and Spark looks"):
        read_checkpoint(spark, str(moved))
    migrate(spark, str(moved), str(checkpoint))
    assert read_checkpoint(spark, str(checkpoint)).joins
    for file in sorted(checkpoint.glob("state/0/*/*.changelog"))[-1:]:
        file.write_bytes(b"\0" * file.stat().st_size)
    ended = run("checkpoint", "verify", checkpoint)
    assert ended.exit_code == 1
    assert "cannot be read" in str(ended.exception) + ended.output
    with pytest.raises(SnapshotError, match="cannot be read"):
        migrate(spark, str(checkpoint), str(new))
    assert not new.exists()


def held(spec: Any, *, counts: tuple[int, int], rows: tuple[int, int], unmatched: int = 0) -> Any:
    """A join's state as it is read: one unit that has had so many rows and holds some."""
    entries = [Entry(s, 0, n, None, 1) for s, n in zip("lr", rows, strict=True) if n]
    description = {
        "identity": spec.identity,
        "counts": dict(zip("lr", counts, strict=True)),
        "counters": {"unmatched": unmatched},
        "watermark": None,
    }
    return SavedJoin(0, 2, [UnitState(0, 0, entries, description)])


LONG, SHORT = (tj.TimeWindow(f"{n} seconds", time="t") for n in (10, 5))


@pytest.mark.parametrize(
    ("before", "after", "counts", "rows", "said"),
    [
        ({"window": LONG}, {"window": SHORT}, (9, 9), (1, 1), ""),
        ({"window": SHORT}, {"window": LONG}, (9, 9), (9, 9), ""),
        ({"window": SHORT}, {"window": LONG}, (9, 9), (9, 8), "cannot become longer"),
        ({"window": tj.CountWindow(9)}, {"window": tj.CountWindow(5)}, (20, 9), (9, 9), ""),
        ({"window": tj.CountWindow(9)}, {"window": tj.CountWindow(99)}, (9, 9), (9, 9), ""),
        (
            {"window": tj.CountWindow(9)},
            {"window": tj.CountWindow(10)},
            (20, 9),
            (9, 9),
            "cannot become longer",
        ),
        ({"window": LONG}, {"window": tj.CountWindow(9)}, (9, 9), (9, 9), "order_by"),
        ({"window": LONG}, {"window": LONG, "how": "left"}, (9, 9), (9, 9), "join's how"),
        ({"window": LONG}, {"window": LONG, "units": 2}, (9, 9), (9, 9), "number of units"),
        ({"window": LONG}, {"window": LONG, "on": "l.c < r.b"}, (9, 9), (1, 1), ""),
        (
            {"window": LONG, "how": "semi"},
            {"window": LONG, "how": "semi", "on": "l.c < r.rid"},
            (9, 9),
            (1, 1),
            "needs rid of the right rows",
        ),
    ],
)
def test_what_may_change(
    before: dict[str, Any],
    after: dict[str, Any],
    counts: tuple[int, int],
    rows: tuple[int, int],
    said: str,
) -> None:
    was, now = make_spec(**before), make_spec(**after)
    state = held(was, counts=counts, rows=rows)
    different = now.differences(was.identity)
    assert different
    if not said:
        _check_change(state, was.identity, now, different)
        return
    with pytest.raises(SnapshotError, match=said):
        _check_change(state, was.identity, now, different)


def test_an_unmatched_row_that_came_out_forbids_a_longer_window() -> None:
    was, now = make_spec(SHORT, "left"), make_spec(LONG, "left")
    for unmatched, refused in ((0, False), (1, True)):
        state = held(was, counts=(4, 4), rows=(4, 4), unmatched=unmatched)
        if not refused:
            _check_change(state, was.identity, now, ["window"])
            continue
        with pytest.raises(SnapshotError, match="cannot become longer"):
            _check_change(state, was.identity, now, ["window"])


@pytest.mark.parametrize(
    ("on", "goes"),
    [
        ("l.a = r.b AND l.c > r.d", True),
        ("l.a = r.b", False),
        ("l.c = r.d AND l.a >= r.b", False),
        ("l.a = r.b AND l.c >= r.d AND l.lid > 3", False),
    ],
)
def test_a_condition_that_would_send_rows_elsewhere_is_refused(on: str, goes: bool) -> None:
    """A row that could not match was sent to any unit, and might be missed now."""
    from thetajoin.planner.routing import Routing

    was, now = (
        make_spec(LONG, on=text, routing=Routing("hash"), units=4)
        for text in ("l.a = r.b AND l.c >= r.d", on)
    )
    state = held(was, counts=(4, 4), rows=(4, 4))
    if goes:
        _check_change(state, was.identity, now, ["condition"])
        return
    with pytest.raises(SnapshotError, match="would lie elsewhere"):
        _check_change(state, was.identity, now, ["condition"])


def test_a_checkpoint_of_another_number_of_joins_is_refused() -> None:
    found: Any = type("Found", (), {"joins": [held(make_spec(LONG), counts=(0, 0), rows=(0, 0))]})
    check_goes_on(found, [make_spec(LONG)])
    with pytest.raises(SnapshotError, match="another job's"):
        check_goes_on(found, [])
    with pytest.raises(SnapshotError, match="its window was"):
        check_goes_on(found, [make_spec(SHORT)])
