"""Do the tests notice a mistake in the parts that decide who meets whom?

All tests that concern these parts are collected and run once, which says what lines each of them
runs. Then each mutant is a fork of that process: one function's code is replaced, and the tests
that run the changed line are run, the likeliest to notice first, until one fails. Nothing is
imported or compiled again, so that a mutant costs about a second.

The known tools do less here: cosmic-ray starts Python and the tests anew for each mutant, which
takes several seconds of imports; mutmut makes every mutant there is, puts each function behind a
switch, and knows neither a sample nor a list of mutants that change nothing.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any

from benchmarks.harness import ROOT, Report, import_path
from campaigns.equivalents import EQUIVALENTS
from campaigns.mutants import Mutant, code_in, function_in, mutants_of
from thetajoin.engine.machine import available_cores
from thetajoin.errors import OptionError

MUTANTS = 400
TARGETS = {"mutation_caught": ">= 0.85", "mutants": ">= 300"}
# The files that decide who meets whom, with the functions in them that do not.
PARTS: dict[str, frozenset[str]] = {
    "window/*.py": frozenset({"__repr__"}),
    "engine/parts.py": frozenset({"is_bytes", "time_unit", "unit_of", "compare_columns"}),
    "engine/store.py": frozenset({"__init__", "_run", "runs", "_check", "_merge", "index_bytes"}),
    "engine/state.py": frozenset({"__init__", "_make_block"}),
    "engine/step.py": frozenset(),
    "planner/routing_keys.py": frozenset(),
    "planner/routing.py": frozenset({"explain_route", "_why"}),
    "routes/copies.py": frozenset(),
    "index/interval.py": frozenset(),
    "index/probe.py": frozenset({"order", "sort_bounds"}),
    "spark/unit.py": frozenset({"_metrics_frame", "metrics", "to_frame", "coalesce"}),
    "spark/exchange.py": frozenset(),
}
# The tests that concern them. Those that start a Spark session are left out: no fork can use it.
TESTS = (
    "tests/window",
    "tests/engine/test_share.py",
    "tests/planner/test_routes.py",
    "tests/routes",
    "tests/engine/test_store.py",
    "tests/engine/test_bands.py",
    "tests/index/test_arrivals.py",
    "tests/index/test_interval.py",
    "tests/simulation",
    "tests/kernels/test_bands.py",
    "tests/api/test_stream.py",
    "tests/api/test_windows_batch.py",
    "tests/api/test_join_how.py",
    "tests/api/test_join_many.py",
    "tests/api/test_join_operators.py",
    "tests/aggregate/test_slides.py",
    "tests/aggregate/test_self_join_agg.py",
    "tests/spark/test_unit.py",
    "tests/spark/test_unit_files.py",
    "tests/spark/test_pack.py",
    "src/thetajoin/window",
    "src/thetajoin/engine",
    "src/thetajoin/index",
)
# Seconds of a processor for tests that a mutant is given at most, as they take without it.
TEST_SECONDS = 15.0
# A mutant that takes this many times as long, and some seconds, has been noticed; also one that
# does nothing for many times longer.
SLOWER, GRACE, IDLE = 4.0, 10.0, 8.0
# Bytes that a mutant may take beyond what the process has.
MEMORY = 4 << 30
SURVIVED = "survived"
Progress = Callable[[str], None]


def run(progress: Progress, scale: float = 1.0) -> Report:
    """The share of mutants that tests notice; `scale` shrinks their number."""
    if importlib.util.find_spec("pytest") is None:
        raise OptionError(
            "campaign mutation runs the project's tests: pip install -e '.[dev,spark]'"
        )
    begun = time.perf_counter()
    number = max(1, round(MUTANTS * scale))
    with tempfile.TemporaryDirectory(prefix="thetajoin-mutation-") as folder:
        result, log = Path(folder, "result"), Path(folder, "log")
        given = ["--mutants", str(number), "--result", str(result), "--scratch", folder]
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", "campaigns.mutation", *given],
                cwd=ROOT,
                env=os.environ
                | {"HYPOTHESIS_PROFILE": "quick", "PYTHONPATH": import_path(ROOT / "tests")},
                stdout=subprocess.PIPE,
                stderr=sink,
                text=True,
            )
            assert process.stdout is not None
            for line in process.stdout:
                progress(line.strip())
        if process.wait() or not result.exists():
            told = log.read_text(errors="replace").strip().splitlines() or ["no message"]
            raise RuntimeError(f"the mutants could not be tried: {told[-1]}")
        found = json.loads(result.read_text())
    report = Report("mutation", targets=TARGETS)
    report.figures = {
        "mutation_caught": found["caught"] / found["mutants"],
        "mutants": found["mutants"],
        "survivors": len(found["survivors"]),
    }
    report.details["mutants"] = found | {"seconds": round(time.perf_counter() - begun, 1)}
    return report


def all_mutants(root: Path) -> list[Mutant]:
    """Every mutant of the deciding parts, those left out that change nothing."""
    package = root / "src" / "thetajoin"
    found = []
    for pattern, leave in PARTS.items():
        for path in sorted(package.glob(pattern)):
            name = path.relative_to(root).as_posix()
            found += mutants_of(name, path.read_text(), leave)
    return [mutant for mutant in found if mutant.identity not in EQUIVALENTS]


def drawn(mutants: list[Mutant], number: int) -> list[Mutant]:
    """So many of them, which stay the same ones while other code changes."""
    chosen = set(sorted(mutants, key=lambda mutant: mutant.rank)[:number])
    return [mutant for mutant in mutants if mutant in chosen]


# The tests, and what they run


@dataclass
class Baseline:
    """What each test takes, and the lines of the deciding parts that it runs."""

    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[tuple[str, int], set[str]] = field(default_factory=lambda: defaultdict(set))

    def concerned(self, mutant: Mutant) -> set[str]:
        """The tests that run the statement a mutant is in."""
        first, last = mutant.span
        tests = set().union(*(self.lines[mutant.path, n] for n in range(first, last + 1)))
        return tests & self.seconds.keys()


class Tracer:
    """Notes the lines that a test runs in some files."""

    def __init__(self, root: Path, paths: Iterable[str]) -> None:
        self._names = {str(root / path): path for path in paths}
        self.seen: set[tuple[str, int]] = set()

    @contextmanager
    def on(self) -> Iterator[None]:
        """Trace this thread and those it starts."""
        threading.settrace(self._call)
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)

    def _call(self, frame: FrameType, event: str, _: Any) -> Any:
        name = self._names.get(frame.f_code.co_filename)
        if name is None:
            return None
        seen = self.seen

        def line(frame: FrameType, event: str, _: Any) -> Any:
            seen.add((name, frame.f_lineno))
            return line

        return line(frame, event, None)


class Trial:
    """A pytest plugin that tries the mutants in place of running the tests once."""

    def __init__(self, root: Path, mutants: list[Mutant], out: IO[str]) -> None:
        self.root, self.mutants, self.out = root, mutants, out
        self.failed = self.words = ""
        self.outcomes: dict[Mutant, str] = {}
        self.baseline = Baseline()
        self.left_out: list[str] = []
        self._names: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Called by pytest after each step of a test."""
        if report.failed:
            self.failed, self.words = report.nodeid, report.longreprtext

    def pytest_collectreport(self, report: Any) -> None:
        """Called by pytest after each file was read."""
        if report.failed:
            raise RuntimeError(f"{report.nodeid} cannot be collected: {report.longreprtext}")

    def pytest_runtestloop(self, session: Any) -> bool:
        """Called by pytest once all tests are collected."""
        items = {item.nodeid: item for item in session.items}
        self._tell(f"{len(items)} tests without a mistake in the code")
        self._trace(items)
        self._time(items)
        killers: Counter[tuple[str, str]] = Counter()
        modules = {m.path: _module(m.path) for m in self.mutants}
        running: dict[int, Running] = {}
        waiting = list(self.mutants)
        cores = available_cores()
        while waiting or running:
            while waiting and len(running) < cores:
                mutant = waiting.pop(0)
                tests = self._order(mutant, killers)
                if not tests:
                    self._note(mutant, "")
                    continue
                allowed = SLOWER * sum(self.baseline.seconds[t] for t in tests) + GRACE
                module, mine = modules[mutant.path], [items[t] for t in tests]
                one = self._start(mutant, module, mine, int(allowed))
                one.until = time.monotonic() + IDLE * allowed
                running[one.pipe] = one
            ready, _, _ = select.select(list(running), [], [], 0.2)
            for pipe, one in list(running.items()):
                if pipe in ready or time.monotonic() > one.until:
                    del running[pipe]
                    killer = one.end()
                    killers[one.mutant.function, killer] += 1
                    self._note(one.mutant, killer)
        return True

    def _trace(self, items: dict[str, Any]) -> None:
        """See which lines each test runs; kernels are compiled meanwhile."""
        for nodeid, item in items.items():
            tracer = Tracer(self.root, {mutant.path for mutant in self.mutants})
            with tracer.on():
                self._run(item)
            for at in tracer.seen:
                self.baseline.lines[at].add(nodeid)

    def _time(self, items: dict[str, Any]) -> None:
        """See how long each test takes; one that fails even so cannot notice anything."""
        for nodeid, item in items.items():
            begun = time.process_time()
            if self._run(item):
                self.left_out.append(nodeid)
                self.words = self.words.strip().splitlines()[-1]
                if len(self.left_out) > len(items) / 20:
                    raise RuntimeError(f"{nodeid} fails without a mutant: {self.words}")
            else:
                self.baseline.seconds[nodeid] = time.process_time() - begun

    def _run(self, item: Any) -> str:
        """Run one test; its name if it failed."""
        self.failed = ""
        if doctest := getattr(item, "dtest", None):
            # It forgets its names when it has run.
            doctest.globs.update(self._names.setdefault(item.nodeid, dict(doctest.globs)))
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        return self.failed

    def _order(self, mutant: Mutant, killers: Counter[tuple[str, str]]) -> list[str]:
        """The concerned tests: those that noticed others of the function first, then the quick."""
        seconds = self.baseline.seconds
        tests = sorted(
            self.baseline.concerned(mutant),
            key=lambda test: (-killers[mutant.function, test], seconds[test], test),
        )
        chosen: list[str] = []
        total = 0.0
        for test in tests:
            total += seconds[test]
            if total > TEST_SECONDS and chosen:
                break
            chosen.append(test)
        return chosen

    def _start(self, mutant: Mutant, module: Any, items: list[Any], seconds: int) -> Running:
        original = (self.root / mutant.path).read_text()
        code = compile(mutant.source(original), str(self.root / mutant.path), "exec")
        read, write = os.pipe()
        pid = os.fork()
        if pid:
            os.close(write)
            return Running(mutant, pid, read)
        told = "an error outside of the tests"
        try:
            os.setpgid(0, 0)
            _hold_to(seconds)
            function_in(module, mutant.function).__code__ = code_in(code, mutant.function)
            told = next(filter(None, map(self._run, items)), SURVIVED)
        finally:
            os.write(write, told.encode()[:4096])
            os._exit(0)

    def _note(self, mutant: Mutant, killer: str) -> None:
        self.outcomes[mutant] = killer
        caught = sum(map(bool, self.outcomes.values()))
        self._tell(f"mutants: {caught} of {len(self.outcomes)} caught, {len(self.mutants)} in all")

    def _tell(self, what: str) -> None:
        self.out.write(what + "\n")
        self.out.flush()

    def result(self, everything: int) -> dict[str, Any]:
        """What became of the mutants, as JSON can hold it."""
        parts: dict[str, list[int]] = {}
        for mutant, killer in self.outcomes.items():
            counts = parts.setdefault(mutant.path, [0, 0])
            counts[0] += bool(killer)
            counts[1] += 1
        return {
            "mutants": len(self.outcomes),
            "of": everything,
            "caught": sum(map(bool, self.outcomes.values())),
            "tests": len(self.baseline.seconds),
            "tests_left_out": self.left_out,
            "parts": {path: f"{caught} of {all_}" for path, (caught, all_) in parts.items()},
            "survivors": [
                {
                    "at": f"{mutant.path}:{mutant.line}",
                    "function": mutant.function,
                    "before": mutant.before,
                    "after": mutant.after,
                    "tests": len(self.baseline.concerned(mutant)),
                }
                for mutant, killer in self.outcomes.items()
                if not killer
            ],
        }


