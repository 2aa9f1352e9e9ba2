"""The demo: the SPO-Join paper's power-monitoring query (Q1) as a streaming query on Spark."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from thetajoin.cli.display import units_table
from thetajoin.cli.generate import write_streams
from thetajoin.cli.terminal import megabytes, say, screen, show_work
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
ON = "l.rp < r.rp AND l.cp > r.cp"
SHOWN = 8  # batches on the terminal at once


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
                topics = Topics(servers, -(-config.rows // config.batches))
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

    def __init__(self, servers: str, most: int) -> None:
        self.servers = servers
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
            source = TopicSource(self.servers, self._topic(folder), schema=SCHEMA, most=self._most)
            found.append(read_topic(spark, folder.name, source, SCHEMA))
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


@contextmanager
def live_numbers(
    console: Console, seen: list[JoinProgress], batches: int
) -> Iterator[Callable[[], None]]:
    """The numbers on a terminal while the query runs, drawn anew by what is yielded."""
    if not console.is_terminal:
        yield lambda: None
        return
    begun = time.perf_counter()
    with Live(console=console, auto_refresh=False) as live:
        yield lambda: live.update(
            draw_numbers(list(seen), batches, time.perf_counter() - begun), refresh=True
        )


def draw_numbers(seen: list[JoinProgress], batches: int, elapsed: float) -> Group:
    """The newest micro-batches, all of them together, and the units of the newest."""
    if not seen:
        return Group(f"first micro-batch: Python workers start, kernels compile ({elapsed:.0f} s)")
    table = Table(title=f"{len(seen)} of {batches} micro-batches", title_justify="left")
    for name in ("batch", "rows in", "rows/s", "matches", "stored rows", "state", "cached", "late"):
        table.add_column(name, justify="right")
    table.add_column("time", justify="right")
    for p in seen[-SHOWN:]:
        stored = f"{p.window_rows:,}", megabytes(p.state_bytes)
        numbers = _add_up([p], p.rows_per_s, *stored)
        table.add_row(str(p.batch), *numbers, f"{p.batch_ms / 1000:.1f} s")
    table.add_section()
    table.add_row("all", *_add_up(seen, steady_rate(seen), "", ""), f"{elapsed:.0f} s")
    return Group(table, units_table(seen[-1]))


def _add_up(seen: list[JoinProgress], rate: float, stored: str, state: str) -> list[str]:
    """Numbers of micro-batches, added up."""
    hits, misses = sum(p.cache_hits for p in seen), sum(p.cache_misses for p in seen)
    return [
        f"{sum(p.input_rows for p in seen):,}",
        f"{rate:,.0f}",
        f"{sum(p.matches for p in seen):,}",
        stored,
        state,
        f"{hits}/{hits + misses}",
        str(sum(p.late_rows for p in seen)),
    ]


def steady_rate(seen: list[JoinProgress]) -> float:
    """Rows a second of the median micro-batch, without the first, which starts the workers."""
    return median([p.rows_per_s for p in seen[1:] or seen])


def window_start(seen: np.ndarray, size: int) -> np.ndarray:
    """The first index a row sees when the other side has had `seen` rows.

    >>> window_start(np.array([0, 3, 4, 5]), 3).tolist()
    [0, 0, 1, 2]
    """
    return np.asarray(np.maximum(0, seen - size))


def visible(left_ts: np.ndarray, right_ts: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """For each left row the right rows ``[start, end)`` it meets in a count window.

    Both sides come in order of time, left before right on a tie: a right row is later than a left
    row of the same time. The earlier ones are those the left row sees; the later ones those that
    see it, and as windows only move on, they follow without a gap.
    """
    before_left = np.searchsorted(right_ts, left_ts, side="left")
    before_right = np.searchsorted(left_ts, right_ts, side="right")
    first_seen = window_start(before_right, size)
    ends = np.searchsorted(first_seen, np.arange(len(left_ts)), side="right")
    return window_start(before_left, size), np.maximum(ends, before_left)


def brute_force(
    left: pa.Table, right: pa.Table, size: int, advance: Callable[[int], None]
) -> np.ndarray:
    """The matches of each left row, by comparing it with every right row it meets."""
    lt, lrp, lcp = (left.column(name).to_numpy() for name in ("ts", "rp", "cp"))
    rt, rrp, rcp = (right.column(name).to_numpy() for name in ("ts", "rp", "cp"))
    starts, ends = visible(lt, rt, size)
    counts = np.zeros(len(lt), np.int64)

    def count(chunk: range) -> None:
        for at in chunk:
            seen = slice(starts[at], ends[at])
            counts[at] = np.count_nonzero((lrp[at] < rrp[seen]) & (lcp[at] > rcp[seen]))
        advance(len(chunk))

    chunks = [range(at, min(at + 1000, len(lt))) for at in range(0, len(lt), 1000)]
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(count, chunk) for chunk in chunks]
        try:
            for job in jobs:
                job.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return counts


def is_exact(
    left: pa.Table, right: pa.Table, size: int, found: pa.Table, counts: np.ndarray
) -> bool:
    """Whether the pairs found are exactly those there are.

    All different, all true, and as many for each left row as brute force counts: then none is
    missing. An id is a row's place in its stream.
    """
    at, to = found.column("id").to_numpy(), found.column("id_right").to_numpy()
    starts, ends = visible(left.column("ts").to_numpy(), right.column("ts").to_numpy(), size)
    lrp, lcp = left.column("rp").to_numpy()[at], left.column("cp").to_numpy()[at]
    rrp, rcp = right.column("rp").to_numpy()[to], right.column("cp").to_numpy()[to]
    true = (lrp < rrp) & (lcp > rcp) & (to >= starts[at]) & (to < ends[at])
    different = len(np.unique(at * right.num_rows + to)) == len(at)
    same = np.array_equal(np.bincount(at, minlength=left.num_rows), counts)
    return bool(true.all()) and different and same


def plot(progress: list[JoinProgress], window: int, rows: int, path: Path) -> None:
    """Rows a second and matches of each micro-batch, one above the other.

    rows: of a micro-batch.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import EngFormatter, MaxNLocator

    batches = [p.batch for p in progress]
    figure, (speed, output) = plt.subplots(
        2, 1, sharex=True, figsize=(8, 6.2), layout="constrained"
    )
    figure.suptitle(
        f"Streaming join  {ON}\n"
        f"window: the last {window:,} rows of each side; "
        f"{rows:,} rows a micro-batch",
        fontsize=11,
    )
    rate = steady_rate(progress)
    rates = [p.rows_per_s for p in progress]
    speed.bar(batches[:1], rates[:1], color="0.75", label="the first, which starts the workers")
    speed.bar(batches[1:], rates[1:], color="tab:blue", label="the others")
    speed.axhline(rate, color="tab:orange", label=f"median of the others: {rate:,.0f} rows/s")
    speed.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False, fontsize=9)
    speed.set_ylabel("rows joined a second")
    output.bar(batches, [p.matches for p in progress], color="tab:green")
    output.set_ylabel("matches in the micro-batch")
    output.set_xlabel("micro-batch")
    output.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axis in (speed, output):
        axis.yaxis.set_major_formatter(EngFormatter(sep=""))
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(y=0.05)
    figure.savefig(path, dpi=150)
    plt.close(figure)
