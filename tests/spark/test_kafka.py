"""Kafka topics as sources and sinks of jobs, with a real broker on loopback."""

from __future__ import annotations

import json
import socket
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from benchmarks.pipeline_data import (
    count_pairs,
    expect_pairs,
    fill,
    job_text,
    make_rows,
    read_topic,
    without_repeats,
    write_job,
)
from benchmarks.pipeline_kills import Ordeal
from spark.kafka_jobs import (
    RIGHT,
    SCHEMA,
    expected,
    job,
    message,
    pairs_into,
    readings,
    refusal,
    run,
    running,
    send,
)
from thetajoin.jobs.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


def test_two_topics_into_a_third(spark: Any, broker: str, tmp_path: Path) -> None:
    """Equal to the naive join; bad messages are counted, kept aside and told; columns are told."""
    left, right = readings(0, 80), readings(1, 80)
    bad = ["{no", '{"id": "x"}', ""]
    send(spark, broker, "two_l", [*map(message, left), *bad])
    send(spark, broker, "two_r", [*map(message, right)])
    sink = f'kafka = "{broker}"\ntopic = "two_out"\nid = "pair"\nkey = ["id", "other"]'
    write_job(tmp_path, job(broker, ("two_l", "two_r"), sink, 'poison = "bad"'))
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "3 messages unreadable" in done.stdout
    assert 'schema = "id BIGINT,ts TIMESTAMP,x BIGINT"' in done.stderr
    found = read_topic(spark, broker, "two_out")
    assert count_pairs(found) == expected(left, right)
    assert len(set(found.column("key").to_pylist())) == found.num_rows
    aside = pq.read_table(tmp_path / "bad", columns=["value", "partition", "offset"])
    assert Counter(bytes(v).decode() for v in aside.column("value").to_pylist()) == Counter(bad)
    # More rows, in which `x` has become a text: those are set aside, the others joined.
    more = [{"id": 100, "x": 0, "ts": left[-1]["ts"]}]
    changed = [message(more[0]), message(more[0] | {"x": "nine"}), message(more[0] | {"new": 1})]
    send(spark, broker, "two_l", changed)
    again = run(tmp_path)
    assert again.returncode == 0, again.stderr
    assert "1 message unreadable" in again.stdout
    assert "schema =" not in again.stderr  # as the first run found it
    found = read_topic(spark, broker, "two_out")
    assert count_pairs(found) == expected([*left, *more, *more], right)
    assert pq.read_table(tmp_path / "bad").num_rows == 4


def test_a_driver_that_is_killed(spark: Any, broker: str, tmp_path: Path) -> None:
    """Matches come again after a kill, and their ids tell; equal rows stay two."""
    left, right = make_rows(0, 2500), make_rows(1, 2500)
    for topic, rows in (("kill_l", left), ("kill_r", right)):
        fill(spark, broker, topic, rows)
    sink = f'kafka = "{broker}"\ntopic = "kill_out"\nid = "match_id"'
    ordeal = Ordeal(write_job(tmp_path, job_text(broker, ("kill_l", "kill_r"), sink, most=250)))
    ordeal.run(3)
    assert (ordeal.kills, ordeal.starts) == (3, 4)
    found = read_topic(spark, broker, "kill_out")
    expected = expect_pairs(left, right)
    assert max(expected.values()) == 4
    assert count_pairs(without_repeats(found)) == expected