@dataclass
class Running:
    """A fork that tries a mutant."""

    mutant: Mutant
    pid: int
    pipe: int
    until: float = 0.0

    def end(self) -> str:
        """What noticed the mutant; empty if nothing did."""
        told = "its time"
        if select.select([self.pipe], [], [], 0)[0]:
            told = os.read(self.pipe, 4096).decode()
        os.close(self.pipe)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        status = os.waitpid(self.pid, 0)[1]
        if not told:  # it has ended without a word
            out_of_time = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
            told = "its time" if out_of_time else "a crash"
        return "" if told == SURVIVED else told


def _hold_to(seconds: int) -> None:
    """Hold this process to so much of a processor, and to some memory more than it has."""
    import resource  # not on every system, as is the fork that this is called in

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    memory = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))


def _module(path: str) -> Any:
    name = path.removeprefix("src/").removesuffix(".py").replace("/", ".")
    return importlib.import_module(name.removesuffix(".__init__"))


def main() -> None:
    """Try mutants in this process, and write what became of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mutants", type=int, required=True)
    parser.add_argument("--result", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    given = parser.parse_args()
    import pytest

    everything = all_mutants(ROOT)
    # pytest takes over what is printed; progress goes past it.
    with os.fdopen(os.dup(1), "w") as out:
        trial = Trial(ROOT, drawn(everything, given.mutants), out)
        tests = [path for path in TESTS if (ROOT / path).exists()]
        basetemp = f"--basetemp={given.scratch}/tests"
        plugins = ["-p", "no:xdist", "-p", "no:terminal", "-p", "no:cacheprovider"]
        pytest.main([*plugins, basetemp, "-o", "timeout=0", *tests], plugins=[trial])
    if len(trial.outcomes) != len(trial.mutants):
        sys.exit(1)
    given.result.write_text(json.dumps(trial.result(len(everything))))


if __name__ == "__main__":
    main()
