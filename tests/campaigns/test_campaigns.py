"""The campaigns themselves: short runs find nothing, and find what is planted."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys

import pytest

from benchmarks.harness import ROOT
from campaigns import interrupt_scenarios, interrupts
from campaigns.names import CAMPAIGNS
from thetajoin.engine.state import JoinState
from thetajoin.errors import OptionError
from thetajoin.kernels import jit


@pytest.mark.parametrize("module", CAMPAIGNS.modules.values())
def test_every_name_has_a_runner(module):
    assert callable(importlib.import_module(module).run)


@pytest.mark.parametrize(
    ("name", "words", "says"),
    [
        ("fault", [], "no campaign 'fault': did you mean 'faults'"),
        ("sequences", ["--jobs", "0"], "--jobs 0: must be at least 1"),
        ("interrupts", ["--stride", "0"], "--stride 0: must be at least 1"),
        ("upgrade", ["--only", "x"], "campaign upgrade has no option '--only'"),
    ],
)
def test_a_mistake_is_refused(name, words, says):
    with pytest.raises(OptionError, match=says):
        CAMPAIGNS.run(name, as_json=True, scale=1.0, words=words)


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
    assert interrupts.run_scenario("stream-full-time", stride=151).wrong
