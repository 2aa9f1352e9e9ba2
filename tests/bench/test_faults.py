"""The fault benchmark: its oracle against the plain one, its reading of logs, a short run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naive import Advance, Count, Push, Time, conj, naive_stream
from thetajoin.bench import fault_oracle, faults

PREDICATE = conj(("a", "<=", "a"), ("b", ">=", "b"))


def batches(kind: str, side: str) -> list[Any]:
    """Micro-batches small enough for nested loops, the fifth of a side empty."""
    made = [faults.make_rows(kind, side, number).slice(0, 90) for number in range(7)]
    if kind == "time":
        made = [t.set_column(3, "at", t["at"].cast("int64")) for t in made]
    return made


def columns(tables: list[Any]) -> list[Any]:
    return [tuple(table[name].to_numpy() for name in ("id", "a", "b", "at")) for table in tables]


def as_numbers(pairs: list[Any]) -> list[int]:
    return sorted((left["id"] << 32) + right["id"] for left, right in pairs)


def test_count_window_as_the_plain_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_oracle, "SIZE", 120)
    monkeypatch.setattr(fault_oracle, "SLIDE", 8)
    left, right = batches("count", "l"), batches("count", "r")
    steps = [Push(l.to_pylist(), r.to_pylist()) for l, r in zip(left, right, strict=True)]
    wanted = naive_stream(steps, PREDICATE, window=Count(120, 8), order_by="at")
    late, found = fault_oracle.count_pairs(columns(left), columns(right), [0] * 7)
    assert late == 0
    assert found.tolist() == as_numbers(wanted.rows)
    assert len(found) > 100


def test_time_window_as_the_plain_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = batches("time", "l"), batches("time", "r")
    monkeypatch.setattr(fault_oracle, "BEFORE", 9_000_000)
    monkeypatch.setattr(fault_oracle, "AFTER", 4_000_000)
    marks = [0, 0, *(1000 * (faults.EPOCH + 10_000 * n - 30_000) for n in range(2, 7))]
    steps: list[Any] = []
    for mark, l, r in zip(marks, left, right, strict=True):
        steps += [Advance(mark), Push(l.to_pylist(), r.to_pylist())]
    window = Time(before=9_000_000, after=4_000_000, left="at", right="at")
    wanted = naive_stream(steps, PREDICATE, window=window)
    late, found = fault_oracle.time_pairs(columns(left), columns(right), marks)
    assert late == wanted.late_rows > 0
    assert found.tolist() == as_numbers(wanted.rows)
    assert len(found) > 100


def test_micro_batches_from_the_logs(tmp_path: Path) -> None:
    for source, side in (("0", "l"), ("1", "r")):
        log = tmp_path / "sources" / source
        log.mkdir(parents=True)
        entries = [{"path": f"file:///x/{side}/{n}", "batchId": n} for n in range(3)]
        (log / "1.compact").write_text("\n".join(["v1", *map(json.dumps, entries[:2])]))
        (log / "1").write_text("\n".join(["v1", json.dumps(entries[1])]))
        (log / "2").write_text("\n".join(["v1", json.dumps(entries[2])]))
        (log / ".2.crc").write_text("no log")
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    for number, (left, right) in enumerate([(0, None), (1, 0), (1, 0), (2, 2)]):
        ends = ["-" if end is None else json.dumps({"logOffset": end}) for end in (left, right)]
        about = json.dumps({"batchWatermarkMs": 10 * number})
        (offsets / str(number)).write_text("\n".join(["v1", about, *ends]))
    (offsets / ".10.tmp").write_text("unfinished")
    found = list(fault_oracle.read_batches(tmp_path))
    names = [[[path.name for path in batch.files[side]] for side in "lr"] for batch in found]
    assert names == [[["0"], []], [["1"], ["0"]], [[], []], [["2"], ["1", "2"]]]
    assert [batch.watermark for batch in found] == [0, 10, 20, 30]


def test_newest_of_a_log(tmp_path: Path) -> None:
    for name in ("7", "9.compact", "12_3f.changelog", "13abc", ".14.crc", "_x"):
        (tmp_path / name).touch()
    assert faults.newest(tmp_path) == 12
    assert faults.newest(tmp_path / "none") == -1


def test_files_have_ties_and_late_rows() -> None:
    left, right = (faults.make_rows("count", side, 1) for side in "lr")
    both = np.concatenate([left["at"], faults.make_rows("count", "l", 2)["at"]])
    assert len(np.unique(both)) == len(both)
    assert np.intersect1d(left["at"], right["at"]).size
    assert faults.make_rows("time", "r", 5).num_rows == 0


def test_a_difference_keeps_its_evidence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    monkeypatch.setattr(faults.tempfile, "tempdir", str(tmp_path))

    def history(folder: Path, kind: str, plan: faults.Kills, progress: Any) -> dict[str, Any]:
        wrong = int(kind == "time")
        pairs = {"lost_pairs": 0, "duplicate_pairs": 0, "wrong_pairs": wrong}
        return faults.asdict(plan) | pairs

    monkeypatch.setattr(faults, "history", history)
    report = faults.run(lambda _: None, 1.0)
    assert report.figures == {
        "lost_pairs": 0,
        "duplicate_pairs": 0,
        "wrong_pairs": 1,
        "driver_kills": 20,
        "worker_kills": 5,
        "executor_kills": 2,
    }
    assert [str(path) for path in tmp_path.iterdir()] == [report.details["time"]["evidence"]]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1500)
def test_a_short_history_is_exact() -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    if shutil.which("java") is None or not Path("/proc").exists():
        pytest.skip("needs Java and Linux's /proc")
    report = faults.run(lambda _: None, 0.1)
    assert report.figures["driver_kills"] == 2
    assert report.figures["worker_kills"] == 1
    for key in ("lost_pairs", "duplicate_pairs", "wrong_pairs"):
        assert report.figures[key] == 0, report.details