def test_delta_has_each_micro_batch_once(spark: Any, broker: str, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    left, right = make_rows(0, 2500), make_rows(1, 2500)
    for topic, rows in (("delta_l", left), ("delta_r", right)):
        fill(spark, broker, topic, rows)
    text = job_text(broker, ("delta_l", "delta_r"), 'delta = "out"\nid = "match_id"', most=250)
    ordeal = Ordeal(write_job(tmp_path, text))
    ordeal.run(3)
    assert ordeal.kills == 3
    found = deltalake.DeltaTable(str(tmp_path / "out")).to_pyarrow_table()
    assert count_pairs(found) == expect_pairs(left, right)
    assert len(set(found.column("match_id").to_pylist())) == found.num_rows


def test_what_is_not_there(spark: Any, broker: str, tmp_path: Path) -> None:
    """One line, and soon: no topic, no broker, and one that never answers."""
    send(spark, broker, "here", [message(row) for row in readings(0, 3)])
    text = job(broker, ("here", "nowhere"), 'format = "console"')
    write_job(tmp_path, text)
    assert f"source 'r': there is no topic 'nowhere' at {broker}" in refusal(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for dead in ("127.0.0.1:1", f"127.0.0.1:{silent.getsockname()[1]}"):
            write_job(tmp_path, text.replace(broker, dead))
            assert f"source 'l': no Kafka broker answers at {dead}" in refusal(tmp_path)


def test_a_broker_that_is_killed_and_comes_back(spark: Any, kafka: None, tmp_path: Path) -> None:
    """The job says that it waits; nothing is lost or doubled; Ctrl-C then stops it."""
    left, right = readings(0, 40), readings(1, 40)
    with Broker(tmp_path / "own") as own:
        servers = own.servers
        for topic, rows in (("gone_l", left[:20]), ("gone_r", right[:20])):
            send(spark, servers, topic, [message(row) for row in rows])
        sink = pairs_into(servers, "gone_out")
        text = job(servers, ("gone_l", "gone_r"), sink, "", RIGHT, 'trigger = "1 second"')
        write_job(tmp_path, text)
        with running(tmp_path) as process:
            process.committed()
            own.kill()
            process.until(lambda: "the job waits for it" in process.said())
            time.sleep(10)
            own.start()
            for topic, rows in (("gone_l", left[20:]), ("gone_r", right[20:])):
                send(spark, servers, topic, [message(row) for row in rows])
            wanted = expected(left, right)
            process.until(lambda: count_pairs(read_topic(spark, servers, "gone_out")) == wanted)
            process.until(lambda: "answers again" in process.said())
            said = process.interrupted().splitlines()
    assert said[:2] == [
        f"no Kafka broker answers at {servers}: the job waits for it",
        f"the Kafka broker at {servers} answers again",
    ]
    assert "the same command goes on from here" in said[-1]
    assert len(said) == 3


def test_a_message_that_is_to_fail(spark: Any, broker: str, tmp_path: Path) -> None:
    send(spark, broker, "fail_l", [message(readings(0, 1)[0]), "password is hunter22"])
    send(spark, broker, "fail_r", [message(row) for row in readings(1, 3)])
    secret = '[sources.r.options]\nkafka.client.id = "${CLIENT}"'
    sink = f'kafka = "{broker}"\ntopic = "fail_out"'
    right = f'schema = "{SCHEMA}"\n{secret}'
    text = job(broker, ("fail_l", "fail_r"), sink, 'on_poison = "fail"', right)
    write_job(tmp_path, text)
    told = refusal(tmp_path, CLIENT="hunter22")
    assert "topic fail_l has a message that cannot be read: partition" in told
    assert "hunter22" not in told


def test_bytes_csv_and_avro(spark: Any, broker: str, tmp_path: Path) -> None:
    """Each format's own rows, and its own unreadable ones."""
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import to_avro

    record = {
        "type": "record",
        "name": "r",
        "fields": [{"name": n, "type": ["null", "long"], "default": None} for n in ("id", "x")],
    }
    (tmp_path / "r.avsc").write_text(json.dumps(record))
    packed = spark.range(5).select(
        to_avro(F.struct("id", F.col("id").alias("x")), json.dumps(record)).alias("value")
    )
    options = {"kafka.bootstrap.servers": broker, "topic": "avro"}
    # A message may hold nothing but NULLs, and is read as that.
    nothing = spark.range(1).select(F.lit(b"\x00\x00").alias("value"))
    packed.union(nothing).write.format("kafka").options(**options).save()
    send(spark, broker, "avro", ["\x01"])
    send(spark, broker, "csv", ["0,0", "1,1", "2,2", "3,3", "4,4", "5,not a number"])
    text = f"""
query = "SELECT a.id, c.id AS other FROM a, c WHERE a.x < c.x"
checkpoint = "ck"
[sources.a]
kafka = "{broker}"
topic = "avro"
format = "avro"
schema = "r.avsc"
[sources.c]
kafka = "{broker}"
topic = "csv"
format = "csv"
schema = "id BIGINT, x INT"
metadata = ["offset"]
[window]
count = 100
on = "x"
[sink]
path = "out"
"""
    write_job(tmp_path, text)
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 messages unreadable" in done.stdout
    found = pq.read_table(tmp_path / "out")
    assert count_pairs(found) == Counter((a, c) for a in range(5) for c in range(a + 1, 5))
