"""Jobs between Kafka topics, run as a user runs them, and what is done to a broker meanwhile."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from benchmarks.pipeline_data import count_pairs, write_job
from benchmarks.pipeline_kills import COMMAND
from naive import Time, conj, naive_join
from thetajoin.errors import ThetaJoinError
from thetajoin.jobs import broker
from thetajoin.jobs.jars import cache_folder, fetch
from thetajoin.spark.session import find_java

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = "id BIGINT, x INT, ts TIMESTAMP"
RUN = [sys.executable, "-c", COMMAND, "run", "job.toml"]
LONGEST_S = 500  # of a job that ends by itself; most of it is the start of Spark
Options = dict[str, str]


def run(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the job of a folder as a user does."""
    return subprocess.run(
        [*RUN, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | more,
        timeout=LONGEST_S,
    )


def refusal(folder: Path, *words: str, **more: str) -> str:
    """The one line of a job that must be refused."""
    done = run(folder, *words, **more)
    assert (done.returncode, done.stdout) == (1, "")
    lines = done.stderr.splitlines()
    assert lines[-1].startswith("thetajoin: ")
    assert len(lines) == 1, lines
    return lines[0]


class Running:
    """A job that runs; what it says is kept in files."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        with (folder / "out.txt").open("wb") as out, (folder / "err.txt").open("wb") as err:
            self.process = subprocess.Popen(
                [*RUN, *words], cwd=folder, stdout=out, stderr=err, start_new_session=True
            )

    def said(self) -> str:
        """What is on stderr by now."""
        return (self.folder / "err.txt").read_text()

    def until(self, done: Callable[[], bool]) -> None:
        """Wait for something that it has to do."""
        latest = time.monotonic() + LONGEST_S
        while not done():
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < latest, self.said()
            time.sleep(0.5)

    def committed(self, number: int = 0) -> None:
        """Wait for a micro-batch."""
        self.until(lambda: (self.folder / "ck" / "commits" / str(number)).exists())

    def interrupted(self) -> str:
        """Ctrl-C; what it has said."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(60) == 130
        return self.said()

    def ended(self) -> str:
        """Wait for it to fail by itself; what it has said."""
        assert self.process.wait(LONGEST_S) == 1
        return self.said()


@contextmanager
def running(folder: Path, *words: str) -> Iterator[Running]:
    """The job of a folder, running; killed at the end if it still does."""
    job = Running(folder, *words)
    try:
        yield job
    finally:
        if job.process.poll() is None:
            os.killpg(job.process.pid, signal.SIGKILL)
        job.process.wait()


def send(
    spark: Any,
    servers: str,
    topic: str,
    values: Sequence[str | bytes | None],
    options: Options | None = None,
) -> None:
    """Write messages to a topic, in their order; all to one partition."""
    raw = [(v.encode() if isinstance(v, str) else v,) for v in values]
    frame = (
        spark.createDataFrame(raw, "value binary").coalesce(1).selectExpr("value", "0 partition")
    )
    given = {"kafka.bootstrap.servers": servers, "topic": topic, **(options or {})}
    frame.write.format("kafka").options(**given).save()


def message(row: dict[str, Any]) -> str:
    return json.dumps(row | {"ts": row["ts"].isoformat()})


def readings(side: int, rows: int) -> list[dict[str, Any]]:
    times = [START + timedelta(seconds=3 * at + side, microseconds=at) for at in range(rows)]
    return [{"id": at, "x": (at * 37 + 11 * side) % 50, "ts": t} for at, t in enumerate(times)]


def expected(left: list[dict[str, Any]], right: list[dict[str, Any]]) -> Counter[tuple[Any, Any]]:
    """The pairs of `job`, by the naive join."""
    window = Time(timedelta(minutes=1), timedelta(minutes=1), "ts", "ts")
    pairs = naive_join(left, right, conj(("x", "<", "x")), window=window)
    return Counter((l["id"], r["id"]) for l, r in pairs)


def job(
    servers: str,
    topics: tuple[str, str],
    sink: str,
    left: str = "",
    right: str = "",
    head: str = "",
) -> str:
    return f"""
query = "SELECT l.id, r.id AS other FROM l, r WHERE l.x < r.x"
checkpoint = "ck"
{head}
[sources.l]
kafka = "{servers}"
topic = "{topics[0]}"
schema = "{SCHEMA}"
watermark = "ts 1 day"
max_offsets_per_trigger = 25
{left}
[sources.r]
kafka = "{servers}"
topic = "{topics[1]}"
watermark = "ts 1 day"
{right}
[window]
time = "1 minute"
on = "ts"
[sink]
{sink}
"""


RIGHT = f'schema = "{SCHEMA}"'


def pairs_into(servers: str, topic: str) -> str:
    """A sink that tells each pair from all others."""
    return f'kafka = "{servers}"\ntopic = "{topic}"\nid = "pair"\nkey = ["id", "other"]'


def topics(servers: str, *words: str) -> str:
    """Kafka's own command for topics, such as ``--delete --topic NAME``."""
    return tool("TopicCommand", servers, *words)


def tool(name: str, servers: str, *words: str) -> str:
    """One of Kafka's own commands; what it says."""
    folder = cache_folder() / f"broker-tools-{broker.VERSION}"
    if not folder.is_dir():
        try:
            fetch((f"org.apache.kafka:kafka-tools:{broker.VERSION}",), folder)
        except ThetaJoinError as error:
            pytest.skip(f"no tools of Kafka here: {error}")
    jars = [*folder.glob("*.jar"), *broker.broker_jars()]
    command = [str(find_java().program), "-Xmx128m", "-cp", os.pathsep.join(map(str, jars))]
    command += [f"org.apache.kafka.tools.{name}", "--bootstrap-server", servers, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def login(mechanism: str, user: str, password: str, protocol: str = "SASL_PLAINTEXT") -> Options:
    """The options of somebody who logs in."""
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    jaas = f"org.apache.kafka.common.security.{module}LoginModule required username='{user}'"
    return {
        "kafka.security.protocol": protocol,
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": f"{jaas} password='{password}';",
    }


def table(name: str, options: Options) -> str:
    """Options as a part of a job file."""
    return f"[{name}.options]\n" + "".join(f'{key} = "{v}"\n' for key, v in options.items())


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


def watched(folder: Path, text: str, secrets: dict[str, str]) -> None:
    """Run a job to its end; no file, line or page has a secret in it, at any time."""
    place, scratch = folder / "job", folder / "scratch"
    scratch.mkdir()
    write_job(place, text)
    environment = os.environ | secrets | {"TMPDIR": str(scratch)}
    with (place / "said.txt").open("wb") as said:
        process = subprocess.Popen(
            [*RUN, "--log", "json", "--page"], cwd=place, env=environment, stdout=said, stderr=said
        )
        latest, logs, pages = time.monotonic() + LONGEST_S, 0, 0
        while process.poll() is None:
            assert time.monotonic() < latest
            logs += any(scratch.rglob("spark.log"))
            page = shown_on_page((place / "said.txt").read_text())
            pages += "in_l" in page  # it shows the topics by then
            for secret in secrets.values():
                assert holding(folder, secret) == []
                assert secret not in page
            time.sleep(1)
    assert process.returncode == 0, (place / "said.txt").read_text()
    assert logs  # what Spark writes was looked at too
    assert pages
    shown = subprocess.run(
        [sys.executable, "-c", COMMAND, "explain", "job.toml"],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    for secret in secrets.values():
        assert holding(folder, secret) == []
        assert secret not in shown.stdout + shown.stderr


def pairs_in(spark: Any, servers: str, topic: str, options: Options) -> Counter[tuple[Any, Any]]:
    """The pairs that `job` has written to a topic."""
    given = {"kafka.bootstrap.servers": servers, "subscribe": topic, **options}
    found = spark.read.format("kafka").options(**given).load()
    value = "from_json(CAST(value AS STRING), 'id BIGINT, other BIGINT') AS v"
    return count_pairs(
        found.selectExpr(value).selectExpr("v.id AS id", "v.other AS other").toArrow()
    )
