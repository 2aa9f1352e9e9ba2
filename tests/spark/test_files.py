"""Tables that are Parquet files: read by the workers where that is the same, by Spark elsewhere."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import thetajoin as tj
from naive import Row
from spark.test_batch import LEFT, ON, PRED, RIGHT, L, R
from strategies import HOWS, ids, naive_ids, table
from thetajoin.spark.batch.files import READ_FILES, Piece, _dealt, files_of
from thetajoin.spark.stream import arrow_schema

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def write(folder: Path, rows: pa.Table, files: int = 1, **options: Any) -> str:
    """The rows in some files, in order."""
    folder.mkdir()
    for at in range(files):
        start, end = (rows.num_rows * k // files for k in (at, at + 1))
        pq.write_table(rows.slice(start, end - start), folder / f"{at}.parquet", **options)
    return str(folder)


@pytest.fixture(scope="module")
def frames(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    folder = tmp_path_factory.mktemp("with a space, and %20")
    left = write(folder / "l", table(L, LEFT), files=2, row_group_size=7)
    right = write(folder / "r", table(R, RIGHT), row_group_size=11)
    return spark.read.parquet(left), spark.read.parquet(right)


def read(df: Any, **asked: Any) -> pa.Table | None:
    """The table as the workers would read it, if they would."""
    files = files_of(df, arrow_schema(df))
    if files is None:
        return None
    batches = list(files.read(range(len(files.tasks)), **asked))
    assert sum(batch.num_rows for batch in batches) == files.rows
    return pa.Table.from_batches(batches, None if batches else arrow_schema(df))


def spark_reads(joined: Any) -> bool:
    """If Spark's own reader takes part in a plan."""
    return "FileScan" in joined._jdf.queryExecution().toString()


@pytest.mark.parametrize("how", HOWS)
def test_every_kind_in_cells(frames: tuple[Any, Any], how: str) -> None:
    got = tj.join(*frames, ON, how=how, broadcast_rows=0, held_rows=20)
    assert not spark_reads(got)
    assert ids(got.toArrow()) == naive_ids(naive.naive_join(L, R, PRED, how=how))


@pytest.mark.parametrize("how", ["inner", "left", "right", "anti"])
def test_a_small_side_is_read_by_every_task(frames: tuple[Any, Any], how: str) -> None:
    expected = naive_ids(naive.naive_join(L, R, PRED, how=how))
    left, right = frames
    got = tj.join(left, right, ON, how=how)
    assert not spark_reads(got)
    assert ids(got.toArrow()) == expected
    # A filter makes one side Spark's; the other stays one of files.
    for one, two in ((left.where("lid >= 0"), right), (left, right.where("rid >= 0"))):
        assert ids(tj.join(one, two, ON, how=how).toArrow()) == expected


def test_windows_aggregates_and_many(frames: tuple[Any, Any]) -> None:
    left, right = frames
    window = tj.CountWindow(7, slide=3)
    got = tj.join(left, right, ON, window=window, order_by="t")
    expected = naive.naive_join(L, R, PRED, window=naive.Count(7, 3), order_by="t")
    assert ids(got.toArrow()) == naive_ids(expected)
    pairs = naive.naive_join(L, R, PRED)
    counted = tj.join_agg(left, right, ON, group_by=[], aggs={"n": "count(*)"})
    assert counted.collect()[0].n == len(pairs)
    many = tj.join_many({"l": left, "r": right, "m": left}, f"{ON} AND r.rid < m.lid")
    assert many.count() == sum(1 for _, r in pairs for m in L if r["rid"] < m["lid"])


def test_a_self_join_tells_equal_rows_apart(spark: Any, tmp_path: Path) -> None:
    rows = [{"lid": 0, "a": 1, "c": 2, "x": 0.5, "t": 3}] * 9
    frame = spark.read.parquet(write(tmp_path / "t", table(rows, LEFT), 2, row_group_size=2))
    joined = tj.self_join(frame, "l.a <= r.a AND l.c >= r.c", held_rows=2)
    assert not spark_reads(joined)
    assert joined.count() == 9 * 8


