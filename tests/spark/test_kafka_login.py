"""A broker with users: logging in, rights, and secrets that nothing shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from spark.kafka_jobs import (
    LONGEST_S,
    RIGHT,
    RUN,
    expected,
    job,
    message,
    pairs_into,
    readings,
    refusal,
    send,
    tool,
    topics,
)
from thetajoin.bench.pipeline_data import counted, write_job
from thetajoin.bench.pipeline_kills import COMMAND
from thetajoin.spark.connectors.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

USERS = {"app": "pass-of-app-7412", "writer": "pass-of-writer-9938"}
SECRETS = {"APP": USERS["app"], "WRITER": USERS["writer"]}
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def login(mechanism: str, user: str, password: str) -> dict[str, str]:
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    jaas = f"org.apache.kafka.common.security.{module}LoginModule required username='{user}'"
    return {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": f"{jaas} password='{password}';",
    }


def table(name: str, options: dict[str, str]) -> str:
    return f"[{name}.options]\n" + "".join(f'{key} = "{v}"\n' for key, v in options.items())


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


def holding(folder: Path, text: str) -> list[str]:
    """The files below a folder that hold a text."""
    found = []
    for path in folder.rglob("*"):
        try:
            if path.is_file() and text.encode() in path.read_bytes():
                found.append(str(path))
        except OSError:  # removed meanwhile
            continue
    return found


def shown_on_page(said: str) -> str:
    """All that the page knows; nothing while it is not there."""
    found = re.search(r"the page is at (http://\S+)", said)
    if found is None:
        return ""
    try:
        with urlopen(f"{found[1]}state", timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def test_two_mechanisms_and_a_user_who_may_only_write(
    spark: Any, secured: str, tmp_path: Path
) -> None:
    """All pairs arrive, and no file, line or page has a password in it, at any time."""
    left, right = readings(0, 40), readings(1, 40)
    for topic, rows in (("in_l", left), ("in_r", right)):
        send(spark, secured, topic, [message(row) for row in rows], APP)
    plain = login("PLAIN", "app", "${APP}")
    text = secured_job(secured, plain, login("PLAIN", "writer", "${WRITER}"), "pairs")
    folder, scratch = tmp_path / "job", tmp_path / "scratch"
    scratch.mkdir()
    write_job(folder, text)
    environment = os.environ | SECRETS | {"TMPDIR": str(scratch)}
    with (folder / "said.txt").open("wb") as said:
        process = subprocess.Popen(
            [*RUN, "--log", "json", "--page"], cwd=folder, env=environment, stdout=said, stderr=said
        )
        latest, logs, pages = time.monotonic() + LONGEST_S, 0, 0
        while process.poll() is None:
            assert time.monotonic() < latest
            logs += any(scratch.rglob("spark.log"))
            page = shown_on_page((folder / "said.txt").read_text())
            pages += "in_l" in page  # it shows the topics by then
            for secret in SECRETS.values():
                assert holding(tmp_path, secret) == []
                assert secret not in page
            time.sleep(1)
    assert process.returncode == 0, (folder / "said.txt").read_text()
    assert logs  # what Spark writes was looked at too
    assert pages
    options = {"kafka.bootstrap.servers": secured, "subscribe": "pairs", **APP}
    found = spark.read.format("kafka").options(**options).load()
    value = "from_json(CAST(value AS STRING), 'id BIGINT, other BIGINT') AS v"
    rows = found.selectExpr(value).selectExpr("v.id AS id", "v.other AS other").toArrow()
    assert counted(rows) == expected(left, right)
    shown = subprocess.run(
        [sys.executable, "-c", COMMAND, "explain", "job.toml"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    for secret in SECRETS.values():
        assert holding(tmp_path, secret) == []
        assert secret not in shown.stdout + shown.stderr


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
