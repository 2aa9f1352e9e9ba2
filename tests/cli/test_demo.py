"""The demo's own check against two plain loops, its folder, and the whole of it on Spark."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from thetajoin.cli.demo import DemoConfig, brute_force, is_exact, results_folder, write_summary
from thetajoin.errors import OptionError, ThetaJoinError


def stream(rows, seed):
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "id": np.arange(rows),
            "ts": np.sort(random.integers(0, rows, rows)),  # ties within and across sides
            "rp": random.integers(0, 6, rows).astype(float),
            "cp": random.integers(0, 6, rows).astype(float),
        }
    )


def naive(left, right, size):
    """DESIGN 1.2 word for word: rows arrive one by one, and see the last `size` of the others."""
    arrivals = [(ts, 0, at) for at, ts in enumerate(left.column("ts").to_pylist())]
    arrivals += [(ts, 1, at) for at, ts in enumerate(right.column("ts").to_pylist())]
    rows = left.to_pylist(), right.to_pylist()
    had = [0, 0]
    pairs = []
    for _, side, at in sorted(arrivals):
        other = had[1 - side]
        for seen in range(max(0, other - size), other):
            i, j = (at, seen) if side == 0 else (seen, at)
            if rows[0][i]["rp"] < rows[1][j]["rp"] and rows[0][i]["cp"] > rows[1][j]["cp"]:
                pairs.append((i, j))
        had[side] += 1
    return pairs


@pytest.mark.parametrize("size", [1, 7, 500])
def test_brute_force_is_the_contract(size):
    left, right = stream(60, 1), stream(80, 2)
    pairs = naive(left, right, size)
    counts = brute_force(left, right, size, lambda _: None)
    assert counts.tolist() == np.bincount([i for i, _ in pairs], minlength=60).tolist()


@pytest.mark.parametrize("change", ["none", "lost", "twice", "another"])
def test_is_exact_sees_every_kind_of_mistake(change):
    left, right = stream(60, 1), stream(80, 2)
    pairs = naive(left, right, 7)
    counts = brute_force(left, right, 7, lambda _: None)
    if change == "lost":
        del pairs[3]
    elif change == "twice":
        pairs[3] = pairs[[i for i, _ in pairs].index(pairs[3][0])]
        pairs.append(pairs[3])
    elif change == "another":
        i = pairs[3][0]
        pairs[3] = i, next(j for j in range(80) if (i, j) not in pairs)
    found = pa.table({"id": [i for i, _ in pairs], "id_right": [j for _, j in pairs]})
    assert is_exact(left, right, 7, found, counts) == (change == "none")


def made(out, text):
    with results_folder(out):
        (out / "matches").write_text(text)
        write_summary(out, {"finished": True})


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


def test_only_a_demos_folder_is_replaced(tmp_path):
    out = tmp_path / "out"
    made(out, "first")
    made(out, "second")
    assert (out / "matches").read_text() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    (out / "summary.json").write_text('{"mine": 1}')
    with pytest.raises(OptionError, match="not a demo's results"):
        made(out, "third")
    assert (out / "summary.json").read_text() == '{"mine": 1}'


def broken(out, error):
    with results_folder(out):
        (out / "matches").write_text("half")
        raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError("full"), SystemExit(1)])
def test_a_demo_that_is_stopped_leaves_the_earlier_one(tmp_path, error):
    out = tmp_path / "out"
    with pytest.raises(type(error)):
        broken(out, error)
    assert list(tmp_path.iterdir()) == []
    made(out, "first")
    before = contents(out)
    with pytest.raises(type(error)):
        broken(out, error)
    assert contents(out) == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_a_failed_demo_has_left_is_kept_beside_it(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(ThetaJoinError, match=r"^wrong$"):
        broken(out, ThetaJoinError("wrong"))
    assert (out / "matches").read_text() == "half"
    made(out, "first")
    for _ in range(2):
        with pytest.raises(ThetaJoinError, match=r"wrong; what it has left is in .*out-failed"):
            broken(out, ThetaJoinError("wrong"))
    assert (out / "matches").read_text() == "first"
    assert (tmp_path / "out-failed" / "matches").read_text() == "half"


def test_a_demo_that_was_killed_has_not_lost_the_earlier_one(tmp_path):
    out = tmp_path / "out"
    made(out, "first")
    folder = results_folder(out)
    folder.__enter__()
    del folder.gen  # nothing is put away, as if the process had gone
    with pytest.raises(KeyboardInterrupt):
        broken(out, KeyboardInterrupt())
    assert (out / "matches").read_text() == "first"


def test_a_file_in_the_way_is_an_error(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(OptionError, match="is a file"):
        made(tmp_path / "out", "first")


def test_defaults_fill_the_window():
    config = DemoConfig(out=None)
    config.check()
    assert config.window < config.rows // 2


@pytest.mark.spark
@pytest.mark.slow
def test_the_whole_demo(tmp_path, java):
    command = "import sys; from thetajoin.cli import main; sys.argv[0] = 'thetajoin'; main()"
    options = ["--rows", "3000", "--window", "500", "--batches", "3", "--out", "results"]
    done = subprocess.run(
        [sys.executable, "-c", command, "demo", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=None,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "exact" in done.stdout
    assert len(done.stdout.splitlines()) < 10
    summary = json.loads((tmp_path / "results" / "summary.json").read_text())
    assert summary["exact"]
    assert summary["matches"] == summary["matches_by_brute_force"] > 0
    assert [batch["input_rows"] for batch in summary["batches"]] == [2000] * 3
    assert sum(batch["matches"] for batch in summary["batches"]) == summary["matches"]
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_without_pyspark_nothing_is_written(tmp_path, monkeypatch, refused):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "pyspark" else found(n))
    told = refused("demo", "--out", tmp_path / "demo")
    assert "PySpark is not installed: run `" in told
    assert not list(tmp_path.iterdir())
