"""bench start: what its programs do, without an install of their own or any absolute time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import start
from benchmarks.harness import ROOT
from thetajoin.errors import ResourceError


@pytest.mark.parametrize("rows", [start.FEW, 2000])
def test_both_programs_find_the_same_pairs(rows: int) -> None:
    pytest.importorskip("duckdb")
    found = set()
    for program in (start.OURS, start.DUCKDB):
        done = subprocess.run(
            [sys.executable, "-c", program, str(rows)], capture_output=True, text=True, check=True
        )
        found.add(int(done.stdout))
    assert len(found) == 1
    assert rows < 10 or found.pop() > 0


class Fake(start.Install):
    """An install whose processes take as long as a list says."""

    forgotten = 0

    def forget(self) -> None:
        type(self).forgotten += 1

    def seconds(self, program: str, rows: int) -> tuple[float, str]:
        return (2.0, "7") if program == start.OURS else (0.5, self.folder.name)


def test_duckdbs_time_is_taken_off_and_caches_are_emptied_each_round(monkeypatch) -> None:
    monkeypatch.setattr(Fake, "forgotten", 0)
    found = start.first_and_later(Fake(Path("7")), 3, rounds=4)
    assert found["less_duckdb"] == {"first": 1.5, "later": 1.5}
    assert [len(taken) for taken in found["seconds"].values()] == [4] * 4
    assert Fake.forgotten == 4


def test_different_pairs_are_no_figure() -> None:
    with pytest.raises(RuntimeError, match="different pairs"):
        start.first_and_later(Fake(Path("8")), 3, rounds=1)


def test_an_index_out_of_reach_is_one_line(tmp_path, monkeypatch) -> None:
    noise = "WARNING: Retrying\nERROR: No matching distribution found for numba\n[notice] pip"

    def refuse(command, environment):
        return subprocess.CompletedProcess(command, 1, "", noise)

    monkeypatch.setattr(start, "_python", refuse)
    with pytest.raises(ResourceError, match="pip could not install duckdb: No matching") as error:
        start.Install(tmp_path)._install("duckdb")
    assert "\n" not in str(error.value)


def test_caches_are_emptied_and_homes_are_new(tmp_path) -> None:
    install = start.Install(tmp_path)
    compiled = install.packages / "thetajoin" / "kernels" / "__pycache__" / "compiled"
    for folder in (compiled, tmp_path / "home" / ".cache"):
        folder.mkdir(parents=True)
        (folder / "kept").touch()
    install.forget()
    assert not compiled.exists()
    assert list((tmp_path / "home").iterdir()) == []
    environment = install.with_spark()
    assert environment["HOME"] == str(tmp_path / "home")
    # Its thetajoin, and no other; the benchmark itself is in no install.
    assert environment["PYTHONPATH"] == f"{install.packages}{os.pathsep}{ROOT}"
    assert not (ROOT / "thetajoin").exists()
    assert not any(name.startswith("NUMBA") for name in environment)


def test_limit_and_whole_are_measured() -> None:
    assert set(start._limit(1, 0.01)["median"]) == {"limit", "full"}
