"""An exception at every executed line of every operation, and the same call again.

Each scenario is a list of calls on one object. For each call, and for each line of thetajoin that
it executes, the calls before it are made, an exception is raised at that line, and the call is made
again, as a user would after Ctrl-C or an error. Everything that comes out from then on must be what
comes out undisturbed, call by call; and that is compared with the naive join. Spark's unit gets the
same in the simulated cluster: a task that fails at a line, and Spark's next attempt.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any
from zlib import crc32

import thetajoin as tj
from benchmarks.harness import Report
from campaigns import interrupt_scenarios as scenarios
from campaigns.interrupt_scenarios import Call, Scenario
from thetajoin.errors import OptionError, ThetaJoinError
from thetajoin.limits import change_limits

PACKAGE = str(Path(tj.__file__).parent)
# What only waits its turn or undoes is outside of what reports that memory ran out, and so is the
# line at which that begins.
UNDOING = (str(Path("engine") / "serial.py"), "errors.py")
TARGETS = {"wrong": "0"}


class Interrupted(KeyboardInterrupt):
    """Ctrl-C at a chosen line."""


class Raiser:
    """Counts the lines of thetajoin that this thread executes, and raises at one of them."""

    def __init__(self, at: int = 0, error: type[BaseException] = Interrupted) -> None:
        self.at, self.error = at, error
        self.lines = 0
        self.where = ""

    def __enter__(self) -> Raiser:
        sys.settrace(self.trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Python calls this at every call and line."""
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            self.lines += 1
            writer = _in_writer(frame) if self.lines == self.at else ""
            if writer == "_write":  # nothing is above what only waits for an error: the next line
                self.at += 1
            elif self.lines == self.at:
                self.where = f"{frame.f_code.co_filename[len(PACKAGE) + 1 :]}:{frame.f_lineno}"
                # Ctrl-C comes to the main thread only; the simulated cluster runs all in one.
                raise (MemoryError if writer else self.error)(self.where)
        return self.trace


def _in_writer(frame: FrameType | None) -> str:
    """Which function of the thread that writes segment files this is in; empty if in none."""
    while frame is not None:
        name = frame.f_code.co_name
        if name in ("_write", "_write_layout") and frame.f_code.co_filename.endswith("cache.py"):
            return name
        frame = frame.f_back
    return ""


@dataclass
class Tally:
    """What came of the points of one scenario."""

    points: int = 0
    swallowed: int = 0
    idle: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Take another's in."""
        self.points += other.points
        self.swallowed += other.swallowed
        self.idle += other.idle
        self.wrong += other.wrong


def run_calls(scenario: Scenario, skipped: int = -1, doubled: int = -1) -> list[Any]:
    """What each call gives, undisturbed; one of them may be left out or made twice."""
    operator = scenario.make()
    results = []
    for at, call in enumerate(scenario.calls):
        for _ in range((at != skipped) + (at == doubled)):
            try:
                results.append(scenario.read(operator, at, call.on(operator)))
            except ThetaJoinError as error:
                results.append(type(error).__name__)
    return results


def check_stake(scenario: Scenario, at: int, wanted: list[Any]) -> str:
    """Why losing or doubling a call would not be noticed; empty if it would."""
    if scenario.calls[at].reads_only:
        return "" if any(wanted[at:]) else "nothing comes out after it"
    lost = run_calls(scenario, skipped=at)
    if [*lost[:at], wanted[at], *lost[at:]] == wanted and not wanted[at]:
        return "leaving it out changes nothing"
    twice = run_calls(scenario, doubled=at)
    repeats = scenario.calls[at].method == "advance"  # to where it has been, which is nothing
    if [*twice[:at], *twice[at + 1 :]] == wanted and not wanted[at] and not repeats:
        return "making it twice changes nothing"
    return ""


def is_free(operator: Any) -> bool:
    """Whether another thread could use the operator now."""
    lock = getattr(operator, "_lock", None)
    if lock is None:
        return True
    taken: list[bool] = []

    def take() -> None:
        taken.append(lock.acquire(blocking=False))
        if taken[0]:
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return taken[0]


def interrupt(
    scenario: Scenario, target: int, line: int, error: type[BaseException], wanted: list[Any]
) -> tuple[bool, bool, str]:
    """Whether the line was reached, whether the error came out, and what is wrong then."""
    operator = scenario.make()
    calls = scenario.calls
    for call in calls[:target]:
        call.on(operator)
    raised: BaseException | None = None
    result: Any = None
    raiser = Raiser(line, error)
    try:
        with raiser:
            result = calls[target].on(operator)
    except BaseException as caught:
        raised = caught
    if not raiser.where:
        return False, False, ""
    found = ""
    if raised is not None:
        expected = (ThetaJoinError,) if error is MemoryError else (Interrupted,)
        if not isinstance(raised, expected) and not raiser.where.startswith(UNDOING):
            found = f"came out as {type(raised).__name__}: {raised}"
        elif not is_free(operator):
            found = "the lock is still held"
        else:
            result = calls[target].on(operator)
    if not found:
        try:
            got = [scenario.read(operator, target, result)]
            for at, call in enumerate(calls[target + 1 :], target + 1):
                got.append(scenario.read(operator, at, call.on(operator)))
        except Exception as failure:
            found = f"a later call failed: {type(failure).__name__}: {failure}"
        else:
            found = _difference(calls[target:], got, wanted[target:])
    where = f"{scenario.name}, call {target} ({calls[target].method}), {error.__name__}"
    return True, raised is not None, found and f"{where} at {raiser.where}: {found}"


