"""Spark, as far as a streaming join can tell: micro-batches, tasks, attempts, versions, a sink.

A micro-batch is packed partition by partition, shuffled, and joined by one task for each state
partition. A task may be tried several times, on any worker, with its blobs in any order; a
micro-batch may be run again from the versions before it. What is given out counts once the
micro-batch is committed, and a later run of the same micro-batch takes its place.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from naive import Row
from simulation.cases import millis
from simulation.disk import Killed, damage, files_below
from simulation.store import Handle, Version
from simulation.world import Host, World
from thetajoin.planner.routing import Routing
from thetajoin.spark.exchange import route_to_units
from thetajoin.spark.unit import METRICS, JoinUnit
from thetajoin.spark.unit_keys import UNIT_KEYS, UNIT_OF
from thetajoin.spark.unit_spec import UnitSpec
from thetajoin.window.windows import TimeWindow

# Attempts of one task, and runs of one micro-batch, after which nothing goes wrong any more.
MOST_ATTEMPTS, MOST_RUNS = 4, 3
TASK_FAULTS = (
    "killed at a state operation",
    "failed at a state operation",
    "killed at an operation on files",
    "killed after its writes",
    "failed after its writes",
    "cancelled while giving out",
)
Pack = Callable[[int, UnitSpec, list[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Failed(Exception):
    """A task fails and its worker goes on."""


@dataclass(frozen=True)
class MicroBatch:
    """New rows of both sides, and the watermark in milliseconds."""

    left: list[Row]
    right: list[Row]
    watermark: int = 0


@dataclass
class Settings:
    """How often what goes wrong; and how Spark's workers are set up."""

    task: float = 0.2
    twin: float = 0.06
    rerun: float = 0.08
    restart: float = 0.08
    between: float = 0.15
    damage: float = 0.15
    reuse: bool = True


@dataclass
class Task:
    """One state partition's share of a micro-batch."""

    partition: int
    blobs: dict[int, list[tuple[int, bytes]]]
    attempts: int = 0


@dataclass
class Done:
    """What an attempt leaves if it is committed."""

    version: Version
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    numbers: list[str] = field(default_factory=list)

    def take(self, frame: Any) -> None:
        """Read a frame at once, as Spark does: its memory may be used again for the next."""
        assert list(frame)[-1] == METRICS
        columns = [column.__arrow_array__().to_pylist() for column in frame.values()]
        for *row, numbers in zip(*columns, strict=True):
            if numbers is None:
                self.rows.append(tuple(row))
            else:
                self.numbers.append(numbers)


