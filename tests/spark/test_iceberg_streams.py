"""Iceberg tables as streams: every row once, whatever happens to the table; or one clear line."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytest.importorskip("pyiceberg", reason="pyiceberg is not installed")
pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed")

from spark.iceberg_tables import catalog_options, compact, edit, open_catalog
from spark.table_driver import Driver, keys, table
from thetajoin.errors import DataError, SchemaError
from thetajoin.spark.connectors.specs import TableStream

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(tmp_path: Path) -> Any:
    return open_catalog(tmp_path)


@pytest.fixture
def made(lake: Any) -> Any:
    """A table with one snapshot: row 1."""
    found = lake.create_table("db.t", schema=table(1).schema)
    found.append(table(1))
    return found


@pytest.fixture
def stream(tmp_path: Path) -> Callable[..., Driver]:
    options = tuple(catalog_options(tmp_path).items())

    def open_stream(**more: Any) -> Driver:
        return Driver(TableStream("iceberg", "here.db.t", options=options, **more))

    return open_stream


def test_an_empty_table_and_then_each_snapshot(lake: Any, stream: Any) -> None:
    found = lake.create_table("db.t", schema=table(1).schema)
    query = stream()
    assert query.run() == [[]]
    found.append(table(1, 2))
    found.append(table(3))
    assert [keys(rows) for rows in query.run()] == [[1, 2, 3]]
    assert query.run() == []


@pytest.mark.parametrize("seed", range(6))
def test_every_row_once_through_compactions_and_restarts(lake: Any, stream: Any, seed: int) -> None:
    from pyiceberg.transforms import IdentityTransform

    rng = random.Random(seed)
    found = lake.create_table("db.t", schema=table(1).schema)
    if seed % 2:
        with found.update_spec() as spec:
            spec.add_field("p", IdentityTransform(), "p")
    # Manifests are merged as they are by other writers.
    with found.transaction() as change:
        change.set_properties({"commit.manifest-merge.enabled": "true"})
        change.set_properties({"commit.manifest.min-count-to-merge": "2"})
    number = 0
    query = stream(most=rng.choice([None, 1, 2]))
    for _ in range(8):
        action = rng.choice(["add", "add", "compact", "nothing"])
        if action == "add":
            more = rng.randint(1, 4)
            found.append(table(*range(number, number + more)))
            number += more
        elif action == "compact" and number:
            compact(found)
        for _ in range(rng.randint(0, 2)):
            if query.batch() is None:
                break
            if rng.random() < 0.4:
                query.restart()
                again = query.again()
                assert keys(again) == keys(query.rows[len(query.rows) - len(again) :])
    query.restart()
    query.run()
    assert keys(query.rows) == list(range(number))


def test_a_first_micro_batch_that_is_run_again_is_the_same(made: Any, stream: Any) -> None:
    for starting in (None, "latest"):
        before = keys(made.refresh().scan().to_arrow().to_pylist())
        query = stream(starting=starting)
        first = query.restart().initialOffset()
        made.append(table(len(before) + 1))
        end = query.restart().latestOffset(first, query.reader.getDefaultReadLimit())
        query.ends.append(json.dumps(end))
        made.append(table(len(before) + 2))
        query.restart()
        new = [len(before) + 1]
        assert keys(query.again()) == (before + new if starting is None else new)


def test_the_files_of_a_table_come_as_they_were_added(made: Any, stream: Any) -> None:
    for at in range(2, 7):
        made.append(table(at))
    assert [keys(rows) for rows in stream(most=2).run()] == [[1, 2], [3, 4], [5, 6]]


def test_where_a_stream_starts(made: Any, stream: Any) -> None:
    for at in (2, 3):
        made.append(table(at))
    ids = [snapshot.snapshot_id for snapshot in made.refresh().snapshots()]
    found = {start: stream(starting=start) for start in (ids[0], ids[2], "latest")}
    for query in found.values():
        query.run()
    made.append(table(4))
    for query in found.values():
        query.run()
    assert [keys(query.rows) for query in found.values()] == [[1, 2, 3, 4], [3, 4], [4]]
    with pytest.raises(DataError, match="has no snapshot 77 behind its current one"):
        stream(starting=77).run()


LATE = datetime(9999, 12, 31, 23, 59, 59, 999999)
EVERY = pa.table(
    {
        "b": pa.array([True, None, False]),
        "i4": pa.array([-(2**31), None, 2**31 - 1], pa.int32()),
        "i8": pa.array([-(2**63), None, 2**63 - 1], pa.int64()),
        "f": pa.array([1.1, None, float("nan")], pa.float32()),
        "d": pa.array([-0.0, None, float("inf")], pa.float64()),
        "dec": pa.array([Decimal("-9.123456"), None, Decimal("0.000001")], pa.decimal128(38, 6)),
        "s": pa.array(["", None, "ü%/ 漢"]),
        "bin": pa.array([b"", None, b"\x00\xff"]),
        "day": pa.array([date(1, 1, 1), None, date(9999, 12, 31)]),
        "ts": pa.array(
            [datetime(1900, 1, 1, tzinfo=UTC), None, LATE.replace(tzinfo=UTC)],
            pa.timestamp("us", "UTC"),
        ),
        "ntz": pa.array([datetime(1900, 1, 1), None, datetime(2024, 1, 1)], pa.timestamp("us")),
        "list": pa.array([[1, None], None, []], pa.list_(pa.int64())),
        "struct": pa.array(
            [{"x": 1, "y": "a"}, None, {"x": None, "y": None}],
            pa.struct([("x", pa.int64()), ("y", pa.string())]),
        ),
    }
)


@pytest.mark.parametrize("parts", [(), ("b", "i4", "dec", "s", "day", "ts")])
def test_every_type_comes_through(lake: Any, stream: Any, parts: tuple[str, ...]) -> None:
    from pyiceberg.transforms import IdentityTransform

    found = lake.create_table("db.t", schema=EVERY.schema)
    with found.update_spec() as spec:
        for name in parts:
            spec.add_field(name, IdentityTransform(), name)
    query = stream()
    for _ in range(2):
        found.append(EVERY)
        query.run()
    by_number = lambda row: (row["i8"] is None, row["i8"])  # noqa: E731
    want = sorted(EVERY.to_pylist() * 2, key=by_number)
    assert repr(sorted(query.rows, key=by_number)) == repr(want)


@pytest.mark.parametrize(
    ("change", "operation"),
    [
        (lambda found: found.delete("k = 1"), "delete"),
        (lambda found: found.delete("k = 2"), "overwrite"),
        (lambda found: found.overwrite(table(9)), "delete"),
    ],
)
def test_a_change_is_refused_or_skipped(
    made: Any, stream: Any, change: Any, operation: str
) -> None:
    made.append(table(2, 3))
    query, skipping = stream(), stream(skip_changes=True)
    query.run()
    skipping.run()
    made.append(table(4))
    change(made)
    made.append(table(5))
    assert keys(query.batch()) == [4]
    message = rf"snapshot \d+ of the Iceberg table here.db.t removes or .* \({operation}\)"
    for _ in range(2):
        with pytest.raises(DataError, match=message):
            query.batch()
        query.restart()
    skipping.run()
    # pyiceberg overwrites in two snapshots, of which the second only adds.
    more = [9] if operation == "delete" and len(made.snapshots()) > 5 else []
    assert keys(skipping.rows) == sorted([1, 2, 3, 4, 5, *more])


def test_deletes_from_before_the_stream(made: Any, stream: Any) -> None:
    made.append(table(2, 3))
    made.delete("k = 2")
    query = stream()
    query.run()
    assert keys(query.rows) == [1, 3]


def test_expired_snapshots(made: Any, stream: Any) -> None:
    query = stream()
    query.run()
    first = made.refresh().current_snapshot().snapshot_id
    for at in (2, 3):
        made.append(table(at))
    second = made.refresh().snapshots()[1].snapshot_id

    def with_parent(data: dict[str, Any]) -> None:
        # pyiceberg takes the id of a parent that is expired out of its child; others leave it.
        data["snapshots"][0]["parent-snapshot-id"] = first

    made.maintenance.expire_snapshots().by_ids([first]).commit()
    edit(made, with_parent)
    assert keys(query.run()[0]) == [2, 3]
    late = Driver(query.source, query.columns, query.ends[:1])
    made.refresh().maintenance.expire_snapshots().by_ids([second]).commit()
    with pytest.raises(DataError, match=rf"snapshot {first} of .* \(expired, or rolled back\)"):
        late.run()


def test_a_rolled_back_table(made: Any, stream: Any) -> None:
    first = made.refresh().current_snapshot().snapshot_id
    made.append(table(2))
    query = stream()
    query.run()
    made.refresh().manage_snapshots().rollback_to_snapshot(first).commit()
    made.refresh().append(table(3))
    with pytest.raises(DataError, match="expired, or rolled back"):
        query.run()


def test_a_file_that_is_gone(made: Any, stream: Any) -> None:
    query = stream()
    query.run()
    made.append(table(2))
    for task in made.refresh().scan().plan_files():
        Path(task.file.file_path.removeprefix("file://")).unlink()
    with pytest.raises(DataError, match=r"a file of snapshot \d+ of .* not there any more"):
        query.run()


def test_another_table_in_the_same_place(lake: Any, made: Any, stream: Any) -> None:
    query = stream()
    query.run()
    lake.drop_table("db.t")
    lake.create_table("db.t", schema=table(1).schema).append(table(1))
    with pytest.raises(SchemaError, match="is not the table that this checkpoint has read"):
        query.run()


def test_an_added_column_is_not_read(made: Any, stream: Any) -> None:
    query = stream()
    query.run()
    with made.update_schema() as change:
        change.union_by_name(table(2, new=["x"]).schema)
    made.append(table(2, new=["x"]))
    query.run()
    query.restart()
    query.run()
    assert query.rows == table(1, 2).to_pylist()
    fresh = stream()
    fresh.run()
    assert sorted((row["k"], row["new"]) for row in fresh.rows) == [(1, None), (2, "x")]


def test_a_changed_column_is_refused(made: Any, stream: Any) -> None:
    query = stream()
    query.run()
    made.append(table(2))
    with made.update_schema() as change:
        change.rename_column("p", "q")
    made.append(pa.table({"k": [3], "q": [1]}))
    # What was added before is read with the columns of its time.
    assert keys(query.batch() or []) == [2]
    with pytest.raises(DataError, match=r"snapshot \d+ of .* has no column 'p' any more"):
        query.batch()


def test_a_snapshot_that_does_not_say_what_it_did(made: Any, stream: Any) -> None:
    query = stream()
    query.run()
    made.append(table(2))
    edit(made, lambda data: data["snapshots"][-1].pop("summary"))
    with pytest.raises(DataError, match=r"removes or rewrites rows \(a change\)"):
        query.run()


def test_no_table(lake: Any, stream: Any) -> None:
    with pytest.raises(DataError, match=r"cannot read the Iceberg table here.db.t: .*not exist"):
        stream().run()
