"""Topics that are deleted, made anew or not to be written: a clear line, and nothing is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.pipeline_data import count_pairs, read_topic, write_job
from spark.kafka_jobs import (
    RIGHT,
    expected,
    job,
    message,
    pairs_into,
    readings,
    refusal,
    run,
    running,
    send,
    topics,
)
from thetajoin.jobs.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_topic_that_is_deleted_and_made_anew(spark: Any, broker: str, tmp_path: Path) -> None:
    """The job ends rather than skip messages; failOnDataLoss = false goes on at the new end."""
    left, right = readings(0, 30), readings(1, 30)

    def more(topic: str, rows: list[dict[str, Any]]) -> None:
        send(spark, broker, topic, [message(row) for row in rows])

    more("del_l", left[:20])
    more("del_r", right[:20])
    sink, names = pairs_into(broker, "del_out"), ("del_l", "del_r")
    write_job(tmp_path, job(broker, names, sink, "", RIGHT, 'trigger = "1 second"'))
    with running(tmp_path) as process:
        process.committed()
        topics(broker, "--delete", "--topic", "del_r")
        said = process.ended()
    told = f"the streaming query failed: there is no topic 'del_r' at {broker}"
    assert said == f"thetajoin: {told}\n"
    more("del_r", right[20:23])
    text = job(broker, names, sink, "", RIGHT)
    write_job(tmp_path, text)
    told = refusal(tmp_path)
    assert f"messages of topic 'del_r' at {broker} are gone before they were read" in told
    assert "Partition del_r-0 offset was changed from 20 to 3; to go on without them" in told
    # It goes on, but what the new topic had by then is not read: a new checkpoint would.
    loose = f"{RIGHT}\n[sources.r.options]\nfailOnDataLoss = false"
    write_job(tmp_path, job(broker, names, sink, "", loose))
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    more("del_l", left[20:])
    more("del_r", right[23:])
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    kept = [*right[:20], *right[23:]]
    assert count_pairs(read_topic(spark, broker, "del_out")) == expected(left, kept)


def test_a_sink_that_takes_no_message(spark: Any, kafka: None, tmp_path: Path) -> None:
    """A match that is too large, and a topic that nobody makes: one line; then all pairs arrive."""
    left, right = readings(0, 10), readings(1, 10)
    with Broker(tmp_path / "own", settings={"auto.create.topics.enable": False}) as own:
        servers = own.servers
        for topic, rows in (("in_l", left), ("in_r", right)):
            topics(servers, "--create", "--topic", topic)
            send(spark, servers, topic, [message(row) for row in rows])
        text = job(servers, ("in_l", "in_r"), pairs_into(servers, "out"), "", RIGHT)
        write_job(tmp_path, f"{text}[sink.options]\nkafka.max.block.ms = 5000\n")
        told = refusal(tmp_path)
        assert f"there is no topic 'out' at {servers}, and the broker makes none" in told
        topics(servers, "--create", "--topic", "out", "--config", "max.message.bytes=90")
        # Each match is sent alone: of a batch that is too large Kafka's client does not say so.
        write_job(tmp_path, f"{text}[sink.options]\nkafka.batch.size = 0\n")
        told = refusal(tmp_path)
        assert f"a match is too large for topic 'out' at {servers}: " in told
        topics(servers, "--delete", "--topic", "out")
        topics(servers, "--create", "--topic", "out")
        write_job(tmp_path, text)
        done = run(tmp_path)
        assert done.returncode == 0, done.stderr
        assert count_pairs(read_topic(spark, servers, "out")) == expected(left, right)
