"""Messages that cannot be read and schemas that change, among those that are joined."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from benchmarks.pipeline_data import count_pairs, write_job
from spark.kafka_jobs import SCHEMA, expected, message, readings, run, send

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

RECORD = {
    "type": "record",
    "name": "reading",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "x", "type": ["null", "int"], "default": None},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
JOB = """
query = "SELECT l.id, r.id AS other FROM l, r WHERE l.x < r.x"
checkpoint = "ck"
[sources.l]
kafka = "{servers}"
topic = "bad_l"
schema = "{schema}"
watermark = "ts 1 day"
max_offsets_per_trigger = 25
poison = "bad/l"
[sources.r]
kafka = "{servers}"
topic = "bad_r"
format = "avro"
schema = "r.avsc"
watermark = "ts 1 day"
poison = "bad/r"
[window]
time = "1 minute"
on = "ts"
[sink]
path = "out"
"""


def mixed(good: Sequence[bytes], bad: Sequence[bytes | None]) -> list[bytes | None]:
    """Bad messages among good ones."""
    found: list[bytes | None] = []
    for at, value in enumerate(good):
        found += [value, *bad[at : at + 1]]
    return [*found, *bad[len(good) :]]


def aside(folder: Path) -> dict[int, bytes | None]:
    """What was kept aside, by offset."""
    rows = pq.read_table(folder, columns=["offset", "value"]).to_pylist()
    found = {row["offset"]: row["value"] for row in rows}
    assert len(found) == len(rows)
    return found


def placed(sent: list[bytes | None], bad: Sequence[bytes | None]) -> dict[int, bytes | None]:
    return {at: value for at, value in enumerate(sent) if value in bad}


def test_all_kinds_among_good_ones(spark: Any, broker: str, tmp_path: Path) -> None:
    """Every pair of what can be read; everything else is counted and kept, at its own offset."""
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import to_avro

    left, right = readings(0, 40), readings(1, 20)
    right += right[:3]  # some twice, as a producer that is not idempotent sends them
    # In the middle of the topic: a field more, a field less (NULL, which matches nothing).
    for row in left[20:]:
        row["unit"] = "kW"
    for row in left[30:]:
        del row["x"]
    typed = {"id": 900, "ts": left[-1]["ts"]}
    json_bad: list[bytes | None] = [
        None,
        b"",
        b" ",
        b"{",
        b"null",
        b'[{"id": 1}]',
        b"\xff\xfe\x00",
        b'{"id": 901, "x": 1, "note": "\xff"}',
        b'{"id": 902, "x": 1} {"id": 903, "x": 1}',
        message(typed | {"x": "nine"}).encode(),
        message(typed | {"x": "9"}).encode(),
        message(typed | {"x": 9.5}).encode(),
        message(typed | {"x": 3_000_000_000}).encode(),
        message(typed | {"id": 10**20, "x": 9}).encode(),
        b'{"id": 904, "x": 1, "ts": "yesterday"}',
    ]
    rows = [(r["id"], r["x"], r["ts"]) for r in right]
    packed = spark.createDataFrame(rows, "id LONG, x INT, ts TIMESTAMP").coalesce(1)
    columns = F.struct("id", "x", "ts", F.lit("n").alias("note"))
    value = to_avro(columns, json.dumps(RECORD)).alias("v")
    avro = [bytes(row.v) for row in packed.select(value).collect()]
    avro_bad: list[bytes | None] = [
        None,
        b"",
        b"{}",
        avro[0][:-1],
        avro[0][:3],
        avro[0] + b"more",
        b"\x00\x00\x00\x00\x07" + avro[0],
        # A note of 2,000,000,000 bytes, which nobody may try to make room for.
        avro[0][:-2] + b"\x80\xd0\xac\xf3\x0e",
    ]
    sent_l = mixed([message(row).encode() for row in left], json_bad)
    sent_r = mixed(avro, avro_bad)
    send(spark, broker, "bad_l", sent_l)
    send(spark, broker, "bad_r", sent_r)
    (tmp_path / "r.avsc").write_text(json.dumps(RECORD))
    write_job(tmp_path, JOB.format(servers=broker, schema=SCHEMA))
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{len(json_bad) + len(avro_bad)} messages unreadable" in done.stdout
    readable = [row for row in left if "x" in row]
    assert count_pairs(pq.read_table(tmp_path / "out")) == expected(readable, right)
    assert aside(tmp_path / "bad" / "l") == placed(sent_l, json_bad)
    assert aside(tmp_path / "bad" / "r") == placed(sent_r, avro_bad)
