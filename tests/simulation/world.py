"""Everything a unit's process sees of its machine: workers, threads, clocks and names.

While a world is installed, the modules under test run one step after the other in this process, and
what they would leave to the operating system is decided by the seed: which worker's memory is at
hand, when a thread runs, what time it is, and what the disk does (`disk`).
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache as remembered
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from simulation.disk import Disk, Killed
from thetajoin.engine import block, compiled
from thetajoin.spark import cache, unit

MEMORY = "_REMEMBERED"
TOLD = "_TOLD"
# Simulated time begins long ago, so that a file that has just been written is the newest.
BEGIN = 1e6


@dataclass(eq=False)
class Host:
    """An executor's machine: a folder for the files that its workers share."""

    folder: Path


@dataclass(eq=False)
class Worker:
    """A Python worker: a process with a memory of its own."""

    pid: int
    host: Host
    memory: OrderedDict[Any, Any] = field(default_factory=OrderedDict)
    told: set[Any] = field(default_factory=set)
    alive: bool = True


class World:
    """One seed's machines; `with` installs them."""

    def __init__(self, rng: Random, root: Path) -> None:
        self.rng = rng
        self.faults: Counter[str] = Counter()
        self.worker: Worker | None = None
        self.writers: list[Writer] = []
        self.writing: Writer | None = None
        self.troubles: list[str] = []
        self.clock = BEGIN
        # Operations on files until the worker that is at work is killed in the middle of one.
        self.kill_in: int | None = None
        self.disk = Disk(root, self._disk_step)
        self.root = root
        self._pids = 1000
        self._workers: dict[int, Worker] = {}
        self._patches: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> World:
        thread = lambda target, args=(): Writer(self, target, args)  # noqa: E731
        rows = lambda target, args=(): RowWriter(self, target, args)  # noqa: E731
        names = SimpleNamespace(uuid4=self._uuid)
        system = Proxy(os, getpid=self._pid, kill=self._kill)
        clock = Proxy(time, time=self._time, monotonic=self._time, sleep=self._sleep)
        self._patch(unit, threading=Proxy(threading, Thread=rows), uuid=names)
        self._patch(unit, set_aside=lambda: None, **{MEMORY: OrderedDict()})
        self._patch(cache, threading=Proxy(threading, Thread=thread), **{TOLD: set()})
        self._patch(cache, os=system, time=clock)
        self._patch(block, os=system, uuid=names)
        # Not under test, and most of the time if left as they are.
        self._patch(unit, pd=Proxy(unit.pd, DataFrame=Frame))
        self._patch(compiled, compile_condition=_compiled, time_difference=_difference)
        self.disk.install()
        self._environment = {
            name: os.environ.get(name) for name in ("SPARK_LOCAL_DIRS", "SPARK_REUSE_WORKER")
        }
        return self

    def __exit__(self, *_: object) -> None:
        self._end(self.writers)
        self.disk.uninstall()
        for module, name, value in reversed(self._patches):
            setattr(module, name, value)
        for name, text in self._environment.items():
            os.environ.pop(name, None)
            if text is not None:
                os.environ[name] = text

    def _patch(self, module: Any, **values: Any) -> None:
        for name, value in values.items():
            self._patches.append((module, name, getattr(module, name)))
            setattr(module, name, value)

    def count(self, fault: str, times: int = 1) -> None:
        """Note that a fault has happened."""
        if times:
            self.faults[fault] += times

    # Workers

    def reuse(self, reused: bool) -> None:
        """Whether Spark's workers outlive their tasks."""
        os.environ["SPARK_REUSE_WORKER"] = "1" if reused else ""

    def new_worker(self, host: Host) -> Worker:
        """A worker that has nothing in its memory."""
        self._pids += 1
        worker = Worker(self._pids, host)
        self._workers[worker.pid] = worker
        return worker

    def kill(self, worker: Worker) -> None:
        """End a worker's process, and with it its threads, wherever they are."""
        worker.alive = False
        worker.memory = OrderedDict()
        mine = [writer for writer in self.writers if writer.worker is worker]
        self.count("writer thread that never finished", len(mine))
        self._end(mine)

    def _end(self, writers: list[Writer]) -> None:
        for writer in list(writers):
            writer.abandon()

    @contextlib.contextmanager
    def on(self, worker: Worker) -> Iterator[None]:
        """Run as this worker's process."""
        before = self.worker
        self._become(worker)
        try:
            yield
        finally:
            self.stamp()
            self._become(before)

    def _become(self, worker: Worker | None) -> None:
        self.worker = worker
        if worker is not None:
            setattr(unit, MEMORY, worker.memory)
            setattr(cache, TOLD, worker.told)
            os.environ["SPARK_LOCAL_DIRS"] = str(worker.host.folder)

    def _pid(self) -> int:
        assert self.worker is not None
        return self.worker.pid

    def _kill(self, pid: int, number: int) -> None:
        assert number == 0
        if pid not in self._workers or not self._workers[pid].alive:
            raise ProcessLookupError(pid)

    def _uuid(self) -> Any:
        return SimpleNamespace(hex=f"{self.rng.getrandbits(128):032x}")

    # Time

    def _time(self) -> float:
        return self.clock

    def _sleep(self, seconds: float) -> None:
        """Others go on meanwhile, or nothing happens for a long time."""
        self.clock += seconds if self.rng.random() < 0.5 else 20 * seconds
        if not self.let_a_writer_run() and self.rng.random() < 0.2:
            self.clock += 60

    def stamp(self) -> None:
        """Give files that have been written their simulated time."""
        self.clock += 1
        for path in self.disk.take_written():
            with contextlib.suppress(OSError):
                os.utime(path, (self.clock, self.clock))

    # Threads

    def let_a_writer_run(self) -> bool:
        """Have a writer that is waiting go on; False if there is none."""
        if not self.writers or self.writing is not None:
            return False
        self.rng.choice(self.writers).go_on()
        return True

    def check_alive(self) -> None:
        """Nothing is done by a process that is gone."""
        if self.worker is not None and not self.worker.alive:
            raise Killed

    def _disk_step(self, what: str) -> None:
        """Called before anything is done to a file."""
        self.check_alive()
        if self.kill_in is not None and self.worker is not None:
            self.kill_in -= 1
            if self.kill_in < 0:
                self.kill_in = None
                self.worker.alive = False
                raise Killed
        if self.writing is not None:
            self.writing.at_a_step()
        elif self.writers and self.rng.random() < 0.05:
            self.let_a_writer_run()


