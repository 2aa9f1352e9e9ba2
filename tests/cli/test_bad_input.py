"""What a user of the command gets wrong, in words, files and jobs: exit code 1 and one line."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest
from pyarrow import parquet

QUERY = "SELECT a.k FROM a, b WHERE a.k < b.k"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parquet.write_table(pa.table({"k": [1, 2, 3]}), "a.parquet")
    parquet.write_table(pa.table({"k": ["x"]}), "other.parquet")
    for name in ("empty.parquet", "empty.csv", "empty.arrow", "empty.json", "empty.sql"):
        (tmp_path / name).touch()
    (tmp_path / "bad.csv").write_text("a,b\n1\n2,3,4\n")
    (tmp_path / "bad.json").write_text("{]")
    for name in ("t.xls", "t.parquet.gz"):
        (tmp_path / name).write_text("x")
    (tmp_path / "bad.arrow").write_bytes(b"\x00" * 100)
    (tmp_path / "bytes.csv").write_bytes(b"a,b\n\xff\xfe,1\n")
    for name in ("bytes.sql", "bytes.toml"):
        (tmp_path / name).write_bytes(b"\xff\xfe\x00")
    for name in ("folder", "folder.sql", "folder.toml", "folder.csv"):
        (tmp_path / name).mkdir()
    os.symlink("circle", tmp_path / "circle")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nope"], "No such command 'nope'"),
        (["rnu"], "Did you mean 'run'?"),
        (["expalin"], "Did you mean 'explain'?"),
        (["--nope"], "No such option"),
        (["run"], "Missing argument"),
        (["run", "--nope"], "No such option"),
        (["explain"], "Missing argument"),
        (["explain", "a", "b", "c", "d"], "unexpected extra argument"),
        (["generate", "power"], "Missing argument"),
        (["doctor", "extra"], "unexpected extra argument"),
        (["demo", "--rows", "x"], "Invalid value for '--rows'"),
        (["demo", "--out"], "requires an argument"),
        (["demo", "--seed", "-1"], "--seed must not be below 0"),
        (["demo", "--out", f"{os.devnull}/x"], "cannot write to"),
        (["generate", "power", "out", "--matches", "nan"], "matches must be a number"),
        (["generate", "power", "out", "--matches", "inf"], "matches must be a number"),
        (["generate", "power", "out", "--seed", "-1"], "seed must not be below 0"),
        (["generate", "power", os.devnull, "--rows", "10"], "is not a folder"),
        (["generate", "powr", "out"], "did you mean 'power'?"),
        (["generate", "power", "out", "--rows", "0"], "at least 1"),
        (["generate", "power", "out", "--rows", "2", "--files", "3"], "no more files than rows"),
        (["demo", "--rows", "0"], "--rows must be at least 1"),
        (["demo", "--rows", "5", "--batches", "6"], "--batches 6 is more than --rows 5"),
    ],
)
def test_commands(refused, some_java, tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    assert says in refused(*words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("no.parquet", "'no.parquet': there is no such file or folder\n"),
        ("a.parqet", "did you mean 'a.parquet'?"),
        ("sub/a.csv", "'sub/a.csv': there is no such file or folder\n"),
        ("t.xls", "'t.xls' does not say its format; known are .parquet, .pq, .csv"),
        ("t.parquet.gz", "'t.parquet.gz' does not say its format"),
        ("no*.parquet", "'no*.parquet': no file matches that pattern"),
        ("circle", "no such file"),
        ("empty.parquet", "'empty.parquet' cannot be read: "),
        ("empty.csv", "'empty.csv' cannot be read: "),
        ("empty.arrow", "'empty.arrow' cannot be read: "),
        ("empty.json", "'empty.json' cannot be read: "),
        ("bad.csv", "'bad.csv' cannot be read: "),
        ("bad.json", "'bad.json' cannot be read: "),
        ("bad.arrow", "'bad.arrow' cannot be read: "),
        ("folder", "there are no files in that folder"),
        ("folder.csv", "there are no files in that folder"),
        ("[ao]*.parquet", "columns of different types"),
    ],
)
def test_tables(folder, refused, file, says):
    if "." in file:  # else it is a table's name
        assert says in refused("run", f"SELECT a.k FROM '{file}' a, 'a.parquet' b WHERE a.k < b.k")
    given = ["--table", f"a={file}", "--table", "b=a.parquet"]
    assert says in refused("run", QUERY, *given)
    assert says in refused("explain", QUERY, *given)
    assert says in refused("explain", file, "a.parquet", "l.k < r.k")


def test_a_column_of_bytes_is_no_mistake_of_the_command(folder, run):
    words = "SELECT a.b FROM a, b WHERE a.b < b.k"
    code, out, _ = run("run", words, "--table", "a=bytes.csv", "--table", "b=a.parquet")
    assert code == 0
    assert "1" in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([""], "the query is empty"),
        (["SELECT"], "in the query"),
        (["garbage"], "begins with SELECT"),
        (["a.parquet"], "to query it, write \"SELECT ... FROM 'a.parquet'"),
        (["(" * 3000], "nested too deeply"),
        (["no.sql"], "cannot read the query no.sql"),
        (["empty.sql"], "the query is empty"),
        (["bytes.sql"], "not text in UTF-8"),
        (["folder.sql"], "Is a directory"),
        (["no.toml"], "cannot read the job"),
        (["bytes.toml"], "not text in UTF-8"),
        (["folder.toml"], "Is a directory"),
        ([QUERY], "table 'a', which was not given"),
        ([QUERY, "--table", "a"], "write NAME=FILE"),
        ([QUERY, "--table", "=a.parquet"], "write NAME=FILE"),
        ([QUERY, "--table", "a="], "write NAME=FILE"),
        ([QUERY, "--table", "a=a.parquet", "--table", "a=a.parquet"], "a table 'a' already"),
    ],
)
def test_queries(folder, refused, words, says):
    assert says in refused("run", *words)
    assert says in refused("explain", *words)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["a.parquet", "a.parquet"], "the condition is empty"),
        (["a.parquet", "a.parquet", "l.k <"], "an operand is missing"),
        (["a.parquet", "a.parquet", "l.k < r.k", "--how", "up"], "is not a join"),
    ],
)
def test_explain(folder, refused, words, says):
    assert says in refused("explain", *words)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--json", "--format", "csv"], "contradict each other"),
        (["--format", "xls"], "is not one of 'table', 'csv', 'json'"),
        (["--format", "table", "--out", "o.csv"], "is for the terminal"),
        (["--limit", "-1"], "'--limit'"),
        (["--limit", "x"], "'--limit'"),
        (["--overwrite"], "name it with --out FILE"),
        (["--out", "o.json", "--table", "a"], "write NAME=FILE"),
    ],
)
def test_options_that_make_no_sense(folder, refused, words, says):
    before = set(folder.iterdir())
    query = "SELECT a.k FROM 'a.parquet' a JOIN 'a.parquet' b ON a.k < b.k"
    assert says in refused("run", query, *words)
    assert set(folder.iterdir()) == before


SOURCES = '[sources.a]\npath = "a.parquet"\n[sources.b]\npath = "a.parquet"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no 'query'"),
        ("query = ", "not a job file"),
        ("query = 5", "query = 5 must be a str"),
        ('query = "x"', "has no sources"),
        ('query = "x"\nsources = 5', "must be a dict"),
        ('query = "x"\n[sources]', "has no sources"),
        ('query = "x"\n[[sources]]\npath = "a"', "must be a dict"),
        ('query = "x"\n[sources]\na = 5', "must be a table of keys"),
        ('query = "x"\n[sources.a]', "has no 'path'"),
        ('query = "x"\n[sources.a]\npath = 5', "path = 5 must be a str"),
        ('query = "x"\n[sources.a]\npath = "no"', "no such file"),
        ('query = "x"\n[sources.a]\npath = "a\\u0000b"', r"'a\x00b' cannot be read"),
        ('query = "x"\n[sources.a]\npath = "a.parquet"\nstream = "yes"', "must be a bool"),
        ('query = "x"\n[sources.a]\npath = "a.parquet"\nformat = "xls"', "format = 'xls'"),
        (f'query = "x"\nsink = 5\n{SOURCES}', "must be a dict"),
        (f'query = "x"\n{SOURCES}[sink]', "sink has no 'path'"),
        (f'query = "x"\n{SOURCES}[sink]\npath = "o.parquet"\nmode = "append"', "for streams"),
        (f'query = "x"\n{SOURCES}[sink]\npath = "o.xls"', "format = 'xls'"),
        (f'query = "x"\nwindow = 5\n{SOURCES}', "must be a dict"),
        (f'query = "x"\n{SOURCES}[window]\ncount = -5', "at least 1"),
        (f'query = "x"\n{SOURCES}[window]\ntime = "5 minutes"', "needs a time column"),
        (f'query = "x"\n{SOURCES}[window]\ntime = "5 parsecs"\non = "k"', "unknown unit"),
        (f'query = "x"\n{SOURCES}[window]\ncount = 5\non = 5', "a column, or two"),
        (f'query = "{QUERY}"\n{SOURCES}stream = true\n[sink]\nformat = "console"\npath = "o"',
         "leave path out"),
        (f'query = "{QUERY}"\ncheckpoint = "c"\n{SOURCES}stream = true\n[sink]\npath = "o"\n'
         "overwrite = true", "leave overwrite out"),
    ],
)  # fmt: skip
def test_jobs(folder, refused, text, says):
    (folder / "job.toml").write_text(text)
    assert says in refused("run", "job.toml")


def test_a_source_of_a_kind_that_spark_does_not_read(folder, refused):
    from pyarrow import feather

    feather.write_feather(pa.table({"k": [1]}), "t.arrow", compression="uncompressed")
    stream = '[sources.a]\npath = "a.parquet"\nstream = true\n[sources.b]\npath = "t.arrow"\n'
    (folder / "job.toml").write_text(f'query = "{QUERY}"\n{stream}[sink]\nformat = "console"\n')
    assert "format = 'arrow'" in refused("run", "job.toml")


def test_a_query_is_not_told_of_a_job(folder, refused):
    (folder / "job.toml").write_text(f'query = "{QUERY}"\n{SOURCES}')
    assert "leave out --table and --out" in refused("run", "job.toml", "--out", "o.csv")
