"""Queries over files as they are typed: files in quotes, pipes, formats and limits."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys

import pyarrow as pa
import pytest
from pyarrow import csv, feather, orc, parquet

from thetajoin.cli import main
from thetajoin.jobs.results import write_result

QUERY = "SELECT a.k, b.s FROM 'a.parquet' a JOIN 'b.csv' b ON a.k < b.j"
ROWS = [{"k": 1, "s": "x"}, {"k": 1, "s": "[red]"}, {"k": 2, "s": "[red]"}]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parquet.write_table(pa.table({"k": [1, 2, 3]}), "a.parquet")
    (tmp_path / "b.csv").write_text("j,s\n2,x\n3,[red]\n")
    return tmp_path


@pytest.fixture
def written(monkeypatch, capsysbinary):
    """Runs a command that must succeed; the bytes of its stdout."""

    def call(*words):
        monkeypatch.setattr("sys.argv", ["thetajoin", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsysbinary.readouterr()
        assert (ended.value.code or 0, err) == (0, b"")
        return out

    return call


def piped(monkeypatch, content):
    """Have something piped in."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


def objects(text):
    return [json.loads(line) for line in text.splitlines()]


# Files that a query names.


@pytest.mark.parametrize(
    "query",
    [
        QUERY,
        QUERY.replace("'", '"'),
        QUERY.replace("'", "`"),
        QUERY.replace("'", ""),
        QUERY.replace("'a.parquet'", "'./a.parquet'"),
        QUERY.replace("'a.parquet'", "'[a]*.parquet'"),
        QUERY.replace("'b.csv'", "(SELECT j, s FROM 'b.csv' c WHERE j > 0)"),
    ],
)
def test_files_in_quotes(folder, run, query):
    code, out, err = run("run", query, "--json")
    assert (code, err) == (0, "")
    assert sorted(objects(out), key=str) == sorted(ROWS, key=str)


def test_a_table_that_was_given_comes_first(folder, run):
    parquet.write_table(pa.table({"k": [2]}), "other")
    code, out, _ = run("run", QUERY, "--json", "--table", "a.parquet=other")
    assert (code, objects(out)) == (0, ROWS[2:])


def test_without_files(folder, run, refused):
    tables = ("--table", "a=a.parquet", "--table", "b=b.csv", "--no-files")
    code, out, _ = run("run", "SELECT a.k, b.s FROM a JOIN b ON a.k < b.j", "--json", *tables)
    assert (code, objects(out)) == (0, ROWS)
    for file in ("'a.parquet'", '"a.parquet"', "'/etc/passwd'"):
        query = f"SELECT a.k FROM {file} a JOIN b ON a.k < b.j"
        assert "files are switched off" in refused("run", query, *tables)
    (folder / "job.toml").write_text(f'query = "{QUERY}"\n')
    assert "a job file must be trusted" in refused("run", "job.toml", "--no-files")


def test_files_of_a_job_are_beside_it(folder, run, monkeypatch):
    (folder / "job.toml").write_text(f'query = "{QUERY}"\n')
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    code, out, _ = run("run", folder / "job.toml", "--json")
    assert (code, objects(out)) == (0, ROWS)
    assert "a.k < b.j" in run("explain", folder / "job.toml")[1]


def test_explain_reads_them_too(folder, run):
    code, out, err = run("explain", QUERY)
    assert (code, err) == (0, "")
    assert "3 left, 2 right" in out
    (folder / "q.sql").write_text(QUERY)
    assert run("explain", "q.sql") == (0, out, "")


@pytest.mark.parametrize("out", ["a.parquet", "b.csv", "./a.parquet"])
def test_they_are_not_overwritten(folder, refused, out):
    before = (folder / out).read_bytes()
    assert "choose another place" in refused("run", QUERY, "--out", out, "--overwrite")
    assert (folder / out).read_bytes() == before