def pack(side: int, spec: UnitSpec, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One input partition through the packing stage."""
    return route_to_units(side, spec)(batches)


class Cluster:
    """Hosts, workers, a driver and a checkpoint around one streaming join."""

    def __init__(
        self,
        world: World,
        spec: UnitSpec,
        settings: Settings,
        pack: Pack = pack,
        following: tuple[Routing, ...] = (),
    ) -> None:
        rng = world.rng
        self.world, self.rng, self.settings = world, rng, settings
        self._template, self._pack = spec, pack
        self._timed = isinstance(spec.join.window, TimeWindow)
        self.partitions = rng.choice((1, spec.units, spec.units, spec.units + 1))
        self.hosts = [self._new_host() for _ in range(rng.choice((1, 1, 2)))]
        self.workers = [world.new_worker(rng.choice(self.hosts)) for _ in range(rng.randint(1, 3))]
        self.versions: list[Version] = [{} for _ in range(self.partitions)]
        self.rows: list[tuple[Any, ...]] = []
        self.numbers: list[str] = []
        self._schemas = [spec.schema("left"), spec.schema("right")]
        self._watermark = 0
        self._following = [spec.routing, *following]
        self._start_driver()

    def _new_host(self) -> Host:
        folder = self.world.root / f"{self.rng.getrandbits(32):08x}"
        folder.mkdir()
        return Host(folder)

    def _start_driver(self) -> None:
        """A driver names its join anew, and may spread rows in another way from now on."""
        self._may_change = hasattr(self, "spec") and self.rng.random() < 0.6
        self._name_join()

    def _name_join(self) -> None:
        label = f"{self.rng.getrandbits(48):012x}"
        self.spec = replace(self._template, label=label, routing=self._following[0])

    # A micro-batch

    def run(self, batch: MicroBatch) -> None:
        """Run a micro-batch until it is committed."""
        for run in range(1, MOST_RUNS + 1):
            done = self._run(batch)
            if run == MOST_RUNS or self.rng.random() >= self.settings.rerun:
                break
            self.world.count("micro-batch run again")
            self._restart()
        self.versions = [done[at].version for at in range(self.partitions)]
        for at in range(self.partitions):
            self.rows += done[at].rows
            self.numbers += done[at].numbers
        self._watermark = batch.watermark
        if self.rng.random() < self.settings.restart:
            self._restart()
        self._between()

    def _run(self, batch: MicroBatch) -> dict[int, Done]:
        """Every task until it is done, in any order."""
        if self._may_change and len(self._following) > 1 and self._suits(batch):
            self.world.count("routing changed")
            self._following.pop(0)
            self._name_join()
            self._may_change = False
        tasks = self._shuffled(batch)
        done: dict[int, Done] = {}
        while tasks:
            task = tasks.pop(self.rng.randrange(len(tasks)))
            if task.attempts and self.rng.random() < 0.2:
                # The packing stage is run again too: other blobs with the same rows.
                again = self._shuffled(batch)
                task.blobs = next(t for t in again if t.partition == task.partition).blobs
            result = self._attempt(task, batch.watermark)
            if result is None:
                tasks.append(task)
            else:
                done[task.partition] = result
            if self.rng.random() < self.settings.between / 3:
                self._between()
        return done

    def _suits(self, batch: MicroBatch) -> bool:
        """Whether units can begin with it: without rows there are none, and none knows yet of
        time, so that no row may be late."""
        rows = batch.left if self.spec.join.self_join else [*batch.left, *batch.right]
        times = [row["t"] for row in rows if row["t"] is not None]
        late = self._timed and any(millis(time) < self._watermark for time in times)
        return bool(rows) and not late

    def _shuffled(self, batch: MicroBatch) -> list[Task]:
        """The tasks of a micro-batch with what each is sent."""
        tasks = [Task(partition, {}) for partition in range(self.partitions)]
        sides = [batch.left] if self.spec.join.self_join else [batch.left, batch.right]
        for side, rows in enumerate(sides):
            for part in self._partitions(rows, self._schemas[side]):
                for sent in self._pack(side, self.spec, part):
                    columns = (column.to_pylist() for column in sent.columns)
                    for key, of, blob in zip(*columns, strict=True):
                        unit = UNIT_OF[key]
                        blobs = tasks[unit % self.partitions].blobs
                        blobs.setdefault(unit, []).append((of, blob))
        return tasks

    def _partitions(self, rows: list[Row], schema: pa.Schema) -> list[list[pa.RecordBatch]]:
        """A side's rows as input partitions, some without rows, each of a few Arrow batches."""
        rows = self.rng.sample(rows, len(rows))
        whole = table_of(rows, schema)
        cuts = sorted(self.rng.randint(0, len(rows)) for _ in range(self.rng.randint(0, 2)))
        parts = []
        for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
            middle = self.rng.randint(start, end)
            spans = [(start, middle), (middle, end)]
            parts.append(
                [whole.slice(a, b - a) for a, b in spans if a < b or self.rng.random() < 0.3]
            )
        return parts

    # A task

    def _attempt(self, task: Task, watermark: int) -> Done | None:
        """Try a task once, or twice at the same time; None if it has to be tried again."""
        task.attempts += 1
        fault = None
        if task.attempts < MOST_ATTEMPTS and self.rng.random() < self.settings.task:
            fault = self.rng.choice(TASK_FAULTS)
        done = self._on_a_worker(task, watermark, fault)
        if done is None or self.rng.random() >= self.settings.twin:
            return done
        # A speculative twin: whose state is kept last and whose output is taken first may differ.
        other = self._on_a_worker(task, watermark, None)
        assert other is not None
        self.world.count("speculative twin")
        chosen = self.rng.choice((done, other)), self.rng.choice((done, other))
        return Done(chosen[0].version, chosen[1].rows, chosen[1].numbers)

    def _on_a_worker(self, task: Task, watermark: int, fault: str | None) -> Done | None:
        at = self.rng.randrange(len(self.workers))
        if not self.workers[at].alive:  # its thread was killed while another worker's task ran
            self._lose(at)
        worker = self.workers[at]
        try:
            with self.world.on(worker):
                return self._process(task, watermark, fault)
        except (Killed, Failed):
            assert fault is not None
            self.world.count(f"task {fault}")
            return None
        finally:
            self.world.kill_in = None
            if not worker.alive or not self.settings.reuse:
                self._lose(at)

    def _lose(self, at: int) -> None:
        """Another worker in the place of one that is gone."""
        worker = self.workers[at]
        self.world.kill(worker)
        self.workers[at] = self.world.new_worker(worker.host)

    def _process(self, task: Task, watermark: int, fault: str | None) -> Done:
        """What the Python worker does for one task."""
        rng, world = self.rng, self.world
        left = rng.randrange(14) if fault and "state" in fault else -1
        if fault and "files" in fault:
            world.kill_in = rng.randrange(16)
        frames_left = rng.randrange(4) if fault and "giving" in fault else -1

        def step(_: str) -> None:
            nonlocal left
            world.check_alive()
            if left == 0:
                self._die(fault)
            left -= 1

        def given_out(frames: Iterator[Any]) -> None:
            nonlocal frames_left
            for frame in frames:
                if frames_left == 0:
                    frames.close()  # type: ignore[attr-defined]
                    raise Failed
                frames_left -= 1
                done.take(frame)

        handle = Handle(self.versions[task.partition], watermark, step)
        done = Done({})
        processor = JoinUnit(self.spec)
        processor.init(handle)
        timers = SimpleNamespace(
            getCurrentWatermarkInMs=lambda: watermark if self._timed else -1,
            getCurrentProcessingTimeInMs=lambda: -1,
        )
        for unit, blobs in sorted(task.blobs.items()):
            handle.key = unit
            given_out(processor.handleInputRows((UNIT_KEYS[unit],), self._frames(blobs), timers))
        for expiry, unit in handle.expired() if self._timed else []:
            handle.key = unit
            info = SimpleNamespace(getExpiryTimeInMs=lambda at=expiry: at)
            given_out(processor.handleExpiredTimer((UNIT_KEYS[unit],), timers, info))
            handle.deleteTimer(expiry)
        processor.close()
        if fault and "after" in fault:
            self._die(fault)
        world.check_alive()
        done.version = handle.version()
        return done

    def _die(self, fault: str | None) -> None:
        if fault is None or fault.startswith("failed"):
            raise Failed
        assert self.world.worker is not None
        self.world.worker.alive = False
        raise Killed

    def _frames(self, blobs: list[tuple[int, bytes]]) -> Iterator[Any]:
        """Blobs in any order, in a few Arrow batches."""
        order = self.rng.sample(blobs, len(blobs))
        cut = self.rng.randint(0, len(order))
        for part in (order[:cut], order[cut:]):
            yield {"side": [side for side, _ in part], "blob": [blob for _, blob in part]}

    # What goes wrong besides

    def _restart(self) -> None:
        """The query ends and begins again, in the same session or in another."""
        if self.rng.random() < 0.5:
            self.world.count("query restarted")
            if self.rng.random() < 0.5:
                for host in self.hosts:
                    shutil.rmtree(host.folder / f"thetajoin-{self.spec.label}", ignore_errors=True)
            return
        self.world.count("driver restarted")
        for at in range(len(self.workers)):
            self._lose(at)
        self._start_driver()

    def _between(self) -> None:
        """Something happens to the cluster while no task is at work."""
        rng = self.rng
        while self.world.writers and rng.random() < 0.5:
            self.world.let_a_writer_run()
        if rng.random() < self.settings.damage:
            self._damage()
        if rng.random() >= self.settings.between:
            return
        match rng.randrange(6):
            case 0:
                self.world.count("worker lost")
                self._lose(rng.randrange(len(self.workers)))
            case 1:
                self._lose_host()
            case 2:
                host = rng.choice(self.hosts)
                self.world.disk.room[str(host.folder)] = rng.randrange(20)
            case 3:
                self.world.disk.room.clear()
            case 4:
                self.world.count("a long pause")
                self.world.clock += 100
            case 5:
                self.world.count("worker added")
                self.workers.append(self.world.new_worker(rng.choice(self.hosts)))

    def _lose_host(self) -> None:
        self.world.count("executor lost")
        at = self.rng.randrange(len(self.hosts))
        gone = self.hosts[at]
        self.hosts[at] = self._new_host()
        for number, worker in enumerate(self.workers):
            if worker.host is gone:
                self.world.kill(worker)
                self.workers[number] = self.world.new_worker(self.hosts[at])
        shutil.rmtree(gone.folder)

    def _damage(self) -> None:
        files = files_below(self.rng.choice(self.hosts).folder)
        if files:
            how = damage(self.rng, self.rng.choice(files), files)
            self.world.count(f"file {how}")


def table_of(rows: list[Row], schema: pa.Schema) -> pa.RecordBatch:
    """Rows as Spark hands them over, columns named by their position."""
    columns = [pa.array([row[f.name] for row in rows], f.type) for f in schema]
    return pa.RecordBatch.from_arrays(columns, names=[f"c{at}" for at in range(len(columns))])