class Frame(dict[str, Any]):
    """What a unit gives out, as little of a pandas frame as is looked at."""

    def __init__(self, columns: dict[str, Any], copy: bool = False) -> None:
        super().__init__(columns)


_compiled = remembered(compiled.compile_condition)
_difference = remembered(compiled.time_difference)


class Proxy:
    """A module in which some names mean something else."""

    def __init__(self, module: Any, **names: Any) -> None:
        self._module = module
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class RowWriter:
    """A thread beside the probing: runs at once, or when it is waited for."""

    def __init__(self, world: World, target: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._run: Callable[[], None] | None = lambda: target(*args)
        self._early = world.rng.random() < 0.5

    def start(self) -> None:
        if self._early:
            self.join()

    def join(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            run()


class Writer:
    """A thread that writes segment files: at once, later, or up to a step and then later."""

    def __init__(self, world: World, target: Callable[..., None], args: tuple[Any, ...]) -> None:
        assert world.worker is not None
        self.world, self.worker = world, world.worker
        self._target = lambda: target(*args)
        self._thread: threading.Thread | None = None
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._steps: int | None = None
        self._done = False

    def start(self) -> None:
        chance = self.world.rng.random()
        if chance < 0.5:
            self._run(None)
            return
        self.world.writers.append(self)
        if chance < 0.65:
            self.world.count("writer thread paused")
            self._run(self.world.rng.randrange(12))
        else:
            self.world.count("writer thread late")

    def join(self) -> None:
        """Wait until it has finished."""
        if not self._done:
            self._run(None)

    def go_on(self) -> None:
        """Run for a while, or to the end."""
        self._run(None if self.world.rng.random() < 0.7 else self.world.rng.randrange(12))

    def abandon(self) -> None:
        """Its process is gone."""
        if self in self.world.writers:
            self.world.writers.remove(self)
        if self._thread is not None and not self._done:
            self.worker.alive = False
            self._run(None)
        self._done = True

    def at_a_step(self) -> None:
        """Give the turn back if the steps are used up."""
        if self._steps is None:
            return
        self._steps -= 1
        if self._steps >= 0:
            return
        self._back.release()
        self._go.acquire()
        if not self.worker.alive:
            raise Killed

    def _run(self, steps: int | None) -> None:
        """Run up to a number of steps; in a thread of its own only if it is to stop on the way."""
        world = self.world
        self._steps = steps
        writing, world.writing = world.writing, self
        with world.on(self.worker):
            if self._thread is None and steps is None:
                self._body()
            else:
                self._resume()
        world.writing = writing
        if self._done and self in world.writers:
            world.writers.remove(self)

    def _resume(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._in_turns)
            self._thread.start()
        self._go.release()
        self._back.acquire()
        if self._done:
            self._thread.join()

    def _in_turns(self) -> None:
        self._go.acquire()
        self._body()
        self._back.release()

    def _body(self) -> None:
        try:
            self._target()
        except Killed:
            self.worker.alive = False
        except BaseException as error:
            self.world.troubles.append(f"a writer thread ended with {error!r}")
        self._done = True