def test_a_uri(folder, run, refused):
    uri = f"file://{folder}"
    for query in (
        QUERY.replace("'a.parquet'", f"'{uri}/a.parquet'"),
        QUERY.replace("'b.csv'", f"'{uri}/[b]*.csv'"),
    ):
        code, out, err = run("run", query, "--json")
        assert (code, objects(out), err) == (0, ROWS, "")
        assert "3 left, 2 right" in run("explain", query)[1]
        for place in ("a.parquet", "b.csv"):
            assert "choose another place" in refused("run", query, "--out", place, "--overwrite")
    query, tables = QUERY.replace("'", ""), ["--table", f"a.parquet={uri}/a.parquet"]
    assert objects(run("run", query, *tables, "--json")[1]) == ROWS
    assert run("explain", f"{uri}/a.parquet", f"{uri}/b.csv", "l.k < r.j")[0] == 0
    source = f'[sources.a]\npath = "{uri}/a.parquet"\n'
    (folder / "jobs").mkdir()
    query = QUERY.replace("'a.parquet' a", "a").replace("b.csv", "../b.csv")
    (folder / "jobs" / "job.toml").write_text(f'query = "{query}"\n{source}')
    assert objects(run("run", "jobs/job.toml", "--json")[1]) == ROWS
    query = QUERY.replace("'a.parquet'", f"'{uri}/none/a.parquet'")
    assert f"'{uri}/none/a.parquet': there is no such file" in refused("run", query)
    assert "Unrecognized filesystem type" in refused("run", query.replace("file:", "ftp:"))


@pytest.mark.parametrize("form", ["csv", "tsv", "json", "parquet", "arrow", "orc"])
def test_a_format_that_a_job_names(folder, run, form):
    table = pa.table({"j": [2, 3], "s": ["x", "[red]"]})
    (folder / "data").mkdir()
    for at in range(2):
        path = folder / "data" / f"{at}.dat"
        if form == "orc":
            orc.write_table(table.slice(at, 1), path)
        elif form == "tsv":
            csv.write_csv(table.slice(at, 1), path, csv.WriteOptions(delimiter="\t"))
        else:
            write_result(table.schema, table.slice(at, 1).to_batches(), path, form)
    source = f'[sources.b]\npath = "data/*"\nformat = "{form}"\n'
    query = QUERY.replace("'b.csv' b", "b")
    (folder / "job.toml").write_text(f'query = "{query}"\n{source}')
    code, out, err = run("run", "job.toml", "--json")
    assert (code, objects(out), err) == (0, ROWS, "")


def test_packed_text_and_folders_of_it(folder, run):
    with gzip.open("b.csv.gz", "wt") as file:
        file.write("j,s\n2,x\n")
    (folder / "parts").mkdir()
    (folder / "parts" / "1.json").write_text('{"j": 2, "s": "x"}\n')
    (folder / "parts" / "2.json").write_text('{"j": 3, "s": "[red]"}\n')
    (folder / "parts" / "_SUCCESS").write_text("")
    code, out, _ = run("run", QUERY.replace("b.csv", "b.csv.gz"), "--json")
    assert (code, objects(out)) == (0, ROWS[:1])
    code, out, _ = run("run", QUERY.replace("'b.csv'", "'parts/'"), "--json")
    assert (code, objects(out)) == (0, ROWS)


# Pipes.


def as_bytes(form):
    table = pa.table({"j": [2, 3], "s": ["x", "[red]"]})
    sink = pa.BufferOutputStream()
    if form == "csv":
        csv.write_csv(table, sink)
    elif form == "json":
        return b'{"j": 2, "s": "x"}\n{"j": 3, "s": "[red]"}\n'
    elif form == "parquet":
        parquet.write_table(table, sink)
    elif form == "arrow":
        feather.write_feather(table, sink)
    else:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("form", ["csv", "json", "parquet", "arrow", "arrow stream"])
def test_what_is_piped_in_is_known_by_its_first_bytes(folder, run, monkeypatch, form):
    piped(monkeypatch, as_bytes(form))
    code, out, err = run("run", QUERY.replace("b.csv", "-"), "--json")
    assert (code, objects(out), err) == (0, ROWS, "")
    piped(monkeypatch, as_bytes(form))
    table = ["--table", "b=-", "--table", "c=-"]
    code, out, _ = run("run", "SELECT b.j FROM b, c WHERE b.j < c.j", *table, "--json")
    assert (code, objects(out)) == (0, [{"j": 2}])


