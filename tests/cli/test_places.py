"""Where results go: in the format the ending says, and never over anything that is there."""

from __future__ import annotations

import json
import os
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from thetajoin.errors import ThetaJoinError
from thetajoin.jobs.files import read_table
from thetajoin.jobs.results import write_result

QUERY = "SELECT a.k, a.s FROM a, b WHERE a.k < b.k AND b.k = 3"
ROWS = [{"k": 1, "s": "x"}, {"k": 2, "s": None}]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = pa.table({"k": [1, 2, 3], "s": ["x", None, "z"]})
    (tmp_path / "data").mkdir()
    for file in ("a.parquet", "data/b.parquet", "data/c.parquet"):
        parquet.write_table(table, file)
    return tmp_path


def tables(a="a.parquet", b="data/b.parquet"):
    return ["--table", f"a={a}", "--table", f"b={b}"]


READERS = {
    "parquet": parquet.read_table,
    "pq": parquet.read_table,
    "arrow": feather.read_table,
    "feather": feather.read_table,
    "ipc": feather.read_table,
}


@pytest.mark.parametrize("ending", ["parquet", "pq", "arrow", "feather", "ipc", "PARQUET"])
def test_the_ending_is_the_format(folder, run, ending):
    assert run("run", QUERY, *tables(), "--out", f"o.{ending}")[0] == 0
    assert READERS[ending.lower()](f"o.{ending}").to_pylist() == ROWS
    assert read_table(f"o.{ending}").to_pylist() == ROWS


@pytest.mark.parametrize("ending", ["json", "ndjson", "jsonl"])
def test_json_is_one_object_a_line(folder, run, ending):
    assert run("run", QUERY, *tables(), "--out", f"o.{ending}")[0] == 0
    lines = (folder / f"o.{ending}").read_text().splitlines()
    assert [json.loads(line) for line in lines] == ROWS
    assert read_table(f"o.{ending}").to_pylist() == ROWS


def test_csv(folder, run):
    assert run("run", QUERY, *tables(), "--out", "o.csv")[0] == 0
    assert (folder / "o.csv").read_text() == '"k","s"\n1,"x"\n2,\n'


def test_a_job_too(folder, run):
    sources = '[sources.a]\npath = "a.parquet"\n[sources.b]\npath = "data/b.parquet"\n'
    (folder / "job.toml").write_text(f'query = "{QUERY}"\n{sources}[sink]\npath = "o.json"\n')
    assert run("run", "job.toml")[0] == 0
    assert json.loads((folder / "o.json").read_text().splitlines()[0]) == ROWS[0]


def test_a_source_is_read_as_its_format_says(folder, run):
    os.rename("a.parquet", "a.dat")
    sources = '[sources.a]\npath = "a.dat"\nformat = "{}"\n[sources.b]\npath = "data/b.parquet"\n'
    text = f'query = "{QUERY}"\n{sources}[sink]\npath = "o.csv"\n'
    (folder / "job.toml").write_text(text.format("parquet"))
    assert run("run", "job.toml")[0] == 0
    (folder / "job.toml").write_text(text.format("csv"))
    assert run("run", "job.toml", "--overwrite")[0] == 1


@pytest.mark.parametrize("file", ["o.xls", "o.txt", "o.csv.gz", "o.jsn"])
def test_other_endings_are_refused(folder, refused, monkeypatch, file):
    monkeypatch.setattr("thetajoin.cli.run.compile_query", lambda _: pytest.fail("it ran"))
    said = refused("run", QUERY, *tables(), "--out", file)
    assert "no format has the ending" in said
    assert ".parquet, .pq, .csv, .json" in said


def test_json_of_every_kind_of_value(tmp_path):
    table = pa.table(
        {
            "f": pa.array([float("nan"), float("-inf"), 1.5]),
            "d": pa.array([Decimal("12345678901234567890.10"), None, None]),
            "t": pa.array([date(2026, 1, 2), None, None]),
            "ns": pa.array([1, None, None], pa.timestamp("ns")),
            "b": pa.array([b"\x00\xff", None, None]),
            "l": pa.array([[1, None], None, []]),
            "s": pa.array([{"x": float("inf")}, None, None]),
            "e": pa.array(["é\n\x1b", None, None]),
        }
    )
    write_result(table.schema, table.to_batches(), tmp_path / "o.json", "json")
    first, second, third = map(json.loads, (tmp_path / "o.json").read_text().splitlines())
    assert first == {
        "f": "NaN",
        "d": "12345678901234567890.10",
        "t": "2026-01-02",
        "ns": "1970-01-01 00:00:00.000000001",
        "b": "AP8=",
        "l": [1, None],
        "s": {"x": "Infinity"},
        "e": "é\n\x1b",
    }
    assert (second["f"], third["f"], third["l"]) == ("-Infinity", 1.5, [])
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    with pytest.raises(ThetaJoinError, match="two columns called 'x'"):
        write_result(twice.schema, twice.to_batches(), tmp_path / "p.json", "json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o.json"]


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("source", "out"),
    [
        ("a.parquet", "a.parquet"),
        ("a.parquet", "./data/../a.parquet"),
        ("{}/a.parquet", "a.parquet"),
        ("a.parquet", "{}/a.parquet"),
        ("a.parquet", "link.parquet"),
        ("link.parquet", "a.parquet"),
        ("a.parquet", "hard.parquet"),
        ("data", "data/new.parquet"),
        ("data", "data/deep/new.parquet"),
        ("data", "linked/new.parquet"),
        ("linked", "data/new.parquet"),
        ("data", "data"),
        ("a.parquet", "."),
        ("data/*.parquet", "data/b.parquet"),
        ("data/*.parquet", "data/new.parquet"),
        ("linked/*.parquet", "data/c.parquet"),
        ("d*/c.parquet", "linked/c.parquet"),
        ("**/*.parquet", "data/new.parquet"),
    ],
)
def test_a_source_is_never_overwritten(folder, refused, monkeypatch, source, out):
    os.symlink("a.parquet", "link.parquet")
    os.link("a.parquet", "hard.parquet")
    os.symlink("data", "linked")
    before = contents(folder)
    monkeypatch.setattr("thetajoin.cli.run.compile_query", lambda _: pytest.fail("it ran"))
    given = tables(a=source.format(folder)), out.format(folder)
    for more in ([], ["--overwrite"]):
        said = refused("run", QUERY, *given[0], "--out", given[1], *more)
        assert "choose another place" in said
    assert contents(folder) == before


