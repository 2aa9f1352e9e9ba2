"""What comes from a user's data, names and files is printed letter by letter."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyarrow import parquet

from thetajoin.cli.display import show_rows
from thetajoin.cli.terminal import literal, screen

ODD = ["a[/b]c", "[red]x", "[bold]", ":smile:", "[link=http://x]y[/link]", "\\[red]", "[/]"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "[red]").mkdir()
    return tmp_path


def printed(capsys, table, total=None):
    show_rows(screen(), table, table.num_rows if total is None else total)
    return capsys.readouterr().out


def test_cells_and_names(folder, run):
    table = pa.table({"k": range(len(ODD)), "[/b]n": ODD})
    parquet.write_table(table, "[red]/a[/b].parquet".replace("/b", "b"))
    query = "SELECT a.`[/b]n` FROM a, b WHERE a.k <= b.k AND b.k = 6"
    file = "[red]/a[b].parquet"
    code, out, err = run("run", query, "--table", f"a={file}", "--table", f"b={file}")
    assert (code, err) == (0, "")
    for text in (*ODD, "[/b]n"):
        assert text in out


def test_a_file_of_the_result(folder, run):
    parquet.write_table(pa.table({"k": [1, 2]}), "a.parquet")
    tables = ["--table", "a=a.parquet", "--table", "b=a.parquet"]
    query = "SELECT a.k FROM a, b WHERE a.k < b.k"
    code, out, _ = run("run", query, *tables, "--out", "[red]/o[/b].csv".replace("/b", "b"))
    assert (code, out) == (0, "1 row in [red]/o[b].csv\n")


def test_errors(folder, refused, some_java):
    parquet.write_table(pa.table({"[red]k": [1], "s": ["[/b]"]}), "a.parquet")
    assert "[red]/[/no].csv" in refused("explain", "[red]/[/no].csv", "a.parquet", "l.a < r.a")
    assert "[red]k" in refused("explain", "a.parquet", "a.parquet", "l.zz < r.zz")
    assert "`[/b]`" in refused("explain", "a.parquet", "a.parquet", "l.s < r.`[/b]`")
    assert "'[/red]'" in refused("generate", "[/red]", "out")
    assert "[red]" in refused("demo", "--out", "a.parquet/[red]")


def test_explain(folder, run):
    parquet.write_table(pa.table({"[red]k[/b]": [1]}), "a.parquet")
    condition = "l.`[red]k[/b]` < r.`[red]k[/b]`"
    code, out, _ = run("explain", "a.parquet", "a.parquet", condition)
    assert code == 0
    assert condition in out


def test_doctor(run, monkeypatch, tmp_path):
    from thetajoin.spark.session import Java, SparkError

    java = Java(tmp_path / "[red]" / "a[", 17, "JAVA_HOME")
    monkeypatch.setattr("thetajoin.cli.doctor.find_java", lambda: java)
    monkeypatch.setenv("COLUMNS", "300")
    assert "[red]/a[" in run("doctor")[1]

    def missing():
        raise SparkError("no Java in [/b]")

    monkeypatch.setattr("thetajoin.cli.doctor.find_java", missing)
    assert "no Java in [/b]" in run("doctor")[1]


def test_what_a_terminal_would_act_upon_is_written_out(capsys):
    assert literal("\x1b[2J\x9b\r\n\u202eabc\udcff é 漢 \u00a0") == (
        "\\x1b[2J\\x9b\\r\\n\\u202eabc\\udcff é 漢 \u00a0"
    )
    out = printed(capsys, pa.table({"s": ["\x1b[31mx", "two\nlines", None]}))
    assert "\x1b" not in out
    assert "\\x1b[31mx" in out
    assert "two\\nlines" in out
    assert "NULL" in out


def test_every_column_is_shown(capsys):
    names = ["x", "x", "t", "u", "d", "z"]
    columns = [
        pa.array([1]),
        pa.array([2]),
        pa.array([1], pa.timestamp("ns")),
        pa.array([1], pa.timestamp("us", "UTC")),
        pa.array([5], pa.duration("ns")),
        pa.array([0], pa.timestamp("s", "Nowhere/Known")),
    ]
    out = printed(capsys, pa.Table.from_arrays(columns, names=names), "7 rows")
    row = out.splitlines()[3]
    for text in (" 1 ", " 2 ", "00:00:00.000000001", "00:00:00.000001Z", "5 ns", "1970-01-01"):
        assert text in row
    assert "7 rows" in out


def test_letters_that_a_terminal_lacks(run, tmp_path, monkeypatch):
    """Python keeps the bytes of a name that is not text; no terminal takes them back."""
    monkeypatch.chdir(tmp_path)
    code, _, err = run("explain", "no\udcff.parquet", "x.parquet", "l.a < r.a")
    assert code == 1
    assert "no\\udcff.parquet" in err
