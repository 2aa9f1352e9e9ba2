"""Jobs over streams of Delta and Iceberg tables: their pairs are the oracle's, through it all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import naive
from naive import Push, Row
from spark.harness import LEFT, NOT_STARTED, RIGHT, plan_of, random_batches
from spark.iceberg_tables import catalog_options, compact, open_catalog
from thetajoin.cli.app import app

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")

PRED = naive.conj(("a", "<", "b"), ("c", ">=", "d"))
JOB = """
query = "SELECT x.lid, y.rid FROM x JOIN y ON x.a < y.b WHERE x.c >= y.d"
checkpoint = "checkpoint"
[sources.x]
delta = "x"
stream = true
max_files_per_trigger = 1
[sources.y]
{right}
[window]
count = 30
slide = 4
on = ["lid", "rid"]
[sink]
{sink}
"""
DELTA = 'delta = "y"\nstream = true\nmax_files_per_trigger = 1'
TABLE_SINK = 'delta = "out"'
# A query over a table starts three Python processes, each of which a busy machine may not manage
# in Spark's ten seconds.
TRIES = 5


@pytest.fixture
def run(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a job file in the tests' own session, and gives what it told and how it ended."""
    monkeypatch.setattr("thetajoin.spark.session.local_session", lambda *_, **__: spark)

    def run(path: Path) -> tuple[str, int]:
        for _ in range(TRIES):
            result = CliRunner().invoke(app, ["run", str(path)])
            if NOT_STARTED not in str(result.exception):
                break
        return f"{result.output}{result.exception or ''}", result.exit_code

    return run


def ended(start: Any) -> Any:
    """A query that has taken what there is."""
    for last in range(TRIES):
        query = start()
        try:
            query.awaitTermination()
        except Exception as error:
            if NOT_STARTED not in str(error) or last == TRIES - 1:
                raise
        else:
            break
    return query


def full_batches(seed: int, batches: int) -> list[Push]:
    """Micro-batches with rows on both sides, so that each is one file of each table."""
    drawn = random_batches(seed, batches=batches * 5)
    return [batch for batch in drawn if batch.left and batch.right][:batches]


def write(folder: Path | str, batches: Sequence[Push], *, sides: str = "xy") -> None:
    for batch in batches:
        for name, rows, schema in (("x", batch.left, LEFT), ("y", batch.right, RIGHT)):
            if name in sides:
                new = pa.Table.from_pylist(rows, schema)
                deltalake.write_deltalake(f"{folder}/{name}", new, mode="append")


def pairs(batches: Sequence[Push]) -> Counter[tuple[int, int]]:
    window = naive.Count(30, 4)
    found = naive.naive_stream(batches, PRED, window=window, order_by=("lid", "rid")).rows
    return Counter((l["lid"], r["rid"]) for l, r in found if l and r)


def written(folder: Path | str) -> Counter[tuple[int, int]]:
    rows = deltalake.DeltaTable(f"{folder}/out").to_pyarrow_table()
    return Counter(zip(rows["lid"].to_pylist(), rows["rid"].to_pylist(), strict=True))


def test_a_delta_and_an_iceberg_stream(run: Any, tmp_path: Path) -> None:
    """One version a micro-batch; then a compaction of both tables, a new column, and a restart."""
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed")
    pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed")
    batches = full_batches(41, 3)
    lake = open_catalog(tmp_path).create_table("db.y", schema=RIGHT)
    options = "".join(f'{key} = "{value}"\n' for key, value in catalog_options(tmp_path).items())
    right = DELTA.replace('delta = "y"', 'iceberg = "here.db.y"')
    right = f"{right}\n[sources.y.options]\n{options}"
    job = tmp_path / "job.toml"
    job.write_text(JOB.format(right=right, sink=TABLE_SINK))
    write(tmp_path, batches[:2], sides="x")
    for batch in batches[:2]:
        lake.append(pa.Table.from_pylist(batch.right, RIGHT))
    told, code = run(job)
    assert code == 0, told
    assert written(tmp_path) == pairs(batches[:2])
    deltalake.DeltaTable(str(tmp_path / "x")).optimize.compact()
    compact(lake)
    new = deltalake.Field("new", deltalake.schema.PrimitiveType("string"))
    deltalake.DeltaTable(str(tmp_path / "x")).alter.add_columns([new])
    rows = pa.Table.from_pylist(batches[2].left, LEFT)
    rows = rows.append_column("new", pa.array(["?"] * rows.num_rows))
    deltalake.write_deltalake(str(tmp_path / "x"), rows, mode="append")
    lake.append(pa.Table.from_pylist(batches[2].right, RIGHT))
    told, code = run(job)
    assert code == 0, told
    assert "x: not read, as the job began without it: new" in told
    assert written(tmp_path) == pairs(batches)
    assert pairs(batches) - pairs(batches[:2])


