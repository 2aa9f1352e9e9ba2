"""Trials by number: draw a case, run it, compare, and shrink what fails."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fuzz import garbage, peers
from fuzz.cases import case
from fuzz.check import Outcome, check
from fuzz.code import script
from fuzz.shrink import shrunk

GARBAGE_EVERY = 10  # one trial in so many gives an argument that makes no sense
SHRINKS = 1  # failures of one kind that are shrunk in a block of trials
PATIENCE = 120  # seconds after which a trial counts as hung


@dataclass(frozen=True)
class Failure:
    """A trial that went wrong, and a script that repeats it."""

    number: int
    why: str
    script: str


@dataclass
class Tally:
    """What a block of trials gave."""

    outcomes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    disagreements: list[Failure] = field(default_factory=list)
    cases: int = 0


def trials(seed: int, start: int, stop: int, shrink_seconds: float = 10.0) -> Tally:
    """Run the trials of these numbers; each depends on the seed and its number alone."""
    tally = Tally(cases=stop - start)
    for number in range(start, stop):
        tried(seed, number, tally, shrink_seconds)
    return tally


def killed(seed: int, number: int) -> Tally:
    """The tally of a trial whose process died; nothing is run."""
    if number % GARBAGE_EVERY == 0:
        told = garbage.script(garbage.call(seed, number), "the process died")
    else:
        told = script(case(seed, number), "the process died")
    return Tally(
        Counter(wrong=1), Counter(died=1), [Failure(number, "the process died", told)], cases=1
    )


def tried(seed: int, number: int, tally: Tally, shrink_seconds: float) -> None:
    """Run one trial and count it."""
    if number % GARBAGE_EVERY == 0:
        outcome = _patiently(garbage.check, garbage.call(seed, number))
        if outcome.wrong:
            _count(tally, outcome, Failure(number, outcome.why, outcome.detail))
            return
        tally.outcomes[f"garbage {outcome.name}"] += 1
        return
    drawn = case(seed, number)
    outcome = _patiently(check, drawn)
    if outcome.wrong:
        first = tally.reasons[outcome.why] < SHRINKS and outcome.why != "hung"
        small = shrunk(drawn, outcome, shrink_seconds) if first else (drawn, outcome)
        told = script(small[0], f"{small[1].why}\n{small[1].detail}")
        _count(tally, outcome, Failure(number, outcome.why, told))
        return
    _count(tally, outcome, None)
    if outcome.name == "right" and peers.can_answer(drawn):
        told = peers.disagreement(drawn)
        tally.outcomes["asked DuckDB"] += 1
        if told:
            failure = Failure(number, "DuckDB differs", script(drawn, told))
            tally.disagreements.append(failure)


def _count(tally: Tally, outcome: Outcome, failure: Failure | None) -> None:
    tally.outcomes[outcome.name] += 1
    if outcome.why:
        tally.reasons[outcome.why] += 1
    if failure is not None:
        tally.failures.append(failure)


def _patiently(run: Any, given: Any) -> Outcome:
    try:
        with _limit(PATIENCE):
            found: Outcome = run(given)
            return found
    except TimeoutError:
        return Outcome("wrong", "hung", f"no answer in {PATIENCE} s")


@contextmanager
def _limit(seconds: int) -> Iterator[None]:
    """Raise TimeoutError after some seconds; only where signals arrive, in the main thread."""

    def late(*_: Any) -> None:
        raise TimeoutError

    try:
        before = signal.signal(signal.SIGALRM, late)
    except ValueError:
        yield
        return
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
