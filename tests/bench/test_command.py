"""The command of the benchmarks as a developer types it, and how their figures are shown."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.command import Suite, main, show
from benchmarks.harness import ROOT, Report, import_path
from benchmarks.names import BENCHMARKS

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in this process: exit code, stdout, stderr."""
    monkeypatch.setenv("PYTHONPATH", "elsewhere")  # the command changes it
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words: object, suite: Suite = BENCHMARKS) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["benchmarks", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main(suite)
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return call


@pytest.fixture
def refused(run: Run) -> Callable[..., str]:
    """Runs a command that must end with exit code 1 and one line, which is returned."""

    def call(*words: object) -> str:
        code, out, err = run(*words)
        assert (code, out, err.count("\n")) == (1, "", 1)
        return err

    return call


@pytest.mark.parametrize("module", BENCHMARKS.modules.values())
def test_every_name_has_a_runner(module: str) -> None:
    assert callable(importlib.import_module(module).run)


def test_without_a_name_they_are_listed_with_their_options(run: Run) -> None:
    code, out, err = run()
    assert (code, err) == (0, "")
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert list(lines) == list(BENCHMARKS.modules)
    assert "The joins people write" in lines["joins"]
    assert lines["joins"].endswith(" [--only]")
    assert lines["start"].endswith(" [--rounds]")


def test_there_is_help(run: Run) -> None:
    code, out, err = run("--help")
    assert (code, err) == (0, "")
    assert "Usage: python -m benchmarks" in out
    assert "python -m benchmarks engine --scale 0.1" in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["engin"], "no benchmark 'engin': did you mean 'engine'?"),
        (["zzz"], "there are: engine"),
        (["[/red]"], "'[/red]'"),
        (["engine", "--scale", "0"], "--scale must be a number above 0"),
        (["engine", "--scale", "nan"], "--scale must be a number above 0"),
        (["fit-engines", "--plot", "d"], "has no plots"),
        (["structures", "--plot", f"{os.devnull}/x"], "is not a folder"),
        (["start", "--round", "3"], "benchmark start has no option '--round': it has --rounds"),
        (["start", "--rounds", "few"], "--rounds few: give a whole number"),
    ],
)
def test_a_mistake_is_one_line(
    refused: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    says: str,
) -> None:
    pytest.importorskip("pyspark", reason="some benchmarks import PySpark")
    monkeypatch.chdir(tmp_path)
    assert says in refused(*words)
    assert list(tmp_path.iterdir()) == []


def test_one_that_needs_linux_says_so(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pathlib.Path.exists", lambda _: False)
    assert "Linux's /proc" in refused("spark-stream")


@pytest.fixture
def suite(monkeypatch: pytest.MonkeyPatch) -> Suite:
    """Something that finds one fault."""

    def runs(progress: Any, scale: float, *, cases: int = 7) -> Report:
        return Report("made", {"cases": cases, "wrong": 1, "ratio": 1 / 3}, {}, {"wrong": ["x\ny"]})

    module = type(sys)("made_up")
    module.run = runs  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "made_up", module)
    return Suite("check", "python -m checks", {"made": "made_up"}, faults=("wrong",))


def test_a_fault_is_shown_and_told_by_the_exit_code(run: Run, suite: Suite) -> None:
    code, out, _ = run("made", "--cases=1_234_567", suite=suite)
    assert code == 1
    for text in ("python -m checks made", "1,234,567", "0.333", "\nx\ny\n"):
        assert text in out


def test_counts_are_exact_in_json(run: Run, suite: Suite) -> None:
    found = json.loads(run("made", "--cases", 1_234_567, "--json", suite=suite)[1])
    assert found["figures"] == {"cases": 1_234_567, "wrong": 1, "ratio": 0.3333}


def test_other_processes_find_the_benchmarks_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    assert import_path().split(os.pathsep)[-2:] == [str(ROOT), "elsewhere"]
    done = subprocess.run(
        [sys.executable, "-c", "import benchmarks.harness, thetajoin; print(thetajoin.__file__)"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": import_path()},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(done.stdout.strip()) == ROOT / "src" / "thetajoin" / "__init__.py"


def test_a_report_is_shown_letter_by_letter(capsys: pytest.CaptureFixture[str]) -> None:
    show(Report("[red]name", {"[/b]": 1.0}, {"[/b]": "[red]1"}, {}))
    out = capsys.readouterr().out
    for text in ("[red]name", "[/b]", "[red]1"):
        assert text in out


@pytest.mark.parametrize(("scale", "shown"), [(1.0, True), (1, True), (0.1, False), (2.0, False)])
def test_targets_are_those_of_full_size(
    capsys: pytest.CaptureFixture[str], scale: float, shown: bool
) -> None:
    show(Report("name", {"figure": 1.0}, {"figure": "at least 7"}, {}), scale)
    out = capsys.readouterr().out
    assert ("at least 7" in out) == ("target" in out) == shown
    assert ("--scale" in out) != shown
