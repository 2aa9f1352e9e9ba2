"""Two streams of readings in Kafka topics, the job that joins them, and its matches by brute force.

Some rows of each stream are there twice, as a producer that is not idempotent sends them.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

STEP_US = 10_000  # between two rows of a stream
WINDOW_S = 5
RANGE = 1000.0
EPOCH_US = 1_767_225_600_000_000
SCHEMA = "id BIGINT, a DOUBLE, b DOUBLE, ts TIMESTAMP"
CONDITION = "l.a <= r.a AND l.a >= r.a - 20 AND l.b >= r.b"
TIMES = "map('timestampFormat', 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSSXXX')"


def make_rows(side: int, rows: int, seed: int = 5) -> pa.Table:
    """A stream's rows, of which every twentieth comes twice."""
    random = np.random.default_rng([seed, side])
    at = EPOCH_US + STEP_US * np.arange(rows) + random.integers(0, STEP_US, rows)
    table = pa.table(
        {
            "id": np.arange(rows),
            "a": np.round(random.uniform(0, RANGE, rows), 1),
            "b": np.round(random.uniform(0, RANGE, rows), 1),
            "ts": pa.array(at, pa.timestamp("us", tz="UTC")),
        }
    )
    places = np.repeat(np.arange(rows), np.where(np.arange(rows) % 20 == 7, 2, 1))
    return table.take(pa.array(places))


def expect_pairs(left: pa.Table, right: pa.Table) -> Counter[tuple[int, int]]:
    """Every match of the job, by comparing each left row with all right rows."""
    r_id, r_a, r_b = (right.column(name).to_numpy() for name in ("id", "a", "b"))
    r_ts = right.column("ts").cast(pa.int64()).to_numpy()
    found: Counter[tuple[int, int]] = Counter()
    l_ts = left.column("ts").cast(pa.int64()).to_numpy()
    for at, row in enumerate(left.select(["id", "a", "b"]).to_pylist()):
        near = np.abs(r_ts - l_ts[at]) <= WINDOW_S * 1_000_000
        fits = near & (row["a"] <= r_a) & (row["a"] >= r_a - 20) & (row["b"] >= r_b)
        found.update((row["id"], int(other)) for other in r_id[fits])
    return found


def job_text(
    servers: str,
    names: tuple[str, str],
    sink: str,
    *,
    most: int,
    trigger: str = "available-now",
) -> str:
    """A job file; `sink` is its table ``[sink]``."""
    sources = "".join(
        f'[sources.{side}]\nkafka = "{servers}"\ntopic = "{topic}"\nschema = "{SCHEMA}"\n'
        f'max_offsets_per_trigger = {most}\nwatermark = "ts 1000 days"\n'
        for side, topic in zip("lr", names, strict=True)
    )
    return (
        f'query = "SELECT l.id, r.id AS other FROM l, r WHERE {CONDITION}"\n'
        f'checkpoint = "checkpoint"\ntrigger = "{trigger}"\n{sources}'
        f'[window]\ntime = "{WINDOW_S} seconds"\non = "ts"\n[sink]\n{sink}'
    )


def fill(session: Any, servers: str, topic: str, rows: pa.Table) -> None:
    """Write rows to a topic as JSON, in their order."""
    frame = session.createDataFrame(rows).coalesce(1)
    messages = frame.selectExpr(
        "CAST(id AS STRING) AS key", f"to_json(struct(*), {TIMES}) AS value"
    )
    options = {"kafka.bootstrap.servers": servers, "topic": topic}
    messages.write.format("kafka").options(**options).save()


def read_topic(session: Any, servers: str, topic: str) -> pa.Table:
    """What a topic holds: `key`, `id` and `other` of each message."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    found = session.read.format("kafka").options(**options).load()
    value = "from_json(CAST(value AS STRING), 'id BIGINT, other BIGINT') AS v"
    found = found.selectExpr("CAST(key AS STRING) AS key", value)
    return found.selectExpr("key", "v.id AS id", "v.other AS other").toArrow()


def count_pairs(rows: pa.Table) -> Counter[tuple[int, int]]:
    """Pairs, and how often each is there."""
    ids, others = (rows.column(name).to_pylist() for name in ("id", "other"))
    return Counter(zip(ids, others, strict=True))


def without_repeats(rows: pa.Table) -> pa.Table:
    """The first message of each key, as a reader keeps it that knows the ids it has had."""
    _, first = np.unique(np.array(rows.column("key").to_pylist(), dtype="U32"), return_index=True)
    return rows.take(pa.array(first))


def write_job(folder: Path, text: str) -> Path:
    """The job's file in its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "job.toml"
    file.write_text(text)
    return file