def test_nor_is_the_query(folder, refused):
    (folder / "q.sql").write_text(QUERY)
    os.symlink("q.sql", "o.csv")
    said = refused("run", "q.sql", *tables(), "--out", "o.csv", "--overwrite")
    assert "would replace its input q.sql" in said


@pytest.mark.parametrize("sink", ["a.parquet", "../job/a.parquet", "{}/a.parquet"])
def test_nor_by_a_job(folder, refused, sink):
    job = folder / "job"
    job.mkdir()
    os.rename("a.parquet", job / "a.parquet")
    sources = '[sources.a]\npath = "a.parquet"\n[sources.b]\npath = "../data"\n'
    sink = f'[sink]\npath = "{sink.format(job)}"\noverwrite = true\n'
    (job / "job.toml").write_text(f'query = "{QUERY}"\n{sources}{sink}')
    before = contents(folder)
    assert "choose another place" in refused("run", job / "job.toml")
    assert contents(folder) == before


def test_what_is_there_is_kept_unless_told(folder, run, refused, monkeypatch):
    (folder / "o.csv").write_text("mine")
    assert "add --overwrite" in refused("run", QUERY, *tables(), "--out", "o.csv")
    assert (folder / "o.csv").read_text() == "mine"
    assert run("run", QUERY, *tables(), "--out", "o.csv", "--overwrite")[0] == 0
    assert (folder / "o.csv").read_text().startswith('"k"')


def test_a_job_says_it_in_its_sink(folder, run, refused):
    sources = '[sources.a]\npath = "a.parquet"\n[sources.b]\npath = "data/b.parquet"\n'
    job = f'query = "{QUERY}"\n{sources}[sink]\npath = "o.csv"\n'
    (folder / "job.toml").write_text(job)
    assert run("run", "job.toml")[0] == 0
    assert "add --overwrite" in refused("run", "job.toml")
    (folder / "job.toml").write_text(job + "overwrite = true\n")
    assert run("run", "job.toml")[0] == 0


def test_a_result_that_cannot_be_written_leaves_the_old_one(folder, refused, monkeypatch):
    (folder / "o.csv").write_text("mine")

    def full(self, batch):
        self._file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("thetajoin.jobs.results.Writer.write", full)
    said = refused("run", QUERY, *tables(), "--out", "o.csv", "--overwrite")
    assert "No space left" in said
    assert (folder / "o.csv").read_text() == "mine"
    assert not list(folder.glob(".*"))


def test_a_link_keeps_leading_where_it_led(folder, run):
    (folder / "data" / "o.csv").write_text("old")
    os.symlink("data/o.csv", "o.csv")
    assert run("run", QUERY, *tables(), "--out", "o.csv", "--overwrite")[0] == 0
    assert os.path.islink("o.csv")
    assert (folder / "data" / "o.csv").read_text().startswith('"k"')


@pytest.mark.parametrize("out", ["data", "a.csv/o.csv", f"{os.devnull}/o.csv"])
def test_places_that_cannot_be_written_are_refused_first(folder, refused, monkeypatch, out):
    (folder / "a.csv").write_text("k\n1\n")
    monkeypatch.setattr("thetajoin.cli.run.compile_query", lambda _: pytest.fail("it ran"))
    refused("run", QUERY, *tables(), "--out", out)


STREAM = """
query = "SELECT a.k FROM a, b WHERE a.k < b.k"
checkpoint = "{checkpoint}"
[sources.a]
path = "data"
stream = true
[sources.b]
path = "a.parquet"
[window]
count = 5
on = "k"
[sink]
path = "{out}"
"""


@pytest.mark.parametrize(
    ("out", "checkpoint", "says"),
    [
        ("data", "ck", "would replace its input"),
        ("data/out", "ck", "would go into its input"),
        ("linked/out", "ck", "would go into its input"),
        (".", "ck", "where its input"),
        ("out", "data/ck", "the checkpoint would go into its input"),
        ("out", "data", "the checkpoint would replace its input"),
        ("full", "ck", "no stream has written"),
        ("written", "ck", "another checkpoint's stream"),
        ("full.csv", "ck", "is a file"),
        ("same", "same", "the same folder"),
    ],
)
def test_streams(folder, refused, monkeypatch, out, checkpoint, says):
    os.symlink("data", "linked")
    for name in ("full", "written/_spark_metadata", "same"):
        (folder / name).mkdir(parents=True)
    (folder / "full" / "mine.txt").write_text("mine")
    (folder / "full.csv").write_text("mine")
    monkeypatch.setattr("thetajoin.cli.run.compile_query", lambda *_: pytest.fail("it ran"))
    form = '\nformat = "parquet"' if out == "full.csv" else ""
    text = STREAM.format(out=out, checkpoint=checkpoint).rstrip() + form
    (folder / "job.toml").write_text(text)
    assert says in refused("run", "job.toml")
    assert "leave --overwrite out" in refused("run", "job.toml", "--overwrite")
