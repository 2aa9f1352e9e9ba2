"""Late rows as Parquet files: those of the oracle, once each, whatever is tried again."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import naive
import thetajoin as tj
from spark.harness import Streams, closing, expected, random_batches, seconds, with_watermarks
from thetajoin.errors import OptionError

pytest.importorskip("pyspark", reason="pyspark is not installed")

from spark.one_unit import make_spec, make_tester, millis, push, rows_at, state_of
from spark.test_jobs import job
from thetajoin.spark import late as late_module
from thetajoin.spark import unit as unit_module
from thetajoin.spark.late import check_late, check_place

ON = "l.a < r.b AND l.c >= r.d"
PRED = naive.conj(("a", "<", "b"), ("c", ">=", "d"))
TEN = naive.Time(seconds(10), seconds(10))


def written(folder: Path) -> Counter[Any]:
    """The ids of all late rows, by the name of their side."""
    rows = []
    for side, id_ in (("left", "lid"), ("right", "rid")):
        for file in sorted((folder / side).glob("*.parquet")):
            table = pq.read_table(file)
            assert set(table["late_side"].to_pylist()) == {side}
            [time] = [n for n in table.column_names if n in ("t", "x_t", "y_t")]
            marks = table["late_watermark"].to_pylist()
            assert all(t < m for t, m in zip(table[time].to_pylist(), marks, strict=True))
            rows += [(side, n) for n in table[id_].to_pylist()]
    return Counter(rows)


def wanted(result: naive.Result) -> Counter[Any]:
    sides = (("left", row["lid"]) if "lid" in row else ("right", row["rid"]) for row in result.late)
    return Counter(sides)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("on", "pred", "more"),
    [
        (ON, PRED, {"units": 2, "how": "left"}),
        pytest.param(
            "l.a = r.b",
            naive.conj(("a", "=", "b")),
            {"units": 3, "routing": "hash"},
            marks=pytest.mark.slow,
        ),
        pytest.param(ON, PRED, {"units": 4, "routing": "matrix"}, marks=pytest.mark.slow),
    ],
)
def test_late_rows_are_written_once(
    streams: Streams, on: str, pred: naive.Predicate, more: dict[str, Any]
) -> None:
    """Also those of a micro-batch that was not committed, and is run again."""
    batches = random_batches(51, batches=6, rows=15)
    steps = list(with_watermarks(batches, seconds(2), restart_at=4))
    how = more.get("how", "inner")
    _, result = expected(steps, pred, how=how, window=TEN)
    folder = streams.folder / "late"

    def join() -> Any:
        window = tj.TimeWindow("10 seconds", time="t")
        return tj.join(*streams.both("2 seconds"), on, window=window, late=folder, **more)

    streams.push(*batches[:4])
    streams.resume(join(), "cp")
    before = written(folder)
    last = max(int(file.name) for file in (streams.folder / "cp" / "commits").glob("[0-9]*"))
    for again in (last, last - 1):
        (streams.folder / "cp" / "commits" / str(again)).unlink()
        (streams.folder / "cp" / "commits" / f".{again}.crc").unlink()
    streams.push(*batches[4:])
    streams.resume(join(), "cp")
    assert written(folder) == wanted(result)
    assert before
    assert before != written(folder)
    assert not [file for file in folder.rglob(".*") if not file.name.endswith(".crc")]


@pytest.fixture
def batch(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What Spark tells a task of its micro-batch."""
    told = {"sql.streaming.queryId": "query", "streaming.sql.batchId": "0"}
    task = SimpleNamespace(getLocalProperty=told.get)
    monkeypatch.setattr(late_module, "TaskContext", SimpleNamespace(get=lambda: task))
    return told


def test_a_task_that_is_tried_again_writes_nothing_new(
    local_dir: Path, batch: dict[str, str]
) -> None:
    folder = local_dir / "late"
    spec = make_spec(tj.TimeWindow("5 seconds", time="t"), late=str(folder))
    tester = make_tester(spec)
    push(tester, rows_at(10))
    tester.set_watermark(millis(20))
    for number, attempts in (("1", 1), ("2", 2)):
        batch["streaming.sql.batchId"] = number
        for _ in range(attempts):
            # The first attempt's state is thrown away: its rows and its description stay as before.
            values = state_of(tester).values
            saved = values["description"]
            push(tester, rows_at(1, 30, first=10 * int(number)))
            if attempts == 2:
                unit_module._REMEMBERED.clear()
                values["description"] = saved
    assert written(folder) == Counter(
        {(side, 10 * n): 1 for side in ("left", "right") for n in (1, 2)}
    )
    names = sorted(file.name for file in (folder / "left").iterdir())
    assert names == ["late-query-00000001-0000.parquet", "late-query-00000002-0000.parquet"]
    table = pq.read_table(folder / "left" / names[0])
    assert table.column_names[-3:] == ["late_side", "late_watermark", "late_batch"]
    assert isinstance(table["late_watermark"][0].as_py(), datetime)
    assert table["late_batch"].to_pylist() == [1]


def test_what_cannot_have_late_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="needs a TimeWindow"):
        check_late(make_spec(tj.FullHistory(), late=str(tmp_path)))
    schema = pa.schema([("lid", pa.int64()), ("t", pa.timestamp("us")), ("late_batch", pa.int8())])
    named = make_spec(
        tj.TimeWindow("5 seconds", time="t"),
        late=str(tmp_path),
        left_schema=schema.serialize().to_pybytes(),
    )
    with pytest.raises(OptionError, match="adds a column 'late_batch'"):
        check_late(named)
    for wrong in (3, "", b"x"):
        with pytest.raises(OptionError, match="late="):
            check_place(wrong)
    assert check_place(tmp_path) == str(tmp_path)
    assert check_place("s3://bucket/late?region=eu-west-1") == "s3://bucket/late?region=eu-west-1"


@pytest.mark.spark
@pytest.mark.slow
def test_a_job_file_names_a_folder(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from typer.testing import CliRunner

    from thetajoin.cli.app import app

    monkeypatch.setattr("thetajoin.spark.session.local_session", lambda *_, **__: streams.spark)
    batches = [*random_batches(52, batches=2, nulls=False), closing()]
    path = job(
        streams,
        "SELECT x.lid, y.rid FROM x JOIN y ON x.a < y.b AND x.c >= y.d",
        '[window]\ntime = "10 seconds"\non = "t"',
    )
    path.write_text(path.read_text().replace('trigger = "available-now"', 'late = "aside"'))
    late = random_batches(53, batches=1, nulls=False)
    for part in ([batches[0]], [batches[2]], late):
        streams.push(*part)
        ended = CliRunner().invoke(app, ["run", str(path)])
        assert ended.exit_code == 0, ended.exception
    ids = Counter(
        [("left", row["lid"]) for row in late[0].left]
        + [("right", row["rid"]) for row in late[0].right]
    )
    found = written(tmp_path / "aside")
    assert found == ids
    assert ids