@pytest.mark.slow
def test_a_change_ends_a_job_with_one_line(run: Any, tmp_path: Path) -> None:
    batches = full_batches(42, 2)
    write(tmp_path, batches)
    job = tmp_path / "job.toml"
    job.write_text(JOB.format(right=DELTA, sink=TABLE_SINK))
    assert run(job)[1] == 0
    deltalake.DeltaTable(str(tmp_path / "x")).delete("lid = 0")
    told, code = run(job)
    lines = [line for line in told.splitlines() if "version 2 of the Delta table" in line]
    assert code == 1
    assert len(lines) == 1
    assert "removes or rewrites rows (DELETE)" in lines[0]
    assert "on_change = 'skip'" in lines[0]
    job.write_text(job.read_text().replace("stream = true", "stream = true\non_change = 'skip'"))
    assert run(job)[1] == 0
    assert written(tmp_path) == pairs(batches)


def test_credentials_are_shown_nowhere(spark: Any, tmp_path: Path) -> None:
    from thetajoin.spark.connectors.specs import TableStream
    from thetajoin.spark.connectors.table_streams import table_stream

    write(tmp_path, full_batches(43, 1))
    secret = (("AWS_SECRET_ACCESS_KEY", "hunter22"),)
    source = TableStream("delta", str(tmp_path / "x"), options=secret)
    frame = table_stream(spark, source)
    writer = frame.writeStream.foreachBatch(lambda part, _: part.collect())
    writer = writer.option("checkpointLocation", str(tmp_path / "ck"))
    query = ended(writer.trigger(availableNow=True).start)
    kept = b"".join(file.read_bytes() for file in (tmp_path / "ck").rglob("*") if file.is_file())
    shown = f"{source!r} {plan_of(frame)} {query.lastProgress} {query.status} {query.explain()}"
    assert "hunter22" not in shown
    assert b"hunter22" not in kept
    assert query.lastProgress.numInputRows


def test_every_type_comes_through_spark(spark: Any, tmp_path: Path) -> None:
    from spark.test_delta_streams import EVERY
    from thetajoin.spark.connectors.specs import TableStream
    from thetajoin.spark.connectors.table_streams import table_stream

    deltalake.write_deltalake(str(tmp_path / "t"), EVERY)
    found: list[pa.Table] = []
    frame = table_stream(spark, TableStream("delta", str(tmp_path / "t")))
    writer = frame.writeStream.foreachBatch(lambda part, _: found.append(part.toArrow()))
    ended(writer.trigger(availableNow=True).start)
    assert repr(pa.concat_tables(found).to_pylist()) == repr(EVERY.to_pylist())


def test_a_table_beside_a_stream_is_frozen_and_that_is_told(run: Any, tmp_path: Path) -> None:
    """A newer version is seen by the next start, by the rows that come then."""
    batches = full_batches(44, 2)
    right = 'delta = "y"'
    text = JOB.format(right=right, sink=TABLE_SINK)
    window = 'count = 30\nslide = 4\non = ["lid", "rid"]'
    job = tmp_path / "job.toml"
    job.write_text(text.replace(window, "all = true"))
    want: Counter[tuple[int, int]] = Counter()
    table: list[Row] = []
    for version, batch in enumerate(batches):
        write(tmp_path, [batch])
        told, code = run(job)
        assert code == 0, told
        assert f"y: version {version}, read once: later changes are not seen" in told
        table += batch.right
        found = naive.naive_join(batch.left, table, PRED)
        want.update((l["lid"], r["rid"]) for l, r in found if l and r)
    assert written(tmp_path) == want


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_delta_streams_through_kills(spark: Any, tmp_path: Path) -> None:
    """The driver is killed in micro-batches; the tables are compacted between two lives of it."""
    from thetajoin.bench.pipeline_kills import Ordeal

    batches = full_batches(45, 8)
    job = tmp_path / "job.toml"
    job.write_text(JOB.format(right=DELTA, sink=TABLE_SINK))
    inside = 0
    for part in (batches[:4], batches[4:]):
        write(tmp_path, part)
        ordeal = Ordeal(job)
        for last in range(TRIES):
            try:
                ordeal.run(2)
                break
            except RuntimeError as error:
                if NOT_STARTED not in str(error) or last == TRIES - 1:
                    raise
        inside += ordeal.inside
        for side in "xy":
            table = deltalake.DeltaTable(str(tmp_path / side))
            table.optimize.compact()
            table.create_checkpoint()
    assert inside
    assert written(tmp_path) == pairs(batches)
