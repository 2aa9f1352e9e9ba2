"""The pipeline benchmark: Kafka to Kafka, with the broker on the same machine.

- Rows a second of a join of two topics into a third, over those of Spark copying the same topics.
- The time from a message in Kafka to its match in Kafka, at half of that rate.
- A job whose driver is killed in the middle of micro-batches: what is lost, and what a reader sees
  twice who knows matches by their ids.
- What the live page costs, and which share of the kept checkpoints and snapshots goes on exactly.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import page_cost
from benchmarks import pipeline_data as data
from benchmarks.harness import Report
from benchmarks.pipeline_kills import Ordeal
from thetajoin.engine.machine import available_cores
from thetajoin.errors import OptionError, ThetaJoinError

TARGETS = {
    "kafka_vs_copy": ">= 0.5",
    "kafka_vs_parsed_copy": "",
    "latency_p99_over_trigger": "<= 2.5",
    "kafka_kills": "20",
    "lost": "0",
    "doubled_effective": "0",
    "page_cost": "<= 0.03",
    "upgrade_ok": ">= 1",
}
ROWS = 400_000  # of each topic
BATCHES = 8
ROUNDS = 3
WINDOW_S = 1  # gives about a match for each row that comes in
TRIGGER_S = 5
SECONDS = 60  # of the latency's measurement, without its beginning
SETTLED = 4  # triggers
BATCH_ROWS = 250  # a topic's rows in a micro-batch that is to be killed
TOPICS = ("left", "right")
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Place:
    """A broker, a session that can speak with it, and a folder for checkpoints."""

    session: Any
    servers: str
    folder: Path


def run(progress: Progress, scale: float = 1.0, *, kills: int = 20) -> Report:
    """All parts; `scale` shrinks the topics and the time."""
    if importlib.util.find_spec("pyspark") is None:
        raise OptionError("benchmark pipeline needs PySpark: pip install 'thetajoin[spark]'")
    from tests.campaigns import upgrade
    from thetajoin.jobs.broker import Broker
    from thetajoin.jobs.jars import jar_settings
    from thetajoin.spark.session import NARROW_ROWS, local_session
    from thetajoin.spark.versions import local_checkpoints, read_spark_version

    report = Report("pipeline", targets=TARGETS)
    folder = Path(tempfile.mkdtemp(prefix="thetajoin-pipeline-"))
    try:
        progress("starting a broker and Spark")
        settings = {
            **local_checkpoints(),
            **NARROW_ROWS,
            **jar_settings(["kafka"], read_spark_version()),
        }
        with Broker(folder / "kafka") as broker:
            session = local_session(available_cores(), settings=settings)
            try:
                place = Place(session, broker.servers, folder)
                rate = _throughput(place, report, progress, scale)
                _latency(place, report, progress, rate / 2, max(0.25, scale))
                _kills(place, report, progress, kills)
            finally:
                session.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    progress("the live page")
    report.details["page"] = page = page_cost.measure(max(5.0, scale * page_cost.SECONDS))
    report.figures["page_cost"] = page["page_cost"]
    report.details["upgrade"] = upgraded = upgrade.measure(progress)
    report.figures["upgrade_ok"] = upgraded["upgrade_ok"] / upgraded["upgrade_kept"]
    return report


def _throughput(place: Place, report: Report, progress: Progress, scale: float) -> float:
    """Rows a second of the join, beside those of a copy of its topics, in turns."""
    rows = max(BATCHES, int(ROWS * scale))
    progress(f"two topics of {rows:,} rows")
    tables = [data.make_rows(side, rows) for side in (0, 1)]
    for topic, table in zip(TOPICS, tables, strict=True):
        data.fill(place.session, place.servers, topic, table)
    most = -(-tables[0].num_rows // BATCHES)
    expected = count_pairs(*tables)
    measured: dict[str, list[dict[str, Any]]] = {"copy": [], "parsed": [], "join": []}
    for number in range(1 + ROUNDS):  # the first warms the JVM up
        progress(f"copying and joining them, {number + 1} of {1 + ROUNDS}")
        for what, taken in measured.items():
            out = f"{what}-{number}"
            taken.append(_rates(_writer(what, place, out, most), place.folder / out))
        found = data.read_topic(place.session, place.servers, f"join-{number}").num_rows
        if found != expected:
            raise ThetaJoinError(f"the join gave {found:,} matches, and there are {expected:,}")
    rates = {
        what: float(np.median([taken["rows_per_s"] for taken in rounds[1:]]))
        for what, rounds in measured.items()
    }
    report.figures["kafka_vs_copy"] = rates["join"] / rates["copy"]
    report.figures["kafka_vs_parsed_copy"] = rates["join"] / rates["parsed"]
    report.details["throughput"] = {"rows": rows, "matches": found, "rates": rates, **measured}
    return rates["join"]


def _writer(what: str, place: Place, out: str, most: int) -> Any:
    if what == "join":
        return _join(place, TOPICS, out, most)
    return _copy(place, out, 2 * most) if what == "copy" else _copy_parsed(place, out, most)


def count_pairs(left: pa.Table, right: pa.Table) -> int:
    """How many matches the join of two whole streams has, by looking at each pair in the window."""
    right = right.sort_by("ts")
    r_ts = right.column("ts").cast(pa.int64()).to_numpy()
    r_a, r_b = (right.column(name).to_numpy() for name in ("a", "b"))
    l_ts = left.column("ts").cast(pa.int64()).to_numpy()
    l_a, l_b = (left.column(name).to_numpy() for name in ("a", "b"))
    first = np.searchsorted(r_ts, l_ts - WINDOW_S * 1_000_000, side="left")
    last = np.searchsorted(r_ts, l_ts + WINDOW_S * 1_000_000, side="right")
    total = 0
    for at, (begin, end) in enumerate(zip(first, last, strict=True)):
        a, b = r_a[begin:end], r_b[begin:end]
        total += int(np.count_nonzero((l_a[at] <= a) & (l_a[at] >= a - 20) & (l_b[at] >= b)))
    return total


def _copy(place: Place, out: str, most: int) -> Any:
    """Spark copying both topics to another, untouched."""
    options = {"kafka.bootstrap.servers": place.servers}
    reading = {"subscribe": ",".join(TOPICS), "startingOffsets": "earliest"}
    reader = place.session.readStream.format("kafka").options(**options, **reading)
    rows = reader.option("maxOffsetsPerTrigger", most).load().select("key", "value")
    return rows.writeStream.format("kafka").options(**options, topic=out)


def _copy_parsed(place: Place, out: str, most: int) -> Any:
    """What a join does beside joining: messages read as rows, and written again with ids."""
    left, right = _sides(place, TOPICS, most)
    rows = left.unionByName(right).selectExpr("id", "id AS other", "kafka_timestamp AS came")
    return _write(rows, place, out)


def _join(place: Place, topics: tuple[str, str], out: str, most: int | None) -> Any:
    """The join of two topics into a third, as a job would do it, with ids from both sides' keys."""
    import thetajoin as tj

    left, right = (side.withWatermark("ts", "30 seconds") for side in _sides(place, topics, most))
    window = tj.TimeWindow(f"{WINDOW_S} seconds", time="ts")
    found = tj.join(left, right, data.CONDITION, window=window)
    later = "greatest(kafka_timestamp, kafka_timestamp_right) AS came"
    return _write(found.selectExpr("id", "id_right AS other", later), place, out)


