"""Ctrl-C, sent to real commands: exit code 130 and one line, whenever and however often."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

COMMAND = "import sys; from thetajoin.cli import main; sys.argv[0] = 'thetajoin'; main()"
STOPPED = "thetajoin: stopped\n"


class Process:
    """A command in a process group of its own, as a terminal starts it."""

    def __init__(self, folder: Path, *words: object) -> None:
        (folder / "tmp").mkdir(exist_ok=True)
        self.output = folder / "output"
        with self.output.open("wb") as output:
            self.running = subprocess.Popen(
                [sys.executable, "-u", "-c", COMMAND, *map(str, words)],
                cwd=folder,
                env=os.environ | {"TMPDIR": str(folder / "tmp")},
                stdout=output,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )

    def wait_for(self, text: str) -> None:
        until = time.monotonic() + 200
        while text not in self.output.read_text():
            assert self.running.poll() is None, self.running.communicate()[1]
            assert time.monotonic() < until, self.output.read_text()
            time.sleep(0.05)

    def interrupt(self) -> None:
        os.killpg(self.running.pid, signal.SIGINT)

    def end(self, seconds: float = 60) -> tuple[int, str]:
        """The exit code and stderr; what it has started, Spark's JVM, has to end with it."""
        try:
            _, err = self.running.communicate(timeout=seconds)
            until = time.monotonic() + 30
            while self._others():
                assert time.monotonic() < until, "a process is left behind"
                time.sleep(0.1)
        finally:
            if self._others():
                os.killpg(self.running.pid, signal.SIGKILL)
        return self.running.returncode, err

    def _others(self) -> bool:
        try:
            os.killpg(self.running.pid, 0)
        except ProcessLookupError:
            return False
        return True


WAITING = """
import sys, time
from thetajoin.cli import app, main
import thetajoin.cli.demo

def run_demo(config):
    print("ready", flush=True)
    try:
        time.sleep(100)
    finally:
        print("putting away", flush=True)
        time.sleep({tidy})
        print("put away", flush=True)

thetajoin.cli.demo.run_demo = run_demo
sys.argv = ["thetajoin", "demo"]
main()
"""


@pytest.mark.parametrize("tidy", [0, 100])
def test_the_second_does_not_wait(tmp_path, monkeypatch, tidy):
    monkeypatch.setattr(sys.modules[__name__], "COMMAND", WAITING.format(tidy=tidy))
    process = Process(tmp_path)
    process.wait_for("ready")
    process.interrupt()
    if tidy:
        process.wait_for("putting away")
        process.interrupt()
    assert process.end() == (130, STOPPED)
    assert ("put away" in process.output.read_text()) == (tidy == 0)


LATE = """
import sys, time
from thetajoin.cli import main
import thetajoin.cli.demo

class Late:
    def __del__(self, say=print, sleep=time.sleep):
        say("ending", flush=True)
        sleep(2)

late = Late()
thetajoin.cli.demo.run_demo = lambda _: (print("ready", flush=True), time.sleep(100))
sys.argv = ["thetajoin", "demo"]
main()
"""


def test_one_that_comes_while_python_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "COMMAND", LATE)
    process = Process(tmp_path)
    process.wait_for("ready")
    process.interrupt()
    process.wait_for("ending")
    process.interrupt()
    assert process.end() == (130, STOPPED)


TIDYING = """
import sys, time
from thetajoin.cli import main
import thetajoin.cli.demo

class Slow:
    def __del__(self):
        print("tidying", flush=True)
        time.sleep(2)

def run_demo(_):
    slow = Slow()
    del slow
    print("goes on", flush=True)
    time.sleep(100)

thetajoin.cli.demo.run_demo = run_demo
sys.argv = ["thetajoin", "demo"]
main()
"""


def test_one_that_comes_where_python_loses_exceptions(tmp_path, monkeypatch):
    """An object is tidied up: what is raised meanwhile reaches nobody."""
    monkeypatch.setattr(sys.modules[__name__], "COMMAND", TIDYING)
    process = Process(tmp_path)
    process.wait_for("tidying")
    process.interrupt()
    assert process.end(30) == (130, STOPPED)


def test_generate_leaves_what_was_there(tmp_path):
    (tmp_path / "s" / "trips").mkdir(parents=True)
    (tmp_path / "s" / "trips" / "0.parquet").write_text("mine")
    words = ["--rows", 20_000_000, "--overwrite"]
    process = Process(tmp_path, "generate", "taxi", "s", *words)
    until = time.monotonic() + 60
    while not list((tmp_path / "s").glob(".*.partial/trips")):
        assert time.monotonic() < until
        time.sleep(0.02)
    process.interrupt()
    assert process.end() == (130, STOPPED)
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.glob("s/**/*")] == [
        "s/trips",
        "s/trips/0.parquet",
    ]


EARLY = """
import os, signal, sys

class Early:
    def find_spec(self, name, *_):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Early())
from thetajoin.cli import main
main()
"""


