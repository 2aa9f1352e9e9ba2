"""A broker with users: logging in, rights, and secrets that nothing shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.pipeline_data import write_job
from spark.kafka_jobs import (
    RIGHT,
    expected,
    holding,
    job,
    login,
    message,
    pairs_in,
    pairs_into,
    readings,
    refusal,
    send,
    table,
    tool,
    topics,
    watched,
)
from thetajoin.jobs.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

USERS = {"app": "pass-of-app-7412", "writer": "pass-of-writer-9938"}
SECRETS = {"APP": USERS["app"], "WRITER": USERS["writer"]}
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


APP = login("PLAIN", "app", USERS["app"])


@pytest.fixture(scope="module")
def secured(kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker where app may do all, and writer may only write, and that to one topic."""
    rights = {
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:broker;User:app;User:ANONYMOUS",
    }
    folder = tmp_path_factory.mktemp("secured")
    with Broker(folder, users=USERS, settings=rights) as own:
        settings = folder / "client.properties"
        lines = (f"{k.removeprefix('kafka.')}={v}\n" for k, v in APP.items())
        settings.write_text("".join(lines))
        as_app = ("--command-config", str(settings))
        topics(own.servers, *as_app, "--create", "--topic", "pairs", "--partitions", "2")
        words = ("--add", "--allow-principal", "User:writer", "--operation", "Write")
        tool("AclCommand", own.servers, *as_app, *words, "--topic", "pairs", "--force")
        yield own.servers


def secured_job(servers: str, left: dict[str, str], sink: dict[str, str], topic: str) -> str:
    right = RIGHT + "\n" + table("sources.r", login("SCRAM-SHA-256", "app", "${APP}"))
    into = pairs_into(servers, topic)
    text = job(servers, ("in_l", "in_r"), into, table("sources.l", left), right)
    return text + table("sink", sink)


def test_two_mechanisms_and_a_user_who_may_only_write(
    spark: Any, secured: str, tmp_path: Path
) -> None:
    """All pairs arrive, and no file, line or page has a password in it, at any time."""
    left, right = readings(0, 40), readings(1, 40)
    for topic, rows in (("in_l", left), ("in_r", right)):
        send(spark, secured, topic, [message(row) for row in rows], APP)
    plain = login("PLAIN", "app", "${APP}")
    text = secured_job(secured, plain, login("PLAIN", "writer", "${WRITER}"), "pairs")
    watched(tmp_path, text, SECRETS)
    assert pairs_in(spark, secured, "pairs", APP) == expected(left, right)


def test_who_is_refused(spark: Any, secured: str, tmp_path: Path) -> None:
    """A wrong password, a user without the right, and a topic that may not be written."""
    send(spark, secured, "in_l", [message(row) for row in readings(0, 2)], APP)
    send(spark, secured, "in_r", [message(row) for row in readings(1, 2)], APP)
    app = login("PLAIN", "app", "${APP}")
    writer = login("PLAIN", "writer", "${WRITER}")

    def told(left: dict[str, str], topic: str, **secrets: str) -> str:
        write_job(tmp_path, secured_job(secured, left, writer, topic))
        line = refusal(tmp_path, **(SECRETS | secrets))
        assert holding(tmp_path, "wrong-pass-1") == []
        assert "pass-" not in line
        return line

    line = told(app, "pairs", APP="wrong-pass-1")
    assert f"source 'l': the broker at {secured} refuses the login: Authentication failed" in line
    line = told(writer, "pairs")
    assert f"source 'l': this user may not read topic 'in_l' at {secured}" in line
    line = told(app, "others")
    assert f"sink: this user may not write to topic 'others' at {secured}" in line
