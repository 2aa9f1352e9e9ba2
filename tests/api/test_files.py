"""Files as inputs: every format, folders, patterns, partitions, URIs, and what is refused."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet
import pytest

import thetajoin as tj
from strategies import ids, refused
from thetajoin.batch.files import read_files

LEFT = pa.table({"lid": [0, 1, 2], "a": [1, 5, None], "s": ["x", None, "zé"]})
RIGHT = pa.table({"rid": [0, 1], "b": [4, 9]})
PAIRS = {(0, 0): 1, (0, 1): 1, (1, 1): 1}
LINES = '{"lid": 0, "a": 1, "s": "x"}\n{"lid": 1, "a": 5}\n{"lid": 2, "s": "zé"}\n'
CSV = "lid,a,s\n0,1,x\n1,5,\n2,,zé\n"


def zstd(text: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as packed:
        packed.write(text.encode())
    return sink.getvalue().to_pybytes()


def write_stream(path: Path) -> None:
    with pa.ipc.new_stream(path, LEFT.schema) as writer:
        writer.write_table(LEFT)


WRITERS: dict[str, Any] = {
    "t.parquet": lambda path: pa.parquet.write_table(LEFT, path),
    "t.pq": lambda path: pa.parquet.write_table(LEFT, path),
    "t.csv": lambda path: path.write_text(CSV),
    "t.TSV": lambda path: path.write_text(CSV.replace(",", "\t")),
    "t.csv.gz": lambda path: path.write_bytes(gzip.compress(CSV.encode())),
    "t.csv.zst": lambda path: path.write_bytes(zstd(CSV)),
    "t.jsonl.zst": lambda path: path.write_bytes(zstd(LINES)),
    "t.json": lambda path: path.write_text(LINES),
    "t.jsonl": lambda path: path.write_text(LINES),
    "t.ndjson.gz": lambda path: path.write_bytes(gzip.compress(LINES.encode())),
    "t.arrow": lambda path: pa.feather.write_feather(LEFT, path, compression="uncompressed"),
    "t.feather": lambda path: pa.feather.write_feather(LEFT, path),
    "stream.arrow": lambda path: write_stream(path),
    "t.orc": lambda path: pa.orc.write_table(LEFT, path),
    "parquet": lambda path: pa.parquet.write_table(LEFT, path),
    "stream": lambda path: write_stream(path),
    "orc": lambda path: pa.orc.write_table(LEFT, path),
    "a b[1]*.csv": lambda path: path.write_text(CSV),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pa.parquet.write_table(table, path)


@pytest.mark.parametrize("name", WRITERS)
def test_every_format(folder: Path, name: str) -> None:
    WRITERS[name](folder / name)
    for path in (name, folder / name, Path(name), str(folder / name)):
        got = tj.join(path, RIGHT, "l.a < r.b")
        assert isinstance(got, pa.Table)
        assert ids(got) == PAIRS
        assert got.column_names == ["lid", "a", "s", "rid", "b"]
    whole = read_files(name, "left").to_pydict()
    # Text in CSV that is empty is not missing, as everywhere in Arrow.
    text = "csv" in name or "TSV" in name
    assert whole == LEFT.to_pydict() | ({"s": ["x", "", "zé"]} if text else {})


def test_paths_on_both_sides_and_in_every_call(folder: Path) -> None:
    write(folder / "l.parquet", LEFT)
    (folder / "r").mkdir()
    for at in range(2):
        pa.csv.write_csv(RIGHT.slice(at, 1), folder / f"r/{at}.csv")
    left, right, on = "l.parquet", "r/*.csv", "l.a < r.b"
    assert ids(tj.join(left, right, on)) == PAIRS
    assert ids(pa.Table.from_batches(tj.join_batches(left, right, on))) == PAIRS
    assert tj.self_join(left, "l.a < r.a").num_rows == 1
    aggs = {"n": "count(*)"}
    assert tj.join_agg(left, right, on, aggs=aggs).to_pydict() == {"n": [3]}
    assert tj.self_join_agg(left, "l.a < r.a", aggs=aggs).to_pydict() == {"n": [1]}
    many = tj.join_many({"p": left, "q": right, "s": left}, "p.a < q.b AND q.b > s.a")
    assert many.num_rows == 5
    near = tj.nearest(left, right, key=("a", "b"), direction="forward")
    assert near["rid"].to_pylist() == [0, 1, None]
    assert tj.explain(left, right, on).right_rows == 2
    found = tj.sql("SELECT l.lid, r.rid FROM l JOIN r ON l.a < r.b", l=left, r=right)
    assert ids(found) == PAIRS
    assert ids(tj.StreamJoin(on, window=tj.FullHistory()).push(left, right)) == PAIRS


def test_folders_named_by_value_are_columns(folder: Path) -> None:
    for year, month in ((2023, "jan"), (2024, "jan"), (2024, "feb")):
        write(folder / f"t/year={year}/m={month}/part-0.parquet", pa.table({"x": [year]}))
    (folder / "t/_SUCCESS").write_text("")
    (folder / "t/year=2023/.part-0.parquet.crc").write_text("")
    want = [(2023, 2023, "jan"), (2024, 2024, "feb"), (2024, 2024, "jan")]
    places = ["t", "t/", "t/year=*", "t/**/*.parquet", "t/*/*/*.parquet", folder / "t"]
    uris = [f"file://{folder}/{place}" for place in ("t", "t/*", "t/**/*.parquet", "t/*/m=*")]
    for place in (*places, *uris):
        got = read_files(place, "left")
        assert got.column_names == ["x", "year", "m"]
        assert [tuple(row.values()) for row in got.to_pylist()] == want, place
    # Only below what was given: its own name is not looked at.
    assert read_files("t/year=2024", "left").column_names == ["x", "m"]
    assert read_files("t/year=2024/m=feb/part-0.parquet", "left").column_names == ["x"]
    assert read_files("t/year=202[4]/m=feb", "left").column_names == ["x", "year", "m"]
    joined = tj.join("t", "t", "l.x < r.x AND l.m = r.m")
    assert joined.select(["x", "year_right"]).to_pydict() == {"x": [2023], "year_right": [2024]}


def test_rows_come_in_the_order_of_names(folder: Path) -> None:
    for at in range(20):
        table = pa.table({"x": range(500 * at, 500 * at + 500)})
        path = folder / f"t/{at:02}.parquet"
        path.parent.mkdir(exist_ok=True)
        pa.parquet.write_table(table, path, row_group_size=50)
    for place in ("t", "t/*.parquet", f"file://{folder}/t/*.parquet"):
        assert read_files(place, "left")["x"].to_pylist() == list(range(10_000))


def test_files_whose_columns_differ(folder: Path) -> None:
    write(folder / "t/a.parquet", pa.table({"x": pa.array([1], pa.int32())}))
    write(folder / "t/b.parquet", pa.table({"y": ["b"], "x": [2**40]}))
    assert read_files("t", "left").to_pydict() == {"x": [1, 2**40], "y": [None, "b"]}
    (folder / "1.csv").write_text("x\n1\n")
    (folder / "2.csv").write_text("x\n1.5\n")
    assert read_files("?.csv", "left").to_pydict() == {"x": [1.0, 1.5]}
    write(folder / "t/c.parquet", pa.table({"x": ["text"]}))
    with pytest.raises(tj.ThetaJoinError, match=r"columns of different types.*x has incompat"):
        read_files("t", "left")


def test_an_integer_that_a_double_cannot_hold_is_an_error(folder: Path) -> None:
    write(folder / "t/a.parquet", pa.table({"x": [9007199254740993]}))
    write(folder / "t/b.parquet", pa.table({"x": [0.5]}))
    with pytest.raises(tj.ThetaJoinError, match="9007199254740993"):
        read_files("t", "left")


def test_line_breaks_inside_quotes(folder: Path) -> None:
    values = ["a\nb" * (at % 3) for at in range(200_000)]
    pa.csv.write_csv(pa.table({"s": values, "x": range(len(values))}), folder / "t.csv")
    assert read_files("t.csv", "left")["s"].to_pylist() == values


def test_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USERPROFILE", str(folder))
    write(folder / "t.parquet", LEFT)
    assert read_files("~/t.parquet", "left").num_rows == 3


def test_a_filesystem_of_pyarrows(folder: Path) -> None:
    """The way to object stores, with a filesystem that needs none."""
    write(folder / "t/x=1/a.parquet", LEFT)
    for uri in (f"file://{folder}/t", f"file://{folder}/t/*/*.parquet"):
        assert ids(tj.join(uri, RIGHT, "l.a < r.b")) == PAIRS


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("none.csv", "the left input 'none.csv': there is no such file or folder"),
        ("ragged.cvs", "there is no such file or folder: did you mean 'ragged.csv'?"),
        ("mixed/b.paquet", "did you mean 'mixed/b.parquet'?"),
        ("zst", "'b.csv.zst' is packed with zstd, and such a file is read on its own only"),
        ("z*/*.zst", "is packed with zstd"),
        ("no/such/folder/", "there is no such file or folder"),
        ("none*.csv", "the left input 'none*.csv': no file matches that pattern"),
        ("**/none.csv", "no file matches"),
        ("file:///none/t.csv", "no such file"),
        ("file:///none/*.csv", "no file matches"),
        ("", "the left input is an empty text"),
        ("\0", "cannot be read"),
        ("t.xls", "'t.xls' does not say its format; known are .parquet, .pq, .csv"),
        ("plain", "'plain' does not say its format"),
        ("t.csv.zst", "cannot be read: "),
        ("mixed", "files of different formats, such as 'a.csv' and 'b.parquet'"),
        ("mixed/*", "files of different formats"),
        ("tabs", "files of different formats, such as 'a.csv' and 'b.tsv'"),
        ("empty", "there are no files in that folder"),
        ("hidden", "there are no files in that folder"),
        ("delta", "is a Delta table"),
        ("delta/*", "is a Delta table"),
        ("hidden/*", "no file matches"),
        ("nothing.csv", "cannot be read: "),
        ("ragged.csv", "Expected 1 columns, got 2"),
        ("late.csv", "CSV conversion error to int64: invalid value 'x'"),
        ("no.parquet", "cannot be read: "),
        ("array.json", "cannot be read: "),
        ("https://example.org/t.csv", "Unrecognized filesystem type"),
        ("s3://", "cannot be read: "),
        ("://", "cannot be read: "),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(folder: Path, path: str, words: str) -> None:
    (folder / "t.xls").write_text("")
    (folder / "plain").write_text("")
    (folder / "t.csv.zst").write_text("")
    for name in (
        "mixed/a.csv",
        "mixed/b.parquet",
        "tabs/a.csv",
        "tabs/b.tsv",
        "hidden/_x.csv",
        "zst/a.csv",
        "zst/b.csv.zst",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("a\n1\n")
    (folder / "empty/inner").mkdir(parents=True)
    (folder / "delta/_delta_log").mkdir(parents=True)
    (folder / "delta/_delta_log/0.json").write_text("{}")
    (folder / "nothing.csv").write_text("")
    (folder / "ragged.csv").write_text("a\n1\n1,2\n")
    (folder / "late.csv").write_text("a\n" + "1\n" * 600_000 + "x\n")
    (folder / "no.parquet").write_text("a\n1\n")
    (folder / "array.json").write_text('[{"a": 1}]\n')
    with pytest.raises(tj.ThetaJoinError) as caught:
        tj.join(path, RIGHT, "l.a < r.b")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_hidden_files_can_be_asked_for(folder: Path) -> None:
    write(folder / "_t.parquet", LEFT)
    assert read_files("_*.parquet", "left").num_rows == 3
    assert read_files("_t.parquet", "left").num_rows == 3


def test_a_name_that_is_no_text(folder: Path) -> None:
    write(folder / "t.parquet", LEFT)

    class Named(os.PathLike[str]):
        def __fspath__(self) -> str:
            return "t.parquet"

    assert ids(tj.join(Named(), RIGHT, "l.a < r.b")) == PAIRS


def test_csv_that_a_path_alone_would_not_read_right(folder: Path) -> None:
    (folder / "plain.txt").write_text("1;a;01\n5;;02\n")
    rows = tj.csv("plain.txt", header=False, delimiter=";")
    assert rows.to_pydict() == {"f0": [1, 5], "f1": ["a", ""], "f2": [1, 2]}
    names = ["low", "name", "code"]
    rows = tj.csv(
        "plain.txt",
        header=False,
        delimiter=";",
        names=names,
        types={"code": pa.string()},
        null_values=[""],
    )
    assert rows.to_pydict() == {"low": [1, 5], "name": ["a", None], "code": ["01", "02"]}
    (folder / "headed.csv").write_text("made today\nx,y\n1,2\n")
    assert tj.csv("headed.csv", skip_rows=1).to_pydict() == {"x": [1], "y": [2]}
    assert tj.csv("headed.csv", skip_rows=1, names=["a", "b"]).to_pydict() == {"a": [1], "b": [2]}
    (folder / "tabs.tsv").write_text("1\t2\n")
    assert tj.csv("tabs.tsv", header=False).to_pydict() == {"f0": [1], "f1": [2]}
    (folder / "many").mkdir()
    for at in (0, 1):
        (folder / "many" / f"{at}.csv").write_text(f"{at},{at + 10}\n")
    many = tj.csv("many/*.csv", header=False, names=["lid", "a"])
    assert many.to_pydict() == {"lid": [0, 1], "a": [10, 11]}
    assert ids(tj.join(many, pa.table({"rid": [7], "b": [10]}), "l.a > r.b")) == {(1, 7): 1}


def test_csv_that_is_wrong(folder: Path) -> None:
    (folder / "a.csv").write_text("x,y\n1,2\n")
    refused(lambda: tj.csv("no.csv"), "'no.csv': there is no such file")
    refused(lambda: tj.csv("a.csv", delimiter=";;"), "delimiter=';;': give one character")
    refused(lambda: tj.csv("a.csv", types={"x": pa.date32()}), "'a.csv' cannot be read")