@pytest.mark.parametrize("name", ["command", "app"])
def test_while_the_command_is_imported(tmp_path, monkeypatch, name):
    early = EARLY.format(name=f"thetajoin.cli.{name}")
    monkeypatch.setattr(sys.modules[__name__], "COMMAND", early)
    assert Process(tmp_path).end() == (130, STOPPED)


def test_nothing_is_imported_before_that():
    code = "import sys; b = set(sys.modules); import thetajoin.cli; print(*{*sys.modules} - b)"
    words = [sys.executable, "-c", code]
    found = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    assert set(found) <= {"thetajoin", "thetajoin.cli", "__future__"}


SWALLOWED = """
import sys
from thetajoin.cli import main
import thetajoin.cli.demo

def run_demo(config):
    import os, signal
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException as error:
        {then}

thetajoin.cli.demo.run_demo = run_demo
sys.argv = ["thetajoin", "demo"]
main()
"""


@pytest.mark.parametrize("then", ["raise ImportError('numpy') from error", "raise SystemExit(1)"])
def test_what_it_has_become_on_its_way_does_not_matter(tmp_path, monkeypatch, then):
    monkeypatch.setattr(sys.modules[__name__], "COMMAND", SWALLOWED.format(then=then))
    assert Process(tmp_path).end() == (130, STOPPED)


BENCHMARKS = f"""
import runpy, sys
sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r})
runpy.run_module("benchmarks", run_name="__main__")
"""


def test_a_benchmark(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "COMMAND", BENCHMARKS)
    process = Process(tmp_path, "engine", "--scale", "0.5")
    time.sleep(3)
    process.interrupt()
    assert process.end() == (130, STOPPED)


@pytest.fixture
def job(stream_job):
    return stream_job("100 milliseconds")


@pytest.mark.spark
@pytest.mark.slow
def test_a_stream_shows_its_rows_until_it_is_stopped(job):
    process = Process(job, "run", "job.toml")
    process.wait_for("first 20 shown")
    process.interrupt()
    code, err = process.end()
    assert (code, err.count("\n")) == (130, 1)
    assert err.startswith("thetajoin: stopped: ")
    assert "goes on from here" not in err  # it has no checkpoint
    out = process.output.read_text()
    assert "micro-batch 0: 435 rows" in out
    assert "[red]1[/b]" in out
    assert not list((job / "tmp").glob("thetajoin-spark-*"))


@pytest.mark.spark
@pytest.mark.slow
def test_twice_in_a_stream(job):
    process = Process(job, "run", "job.toml")
    process.wait_for("first 20 shown")
    process.interrupt()
    time.sleep(0.1)
    process.interrupt()
    code, err = process.end()
    assert (code, err.count("\n")) == (130, 1)
    assert err.startswith("thetajoin: stopped")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_stream_that_was_stopped_goes_on(job):
    """What is stopped and started again gives each pair once, as if it had never stopped."""
    text = (job / "job.toml").read_text().replace("count = 50", "count = 1000")
    text = text.replace('format = "console"', 'path = "out"').replace(
        "\n[", '\ncheckpoint = "ck"\n[', 1
    )
    (job / "job.toml").write_text(text)
    process = Process(job, "run", "job.toml")
    until = time.monotonic() + 240
    while not list((job / "ck" / "commits").glob("[0-9]*")):
        assert process.running.poll() is None, process.running.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.1)
    process.interrupt()
    code, err = process.end()
    assert (code, err.count("\n")) == (130, 1)
    assert err.endswith("; the same command goes on from here\n")
    later = pa.table({"k": range(100, 120), "s": [""] * 20})
    for side in "ab":
        parquet.write_table(later, job / side / "1.parquet")
    now = (job / "job.toml").read_text().replace("100 milliseconds", "available-now")
    (job / "job.toml").write_text(now)
    process = Process(job, "run", "job.toml")
    assert process.end(240) == (0, "")
    assert "40 rows in" in process.output.read_text()
    found = parquet.read_table([str(f) for f in (job / "out").glob("*.parquet")])
    pairs = sorted(zip(found["k"].to_pylist(), found["j"].to_pylist(), strict=True))
    keys = [*range(30), *range(100, 120)]
    assert pairs == sorted((a, b) for a in keys for b in keys if a < b)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("after", [1.5, 4.0, 9.0])
def test_while_spark_starts(job, after):
    process = Process(job, "run", "job.toml")
    time.sleep(after)
    process.interrupt()
    code, err = process.end()
    assert (code, err.count("\n")) == (130, 1)
    assert err.startswith("thetajoin: stopped")


@pytest.mark.spark
@pytest.mark.slow
def test_the_demo_twice(tmp_path, java):
    process = Process(tmp_path, "demo", "--rows", 200_000)
    process.wait_for("joining on")
    time.sleep(5)
    process.interrupt()
    time.sleep(0.3)
    process.interrupt()
    assert process.end() == (130, STOPPED)
