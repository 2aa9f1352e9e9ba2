"""The campaign of faults: its oracle against the plain one, its reading of logs, a short run."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from campaigns import fault_logs, fault_oracle, fault_query, faults
from campaigns.fault_query import CASES, FILES, Case
from naive import Advance, Count, Full, Push, Time, conj, naive_stream

PREDICATE = conj(("a", "<=", "a"), ("b", ">=", "b"))
BATCHES = 7


def case(window: str, how: str = "inner") -> Case:
    return Case(window, how, 1, "local[1]", 0, 0)


def batches(window: str, side: str) -> list[pa.Table]:
    """Micro-batches small enough for nested loops, one of each side empty."""
    made = []
    for batch in range(BATCHES):
        files = [fault_query.make_rows(window, side, batch * FILES + n) for n in range(FILES)]
        made.append(pa.concat_tables([file.slice(0, 25) for file in files]))
    return made


def sides(window: str, marks: list[int], tables: dict[str, list[pa.Table]]) -> Any:
    left, right = (fault_oracle.take_in(tables[s], marks, case(window)) for s in "lr")
    if window == "count":
        fault_oracle.number_rows(left, right, [tables["l"], tables["r"]])
    return left, right


def plain(tables: list[pa.Table]) -> list[list[dict[str, Any]]]:
    """Rows as the plain oracle takes them: times as whole milliseconds."""
    made = []
    for table in tables:
        if pa.types.is_timestamp(table["at"].type):
            at = table["at"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
            table = table.set_column(4, "at", at)
        made.append(table.to_pylist())
    return made


def identity(row: dict[str, Any] | None) -> Any:
    """A row by its content, the sign of a zero included."""
    if row is None:
        return None
    values = list(row.values())
    return tuple((v, isinstance(v, float) and math.copysign(1, v) < 0) for v in values)


def rows_of(table: pa.Table) -> list[Any]:
    return [identity(row) for row in plain([table])[0]]


def as_counter(left: Any, right: Any, wanted: tuple[Any, Any]) -> Counter[Any]:
    mine, theirs = [*rows_of(left.table), None], [*rows_of(right.table), None]
    pairs = zip(*(rows.tolist() for rows in wanted), strict=True)
    return Counter((mine[i], theirs[j]) for i, j in pairs)


def plain_counter(rows: list[Any]) -> Counter[Any]:
    return Counter((identity(left), identity(right)) for left, right in rows)


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_count_window_as_the_plain_oracle(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(fault_query, "SIZE", 70)
    monkeypatch.setattr(fault_query, "SLIDE", 8)
    tables = {side: batches("count", side) for side in "lr"}
    left, right = sides("count", [0] * BATCHES, tables)
    steps = [Push(l, r) for l, r in zip(plain(tables["l"]), plain(tables["r"]), strict=True)]
    plainly = naive_stream(steps, PREDICATE, how=how, window=Count(70, 8), order_by="at")
    i, j = fault_oracle.pairs_of(left, right, case("count"))
    wanted = fault_oracle.with_unmatched(left, right, i, j, case("count", how))
    found = as_counter(left, right, wanted)
    # The plain oracle goes on to the end of the streams, where the last rows are owed too.
    rest = plain_counter(plainly.rows)
    assert not found - rest
    rest -= found
    newest = {
        identity: row
        for side in (left, right)
        for row, identity in enumerate(rows_of(side.table))
        if row >= fault_oracle.first_visible(len(side)) and side.matchable[row]
    }
    for halves in rest:
        (alone,) = (half for half in halves if half is not None)
        assert alone in newest
    assert bool(rest) == (how != "inner")
    assert max(found.values()) > 1
    assert len(found) > 100


@pytest.mark.parametrize("how", ["inner", "semi", "full"])
def test_time_window_as_the_plain_oracle(how: str) -> None:
    tables = {side: batches("time", side) for side in "lr"}
    marks = [0, 0, *(fault_query.EPOCH + 10_000 * n - 30_000 for n in range(2, BATCHES))]
    left, right = sides("time", marks, tables)
    steps: list[Any] = []
    for mark, l, r in zip(marks, plain(tables["l"]), plain(tables["r"]), strict=True):
        steps += [Advance(mark), Push(l, r)]
    steps.append(Advance(fault_query.END))
    window = Time(before=fault_query.BEFORE, after=fault_query.AFTER, left="at", right="at")
    plainly = naive_stream(steps, PREDICATE, how=how, window=window)
    i, j = fault_oracle.pairs_of(left, right, case("time"))
    wanted = fault_oracle.with_unmatched(left, right, i, j, case("time", how))
    found = as_counter(left, right, wanted)
    assert left.late + right.late == plainly.late_rows > 0
    assert found == plain_counter(plainly.rows)
    assert len(found) > 100


def test_full_history_and_totals_as_the_plain_oracle() -> None:
    tables = {side: batches("history", side)[:3] for side in "lr"}
    left, right = sides("history", [0] * 3, tables)
    steps = [Push(l, r) for l, r in zip(plain(tables["l"]), plain(tables["r"]), strict=True)]
    rows = naive_stream(steps, PREDICATE, window=Full()).rows
    i, j = fault_oracle.pairs_of(left, right, case("history"))
    assert as_counter(left, right, (i, j)) == plain_counter(rows)
    totals: dict[Any, list[Any]] = {}
    for l, r in rows:
        totals.setdefault(l["p"], []).append(r)
    wanted = {
        group: (
            len(all_),
            sum(r["b"] for r in all_),
            max(r["a"] for r in all_),
            min((r["q"] for r in all_ if r["q"] is not None), default=None),
        )
        for group, all_ in totals.items()
    }
    assert fault_oracle.totals_of(left, right, i, j) == wanted


def test_differences_are_of_multisets_of_whole_rows() -> None:
    """Totals hide what is lost here and twice there; so do hashes that skip NULLs and signs."""
    schema = fault_query.make_rows("count", "l", 0).schema

    def table(*rows: tuple[Any, ...]) -> pa.Table:
        return pa.Table.from_pylist(
            [dict(zip(schema.names, row, strict=True)) for row in rows], schema
        )

    one, other = (1.0, 1, 2.0, None, 0), (1.0, 1, None, 2.0, 0)
    zero, minus = (0.0, 1, 1.0, None, 1), (-0.0, 1, 1.0, None, 1)
    left = fault_oracle.Side(table(one, other, zero, zero), *[np.zeros(4)] * 3)
    right = fault_oracle.Side(table(minus), *[np.zeros(1)] * 3)

    def compared(*pairs: tuple[Any, Any]) -> tuple[int, ...]:
        halves = [table(*(l for l, _ in pairs)), table(*(r for _, r in pairs))]
        names = [f"{name}{side}" for side in ("", "_right") for name in schema.names]
        given = pa.table([c for half in halves for c in half.columns], names)
        wanted = np.array([0, 1, 2, 3]), np.array([0, 0, 0, -1])
        return tuple(fault_oracle.compare_rows(left, right, wanted, given).values())

    none = (None,) * 5
    right_ones = [(one, minus), (other, minus), (zero, minus), (zero, none)]
    assert compared(*right_ones) == (0, 0, 0)
    assert compared(*right_ones[::-1]) == (0, 0, 0)
    assert compared((one, minus), *right_ones[1:], right_ones[1]) == (0, 1, 0)
    assert compared(right_ones[0], right_ones[0], *right_ones[2:]) == (1, 1, 0)
    assert compared(*right_ones[:3], (minus, none)) == (1, 0, 1)
    assert compared(*right_ones[:2], (zero, zero), right_ones[3]) == (1, 0, 1)


def test_differences_of_totals() -> None:
    wanted = {1.0: (5, 2, 3.0, None), None: (2, 1, 1.0, 1.0)}
    assert fault_oracle.compare_totals(wanted, wanted) == dict.fromkeys(faults.DIFFERENCES, 0)
    given = {1.0: (4, 2, 3.0, None), None: (3, 1, 2.0, 1.0), 7.0: (1, None, None, None)}
    found = fault_oracle.compare_totals(given, wanted)
    assert found == {"lost": 1, "duplicate": 2, "wrong": 1}


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
    found = list(fault_logs.read_batches(tmp_path))
    names = [[[path.name for path in batch.files[side]] for side in "lr"] for batch in found]
    assert names == [[["0"], []], [["1"], ["0"]], [[], []], [["2"], ["1", "2"]]]
    assert [batch.watermark for batch in found] == [0, 10, 20, 30]


def test_newest_of_a_log(tmp_path: Path) -> None:
    for name in ("7", "9.compact", "12_3f.changelog", "13abc", ".14.crc", "_x"):
        (tmp_path / name).touch()
    assert fault_logs.newest(tmp_path) == 12
    assert fault_logs.newest(tmp_path / "none") == -1


def test_rows_are_late_by_the_watermark_of_the_batch_before(tmp_path: Path) -> None:
    fault_query.write_file(tmp_path, 0, {s: fault_query.make_rows("time", s, 0) for s in "lr"})
    files = {s: sorted((tmp_path / s).iterdir()) for s in "lr"}
    far = 2 * fault_query.END
    for marks, late in (((0, far), False), ((far, far), True)):
        made = [fault_logs.Batch({"l": [], "r": []}, marks[0]), fault_logs.Batch(files, marks[1])]
        left, _ = fault_oracle.sides_of(made, case("time"))
        assert (left.late > 0) == late == (len(left) == 0)


def test_files_have_twins_duplicates_nulls_and_late_rows() -> None:
    left, right = (fault_query.make_rows("count", side, 2) for side in "lr")
    again = fault_query.make_rows("count", "l", 3)
    both = pa.concat_tables([left, again])
    contents = Counter(rows_of(both))
    assert max(contents.values()) > 1
    # Different rows of a side have different places; sides share some.
    assert len(contents) == len(np.unique(both["at"]))
    later = fault_query.make_rows("count", "l", 4)
    assert not np.intersect1d(both["at"], later["at"]).size
    assert np.intersect1d(left["at"], right["at"]).size
    assert both["a"].null_count
    assert both["b"].null_count
    zeros = [math.copysign(1, a) for a in both["a"].drop_null().to_pylist() if a == 0]
    assert {1.0, -1.0} == set(zeros)
    first, second = (fault_query.make_rows("time", "l", n).to_pylist() for n in (2, 3))
    swapped = [row | {"p": row["q"], "q": row["p"]} for row in second if row["p"] is None]
    assert [row for row in swapped if row in first]
    assert fault_query.make_rows("time", "r", 10).num_rows == 0


def test_a_hundred_processes_are_killed_in_every_sort_of_query() -> None:
    assert sum(one.kills for one in CASES.values()) >= 100
    assert {one.window for one in CASES.values()} == {"count", "time", "history"}
    assert {one.how for one in CASES.values()} >= {"inner", "left", "full", "semi"}
    assert {one.master for one in CASES.values()} == {fault_query.LOCAL, fault_query.CLUSTER}
    assert any(one.totals and one.executors for one in CASES.values())
    assert all(one.executors == 0 for one in CASES.values() if one.master == fault_query.LOCAL)


def test_a_difference_keeps_its_evidence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    monkeypatch.setattr(faults.tempfile, "tempdir", str(tmp_path))

    def history(folder: Path, name: str, one: Case) -> dict[str, Any]:
        return {"kills": one.kills, "lost": 0, "duplicate": 0, "wrong": int(name == "time")}

    monkeypatch.setattr(faults, "history", history)
    report = faults.run(lambda _: None, 1.0)
    kills = sum(one.kills for one in CASES.values())
    assert report.figures == {"kills": kills, "lost": 0, "duplicate": 0, "wrong": 1}
    assert [str(path) for path in tmp_path.iterdir()] == [report.details["time"]["evidence"]]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(3000)
def test_short_histories_are_exact() -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    if shutil.which("java") is None or not Path("/proc").exists():
        pytest.skip("needs Java and Linux's /proc")
    report = faults.run(lambda _: None, 0.1)
    assert report.figures["kills"] >= 2 * len(CASES)
    for key in faults.DIFFERENCES:
        assert report.figures[key] == 0, report.details
    told = report.details["count"]["full_disk"]
    assert told.startswith("was full" if os.geteuid() == 0 else "skipped"), told
