"""Results are written as they are found, and take a name only when they are complete."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from thetajoin.errors import DataError
from thetajoin.jobs.results import regroup, take_first, write_result

SCHEMA = pa.schema([("k", pa.int64())])


def batches(*sizes, asked=None):
    at = 0
    for size in sizes:
        if asked is not None:
            asked.append(size)
        yield pa.record_batch({"k": pa.array(range(at, at + size), pa.int64())})
        at += size


@pytest.mark.parametrize("form", ["csv", "json", "arrow", "parquet"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), DataError("5 / 0"), MemoryError()])
def test_what_goes_wrong_on_the_way_leaves_the_old_result(tmp_path, form, error):
    def failing():
        yield from batches(200_000, 5)
        raise error

    path = tmp_path / "o"
    path.write_text("mine")
    with pytest.raises(type(error)):
        write_result(SCHEMA, failing(), path, form)
    assert path.read_text() == "mine"
    assert [file.name for file in tmp_path.iterdir()] == ["o"]


@pytest.mark.parametrize("form", ["arrow", "parquet"])
@pytest.mark.parametrize("sizes", [(), (0,), (5, 0, 3), (200_000, 1, 200_000)])
def test_all_rows_in_their_order(tmp_path, form, sizes):
    counts = []
    rows = write_result(SCHEMA, batches(*sizes), tmp_path / "o", form, counts.append)
    reader = feather.read_table if form == "arrow" else parquet.read_table
    found = reader(tmp_path / "o")
    assert found.schema == SCHEMA
    assert found.column("k").to_pylist() == list(range(sum(sizes)))
    assert rows == sum(sizes)
    assert counts == sorted(counts)


def test_rows_are_written_as_they_come(tmp_path):
    """No more is held than a row group."""
    asked, written = [], []
    for batch in regroup(batches(*[50_000] * 9, asked=asked)):
        written.append(batch.num_rows)
        assert sum(asked) - sum(written) <= 0
    assert written == [150_000] * 3


def test_no_more_is_asked_for_than_is_wanted():
    asked = []
    assert sum(b.num_rows for b in take_first(batches(3, 3, 3, asked=asked), 5)) == 5
    assert asked == [3, 3]
    assert list(take_first(batches(3, asked=asked), 0)) == []
    assert asked == [3, 3]


def test_dictionaries_that_differ_from_batch_to_batch(tmp_path):
    kind = pa.dictionary(pa.int32(), pa.string())
    parts = [
        pa.record_batch({"s": pa.array(values).dictionary_encode().cast(kind)})
        for values in (["a", "b"], ["c", "a"])
    ]
    for form, reader in (("parquet", parquet.read_table), ("arrow", feather.read_table)):
        write_result(parts[0].schema, iter(parts), tmp_path / form, form)
        assert reader(tmp_path / form).column("s").to_pylist() == ["a", "b", "c", "a"]
    for form in ("csv", "json"):
        write_result(parts[0].schema, iter(parts), tmp_path / form, form)
        assert "c" in (tmp_path / form).read_text()


@pytest.mark.parametrize("words", [["--format", "csv"], ["--json"], ["--limit", "100000"]])
def test_a_reader_that_has_had_enough(tmp_path, words):
    parquet.write_table(pa.table({"x": range(5_000)}), tmp_path / "t.parquet")
    query = "SELECT t.x, u.x AS y FROM 't.parquet' t, 't.parquet' u WHERE t.x < u.x"
    command = "import sys; from thetajoin.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", command, "run", query, *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.readline()
    process.stdout.close()
    assert (process.stderr.read(), process.wait(60)) == (b"", 0)
    process.stderr.close()
