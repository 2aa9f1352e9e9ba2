"""Wrong jobs over streams are refused in the words of the job file, and before Spark starts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from thetajoin.jobs import checks
from thetajoin.jobs.checks import check_streams
from thetajoin.jobs.job_file import read_job

QUERY = "SELECT dc1.id, dc2.id AS other FROM dc1 JOIN dc2 ON dc1.rp < dc2.rp AND dc1.cp > dc2.cp"
MARK = 'watermark = "ts 10 seconds"'
WINDOW = '[window]\ntime = "5 minutes"\non = "ts"'
JOB = """
query = "{query}"
checkpoint = "ck"
{top}
[sources.dc1]
path = "dc1"
stream = true
{left}
[sources.dc2]
path = "dc2"
stream = true
{right}
{window}
[sink]
path = "out"
"""


def job(query=QUERY, top="", left=MARK, right=MARK, window=WINDOW):
    return JOB.format(query=query, top=top, left=left, right=right, window=window)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = pa.table(
        {
            "id": [1],
            "ts": pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
            "rp": [1.5],
            "cp": [2.5],
        }
    )
    for name in ("dc1", "dc2"):
        os.mkdir(name)
        parquet.write_table(rows, f"{name}/part.parquet")
    return tmp_path


def check(folder, text):
    (folder / "job.toml").write_text(text)
    check_streams(read_job(folder / "job.toml"))


ALIASED = "SELECT x.id FROM dc1 AS x JOIN dc2 y ON x.rp < y.rp"
WRONG = {
    "no watermark on the left": (
        job(left=""),
        "window's time 'ts' of 'dc1' has no watermark",
        'add watermark = "ts 10 minutes" to [sources.dc1]',
    ),
    "no watermark under an alias": (
        job(ALIASED, right=""),
        'add watermark = "ts 10 minutes" to [sources.dc2]',
    ),
    "no watermark for a clause": (
        job(QUERY + " WITHIN 5 minutes ON ts", right="", window=""),
        'add watermark = "ts 10 minutes" to [sources.dc2]',
    ),
    "no window": (job(window=""), "needs a window: add [window] with time = "),
    "a condition that bounds times without a watermark": (
        job(
            QUERY + " AND dc2.ts BETWEEN dc1.ts AND dc1.ts + INTERVAL 5 MINUTES", "", "", window=""
        ),
        "needs a window: add [window]",
    ),
    "a watermark without a column": (
        job(left='watermark = "1 second"'),
        "source 'dc1': watermark = '1 second': write 'ts 10 seconds', a column and",
    ),
    "a watermark of no length": (
        job(left='watermark = "ts 10 parsecs"'),
        "watermark = 'ts 10 parsecs'",
        "unknown unit 'parsecs'",
    ),
    "a watermark on no column": (
        job(left='watermark = "tss 1 second"'),
        "there is no column 'tss'; did you mean 'ts'?",
    ),
    "a watermark on a number": (
        job(left='watermark = "rp 1 second"'),
        "column 'rp' is double, not a time",
    ),
    "a trigger of no length": (
        job(top='trigger = "every tuesday"'),
        "the trigger 'every tuesday': write a number and a unit",
        "or 'available-now'",
    ),
    "a routing that is none": (job(top='routing = "hsh"'), "routing='hsh' is not known: use hash"),
    "a wrong column in the condition": (
        job(QUERY.replace("dc2.cp", "dc2.cpp")),
        "unknown column 'cpp' at position 82: `dc2.cpp`; did you mean 'cp'?",
    ),
    "a wrong column in SELECT": (
        job(QUERY.replace("dc1.id,", "dc1.idd,")),
        "unknown column 'idd'",
    ),
    "a table that is no source": (
        job(QUERY.replace("JOIN dc2", "JOIN dc3")),
        "names the table 'dc3', which was not given: did you mean 'dc2'?",
    ),
    "types that do not compare": (
        job(QUERY.replace("dc1.rp < dc2.rp", "dc1.rp < dc2.ts")),
        "cannot compare DOUBLE with TIMESTAMP at position 53: `dc1.rp < dc2.ts`",
    ),
    "a window on no column": (
        job(window=WINDOW.replace('"ts"', '"tts"')),
        "the window's column 'tts' is not in 'dc1': did you mean 'ts'?",
    ),
    "a window on a number": (
        job(window=WINDOW.replace('"ts"', '"rp"')),
        "the window's time 'rp' of 'dc1' is double",
    ),
    "a count without an order": (job(window="[window]\ncount = 5"), 'on = "ts"'),
    "a left join that never ends": (
        job(QUERY.replace(" JOIN", " LEFT JOIN"), window="[window]\nall = true"),
        "a left join with all = true would never give a row without a match",
    ),
    "an order of a stream": (job(QUERY + " ORDER BY dc1.id"), "ORDER BY on a stream"),
    "a part of a stream": (job(QUERY + " LIMIT 5"), "LIMIT on a stream"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_jobs(folder, refused, name):
    text, *parts = WRONG[name]
    (folder / "job.toml").write_text(text)
    began = time.process_time()
    message = refused("run", "job.toml")
    assert time.process_time() - began < 2
    for part in ("job.toml", *parts):
        assert part in message
    for word in ("withWatermark", "TimeWindow(", "order_by", "l.", "dc1_"):
        assert word not in message
    assert not (folder / "out").exists()


def test_a_wrong_job_is_refused_without_spark(folder):
    """A process of its own: neither PySpark nor a JVM is needed to see what is wrong."""
    (folder / "job.toml").write_text(job(left=""))
    script = (
        "import sys, time; sys.argv[1:] = ['run', 'job.toml']\n"
        "from thetajoin.cli.command import main\n"
        "try: main()\n"
        "finally: print('pyspark' in sys.modules, time.process_time())"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "add watermark" in ended.stderr
    loaded, seconds = ended.stdout.split()
    assert loaded == "False"
    assert float(seconds) < 2


@pytest.mark.parametrize(
    "text",
    [
        job(),
        job(ALIASED),
        job(QUERY + " WITHIN 5 minutes ON ts", window=""),
        job(left="", right="", window='[window]\ncount = 50\non = "id"'),
        job(left="", right="", window="[window]\nall = true"),
        job(QUERY + " AND dc2.ts BETWEEN dc1.ts AND dc1.ts + INTERVAL 5 MINUTES", window=""),
        job(top='trigger = "10 s"\nrouting = "matrix"'),
        job("SELECT dc1.id FROM dc1 JOIN dc2 ON dc1.id = dc2.id", window=""),
        job(QUERY.replace("dc1.id,", "soundex(dc1.id), date_format(dc1.ts, 'E'),")),
    ],
)
def test_right_jobs(folder, text):
    check(folder, text)


def test_types_of_csv_are_left_to_spark(folder):
    """Names are sure, types are not: Spark may read a column as another type."""
    for name in ("dc1", "dc2"):
        os.remove(f"{name}/part.parquet")
        csv.write_csv(pa.table({"id": [1], "ts": ["x"], "rp": [1.5], "cp": [1]}), f"{name}/a.csv")
    check(folder, job(QUERY.replace("dc1.rp < dc2.rp", "dc1.rp < dc2.ts")))
    with pytest.raises(Exception, match="unknown column 'cpp'"):
        check(folder, job(QUERY.replace("dc2.cp", "dc2.cpp")))


TOPICS = """
query = "{query}"
checkpoint = "ck"
[sources.dc1]
kafka = "{servers}"
topic = "one"
schema = "id BIGINT, ts TIMESTAMP, rp DOUBLE, cp DOUBLE"
watermark = "ts 10 seconds"
[sources.dc2]
kafka = "{servers}"
topic = "two"
schema = "id BIGINT, ts TIMESTAMP, rp DOUBLE, cp DOUBLE"
watermark = "ts 10 seconds"
[window]
time = "5 minutes"
on = "ts"
[sink]
path = "out"
"""


def test_a_broker_that_is_not_there(folder, monkeypatch):
    text = TOPICS.format(query=QUERY, servers="127.0.0.1:1,localhost:1")
    with pytest.raises(Exception, match="source 'dc1': no Kafka broker answers at 127"):
        check(folder, text)

    def never(address, timeout):
        waited.append(timeout)
        raise TimeoutError

    waited = []
    monkeypatch.setattr(checks.socket, "create_connection", never)
    with pytest.raises(Exception, match="no answer"):
        check(folder, text)
    assert sum(waited) <= 10


def test_a_broker_that_is_there_beside_one_that_is_not(folder):
    with socket.create_server(("127.0.0.1", 0)) as broker:
        servers = f"127.0.0.1:1,127.0.0.1:{broker.getsockname()[1]}"
        check(folder, TOPICS.format(query=QUERY, servers=servers))
        wrong = TOPICS.format(query=QUERY.replace("dc2.cp", "dc2.cpp"), servers=servers)
        with pytest.raises(Exception, match=r"unknown column 'cpp' at position 82: `dc2\.cpp`"):
            check(folder, wrong)
