"""The demo: the SPO-Join paper's power-monitoring query (Q1) as a streaming query on Spark."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from thetajoin.cli.demo_results import ON, brute_force, is_exact, live_numbers, plot, steady_rate
from thetajoin.cli.generate import write_streams
from thetajoin.cli.terminal import say, screen, show_work
from thetajoin.engine.machine import available_cores
from thetajoin.errors import OptionError, ThetaJoinError
from thetajoin.jobs.files import real
from thetajoin.jobs.systems import TopicSink, TopicSource
from thetajoin.spark import session

if TYPE_CHECKING:
    from thetajoin.jobs.progress import JoinProgress


SCHEMA = "id long, ts timestamp, rp double, cp double"
MATCHES_A_ROW = 5.0
MOST_CORES = 8
MADE_BY = "thetajoin demo"
PAIRS = ("id", "id_right")


@dataclass(frozen=True)
class DemoConfig:
    """What to run: rows of each stream, window rows of each side, micro-batches.

    kafka: the streams and the result are topics, of the broker at `servers` or of one of our own.
    """

    out: Path
    rows: int = 200_000
    window: int = 25_000
    batches: int = 10
    seed: int = 1
    kafka: bool = False
    servers: str | None = None

    def check(self) -> None:
        """Refuse what cannot run."""
        for name in ("rows", "window", "batches"):
            if getattr(self, name) < 1:
                raise OptionError(f"--{name} must be at least 1, not {getattr(self, name)}")
        if self.seed < 0:
            raise OptionError(f"--seed must not be below 0, not {self.seed}")
        if self.batches > self.rows:
            raise OptionError(f"--batches {self.batches} is more than --rows {self.rows}")
        if self.servers is not None and not self.kafka:
            raise OptionError("--broker is where --kafka finds its topics: add --kafka")


def run_demo(config: DemoConfig) -> None:
    """Generate, join, check, and leave a results folder; an inexact result is an error."""
    config.check()
    session.check_pyspark()
    java = session.find_java()
    with (
        results_folder(config.out),
        tempfile.TemporaryDirectory(
            prefix="thetajoin-demo-", ignore_cleanup_errors=True
        ) as scratch,
    ):
        _Demo(config, java, Path(scratch)).run()


class _Demo:
    """A running demo."""

    def __init__(self, config: DemoConfig, java: session.Java, scratch: Path) -> None:
        self.config, self.java, self.scratch = config, java, scratch
        self.console = screen()
        self.cores = min(available_cores(), MOST_CORES)
        self.seen: list[JoinProgress] = []  # the micro-batches
        self._begun = self.seconds = 0.0  # of the query

    def run(self) -> None:
        """Write the streams, join them, and check the result."""
        config, java, console = self.config, self.java, self.console
        say(console, f"two streams of {config.rows:,} power readings, {config.batches} files each")
        with show_work("writing them"):
            folders = write_streams(
                "power",
                config.out / "streams",
                config.rows,
                config.batches,
                MATCHES_A_ROW,
                config.seed,
                window=config.window,
            )
        cores = self.cores
        say(console, f"starting Spark on {cores} cores with Java {java.version} ({java.source})")
        with show_work("starting Spark"):
            spark = session.local_session(
                cores,
                memory="2g",
                settings=self._settings(),
                scratch=self.scratch,
                log=config.out / "spark.log",
            )
        try:
            say(console, f"joining on  {ON}  over the last {config.window:,} rows of each side")
            if config.kafka:
                self._join_topics(spark, folders)
            else:
                self._join_files(spark, folders)
            version = spark.version
        finally:
            spark.stop()
        self._finish(folders, version)

    def _settings(self) -> dict[str, str]:
        from thetajoin.spark.versions import local_checkpoints, read_spark_version

        settings = {**local_checkpoints(), **session.NARROW_ROWS}
        if self.config.kafka:
            from thetajoin.jobs.jars import jar_settings

            settings |= jar_settings(["kafka"], read_spark_version())
        return settings

    def _join_files(self, spark: Any, folders: list[Path]) -> None:
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        found = self._join(*(reader.parquet(str(folder)) for folder in folders))
        place = str(self.config.out.absolute() / "matches")
        self._follow(found.writeStream.format("parquet").option("path", place))

    def _join_topics(self, spark: Any, folders: list[Path]) -> None:
        config = self.config
        with ExitStack() as running:
            with show_work("starting a Kafka broker") as tell:
                servers = running.enter_context(run_broker(config.servers, self.scratch))
                # Both streams have a row at each time, so micro-batches of equal numbers match.
                topics = Topics(servers, SCHEMA, -(-config.rows // config.batches))
                tell("sending the streams to their topics")
                topics.publish(spark, folders)
            say(self.console, f"two topics at {servers}, into the topic {topics.matches}")
            found = self._join(*topics.streams(spark, folders))
            self._follow(topics.writer(found, self.scratch / "checkpoint"))
            with show_work("reading the result"):
                topics.keep(spark, config.out / "matches")

    def _join(self, left: Any, right: Any) -> Any:
        import thetajoin as tj

        self._begun = time.perf_counter()
        window = tj.CountWindow(self.config.window)
        return tj.join(left, right, ON, window=window, order_by="ts")

    def _follow(self, writer: Any) -> None:
        """Run the query to the end of its streams, and show its numbers."""
        from thetajoin.jobs.progress import Follower

        writer = writer.option("checkpointLocation", str(self.scratch / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        follower = Follower(query, lambda p: self.seen.append(p) if p.units else None)
        try:
            with (
                live_numbers(self.console, self.seen, self.config.batches) as refresh,
                follower,
            ):
                while not follower.wait(0.25):
                    refresh()
                refresh()
        finally:
            query.stop()
        if follower.error is not None:
            raise ThetaJoinError(f"the streaming query failed: {follower.error}")
        self.seconds = time.perf_counter() - self._begun

    def _finish(self, folders: list[Path], version: str) -> None:
        """Check the result, and write the summary and the plot."""
        config, console = self.config, self.console
        found = parquet.read_table(config.out / "matches", columns=["id", "id_right"])
        matches = found.num_rows
        left, right = (parquet.read_table(folder) for folder in folders)
        counts = self._count_by_brute_force(left, right)
        expected = int(counts.sum())
        exact = is_exact(left, right, config.window, found, counts)
        rate = round(steady_rate(self.seen)) if self.seen else None
        summary = {
            "finished": True,
            "condition": ON,
            "window": f"CountWindow({config.window})",
            "rows_of_each_stream": config.rows,
            "seed": config.seed,
            "matches": matches,
            "matches_by_brute_force": expected,
            "exact": exact,
            "seconds": round(self.seconds, 2),
            "rows_per_s": rate,
            "batches": [asdict(p) for p in self.seen],
            "spark": version,
            "java": self.java.version,
            "cores": self.cores,
        }
        write_summary(config.out, summary)
        if not exact:
            raise ThetaJoinError(
                f"the result is wrong: {matches:,} pairs, brute force finds {expected:,}"
            )
        say(
            console,
            f"{matches:,} matches, exact: brute force finds the same pairs; "
            f"{rate:,} rows a second after the first micro-batch",
        )
        made = ["matches/", "streams/", "summary.json", "spark.log"]
        if importlib.util.find_spec("matplotlib") is None:
            say(console, "no plot: pip install 'thetajoin[plot]'")
        else:
            rows = 2 * config.rows // config.batches
            plot(self.seen, config.window, rows, config.out / "throughput.png")
            made.append("throughput.png")
        say(console, f"results in {config.out}/: {', '.join(made)}")

    def _count_by_brute_force(self, left: pa.Table, right: pa.Table) -> np.ndarray:
        columns = (
            TextColumn("checking every pair by brute force"),
            BarColumn(),
            TextColumn("{task.percentage:.0f}%"),
            TimeElapsedColumn(),
        )
        silent = not self.console.is_terminal
        with Progress(*columns, console=self.console, disable=silent) as bar:
            task = bar.add_task("", total=self.config.rows)
            return brute_force(left, right, self.config.window, lambda n: bar.advance(task, n))


@contextmanager
def results_folder(out: Path) -> Iterator[None]:
    """A new folder while the demo runs; an earlier demo's is back if it fails or is stopped.

    The earlier one is put aside rather than the new one made elsewhere and moved: Spark lists a
    stream's files by their full paths. What a failed demo has left is kept, beside an earlier one.
    """
    place = real(out)
    aside = place.with_name(f".{place.name}.earlier")
    _check_folder(out)
    if aside.is_dir():  # of a demo that was killed, whose own folder is of no use
        shutil.rmtree(place, ignore_errors=True)
    elif place.is_dir() and any(place.iterdir()):
        os.rename(place, aside)
    try:
        _begin(out)
        yield
    except BaseException as error:
        told = isinstance(error, ThetaJoinError)
        if not aside.is_dir():
            if not told:
                shutil.rmtree(place, ignore_errors=True)
            raise
        failed = place.with_name(f"{place.name}-failed")
        if told:
            shutil.rmtree(failed, ignore_errors=True)
            os.rename(place, failed)
        shutil.rmtree(place, ignore_errors=True)
        os.rename(aside, place)
        if told:
            raise ThetaJoinError(f"{error}; what it has left is in {failed}") from error
        raise
    shutil.rmtree(aside, ignore_errors=True)


def write_summary(out: Path, summary: dict[str, Any]) -> None:
    """Write a demo's summary, by which its folder is recognised."""
    text = json.dumps({"made_by": MADE_BY, **summary}, indent=2)
    (out / "summary.json").write_text(text + "\n")