COLUMNS: dict[str, pa.Array] = {
    "b": pa.array([True, None, False]),
    "i1": pa.array([1, None, -128], pa.int8()),
    "i2": pa.array([1, None, -(2**15)], pa.int16()),
    "i4": pa.array([1, None, -(2**31)], pa.int32()),
    "i8": pa.array([1, None, -(2**63)], pa.int64()),
    "f4": pa.array([float("nan"), None, -0.0], pa.float32()),
    "f8": pa.array([float("nan"), None, float("-inf")], pa.float64()),
    "s": pa.array(["ü", None, ""]),
    "z": pa.array([b"\x00\xff", None, b""]),
    "large": pa.array(["ü", None, ""], pa.large_string()),
    "d": pa.array([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
    "ts": pa.array(
        [dt.datetime(1500, 1, 1), None, dt.datetime(2024, 2, 29)], pa.timestamp("us", "UTC")
    ),
    "berlin": pa.array([dt.datetime(2024, 1, 1), None, None], pa.timestamp("us", "Europe/Berlin")),
    "local": pa.array([dt.datetime(1, 1, 1), None, dt.datetime(2024, 2, 29)], pa.timestamp("us")),
    "n": pa.array([Decimal("1.50"), None, Decimal("-99999.99")], pa.decimal128(7, 2)),
    "n38": pa.array([Decimal("1"), None, Decimal("9" * 38)], pa.decimal128(38, 0)),
    "with.dot": pa.array([1, None, 3]),
    "with `quote": pa.array([1, None, 3]),
}


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
def test_values_are_those_that_spark_reads(spark: Any, tmp_path: Path, compression: str) -> None:
    path = write(tmp_path / "t", pa.table(COLUMNS), 2, row_group_size=1, compression=compression)
    frame = spark.read.parquet(path)
    found = read(frame)
    assert found is not None
    schema = arrow_schema(frame)
    # Spark reads the larger file first; text tells NaN from NULL and -0.0 from 0.0.
    expected = frame.toArrow().cast(schema)
    ours, theirs = (sorted(map(str, t.to_pylist())) for t in (found.cast(schema), expected))
    assert ours == theirs


def test_columns_and_numbers(spark: Any, tmp_path: Path) -> None:
    rows = pa.table({"a": range(100), "b": ["x"] * 100})
    frame = spark.read.parquet(write(tmp_path / "t", rows, 3, row_group_size=9))
    turned = frame.selectExpr("b AS one", "a AS two", "a")
    found = read(turned)
    assert found is not None
    assert [found.column(at)[77].as_py() for at in range(3)] == ["x", 77, 77]
    one = read(turned, columns=[1])
    assert one is not None
    assert one.num_columns == 1
    assert one.column(0).to_pylist() == list(range(100))
    none = files_of(frame, arrow_schema(frame))
    assert none is not None
    assert sum(batch.num_rows for batch in none.read(range(len(none.tasks)), [])) == 100
    hashed = read(frame.select("b"), hashed=True)
    assert hashed is not None
    assert len(set(hashed.column(1).to_pylist())) == 100


def test_the_types_that_spark_would_convert(spark: Any, tmp_path: Path) -> None:
    moment = [dt.datetime(2024, 1, 1)]
    for at, (array, options) in enumerate(
        (
            (
                pa.array(moment, pa.timestamp("us", "UTC")),
                {"use_deprecated_int96_timestamps": True},
            ),
            (pa.array(moment, pa.timestamp("ms", "UTC")), {}),
            (pa.array([1], pa.uint32()), {}),
            (pa.array([[1]], pa.list_(pa.int64())), {}),
            (pa.array([{"x": 1}]), {}),
            (pa.array(["a"]).dictionary_encode(), {}),
        )
    ):
        frame = spark.read.parquet(write(tmp_path / str(at), pa.table({"a": array}), **options))
        assert read(frame) is None, array.type
    path = write(tmp_path / "t", pa.table({"a": pa.array([1], pa.int32())}))
    assert read(spark.read.schema("a int").parquet(path)) is not None
    for schema in ("a bigint", "a int, b int", "A int"):
        assert read(spark.read.schema(schema).parquet(path)) is None, schema
    (tmp_path / "t" / "1.parquet").write_bytes(b"not Parquet")
    assert read(spark.read.schema("a int").parquet(path)) is None


def test_dates_in_an_old_calendar(spark: Any, tmp_path: Path) -> None:
    for at, (key, value, ours) in enumerate(
        (
            ("org.apache.spark.version", "3.5.0", True),
            ("org.apache.spark.version", "2.4.8", False),
            ("org.apache.spark.legacyDateTime", "", False),
        )
    ):
        rows = pa.table({"d": pa.array([dt.date(1500, 1, 1)]), "i": [1]})
        path = write(tmp_path / str(at), rows.replace_schema_metadata({key: value}))
        frame = spark.read.parquet(path)
        assert (read(frame) is not None) == ours, (key, value)
        assert read(frame.select("i")) is not None


Change = Callable[[Any], Any]


@pytest.mark.parametrize(
    "change",
    [
        lambda df: df.where("a > 0"),
        lambda df: df.limit(1),
        lambda df: df.sample(0.5, seed=1),
        lambda df: df.withColumn("a", df.a + 1),
        lambda df: df.withColumn("f", df["_metadata"]["file_name"]),
        lambda df: df.union(df),
        lambda df: df.distinct(),
        lambda df: df.orderBy("a"),
        lambda df: df.repartition(1),
    ],
)
def test_more_than_a_table_is_spark_s(spark: Any, tmp_path: Path, change: Change) -> None:
    frame = spark.read.parquet(write(tmp_path / "t", pa.table({"a": [1, 2]})))
    assert read(frame.toDF("x").alias("y")) is not None
    assert read(change(frame)) is None


def test_where_rows_come_from_elsewhere(spark: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "t", pa.table({"a": [1, 2], "p": [1, 2]}))
    frame = spark.read.parquet(path)
    frame.write.partitionBy("p").parquet(str(tmp_path / "parted"))
    frame.write.orc(str(tmp_path / "orc"))
    parted = spark.read.parquet(str(tmp_path / "parted"))
    assert read(parted) is None
    only = read(parted.select("a"))
    assert only is not None
    assert sorted(only.column(0).to_pylist()) == [1, 2]
    # Spark takes the folder's word against the file's.
    (tmp_path / "own").mkdir()
    write(tmp_path / "own" / "p=1", pa.table({"a": [3], "p": pa.array([9], pa.int32())}))
    own = spark.read.parquet(str(tmp_path / "own"))
    assert own.collect()[0].p == 1
    assert read(own) is None
    assert read(spark.read.orc(str(tmp_path / "orc"))) is None
    assert read(spark.read.option("datetimeRebaseMode", "LEGACY").parquet(path)) is None
    assert read(spark.read.option("mergeSchema", "true").parquet(path)) is not None
    frame.createOrReplaceTempView("view_of_files")
    assert read(spark.sql("SELECT p, a FROM view_of_files")) is not None
    # What is cached stays what it was, whatever becomes of the files.
    assert read(frame) is not None
    frame.cache().count()
    try:
        assert read(frame) is None
        assert read(spark.read.parquet(path)) is None
    finally:
        frame.unpersist(blocking=True)
    for key, value in (
        (READ_FILES, "false"),
        ("spark.sql.files.ignoreCorruptFiles", "true"),
        ("spark.sql.files.ignoreMissingFiles", "true"),
        ("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY"),
    ):
        spark.conf.set(key, value)
        try:
            assert read(spark.read.parquet(path)) is None, key
        finally:
            spark.conf.unset(key)
    assert read(spark.read.parquet(path)) is not None


def test_empty_tables(spark: Any, tmp_path: Path, frames: tuple[Any, Any]) -> None:
    left, _ = frames
    path = write(tmp_path / "t", table([], RIGHT))
    empty = spark.read.parquet(path)
    found = read(empty)
    assert found is not None
    assert found.num_rows == 0
    for how, expected in (("inner", 0), ("left", len(L)), ("full", len(L)), ("right", 0)):
        for most in (0, 1000):
            assert tj.join(left, empty, ON, how=how, broadcast_rows=most).count() == expected


def test_files_that_change_under_a_join(spark: Any, tmp_path: Path) -> None:
    rows: list[Row] = [{"lid": at, "a": at, "c": at, "x": 0.0, "t": at} for at in range(20)]
    plain: dict[str, Any] = {"compression": "none", "use_dictionary": False}
    path = write(tmp_path / "t", table(rows, LEFT), 2, **plain)
    frame = spark.read.parquet(path)
    joined = tj.join(frame, frame, "l.a < r.a", broadcast_rows=0)
    file = tmp_path / "t" / "0.parquet"
    size = file.stat().st_size
    others = [row | {"a": row["a"] + 20} for row in rows[:10]]
    for change in (table(others, LEFT), table(rows[:3], LEFT), None):
        if change is None:
            file.unlink()
        else:
            pq.write_table(change, file, **plain)
        if change is not None and len(change) == 10:
            assert file.stat().st_size == size
        with pytest.raises(Exception, match=r"0\.parquet is no longer the file it was"):
            joined.count()


@given(
    st.lists(st.lists(st.integers(0, 1 << 28), max_size=4), max_size=6),
    st.integers(1, 9),
)
def test_every_row_group_is_read_once(files: list[list[int]], tasks: int) -> None:
    pieces = [
        Piece(str(file), (1, 1), (group,), 10 * file + group)
        for file, groups in enumerate(files)
        for group in range(len(groups))
    ]
    weights = [weight for groups in files for weight in groups]
    dealt = _dealt(pieces, weights, tasks)
    read = [(p.path, group) for task in dealt for p in task for group in p.groups]
    assert read == [(p.path, p.groups[0]) for p in pieces]
    firsts = {(p.path, p.groups[0]): p.first for p in pieces}
    assert all(firsts[p.path, p.groups[0]] == p.first for task in dealt for p in task)
    assert all(task for task in dealt)
