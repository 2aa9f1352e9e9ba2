"""The simulated cluster: all faults happen, nothing goes wrong, and a seed repeats itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from campaigns.blocks import Work, tallies
from campaigns.names import CAMPAIGNS
from simulation.cluster import TASK_FAULTS, Settings
from simulation.disk import DAMAGES
from simulation.history import Outcome, run_history
from simulation.run import Tally, simulate
from thetajoin.errors import OptionError

HAPPENS = {
    *(f"task {fault}" for fault in TASK_FAULTS),
    *(f"file {damage}" for damage in DAMAGES),
    "speculative twin",
    "micro-batch run again",
    "query restarted",
    "driver restarted",
    "worker lost",
    "worker added",
    "executor lost",
    "disk full at a write",
    "a long pause",
    "writer thread late",
    "writer thread paused",
    "writer thread that never finished",
    "routing changed",
}


def shown(tally: Tally) -> str:
    return "\n".join(script for _, _, script in tally.wrong)


def test_every_pair_exactly_once_whatever_happens() -> None:
    tally = simulate(0, 150)
    assert not tally.wrong, shown(tally)
    assert set(tally.faults) == HAPPENS
    assert min(tally.origins[origin] for origin in ("memory", "files", "state")) > 100


@pytest.mark.slow
def test_every_pair_exactly_once_for_longer() -> None:
    tally = simulate(10_000, 12_000)
    assert not tally.wrong, shown(tally)


@pytest.mark.parametrize("seed", [3, 14, 27])
def test_a_seed_repeats_itself(seed: int, tmp_path: Path) -> None:
    one, two = (run_history(seed, tmp_path / name) for name in ("one", "two"))
    assert one == two
    assert one.faults


def test_a_quiet_cluster_has_no_faults(tmp_path: Path) -> None:
    quiet = Settings(task=0, twin=0, rerun=0, restart=0, between=0, damage=0)
    for seed in range(5):
        outcome = run_history(seed, tmp_path, quiet)
        assert not outcome.wrong
        assert all("writer" in fault for fault in outcome.faults)


def test_an_error_in_a_unit_is_a_wrong_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise ValueError("on purpose")

    monkeypatch.setattr("thetajoin.spark.unit.JoinUnit._unpack", fails)
    outcome = run_history(0, tmp_path)
    assert outcome.wrong == "ValueError: on purpose"
    assert "fails" in outcome.evidence


def test_the_command_reports_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--histories", "4", "--seed", "7", "--jobs", "1"]
    CAMPAIGNS.run("simulate", as_json=True, scale=1.0, words=words)
    report = json.loads(capsys.readouterr().out)
    assert report["figures"]["histories"] == 4
    assert report["figures"]["wrong"] == 0
    assert report["figures"]["faults"] == sum(report["details"]["faults"].values())
    assert report["details"]["failures"] == []


def test_the_command_says_what_repeats_a_wrong_history(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("simulation.history._difference", lambda *_: "not at all right")
    CAMPAIGNS.run("simulate", as_json=False, scale=1.0, words=["--histories", "1", "--seed", "9"])
    told = capsys.readouterr().out
    assert "history 9: not at all right" in told
    assert "python -m tests.campaigns simulate --histories 1 --seed 9" in told
    assert str(Outcome.of(9).join) in told


def test_a_history_that_ends_its_process_is_named() -> None:
    work = Work("simulation.deadly", "simulate", "died")
    found = list(tallies(work, 0, 4, size=2, jobs=2))
    assert sum(tally.histories for tally in found) == 4
    assert [seed for tally in found for seed, *_ in tally.wrong] == [2]


@pytest.mark.parametrize("words", [["--histories", "0"], ["--seed", "-1"], ["--cases", "3"]])
def test_wrong_words_are_refused(words: list[str]) -> None:
    with pytest.raises(OptionError):
        CAMPAIGNS.run("simulate", as_json=True, scale=1.0, words=words)
