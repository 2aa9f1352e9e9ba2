"""Delta tables as streams: every row once, whatever happens to the table; or one clear line."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")
deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")

from deltalake import DeltaTable, write_deltalake  # noqa: E402

from spark.table_driver import Driver, keys, table  # noqa: E402
from thetajoin.errors import DataError, SchemaError  # noqa: E402
from thetajoin.spark.connectors.specs import TableStream  # noqa: E402

pytestmark = pytest.mark.spark


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "t")


def add(place: str, *numbers: int, **options: Any) -> None:
    options = {"mode": "append", **options}
    write_deltalake(place, table(*numbers), **options)


def stream(place: str, **options: Any) -> Driver:
    return Driver(TableStream("delta", place, **options))


def log(place: str, version: int) -> Path:
    return Path(place, "_delta_log", f"{version:020d}.json")


def test_the_table_first_and_then_each_version(place: str) -> None:
    add(place, 1, 2)
    add(place, 3)
    query = stream(place)
    assert [keys(rows) for rows in query.run()] == [[1, 2, 3]]
    add(place, 4)
    add(place, 5, 6)
    assert [keys(rows) for rows in query.run()] == [[4, 5, 6]]
    assert query.run() == []


def test_a_limit_splits_versions(place: str) -> None:
    for at in range(3):
        add(place, at)
    query = stream(place, most=2)
    assert [keys(rows) for rows in query.run()] == [[0, 1], [2]]
    write_deltalake(place, table(3, 4), mode="append", partition_by=None)
    add(place, 5)
    add(place, 6)
    assert [keys(rows) for rows in query.run()] == [[3, 4, 5], [6]]
    add(place, 7)
    add(place, 8)
    add(place, 9)
    assert [keys(rows) for rows in query.run(limited=False)] == [[7, 8, 9]]


@pytest.mark.parametrize("seed", range(12))
def test_every_row_once_through_compactions_and_restarts(place: str, seed: int) -> None:
    rng = random.Random(seed)
    options = {"partition_by": ["p"]} if seed % 2 else {}
    add(place, 0, 1, **options)
    number = 2
    query = stream(place, most=rng.choice([None, 1, 2, 3]))
    for _ in range(14):
        action = rng.choice(["add", "add", "compact", "order", "checkpoint", "nothing"])
        if action == "add":
            more = rng.randint(1, 4)
            add(place, *range(number, number + more))
            number += more
        elif action == "compact":
            DeltaTable(place).optimize.compact()
        elif action == "order":
            DeltaTable(place).optimize.z_order(["k"])
        elif action == "checkpoint":
            DeltaTable(place).create_checkpoint()
        for _ in range(rng.randint(0, 2)):
            if query.batch() is None:
                break
            if rng.random() < 0.4:
                query.restart()
                last = query.rows[len(query.rows) - len(query.again()) :]
                assert keys(query.again()) == keys(last)
    query.restart()
    query.run()
    assert keys(query.rows) == list(range(number))


def test_a_first_micro_batch_that_is_run_again_is_the_same(place: str) -> None:
    """Nothing but its end is written down, and the table has a newer version by then."""
    add(place, 1)
    for starting in (None, "latest"):
        query = stream(place, starting=starting)
        first = query.restart().initialOffset()
        add(place, 2)
        end = query.restart().latestOffset(first, query.reader.getDefaultReadLimit())
        query.ends.append(json.dumps(end))
        add(place, 3)
        query.restart()
        assert keys(query.again()) == ([1, 2] if starting is None else [2])
        place = add_new(place)


def add_new(place: str) -> str:
    add(f"{place}2", 1)
    return f"{place}2"


def test_where_a_stream_starts(place: str) -> None:
    for at in range(4):
        add(place, at)
    found = {start: stream(place, starting=start) for start in (0, 2, 4, "latest")}
    for query in found.values():
        query.run()
    add(place, 4)
    for query in found.values():
        query.run()
    assert {start: keys(query.rows) for start, query in found.items()} == {
        0: [0, 1, 2, 3, 4],
        2: [2, 3, 4],
        4: [4],
        "latest": [4],
    }
    with pytest.raises(DataError, match="has no version 9: the newest is 4"):
        stream(place, starting=9).run()


LATE = datetime(9999, 12, 31, 23, 59, 59, 999999)
EVERY = pa.table(
    {
        "b": pa.array([True, None, False]),
        "i1": pa.array([-128, None, 127], pa.int8()),
        "i4": pa.array([-(2**31), None, 2**31 - 1], pa.int32()),
        "i8": pa.array([-(2**63), None, 2**63 - 1], pa.int64()),
        "f": pa.array([1.1, None, float("nan")], pa.float32()),
        "d": pa.array([-0.0, None, float("inf")], pa.float64()),
        "dec": pa.array(
            [Decimal("-99999999999999999999999999999999.123456"), None, Decimal("0.000001")],
            pa.decimal128(38, 6),
        ),
        "s": pa.array(["", None, "ü\0%/ 漢"]),
        "bin": pa.array([b"", None, b"\x00\xff"]),
        "day": pa.array([date(1, 1, 1), None, date(9999, 12, 31)]),
        "ts": pa.array(
            [datetime(1900, 1, 1, tzinfo=UTC), None, LATE.replace(tzinfo=UTC)],
            pa.timestamp("us", "UTC"),
        ),
        "ntz": pa.array(
            [datetime(1900, 1, 1), None, LATE],
            pa.timestamp("us"),
        ),
        "list": pa.array([[1, None], None, []], pa.list_(pa.int64())),
        "struct": pa.array(
            [{"x": 1, "y": "a"}, None, {"x": None, "y": None}],
            pa.struct([("x", pa.int64()), ("y", pa.string())]),
        ),
    }
)


def test_every_type_comes_through(place: str) -> None:
    write_deltalake(place, EVERY)
    query = stream(place)
    query.run()
    write_deltalake(place, EVERY, mode="append")
    query.run()
    assert repr(query.rows) == repr(EVERY.to_pylist() * 2)


PARTS = ["b", "i4", "d", "dec", "s", "day", "ts", "ntz"]


def test_values_of_partitions_come_through(place: str) -> None:
    """They are text in the log, and not in the files; an empty text is NULL, as in all Delta."""
    rows = EVERY.select([*PARTS, "i8"])
    # The package itself cannot write a negative decimal as a partition.
    positive = pa.array([Decimal("7.5"), None, Decimal("0.000001")], pa.decimal128(38, 6))
    rows = rows.set_column(PARTS.index("dec"), "dec", positive)
    write_deltalake(place, rows, partition_by=PARTS)
    want = rows.to_pylist()
    want[0]["s"] = None
    query = stream(place)
    query.run()
    write_deltalake(place, rows, mode="append")
    query.run()
    by_number = lambda row: (row["i8"] is None, row["i8"])  # noqa: E731
    assert repr(sorted(query.rows, key=by_number)) == repr(sorted(want * 2, key=by_number))


def test_rows_of_nothing_but_partitions(place: str) -> None:
    write_deltalake(place, pa.table({"k": [1, 1, 2], "x": [0, 0, 0]}), partition_by=["k"])
    query = stream(place)
    query.restart()
    query.columns = type(query.columns)([query.columns["k"]])
    query.restart()
    query.run()
    assert keys(query.rows) == [1, 1, 2]


def test_timestamps_as_spark_writes_them(tmp_path: Path) -> None:
    """INT96, which pyarrow takes for nanoseconds, beyond the year 2262."""
    folder = tmp_path / "p"
    folder.mkdir()
    pq.write_table(
        pa.table({"ts": pa.array([LATE, None], pa.timestamp("us"))}),
        folder / "a.parquet",
        use_deprecated_int96_timestamps=True,
    )
    deltalake.convert_to_deltalake(str(folder))
    query = stream(str(folder))
    query.run()
    assert [row["ts"] and row["ts"].replace(tzinfo=None) for row in query.rows] == [LATE, None]


@pytest.mark.parametrize(
    ("change", "operation"),
    [
        (lambda place: DeltaTable(place).delete("k = 1"), "DELETE"),
        (lambda place: DeltaTable(place).update(updates={"k": "10"}, predicate="k = 1"), "UPDATE"),
        (lambda place: write_deltalake(place, table(9), mode="overwrite"), "WRITE"),
        (lambda place: DeltaTable(place).restore(0), "RESTORE"),
    ],
)
def test_a_change_is_refused_or_skipped(place: str, change: Any, operation: str) -> None:
    add(place, 1, 2)
    add(place, 3)
    query, skipping = stream(place), stream(place, skip_changes=True)
    query.run()
    skipping.run()
    add(place, 4)
    change(place)
    add(place, 5)
    message = rf"version 3 of the Delta table .* removes or rewrites rows \({operation}\)"
    assert keys(query.batch() or []) == [4]
    for _ in range(2):
        with pytest.raises(DataError, match=message):
            query.batch()
        query.restart()
    skipping.run()
    assert keys(skipping.rows) == [1, 2, 3, 4, 5]


def test_rows_that_are_restored_are_not_new(place: str) -> None:
    add(place, 1)
    query = stream(place, skip_changes=True)
    query.run()
    DeltaTable(place).delete()
    DeltaTable(place).restore(0)
    query.run()
    assert keys(query.rows) == [1]


def test_inserts_of_a_merge_are_rows(place: str) -> None:
    add(place, 1)
    query = stream(place)
    query.run()
    merge = DeltaTable(place).merge(table(1, 2), "t.k = s.k", source_alias="s", target_alias="t")
    merge.when_not_matched_insert_all().execute()
    query.run()
    assert keys(query.rows) == [1, 2]


def test_breaks_of_lines_in_values_of_partitions(place: str) -> None:
    """JSON has some of them as they are, and Python takes them for ends of lines."""
    rows = pa.table({"k": [1, 2], "s": ["a\u2028b", "c\x85d"]})
    write_deltalake(place, rows, partition_by=["s"])
    query = stream(place, starting=0)
    query.run()
    assert sorted(query.rows, key=lambda row: row["k"]) == rows.to_pylist()


def test_a_checkpoint_of_another_kind(place: str) -> None:
    add(place, 1)
    query = stream(place)
    query.ends.append('{"logOffset": 3}')
    with pytest.raises(SchemaError, match="this checkpoint was not made by a stream of the Delta"):
        query.run()


def test_a_vacuumed_file(place: str) -> None:
    add(place, 1)
    query = stream(place)
    query.run()
    add(place, 2)
    add(place, 3)
    DeltaTable(place).optimize.compact()
    DeltaTable(place).vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(DataError, match=r"a file of version 1 of .* not there any more \(vacuumed"):
        query.run()


def test_a_log_that_was_cleaned_up(place: str) -> None:
    add(place, 1)
    query = stream(place)
    query.run()
    ends = list(query.ends)
    for at in range(2, 6):
        add(place, at)
    DeltaTable(place).create_checkpoint()
    for version in range(4):
        log(place, version).unlink()
    for again in (query, Driver(query.source, query.columns, ends)):
        with pytest.raises(DataError, match=r"version 1 of .* not there any more \(its log"):
            again.run()
    with pytest.raises(DataError, match=r"version 2 of .* not there any more"):
        stream(place, starting=2).run()
    whole = stream(place)
    whole.run()
    assert keys(whole.rows) == [1, 2, 3, 4, 5]


def test_a_first_version_that_is_gone(place: str) -> None:
    add(place, 1)
    add(place, 2)
    query = stream(place, most=1)
    query.batch()
    add(place, 3)
    DeltaTable(place).create_checkpoint()
    for version in range(2):
        log(place, version).unlink()
    query.restart()
    with pytest.raises(DataError, match=r"version 1 of .* not there any more"):
        query.run()


def test_another_table_in_the_same_place(place: str) -> None:
    import shutil

    add(place, 1)
    query = stream(place)
    query.run()
    shutil.rmtree(place)
    add(place, 1)
    add(place, 2)
    query.restart()
    with pytest.raises(SchemaError, match="is not the table that this checkpoint has read"):
        query.run()


def test_an_added_column_is_not_read(place: str) -> None:
    add(place, 1)
    query = stream(place)
    query.run()
    more = table(2, new=["x"])
    write_deltalake(place, more, mode="append", schema_mode="merge")
    query.run()
    query.restart()
    add(place, 3, schema_mode="merge")
    query.run()
    assert query.rows == table(1, 2, 3).to_pylist()
    fresh = stream(place)
    fresh.run()
    assert sorted((row["k"], row["new"]) for row in fresh.rows) == [(1, None), (2, "x"), (3, None)]


def test_a_changed_column_is_refused(place: str) -> None:
    add(place, 1)
    query = stream(place, skip_changes=True)
    query.run()
    for rows, how in (
        (pa.table({"k": ["a"], "p": [1]}), "has column 'k' as string, which was bigint"),
        (pa.table({"k": [1]}), "has no column 'p' any more"),
    ):
        write_deltalake(place, rows, mode="overwrite", schema_mode="overwrite")
        with pytest.raises(DataError, match=how):
            query.run()
        # The next loop goes on from what this one made.
        query.ends[-1] = json.dumps(
            json.loads(query.ends[-1]) | {"version": DeltaTable(place).version(), "files": -1}
        )


def edit(place: str, version: int, change: Any) -> None:
    """Rewrite a commit's actions."""
    lines = [json.loads(line) for line in log(place, version).read_text().splitlines()]
    for line in lines:
        change(line)
    log(place, version).write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_tables_that_cannot_be_read(place: str) -> None:
    add(place, 1)
    query = stream(place)
    query.run()
    add(place, 2)

    def marked(line: dict[str, Any]) -> None:
        if "add" in line:
            line["add"]["deletionVector"] = {"storageType": "u", "cardinality": 1}

    edit(place, 1, marked)
    with pytest.raises(DataError, match="removes or rewrites rows"):
        query.run()

    def cloned(line: dict[str, Any]) -> None:
        if "add" in line:
            line["add"].pop("deletionVector")
            line["add"]["path"] = "s3://elsewhere/x.parquet"

    edit(place, 1, cloned)
    query.restart()
    with pytest.raises(DataError, match="is a shallow clone"):
        query.run()

    def mapped(line: dict[str, Any]) -> None:
        if "metaData" in line:
            line["metaData"]["configuration"] = {"delta.columnMapping.mode": "name"}

    edit(place, 0, mapped)
    with pytest.raises(SchemaError, match=r"has column mapping, which cannot be read as a stream"):
        stream(place).run()


def test_partitions_by_bytes(place: str) -> None:
    write_deltalake(place, pa.table({"k": [1], "x": [b"a"]}), partition_by=["x"])
    with pytest.raises(SchemaError, match="is partitioned by 'x', which is binary"):
        stream(place).run()


def test_no_table(place: str) -> None:
    with pytest.raises(DataError, match="cannot read the Delta table"):
        stream(place).run()
