"""Jobs over tables of Delta and Iceberg: their pairs are the oracle's, through it all."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import naive
from naive import Push, Row
from spark.harness import LEFT, RIGHT, random_batches
from thetajoin.cli.app import app
from thetajoin.errors import OptionError, SchemaError, ThetaJoinError
from thetajoin.jobs.systems import TableSink, TableSource, TableStream

pytest.importorskip("pyspark", reason="pyspark is not installed")
from thetajoin.jobs import lakes as tables

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PRED = naive.conj(("a", "<", "b"), ("c", ">=", "d"))
JOB = """
query = "SELECT x.lid, y.rid FROM x JOIN y ON x.a < y.b WHERE x.c >= y.d"
checkpoint = "checkpoint"
[sources.x]
{left}
[sources.y]
{right}
[window]
count = 30
slide = 4
on = ["lid", "rid"]
[sink]
{sink}
"""
STREAM = "stream = true\nmax_files_per_trigger = 1"


@dataclass
class Lake:
    """Tables of one kind in a folder; the catalog of Iceberg's has a name of its own."""

    spark: Any
    kind: str
    folder: Path

    @property
    def catalog(self) -> str:
        return f"c{abs(hash(self.folder)) % 10**9}"

    def place(self, name: str) -> str:
        return str(self.folder / name) if self.kind == "delta" else f"{self.catalog}.db.{name}"

    @property
    def options(self) -> tuple[tuple[str, str], ...]:
        if self.kind == "delta":
            return ()
        return (("type", "hadoop"), ("warehouse", str(self.folder / "lake")))

    def source(self, name: str, *lines: str) -> str:
        """A source or sink of a job file."""
        options = "".join(f'\noptions.{key} = "{value}"' for key, value in self.options)
        return "\n".join([f'{self.kind} = "{self.place(name)}"', *lines]) + options

    def sql_name(self, name: str) -> str:
        return f"delta.`{self.place(name)}`" if self.kind == "delta" else self.place(name)

    def append(self, name: str, rows: Any) -> None:
        """Append a DataFrame as one file, in one version."""
        rows = rows.coalesce(1)
        if self.kind == "delta":
            rows.write.format("delta").mode("append").save(self.place(name))
        elif self.spark.catalog.tableExists(self.place(name)):
            rows.writeTo(self.place(name)).append()
        else:
            rows.writeTo(self.place(name)).using("iceberg").create()

    def numbers(self, name: str, *numbers: int) -> None:
        rows = [(n, n % 2) for n in numbers]
        self.append(name, self.spark.createDataFrame(rows, "k BIGINT, p INT"))

    def compact(self, name: str) -> None:
        if self.kind == "delta":
            self.spark.sql(f"OPTIMIZE {self.sql_name(name)}")
        else:
            given = f"table => 'db.{name}', options => map('rewrite-all', 'true')"
            self.spark.sql(f"CALL {self.catalog}.system.rewrite_data_files({given})")

    def delete(self, name: str, condition: str) -> None:
        self.spark.sql(f"DELETE FROM {self.sql_name(name)} WHERE {condition}")

    def read(self, name: str) -> pa.Table:
        if self.kind == "iceberg":  # a query writes in a session of its own, and tables are cached
            self.spark.catalog.refreshTable(self.place(name))
        return self.spark.read.format(self.kind).load(self.place(name)).toArrow()


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> Lake:
    request.getfixturevalue(request.param)
    found = Lake(spark, request.param, tmp_path)
    source = TableSource(found.kind, found.place("x"), found.options)
    for key, value in tables.table_settings([source]).items():
        spark.conf.set(key, value)
    return found