@pytest.mark.parametrize("content", [b"", b" \n"])
def test_nothing_is_piped_in(folder, refused, monkeypatch, content):
    piped(monkeypatch, content)
    assert "it is empty" in refused("run", QUERY.replace("b.csv", "-"))


def test_a_terminal_is_no_pipe(folder, refused, monkeypatch):
    piped(monkeypatch, b"")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert "nothing is piped in" in refused("run", QUERY.replace("b.csv", "-"))
    assert "nothing is piped in" in refused("run", "-")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this platform has no named pipes")
def test_a_named_pipe(folder, run):
    import threading

    os.mkfifo("pipe")
    writer = threading.Thread(target=lambda: (folder / "pipe").write_bytes(as_bytes("csv")))
    writer.start()
    code, out, _ = run("run", QUERY.replace("'b.csv'", "'./pipe'"), "--json")
    writer.join()
    assert (code, objects(out)) == (0, ROWS)


def test_a_query_that_is_piped_in(folder, run, monkeypatch):
    piped(monkeypatch, QUERY.encode())
    code, out, _ = run("run", "-", "--json")
    assert (code, objects(out)) == (0, ROWS)


# Formats and limits.


def read(content, form):
    if form == "csv":
        return csv.read_csv(pa.BufferReader(content))
    if form == "arrow":
        return pa.ipc.open_stream(content).read_all()
    return parquet.read_table(pa.BufferReader(content))


@pytest.mark.parametrize("form", ["csv", "arrow", "parquet"])
@pytest.mark.parametrize("limit", [None, 0, 2, 100])
def test_formats_on_stdout(folder, written, form, limit):
    words = [] if limit is None else ["--limit", limit]
    assert read(written("run", QUERY, "--format", form, *words), form).to_pylist() == ROWS[:limit]
    assert written("run", QUERY, "--format", form, "--out", "-", *words)


@pytest.mark.parametrize("limit", [None, 0, 2, 100])
def test_json(folder, written, limit):
    words = [] if limit is None else ["--limit", limit]
    out = written("run", QUERY, "--json", *words)
    assert objects(out.decode()) == ROWS[:limit]
    assert written("run", QUERY, "--format", "json", *words) == out
    assert written("run", QUERY, "--format", "json", "--json", *words) == out


def test_a_file_whose_ending_is_not_to_decide(folder, run):
    assert run("run", QUERY, "--out", "o.dat", "--format", "csv", "--limit", 1)[0] == 0
    assert (folder / "o.dat").read_text() == '"k","s"\n1,"x"\n'


def test_a_table_of_so_many_rows(folder, run):
    code, out, _ = run("run", QUERY, "--limit", 2)
    assert code == 0
    assert "the first 2 rows; --limit N shows N" in out
    assert "3 rows" in run("run", QUERY, "--limit", 3)[1]
    assert "0 rows" in run("run", QUERY + " AND a.k > 5")[1]


def test_bytes_are_not_for_a_terminal(folder, refused, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert "parquet is not for a terminal" in refused("run", QUERY, "--format", "parquet")


def test_a_job_that_has_a_sink_takes_no_format(folder, refused, run):
    (folder / "job.toml").write_text(f'query = "{QUERY}"\n[sink]\npath = "o.csv"\n')
    assert "the job writes o.csv" in refused("run", "job.toml", "--json")
    assert run("run", "job.toml", "--limit", 1)[0] == 0
    assert (folder / "o.csv").read_text() == '"k","s"\n1,"x"\n'


@pytest.mark.parametrize("answer", [True, False])
def test_a_folder_that_is_not_there(folder, run, monkeypatch, answer):
    """On a terminal it is asked for, in a script it is made."""
    asked = []

    def confirm(text, **_):
        asked.append(text)
        return answer

    monkeypatch.setattr("typer.confirm", confirm)
    assert run("run", QUERY, "--out", "script/o.csv")[0] == 0
    assert asked == []
    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    code, _, err = run("run", QUERY, "--out", "sub/o.csv")
    assert asked == [f"there is no folder {folder / 'sub'}: make it?"]
    assert (folder / "sub" / "o.csv").exists() is answer
    assert code == (0 if answer else 1)
    assert ("nothing was written" in err) is not answer
    assert run("run", QUERY, "--out", "script/p.csv")[0] == 0
    assert len(asked) == 1
