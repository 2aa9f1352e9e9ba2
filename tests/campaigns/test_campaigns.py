"""The campaigns themselves: short runs find nothing, and find what is planted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from campaigns import interrupt_scenarios, interrupts
from thetajoin.engine.state import JoinState
from thetajoin.kernels import jit

ROOT = Path(__file__).parents[2]


def run(*words: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.campaigns", *words, "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(not jit.COMPILES, reason="nothing is compiled")
def test_sequences_of_calls():
    words = ("--processes", "3", "--cases", "180", "--seed", "4711", "--cold", "0")
    figures = run("sequences", *words)["figures"]
    assert figures["processes"] == 3
    assert figures["cases"] >= 180


NAMES = ("stream-full-time", "stream-anti-count", "nearest-nearest-left", "totals-left-time")


@pytest.mark.parametrize("name", NAMES)
def test_an_exception_at_some_lines_of_every_call(name):
    tally = interrupts.run_scenario(name, stride=301)
    assert tally.wrong == []
    assert tally.points > 20


def test_an_exception_at_some_lines_of_a_units_micro_batch():
    tally = interrupts.run_unit(3, stride=1201)
    assert tally.wrong == []
    assert tally.points > 3


def test_every_scenario_has_a_name_of_its_own():
    names = interrupt_scenarios.names()
    assert len(set(names)) == len(names)


def test_a_state_that_is_changed_in_place_is_found(monkeypatch):
    monkeypatch.setattr(JoinState, "copy", lambda self: self)
    assert interrupts.run_scenario("stream-full-time", stride=37).wrong