@pytest.fixture
def run(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a job file in the tests' own session, and gives what it told and how it ended."""
    monkeypatch.setattr("thetajoin.spark.session.local_session", lambda *_, **__: spark)

    def run(path: Path) -> tuple[str, int]:
        result = CliRunner().invoke(app, ["run", str(path)])
        return f"{result.output}{result.exception or ''}", result.exit_code

    return run


class Query:
    """A query over one table that takes what there is; `rows` is what it gave, in all its runs."""

    def __init__(self, lake: Lake, name: str = "t", **options: Any) -> None:
        self.lake = lake
        self.source = TableStream(lake.kind, lake.place(name), **options)
        self.start = tables.find_start(lake.spark, self.source)
        self.batches: dict[int, list[int]] = {}
        self.checkpoint = lake.folder / f"checkpoint-{id(self)}"

    def run(self) -> None:
        frame = tables.read_table_stream(self.lake.spark, self.source, self.start)

        def keep(rows: Any, number: int) -> None:
            self.batches[number] = [row["k"] for row in rows.collect()]

        writer = frame.writeStream.foreachBatch(keep).trigger(availableNow=True)
        writer.option("checkpointLocation", str(self.checkpoint)).start().awaitTermination()

    def forget_last(self) -> None:
        """As after a kill: the last micro-batch was run, and nobody wrote down that it was."""
        commits = sorted((self.checkpoint / "commits").glob("[0-9]*"), key=lambda f: int(f.name))
        commits[-1].unlink()
        (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)

    @property
    def keys(self) -> list[int]:
        return sorted(key for rows in self.batches.values() for key in rows)


def full_batches(seed: int, batches: int) -> list[Push]:
    """Micro-batches with rows on both sides, so that each is one file of each table."""
    drawn = random_batches(seed, batches=batches * 5)
    return [batch for batch in drawn if batch.left and batch.right][:batches]


def write(lakes: dict[str, Lake], batches: Sequence[Push]) -> None:
    for batch in batches:
        for name, rows, schema in (("x", batch.left, LEFT), ("y", batch.right, RIGHT)):
            if name in lakes:
                table = pa.Table.from_pylist(rows, schema)
                lakes[name].append(name, lakes[name].spark.createDataFrame(table))


def pairs(batches: Sequence[Push]) -> Counter[tuple[int, int]]:
    window = naive.Count(30, 4)
    found = naive.naive_stream(batches, PRED, window=window, order_by=("lid", "rid")).rows
    return Counter((l["lid"], r["rid"]) for l, r in found if l and r)


def written(lake: Lake) -> Counter[tuple[int, int]]:
    rows = lake.read("out")
    return Counter(zip(rows["lid"].to_pylist(), rows["rid"].to_pylist(), strict=True))


def job_of(lake: Lake, *, left: Lake | None = None, right: str | None = None) -> Path:
    job = lake.folder / "job.toml"
    job.write_text(
        JOB.format(
            left=(left or lake).source("x", STREAM),
            right=right or lake.source("y", STREAM),
            sink=lake.source("out"),
        )
    )
    return job


def test_streams_into_a_table(run: Any, lake: Lake) -> None:
    """One version a micro-batch; then a compaction, a new column, and a restart."""
    batches = full_batches(41, 3)
    write({"x": lake, "y": lake}, batches[:2])
    job = job_of(lake)
    told, code = run(job)
    assert code == 0, told
    assert written(lake) == pairs(batches[:2])
    lake.compact("x")
    lake.compact("y")
    lake.spark.sql(f"ALTER TABLE {lake.sql_name('x')} ADD COLUMNS (new STRING)")
    rows = lake.spark.createDataFrame(pa.Table.from_pylist(batches[2].left, LEFT))
    lake.append("x", rows.selectExpr("*", "'?' AS new"))
    write({"y": lake}, batches[2:])
    told, code = run(job)
    assert code == 0, told
    assert "x: not read, as the job began without it: new" in told
    assert written(lake) == pairs(batches)
    assert pairs(batches) - pairs(batches[:2])


def test_a_delta_and_an_iceberg_table(
    run: Any, spark: Any, delta: None, iceberg: None, tmp_path: Path
) -> None:
    batches = full_batches(46, 2)
    left, right = (Lake(spark, kind, tmp_path) for kind in ("delta", "iceberg"))
    source = TableSource("iceberg", right.place("y"), right.options)
    for key, value in tables.table_settings([source]).items():
        spark.conf.set(key, value)
    write({"x": left, "y": right}, batches)
    told, code = run(job_of(right, left=left))
    assert code == 0, told
    assert written(right) == pairs(batches)


@pytest.mark.parametrize("seed", range(2))
def test_every_row_once_through_compactions_and_kills(lake: Lake, seed: int) -> None:
    rng = random.Random(seed)
    lake.numbers("t", 0, 1)
    number = 2
    query = Query(lake, most=rng.choice([1, 2]))
    for _ in range(4):
        for _ in range(rng.randint(0, 3)):
            lake.numbers("t", *range(number, number + 2))
            number += 2
        if rng.random() < 0.5:
            lake.compact("t")
        query.run()
        if rng.random() < 0.5:
            before = dict(query.batches)
            query.forget_last()
            query.run()
            assert {at: sorted(rows) for at, rows in query.batches.items()} == {
                at: sorted(rows) for at, rows in before.items()
            }
    assert query.keys == list(range(number))


def change_of(lake: Lake) -> str:
    return r"version 2 of .* \(DELETE\)" if lake.kind == "delta" else r"snapshot \d+ of .* \(over"


def test_a_change_ends_a_job_with_one_line(run: Any, lake: Lake) -> None:
    batches = full_batches(42, 2)
    write({"x": lake, "y": lake}, batches)
    job = job_of(lake)
    assert run(job)[1] == 0
    lake.delete("x", f"lid = {batches[0].left[0]['lid']}")
    told, code = run(job)
    lines = [line for line in told.splitlines() if "removes or rewrites rows" in line]
    assert code == 1
    assert len(lines) == 1, told
    assert re.search(change_of(lake), lines[0]), lines[0]
    assert lake.place("x") in lines[0] or "one of the Iceberg tables" in lines[0]
    assert "on_change = 'skip'" in lines[0]
    job.write_text(job.read_text().replace("stream = true", "stream = true\non_change = 'skip'"))
    told, code = run(job)
    assert code == 0, told
    assert written(lake) == pairs(batches)


def test_where_a_stream_starts(lake: Lake) -> None:
    """A start that is not at the first row stays where it was, whatever comes before it is read."""
    for at in range(3):
        lake.numbers("t", at)
    if lake.kind == "delta":
        second = 1
    else:
        snapshots = lake.spark.sql(f"SELECT snapshot_id FROM {lake.place('t')}.snapshots")
        second = snapshots.collect()[1][0]
    found = {start: Query(lake, starting=start) for start in (None, second, "latest")}
    found["latest"].run()  # when there is nothing to read, and so nothing is written down
    for number in (3, 4):
        lake.numbers("t", number)
        for query in found.values():
            query.run()
    lake.numbers("t", 5)
    found["latest"].run()
    assert [query.keys for query in found.values()] == [
        [0, 1, 2, 3, 4],
        [1, 2, 3, 4],
        [3, 4, 5],
    ]


def test_no_such_start(lake: Lake) -> None:
    lake.numbers("t", 1)
    with pytest.raises(Exception, match=r"has no version 99: the newest is 0|has no snapshot 99"):
        Query(lake, starting=99).run()


def test_every_type_comes_through(lake: Lake) -> None:
    zone = "CAST(NULL AS TIMESTAMP)"
    values = {
        "b": ("true", "CAST(NULL AS BOOLEAN)"),
        "i4": ("-2147483648", "CAST(NULL AS INT)"),
        "i8": ("9223372036854775807L", "CAST(NULL AS BIGINT)"),
        "f": ("CAST(1.1 AS FLOAT)", "CAST('NaN' AS FLOAT)"),
        "d": ("CAST('-0.0' AS DOUBLE)", "CAST('Infinity' AS DOUBLE)"),
        "dec": ("CAST('-99999999999999.123456' AS DECIMAL(20, 6))", "CAST(NULL AS DECIMAL(20, 6))"),
        "s": ("''", "'ü漢'"),
        "bin": ("X'00ff'", "X''"),
        "day": ("DATE'0001-01-01'", "DATE'9999-12-31'"),
        "ts": ("TIMESTAMP'1900-01-01 00:00:00Z'", zone),
        "list": ("array(1L, NULL)", "CAST(NULL AS ARRAY<BIGINT>)"),
        "struct": ("named_struct('x', 1L, 'y', 'a')", "named_struct('x', NULL, 'y', NULL)"),
    }
    rows = [", ".join(f"{pair[at]} AS {name}" for name, pair in values.items()) for at in (0, 1)]
    frame = lake.spark.sql(" UNION ALL ".join(f"SELECT {row}" for row in rows))
    lake.append("t", frame)
    want = frame.toArrow().to_pylist()
    found: list[pa.Table] = []
    stream = tables.read_table_stream(lake.spark, TableStream(lake.kind, lake.place("t")))
    writer = stream.writeStream.foreachBatch(lambda part, _: found.append(part.toArrow()))
    writer = writer.option("checkpointLocation", str(lake.folder / "ck"))
    writer.trigger(availableNow=True).start().awaitTermination()
    got = pa.concat_tables(found).to_pylist()
    assert sorted(map(repr, got)) == sorted(map(repr, want))
    frozen, _ = tables.read_table_now(lake.spark, TableSource(lake.kind, lake.place("t")))
    assert sorted(map(repr, frozen.toArrow().to_pylist())) == sorted(map(repr, want))


def test_a_table_beside_a_stream_is_frozen_and_that_is_told(run: Any, lake: Lake) -> None:
    """A newer version is seen by the next start, by the rows that come then."""
    batches = full_batches(44, 2)
    job = job_of(lake, right=lake.source("y"))
    window = 'count = 30\nslide = 4\non = ["lid", "rid"]'
    job.write_text(job.read_text().replace(window, "all = true"))
    want: Counter[tuple[int, int]] = Counter()
    table: list[Row] = []
    versions = set()
    for batch in batches:
        write({"x": lake, "y": lake}, [batch])
        told, code = run(job)
        assert code == 0, told
        [line] = [line for line in told.splitlines() if "read once: later changes" in line]
        versions.add(line)
        table += batch.right
        found = naive.naive_join(batch.left, table, PRED)
        want.update((l["lid"], r["rid"]) for l, r in found if l and r)
    assert written(lake) == want
    assert len(versions) == 2


def test_a_frozen_table_stays_as_it_was(lake: Lake) -> None:
    if lake.kind == "iceberg":
        lake.spark.sql(f"CREATE TABLE {lake.place('t')} (k BIGINT, p INT) USING iceberg")
        empty, version = tables.read_table_now(lake.spark, TableSource("iceberg", lake.place("t")))
        assert (version, empty.columns) == ("no snapshot", ["k", "p"])
    lake.numbers("t", 1)
    if lake.kind == "iceberg":
        assert empty.collect() == []
    frame, version = tables.read_table_now(lake.spark, TableSource(lake.kind, lake.place("t")))
    lake.numbers("t", 2)
    lake.delete("t", "k = 1")
    assert [row["k"] for row in frame.collect()] == [1]
    assert version.startswith(("version 0", "snapshot "))


def test_a_micro_batch_is_appended_once(lake: Lake) -> None:
    """Also when it is run again later, and each query has its own count."""
    sink = TableSink(lake.kind, lake.place("out"), lake.options)
    tables.check_table(lake.spark, sink)
    rows = lake.spark.createDataFrame([(1, "x"), (1, "x"), (2, None)], "id INT, s STRING")
    for number in (0, 0, 1, 1, 0):
        tables.append_batch(rows, sink, "one", number)
    tables.append_batch(rows, sink, "two", 0)
    assert Counter(lake.read("out")["id"].to_pylist()) == Counter({1: 6, 2: 3})
    tables.check_table(lake.spark, sink)
    wrong = lake.spark.createDataFrame([("text", 1.5)], "id STRING, other DOUBLE")
    with pytest.raises(ThetaJoinError, match=f"cannot write micro-batch 9 to {sink}"):
        tables.append_batch(wrong, sink, "one", 9)
    assert lake.read("out").num_rows == 9


def test_a_table_that_is_not_there(run: Any, lake: Lake) -> None:
    stream, table = (kind(lake.kind, lake.place("none")) for kind in (TableStream, TableSource))
    for read, source in (
        (tables.read_table_now, table),
        (tables.read_table_stream, stream),
        (tables.read_columns, stream),
    ):
        with pytest.raises(ThetaJoinError, match=r"cannot read the .* table .*none") as told:
            read(lake.spark, source)
        assert "\n" not in str(told.value)
    told, code = run(job_of(lake))
    assert code == 1
    assert len(told.strip().splitlines()[-1]) < 600
    assert "source 'x'" in told


def test_a_changed_column_is_refused(spark: Any) -> None:
    source = TableStream("delta", "tables/x")
    began = tables.parse_columns("k BIGINT, p INT")
    more = tables.parse_columns("new STRING, p INT, k BIGINT")
    assert tables.check_columns(source, began, more) == ["new"]
    for now, told in (
        ("k STRING, p INT", "has column 'k' as string, which was bigint"),
        ("k BIGINT", "has no column 'p' any more"),
    ):
        with pytest.raises(SchemaError, match=f"the Delta table tables/x {told}: start with a new"):
            tables.check_columns(source, began, tables.parse_columns(now))


def test_credentials_are_shown_nowhere(spark: Any, delta: None, tmp_path: Path) -> None:
    lake = Lake(spark, "delta", tmp_path)
    lake.numbers("t", 1)
    secret = (("fs.s3a.secret.key", "hunter22"),)
    source = TableStream("delta", lake.place("t"), options=secret)
    frame = tables.read_table_stream(spark, source)
    writer = frame.writeStream.foreachBatch(lambda part, _: part.collect())
    writer = writer.option("checkpointLocation", str(tmp_path / "ck"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    kept = b"".join(file.read_bytes() for file in (tmp_path / "ck").rglob("*") if file.is_file())
    shown = f"{source!r} {query.lastProgress} {query.status} {query.explain()}"
    assert "hunter22" not in shown
    assert b"hunter22" not in kept
    assert query.lastProgress.numInputRows


def test_catalogs_of_a_job() -> None:
    options = (("type", "rest"), ("uri", "https://x"))
    with_options = TableStream("iceberg", "prod.db.a", options=options)
    without = TableSink("iceberg", "prod.db.b")
    assert tables.table_settings([with_options, without, TableSource("delta", "x")]) == {
        "spark.sql.catalog.prod": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.prod.type": "rest",
        "spark.sql.catalog.prod.uri": "https://x",
    }
    stores = (("fs.s3a.endpoint", "http://x"), ("mergeSchema", "true"))
    assert tables.table_settings([TableSource("delta", "s3://b/x.y", stores)]) == {
        "spark.hadoop.fs.s3a.endpoint": "http://x"
    }
    with pytest.raises(OptionError, match="catalog 'prod' has no options: write what it is"):
        tables.table_settings([without])
    other = TableSink("iceberg", "prod.db.b", (("uri", "https://y"),))
    with pytest.raises(OptionError, match=r"prod\.db\.b has another value of the option 'uri'"):
        tables.table_settings([with_options, other])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_streams_through_kills(lake: Lake) -> None:
    """The driver is killed in micro-batches; the tables are compacted between two lives of it."""
    from benchmarks.pipeline_kills import Ordeal

    batches = full_batches(45, 8)
    job, inside = job_of(lake), 0
    for part in (batches[:4], batches[4:]):
        write({"x": lake, "y": lake}, part)
        ordeal = Ordeal(job)
        ordeal.run(2)
        inside += ordeal.inside
        lake.compact("x")
        lake.compact("y")
    assert inside
    assert written(lake) == pairs(batches)