def _sides(place: Place, topics: tuple[str, str], most: int | None) -> list[Any]:
    """Topics as streams of rows."""
    from thetajoin.jobs.kafka import read_topic
    from thetajoin.jobs.systems import TopicSource

    given: dict[str, Any] = {"schema": data.SCHEMA, "most": most, "metadata": ("timestamp",)}
    sources = [TopicSource(place.servers, topic, **given) for topic in topics]
    return [read_topic(place.session, s.topic, s, s.schema) for s in sources]


def _write(rows: Any, place: Place, out: str) -> Any:
    from thetajoin.jobs.sinks import stream_writer
    from thetajoin.jobs.systems import TopicSink

    sink = TopicSink(place.servers, out)
    keys = ("id", "other")
    return stream_writer(rows, sink, name="match_id", keys=keys, checkpoint=place.folder / out)


def _rates(writer: Any, checkpoint: Path) -> dict[str, Any]:
    """Run a query over all there is; rows a second, without the first micro-batch."""
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination()
    reports = [p for p in query.recentProgress if p.numInputRows][1:]
    rows = sum(p.numInputRows for p in reports)
    seconds = sum(p.durationMs["triggerExecution"] for p in reports) / 1000
    return {"rows_per_s": rows / seconds, "batches": len(reports), "seconds": round(seconds, 2)}


