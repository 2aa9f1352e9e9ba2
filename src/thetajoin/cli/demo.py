"""The demo: the SPO-Join paper's power-monitoring query (Q1) as a streaming query on Spark."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
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

from thetajoin.cli.demo_folder import results_folder, write_summary
from thetajoin.cli.demo_kafka import Topics, broker
from thetajoin.cli.generate import write_streams
from thetajoin.cli.terminal import megabytes, say, screen, working
from thetajoin.engine.machine import available_cores
from thetajoin.errors import OptionError, ThetaJoinError
from thetajoin.spark import session

if TYPE_CHECKING:
    from thetajoin.spark.listener import JoinProgress

ON = "l.rp < r.rp AND l.cp > r.cp"
SCHEMA = "id long, ts timestamp, rp double, cp double"
MATCHES_A_ROW = 5.0
MOST_CORES = 8
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
    with results_folder(config.out):
        _run(config, java, screen())


def _run(config: DemoConfig, java: session.Java, console: Console) -> None:
    scratch = Path(tempfile.mkdtemp(prefix="thetajoin-demo-"))
    try:
        say(console, f"two streams of {config.rows:,} power readings, {config.batches} files each")
        with working("writing them"):
            folders = write_streams(
                "power",
                config.out / "streams",
                config.rows,
                config.batches,
                MATCHES_A_ROW,
                config.seed,
                window=config.window,
            )
        cores = min(available_cores(), MOST_CORES)
        say(console, f"starting Spark on {cores} cores with Java {java.version} ({java.source})")
        with working("starting Spark"):
            spark = session.local_session(
                cores,
                memory="2g",
                settings=_settings(config),
                scratch=scratch,
                log=config.out / "spark.log",
            )
        try:
            say(console, f"joining on  {ON}  over the last {config.window:,} rows of each side")
            progress, seconds = _joined(console, spark, config, folders, scratch)
            version = spark.version
        finally:
            spark.stop()
        found = parquet.read_table(config.out / "matches", columns=["id", "id_right"])
        exact, expected = _checked(console, config, folders, found)
        summary = _summary(config, progress, seconds, found.num_rows, expected, exact)
        summary |= {"spark": version, "java": java.version, "cores": cores}
        write_summary(config.out, summary)
        if not exact:
            raise ThetaJoinError(
                f"the result is wrong: {found.num_rows:,} pairs, brute force finds {expected:,}"
            )
        _finish(console, config, summary, progress)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


# The streaming query.


def _settings(config: DemoConfig) -> dict[str, str]:
    from thetajoin.spark.versions import installed_spark, local_checkpoints

    settings = {**local_checkpoints(), **session.NARROW_ROWS}
    if config.kafka:
        from thetajoin.spark.connectors.jars import jar_settings

        settings |= jar_settings(["kafka"], installed_spark())
    return settings


def _joined(
    console: Console, spark: Any, config: DemoConfig, folders: list[Path], scratch: Path
) -> tuple[list[JoinProgress], float]:
    """Run the query over folders of files, or over topics of a broker."""
    if not config.kafka:
        return _join(console, spark, config, folders, scratch)
    with ExitStack() as running:
        with working("starting a Kafka broker") as tell:
            servers = running.enter_context(broker(config.servers, scratch))
            # Both streams have a row at each time, so micro-batches of equal numbers match.
            topics = Topics(servers, SCHEMA, -(-config.rows // config.batches))
            tell("sending the streams to their topics")
            topics.publish(spark, folders)
        say(console, f"two topics at {servers}, into the topic {topics.matches}")
        found = _join(console, spark, config, folders, scratch, topics)
        with working("reading the result"):
            topics.keep(spark, config.out / "matches")
        return found


def _join(
    console: Console,
    spark: Any,
    config: DemoConfig,
    folders: list[Path],
    scratch: Path,
    topics: Topics | None = None,
) -> tuple[list[JoinProgress], float]:
    """Run the query to the end of its streams; its numbers batch by batch, and its seconds."""
    import thetajoin as tj
    from thetajoin.spark.follow import Follower

    seen: list[JoinProgress] = []
    left, right = _sources(spark, folders, topics)
    window = tj.CountWindow(config.window)
    begun = time.perf_counter()
    found = tj.join(left, right, ON, window=window, order_by="ts")
    if topics is not None:
        writer = topics.writer(found, scratch / "checkpoint")
    else:
        place = str(config.out.absolute() / "matches")
        writer = found.writeStream.format("parquet").option("path", place)
    writer = writer.option("checkpointLocation", str(scratch / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    follower = Follower(query, lambda p: seen.append(p) if p.units else None)
    try:
        with LiveView(console, seen, config.batches) as refresh, follower:
            while not follower.wait(0.25):
                refresh()
            refresh()
    finally:
        query.stop()
    if follower.error is not None:
        raise ThetaJoinError(f"the streaming query failed: {follower.error}")
    return seen, time.perf_counter() - begun


def _sources(spark: Any, folders: list[Path], topics: Topics | None) -> list[Any]:
    if topics is not None:
        return topics.streams(spark, folders)
    return [
        spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))
        for folder in folders
    ]


class LiveView:
    """The numbers on a terminal while the query runs; nothing in a pipe."""

    def __init__(self, console: Console, seen: list[JoinProgress], batches: int) -> None:
        self._seen = seen
        self._batches = batches
        self._begun = time.perf_counter()
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> Callable[[], None]:
        if self._live is not None:
            self._live.start()
        return self._refresh

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def _refresh(self) -> None:
        if self._live is not None:
            elapsed = time.perf_counter() - self._begun
            self._live.update(show(list(self._seen), self._batches, elapsed), refresh=True)


def show(seen: list[JoinProgress], batches: int, elapsed: float) -> Group:
    """The newest micro-batches, all of them together, and the units of the newest."""
    if not seen:
        return Group(f"first micro-batch: Python workers start, kernels compile ({elapsed:.0f} s)")
    table = Table(title=f"{len(seen)} of {batches} micro-batches", title_justify="left")
    names = (
        "batch",
        "rows in",
        "rows/s",
        "matches",
        "stored rows",
        "state",
        "cached",
        "late",
        "time",
    )
    for name in names:
        table.add_column(name, justify="right")
    for p in seen[-SHOWN:]:
        table.add_row(
            str(p.batch),
            f"{p.input_rows:,}",
            f"{p.rows_per_s:,.0f}",
            f"{p.matches:,}",
            f"{p.window_rows:,}",
            megabytes(p.state_bytes),
            f"{p.cache_hits}/{p.cache_hits + p.cache_misses}",
            str(p.late_rows),
            f"{p.batch_ms / 1000:.1f} s",
        )
    table.add_section()
    hits, misses = sum(p.cache_hits for p in seen), sum(p.cache_misses for p in seen)
    table.add_row(
        "all",
        f"{sum(p.input_rows for p in seen):,}",
        f"{steady_rate(seen):,.0f}",
        f"{sum(p.matches for p in seen):,}",
        "",
        "",
        f"{hits}/{hits + misses}",
        str(sum(p.late_rows for p in seen)),
        f"{elapsed:.0f} s",
    )
    units = Table(title=f"units in batch {seen[-1].batch}", title_justify="left")
    for name in ("unit", "matches", "stored rows", "segments", "index", "state", "from", "time"):
        units.add_column(name, justify="right")
    for unit in seen[-1].units:
        units.add_row(
            str(unit.unit),
            f"{unit.matches:,}",
            f"{unit.window_left + unit.window_right:,}",
            str(unit.segments),
            megabytes(unit.index_bytes),
            megabytes(unit.state_bytes),
            unit.origin,
            f"{unit.ms:,.0f} ms",
        )
    return Group(table, units)


def steady_rate(seen: list[JoinProgress]) -> float:
    """Rows a second of the median micro-batch, without the first, which starts the workers."""
    return median([p.rows_per_s for p in seen[1:] or seen])


# The check, with nothing of the join's in it.


def window_start(seen: np.ndarray, size: int, slide: int = 1) -> np.ndarray:
    """The first index a row sees when the other side has had `seen` rows.

    >>> window_start(np.array([0, 3, 4, 5]), 3).tolist()
    [0, 0, 1, 2]
    """
    return np.asarray(slide * -(-np.maximum(0, seen - size) // slide))


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


def _checked(
    console: Console, config: DemoConfig, folders: list[Path], found: pa.Table
) -> tuple[bool, int]:
    left, right = (parquet.read_table(folder) for folder in folders)
    columns = (
        TextColumn("checking every pair by brute force"),
        BarColumn(),
        TextColumn("{task.percentage:.0f}%"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=config.rows)
        counts = brute_force(left, right, config.window, lambda n: bar.advance(task, n))
    return is_exact(left, right, config.window, found, counts), int(counts.sum())


# What is left behind.


def _summary(
    config: DemoConfig,
    progress: list[JoinProgress],
    seconds: float,
    found: int,
    expected: int,
    exact: bool,
) -> dict[str, Any]:
    return {
        "finished": True,
        "condition": ON,
        "window": f"CountWindow({config.window})",
        "rows_of_each_stream": config.rows,
        "seed": config.seed,
        "matches": found,
        "matches_by_brute_force": expected,
        "exact": exact,
        "seconds": round(seconds, 2),
        "rows_per_s": round(steady_rate(progress)) if progress else None,
        "batches": [asdict(p) for p in progress],
    }


def _finish(
    console: Console, config: DemoConfig, summary: dict[str, Any], progress: list[JoinProgress]
) -> None:
    say(
        console,
        f"{summary['matches']:,} matches, exact: brute force finds the same pairs; "
        f"{summary['rows_per_s']:,} rows a second after the first micro-batch",
    )
    made = ["matches/", "streams/", "summary.json", "spark.log"]
    if importlib.util.find_spec("matplotlib") is None:
        say(console, "no plot: pip install 'thetajoin[plot]'")
    else:
        plot(progress, config, config.out / "throughput.png")
        made.append("throughput.png")
    say(console, f"results in {config.out}/: {', '.join(made)}")


def plot(progress: list[JoinProgress], config: DemoConfig, path: Path) -> None:
    """Rows a second and matches of each micro-batch, one above the other."""
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
        f"window: the last {config.window:,} rows of each side; "
        f"{2 * config.rows // config.batches:,} rows a micro-batch",
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