def _check_folder(out: Path) -> None:
    """Refuse what is no folder, or not an earlier demo's."""
    if out.exists() and not out.is_dir():
        raise OptionError(f"{out} is a file: choose another folder with --out")
    if not out.is_dir() or not any(out.iterdir()):
        return
    try:
        ours = json.loads((out / "summary.json").read_text()).get("made_by") == MADE_BY
    except (OSError, ValueError, AttributeError):
        ours = False
    if not ours:
        raise OptionError(f"{out} is not a demo's results: choose another folder with --out")


def _begin(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_summary(out, {"finished": False})
    except OSError as error:
        raise OptionError(f"cannot write to {out}: {error.strerror}") from error


@contextmanager
def run_broker(servers: str | None, folder: Path) -> Iterator[str]:
    """A broker that was given, or one of this demo's own while it runs."""
    if servers is not None:
        yield servers
        return
    from thetajoin.jobs.broker import Broker

    with Broker(folder / "kafka", partitions=1) as own:
        yield own.servers


class Topics:
    """The demo's topics at a broker, with names that no other demo has."""

    def __init__(self, servers: str, schema: str, most: int) -> None:
        self.servers = servers
        self._schema = schema
        self._most = most
        self._name = f"thetajoin-demo-{uuid.uuid4().hex[:8]}"

    @property
    def matches(self) -> str:
        """The topic of the result."""
        return f"{self._name}-matches"

    def publish(self, spark: Any, folders: list[Path]) -> None:
        """Send each stream's rows to its topic, in their order.

        All go to one partition, so that a micro-batch has the same rows as with files, which the
        window by count depends on.
        """
        from thetajoin.jobs.kafka import check_broker

        check_broker(spark, TopicSink(self.servers, self.matches), topic=False)
        for folder in folders:
            rows = spark.createDataFrame(parquet.read_table(folder).sort_by("ts")).coalesce(1)
            times = "map('timestampFormat', 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSSXXX')"
            messages = rows.selectExpr("0 AS partition", f"to_json(struct(*), {times}) AS value")
            options = {"kafka.bootstrap.servers": self.servers, "topic": self._topic(folder)}
            messages.write.format("kafka").options(**options).save()

    def streams(self, spark: Any, folders: list[Path]) -> list[Any]:
        """The topics as streams."""
        from thetajoin.jobs.kafka import read_topic

        found = []
        for folder in folders:
            source = TopicSource(
                self.servers, self._topic(folder), schema=self._schema, most=self._most
            )
            found.append(read_topic(spark, folder.name, source, source.schema))
        return found

    def writer(self, found: Any, checkpoint: Path) -> Any:
        """A writer of the matches, each with an id as its key."""
        from thetajoin.jobs.sinks import stream_writer

        sink = TopicSink(self.servers, self.matches)
        return stream_writer(found, sink, name="match_id", keys=PAIRS, checkpoint=checkpoint)

    def keep(self, spark: Any, folder: Path) -> None:
        """Write the matches to a file of the results folder, as Kafka gives them back."""
        options = {"kafka.bootstrap.servers": self.servers, "subscribe": self.matches}
        found = spark.read.format("kafka").options(**options).load()
        value = "from_json(CAST(value AS STRING), 'id BIGINT, id_right BIGINT') AS v"
        found = found.selectExpr("CAST(key AS STRING) AS match_id", value)
        rows: pa.Table = found.selectExpr("match_id", "v.id", "v.id_right").toArrow()
        folder.mkdir(parents=True)
        parquet.write_table(rows, folder / "matches.parquet")

    def _topic(self, folder: Path) -> str:
        return f"{self._name}-{folder.name}"
