"""The example for people: its compose file is the broker of our tests, its steps are run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.pipeline_data import write_job
from spark.kafka_jobs import running, send
from thetajoin.jobs.broker import VERSION, Broker

EXAMPLE = Path(__file__).parents[2] / "examples" / "kafka"


def test_the_compose_file_says_what_our_broker_says(tmp_path: Path) -> None:
    """Of the same Kafka: its image takes a setting as KAFKA_ and its name, with _ for dots."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    found = yaml.safe_load((EXAMPLE / "docker-compose.yml").read_text())
    assert set(found) == {"services"}
    service = found["services"]["kafka"]
    assert set(service) == {"image", "ports", "environment"}
    assert service["image"] == f"apache/kafka:{VERSION}"
    assert service["ports"] == ["127.0.0.1:9092:9092"]
    own = Broker(tmp_path, port=9092)._write_settings().read_text().splitlines()
    wanted = dict(line.split("=", 1) for line in own)
    given = {
        name.removeprefix("KAFKA_").lower().replace("_", "."): str(value)
        for name, value in service["environment"].items()
    }
    places = {"listeners", "advertised.listeners", "controller.quorum.voters"}
    sorts = "listener.security.protocol.map"
    for name in given.keys() - places - {sorts}:
        assert given[name] == wanted[name], name
    assert sorted(given[sorts].split(",")) == sorted(wanted[sorts].split(","))
    # Ours alone: its folder, and what only makes tests faster or is as Kafka has it anyway.
    more = {"log.dirs", "group.initial.rebalance.delay.ms", "inter.broker.listener.name"}
    assert wanted.keys() - given.keys() == more
    assert given["listeners"] == "PLAINTEXT://:9092,CONTROLLER://:9093"
    assert given["advertised.listeners"] == "PLAINTEXT://localhost:9092"
    assert given["controller.quorum.voters"] == "1@localhost:9093"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_steps_of_the_readme(spark: Any, broker: str, tmp_path: Path) -> None:
    readme = (EXAMPLE / "README.md").read_text()
    steps = re.findall(r"producer\.sh .* --topic (\w+)\n(\{.*\})", readme)
    assert [topic for topic, _ in steps] == ["orders", "payments"]
    for topic, line in steps:
        send(spark, broker, topic, [line])
    shown = re.findall(r"```json\n(.*)\n```", readme)
    text = (EXAMPLE / "job.toml").read_text().replace("localhost:9092", broker)
    write_job(tmp_path, text)

    def pairs() -> list[str]:
        try:
            options = {"kafka.bootstrap.servers": broker, "subscribe": "pairs"}
            rows = spark.read.format("kafka").options(**options).load().select("value").collect()
        except Exception:  # no match yet, and so no topic
            return []
        return [bytes(row.value).decode() for row in rows]

    with running(tmp_path) as process:
        process.until(lambda: bool(pairs()))
        process.interrupted()
    assert pairs() == shown
    assert json.loads(shown[0])["payment"] == 7