def _difference(calls: list[Call], got: list[Any], wanted: list[Any]) -> str:
    for call, mine, right in zip(calls, got, wanted, strict=True):
        if mine != right:
            if not isinstance(mine, Counter) or not isinstance(right, Counter):
                return f"{call.method} gave {mine!r:.80}, not {right!r:.80}"
            lost, more = (right - mine).total(), (mine - right).total()
            return f"{call.method} lost {lost} rows and gave {more} too many"
    return ""


def run_scenario(name: str, stride: int = 1) -> Tally:
    """Every point of every call of a scenario; with a stride only some."""
    tally = Tally()
    scenario = scenarios.find(name)
    with change_limits(smallest_class=2):  # few rows are merged as if they were many
        wanted = run_calls(scenario)
        if fault := scenario.compare(wanted):
            tally.wrong.append(f"{name}, undisturbed: {fault}")
            return tally
        for target, call in enumerate(scenario.calls):
            if not call.traced:
                continue
            if fault := check_stake(scenario, target, wanted):
                if call.method == "finish":  # an inner join has nothing left to give
                    tally.idle += 1
                    continue
                tally.wrong.append(f"{name}, call {target} ({call.method}): {fault}")
                continue
            for line in _lines(scenario, target, stride):
                error = (Interrupted, MemoryError)[line // stride % 2]
                reached, raised, wrong = interrupt(scenario, target, line, error, wanted)
                tally.points += reached
                tally.swallowed += reached and not raised
                tally.wrong += [wrong] if wrong else []
    return tally


def _lines(scenario: Scenario, target: int, stride: int) -> range:
    """The lines that a call executes, by number."""
    operator = scenario.make()
    for call in scenario.calls[:target]:
        call.on(operator)
    with Raiser() as counter:
        scenario.calls[target].on(operator)
    # Where lines are left out, they are not the same ones in every scenario.
    first = 1 + (crc32(scenario.name.encode()) + target) % stride
    return range(first, counter.lines + 1, stride)


# --- Spark's unit --------------------------------------------------------------------------------


def run_unit(seed: int, stride: int = 1) -> Tally:
    """A history of the simulated cluster, again and again, with a task that fails at each line."""
    from simulation.cluster import Cluster, Done, Settings, Task
    from simulation.history import run_history

    quiet = Settings(task=0, twin=0, rerun=0, restart=0, between=0, damage=0)
    armed: Raiser

    class Interrupting(Cluster):
        """A cluster whose tasks run under the raiser; one that fails is tried again."""

        def _on_a_worker(self, task: Task, watermark: int, fault: str | None) -> Done | None:
            lines = armed.lines
            try:
                with armed:
                    return super()._on_a_worker(task, watermark, fault)
            except (Interrupted, MemoryError, ThetaJoinError):
                if armed.where and armed.lines != lines:
                    return None
                raise

    tally = Tally()

    def play(raiser: Raiser) -> str:
        nonlocal armed
        armed = raiser
        folder = Path(tempfile.mkdtemp(prefix="interrupts-"))
        try:
            outcome = run_history(seed, folder, quiet, Interrupting)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return outcome.wrong and f"{outcome.wrong}\n{outcome.evidence}"

    counter = Raiser()
    if wrong := play(counter):
        tally.wrong.append(f"unit {seed}, undisturbed: {wrong}")
        return tally
    for line in range(1, counter.lines + 1, stride):
        error = (Interrupted, MemoryError)[line // stride % 2]
        raiser = Raiser(line, error)
        wrong = play(raiser)
        tally.points += bool(raiser.where)
        if wrong:
            tally.wrong.append(f"unit {seed}, {error.__name__} at {raiser.where}: {wrong}")
    return tally


# --- the command ---------------------------------------------------------------------------------


def run(
    progress: Callable[[str], None],
    scale: float = 1.0,
    *,
    stride: int = 37,
    units: int = 8,
    seed: int = 1,
    only: str = "",
    jobs: int = 2,
) -> Report:
    """All scenarios whose names contain `only`, and `units` histories of Spark's unit.

    Of the lines one in `stride` is taken; `scale` takes fewer of them.
    """
    for name, value in (("stride", stride), ("jobs", jobs)):
        if value < 1:
            raise OptionError(f"--{name} {value}: must be at least 1")
    stride = max(1, round(stride / scale))
    began = time.monotonic()
    work: list[tuple[Callable[..., Tally], Any]] = [
        (run_scenario, name) for name in scenarios.names() if only in name
    ]
    if only in "unit":
        work += [(run_unit, one) for one in range(seed, seed + units)]
    total, by_scenario = Tally(), {}
    for (_, name), tally in zip(work, _results(work, stride, jobs), strict=True):
        by_scenario[str(name)] = {"points": tally.points, "wrong": len(tally.wrong)}
        total.add(tally)
        progress(f"{total.points:,} lines, {len(total.wrong)} wrong")
    figures: dict[str, float | None] = {
        "points": total.points,
        "wrong": len(total.wrong),
        "swallowed": total.swallowed,
        "scenarios": len(work),
        "calls_without_stake": total.idle,
        "seconds": round(time.monotonic() - began),
    }
    details = {"wrong": total.wrong[:50], "scenarios": by_scenario}
    return Report("interrupts", figures, TARGETS, details)


def _results(
    work: list[tuple[Callable[..., Tally], Any]], stride: int, jobs: int
) -> Iterator[Tally]:
    with ProcessPoolExecutor(jobs) as pool:
        futures = [pool.submit(_run_safely, what, name, stride) for what, name in work]
        for future in futures:
            yield future.result()


def _run_safely(what: Callable[..., Tally], name: Any, stride: int) -> Tally:
    try:
        return what(name, stride)
    except Exception:
        return Tally(wrong=[f"{name}: {traceback.format_exc()}"])