def _latency(place: Place, report: Report, progress: Progress, rate: float, scale: float) -> None:
    """From the later message of a pair in Kafka to the match in Kafka, at a steady rate."""
    progress(f"{rate:,.0f} rows a second, for {SECONDS * scale:.0f} s")
    topics, out = ("steady_left", "steady_right"), "steady_pairs"
    producers = [_produce(place, topic, rate / 2) for topic in topics]
    try:
        time.sleep(5)  # both topics are there by then
        writer = _join(place, topics, out, None)
        writer = writer.option("checkpointLocation", str(place.folder / out))
        query = writer.trigger(processingTime=f"{TRIGGER_S} seconds").start()
        settled = time.time() + SETTLED * TRIGGER_S
        time.sleep(SETTLED * TRIGGER_S + SECONDS * scale)
        if not query.isActive:
            raise ThetaJoinError(f"the steady join has failed: {query.exception()}")
        query.stop()
    finally:
        for producer in producers:
            producer.stop()
    waited = _waits(place, out, settled)
    if not len(waited):
        raise ThetaJoinError("the steady join gave no match: it cannot keep up with this rate")
    p50, p99 = (float(value) for value in np.quantile(waited, [0.5, 0.99]))
    report.figures["latency_p99_over_trigger"] = p99 / TRIGGER_S
    report.details["latency"] = {
        "rows_per_s": round(rate),
        "trigger_s": TRIGGER_S,
        "matches": len(waited),
        "p50_s": round(p50, 2),
        "p99_s": round(p99, 2),
    }


def _produce(place: Place, topic: str, rate: float) -> Any:
    """A stream of rows into a topic, at a steady rate."""
    source = place.session.readStream.format("rate").option("rowsPerSecond", max(1, round(rate)))
    rows = source.load().selectExpr(
        "value AS id",
        # The wider the range, the fewer matches: a row has as many at any rate.
        f"round(rand() * {data.RANGE * rate * data.STEP_US / 1e6}, 1) AS a",
        f"round(rand() * {data.RANGE}, 1) AS b",
        "timestamp AS ts",
    )
    messages = rows.selectExpr(f"to_json(struct(*), {data.TIMES}) AS value")
    options = {"kafka.bootstrap.servers": place.servers, "topic": topic}
    options["checkpointLocation"] = str(place.folder / f"{topic}-producer")
    writer = messages.writeStream.format("kafka").options(**options)
    return writer.trigger(processingTime="500 milliseconds").start()


def _waits(place: Place, topic: str, since: float) -> np.ndarray:
    """Seconds from the later message of each pair to its match, for those that came since then."""
    options = {"kafka.bootstrap.servers": place.servers, "subscribe": topic}
    found = place.session.read.format("kafka").options(**options).load()
    came = "from_json(CAST(value AS STRING), 'came TIMESTAMP').came AS came"
    found = found.selectExpr("timestamp", came).where(
        f"timestamp >= timestamp_millis({int(since * 1000)})"
    )
    waited = found.selectExpr("(unix_millis(timestamp) - unix_millis(came)) / 1000D AS s")
    return np.asarray(waited.toArrow().column("s").to_numpy())


def _kills(place: Place, report: Report, progress: Progress, kills: int) -> None:
    """A job through all of its kills to its end, against brute force."""
    rows = BATCH_ROWS * (3 * kills + 4)
    left, right = (data.make_rows(side, rows, seed=11) for side in (0, 1))
    names = ("killed_left", "killed_right")
    for topic, table in zip(names, (left, right), strict=True):
        data.fill(place.session, place.servers, topic, table)
    sink = f'kafka = "{place.servers}"\ntopic = "killed_pairs"\nid = "match_id"'
    text = data.job_text(place.servers, names, sink, most=BATCH_ROWS)
    ordeal = Ordeal(data.write_job(place.folder / "killed", text))
    progress(f"{kills} kills of a driver")
    ordeal.run(kills)
    found = data.read_topic(place.session, place.servers, "killed_pairs")
    expected = data.expect_pairs(left, right)
    seen, once = data.count_pairs(found), data.count_pairs(data.without_repeats(found))
    report.figures["kafka_kills"] = ordeal.kills
    report.figures["lost"] = (expected - once).total()
    report.figures["doubled_effective"] = (once - expected).total()
    report.details["kills"] = {
        "inside_a_micro_batch": ordeal.inside,
        "starts": ordeal.starts,
        "matches": expected.total(),
        "messages": found.num_rows,
        "doubled_without_ids": (seen - expected).total(),
    }
