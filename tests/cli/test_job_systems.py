"""Job files with Kafka, Delta, Iceberg and databases: what is taken, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from thetajoin import secrets
from thetajoin.cli.terminal import literal
from thetajoin.errors import OptionError
from thetajoin.jobs import sources
from thetajoin.jobs.job_file import read_job
from thetajoin.jobs.systems import (
    DatabaseSink,
    TableSink,
    TableStream,
    TopicSink,
    TopicSource,
)

SOURCE = """
[sources.a]
kafka = "h:1"
topic = "t"
"""
SINK = '[sink]\nkafka = "h:1"\ntopic = "o"\n'
STREAM = '[sources.a]\ndelta = "d"\nstream = true\n'
HEAD = 'query = "SELECT a.x FROM a, a b WHERE a.x < b.x"\n'
CHECKPOINT = 'checkpoint = "ck"\n'


@pytest.fixture(autouse=True)
def _forget():
    yield
    secrets.forget()


def read(folder: Path, text: str):
    (folder / "job.toml").write_text(text)
    return read_job(folder / "job.toml")


def test_a_topic_with_everything(tmp_path, monkeypatch):
    monkeypatch.setenv("PASS_WORD", "hunter22")
    text = f"""{HEAD}{CHECKPOINT}{SOURCE}
schema = "x BIGINT"
starting_offsets = '{{"t": {{"0": 5}}}}'
max_offsets_per_trigger = 10
metadata = ["offset"]
poison = "bad"
[sources.a.options]
kafka.security.protocol = "SASL_SSL"
"kafka.sasl.jaas.config" = "password='${{PASS_WORD}}';"
failOnDataLoss = false
minPartitions = 4
[sink]
kafka = "h:1"
topic = "o"
id = "m"
key = ["x"]
[spark]
packages = ["a:b:1"]
"""
    job = read(tmp_path, text)
    source = job.sources["a"].outside
    assert isinstance(source, TopicSource)
    assert (source.most, source.metadata, source.poison) == (10, ("offset",), tmp_path / "bad")
    assert dict(source.options) == {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.jaas.config": "password='hunter22';",
        "failOnDataLoss": "false",
        "minPartitions": "4",
    }
    assert isinstance(job.into, TopicSink)
    assert (job.streaming, job.id, job.key, job.packages) == (True, "m", ("x",), ("a:b:1",))
    assert job.files == []
    assert "hunter22" not in repr(job)
    assert literal("Login failed for hunter22") == "Login failed for [hidden]"


def test_a_table_as_a_stream(tmp_path, monkeypatch):
    monkeypatch.setenv("PASS_WORD", "hunter22")
    text = f"""{HEAD}{CHECKPOINT}
[sources.a]
iceberg = "c.n.t"
stream = true
starting_version = 8744736658442914487
max_files_per_trigger = 10
on_change = "skip"
watermark = "t 10 seconds"
[sources.a.options]
token = "${{PASS_WORD}}"
{SINK}"""
    job = read(tmp_path, text)
    options = (("token", "hunter22"),)
    want = TableStream("iceberg", "c.n.t", options, 8744736658442914487, 10, True)
    assert job.sources["a"].outside == want
    assert job.sources["a"].watermark == ("t", "10 seconds")
    assert job.streaming
    assert "hunter22" not in f"{job} {job!r} {want}"
    plain = read(tmp_path, HEAD + CHECKPOINT + STREAM + 'starting_version = "latest"\n' + SINK)
    assert plain.sources["a"].outside == TableStream("delta", f"{tmp_path}/d", starting="latest")


def test_the_columns_of_every_source_are_kept(tmp_path):
    job = read(tmp_path, HEAD + CHECKPOINT + SOURCE + SINK)
    for name, schema in (("a", "x INT"), ("b", "y INT")):
        sources._keep(job, name, schema)
    assert sources._read_kept(job) == {}
    (tmp_path / "ck").mkdir()
    (tmp_path / "ck" / "metadata").touch()
    assert sources._read_kept(job) == {"a": "x INT", "b": "y INT"}


def test_other_sinks(tmp_path, monkeypatch):
    text = HEAD + CHECKPOINT + SOURCE
    monkeypatch.setenv("DB", "jdbc:derby:x;password=hunter22")
    assert read(tmp_path, text + '[sink]\ndelta = "d"').into == TableSink("delta", f"{tmp_path}/d")
    assert read(tmp_path, text + '[sink]\niceberg = "c.n.t"').into == TableSink("iceberg", "c.n.t")
    job = read(tmp_path, text + '[sink]\njdbc = "${DB}"\ntable = "T"')
    assert isinstance(job.into, DatabaseSink)
    assert job.into.url.endswith("hunter22")
    assert "hunter22" not in f"{job} {job.into}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SOURCE.replace('topic = "t"\n', "") + SINK, "has no 'topic'"),
        (SOURCE + 'format = "xml"\n' + SINK, "format = 'xml': there are|format = 'xml'"),
        (SOURCE + 'format = "csv"\n' + SINK, "needs its columns: write schema = 'id BIGINT"),
        (SOURCE + 'format = "avro"\n' + SINK, "needs its columns: write schema = 'FILE.avsc'"),
        (SOURCE + 'format = "avro"\nschema = "no.avsc"\n' + SINK, "no.avsc is not an Avro schema"),
        (SOURCE + 'format = "raw"\nschema = "x INT"\n' + SINK, "schema has no use with .*'raw'"),
        (SOURCE + "stream = false\n" + SINK, "a topic is read as a stream"),
        (SOURCE + 'starting_offsets = "first"\n' + SINK, "write 'earliest', 'latest'"),
        (SOURCE + "max_offsets_per_trigger = 0\n" + SINK, "must be at least 1"),
        (SOURCE + 'metadata = ["ofset"]\n' + SINK, "metadata = 'ofset': did you mean 'offset'"),
        (SOURCE + 'on_poison = "cry"\n' + SINK, "on_poison = 'cry'"),
        (SOURCE + 'on_poison = "fail"\npoison = "x"\n' + SINK, "keeps nothing aside"),
        (SOURCE + 'pth = "x"\n' + SINK, "unknown key 'pth'"),
        (SOURCE + '[sources.a.options]\nx = "${NO_SUCH}"\n' + SINK, "has no NO_SUCH"),
        (SOURCE + '[sources.a.options]\nsubscribe = "y"\n' + SINK, "is the job's key 'topic'"),
        (SOURCE + "[sources.a.options]\nx = [1]\n" + SINK, "x must be a string"),
        (SOURCE + '[sink]\nkafka = "h:1"', "has no 'topic'"),
        (SOURCE + '[sink]\njdbc = "mysql:x"\ntable = "t"', "begins with 'jdbc:'"),
        (SOURCE + '[sink]\niceberg = "t"', "write 'catalog.namespace.table'"),
        (SOURCE + '[sink]\ndelta = "d"\nmode = "update"', "takes mode 'append' only"),
        (SOURCE + '[sink]\npath = "o"\nid = "m"', "an id in files needs key"),
        (SOURCE + SINK + 'key = ["x"]', "key is what an id is made from"),
        (SOURCE + SINK + 'key = [1]\nid = "m"', "must be a list of strings"),
        (SOURCE + SINK + '[spark]\npackages = ["x"]', "write 'group:artifact:version'"),
        (STREAM + "starting_version = -1\n" + SINK, "write a version, or 'latest'"),
        (STREAM + 'starting_version = "first"\n' + SINK, "write a version, or 'latest'"),
        (STREAM + "starting_version = true\n" + SINK, "write a version, or 'latest'"),
        (STREAM + "max_files_per_trigger = 0\n" + SINK, "must be at least 1"),
        (STREAM + 'on_change = "cry"\n' + SINK, "on_change = 'cry'"),
        (STREAM + 'path = "x"\n' + SINK, "unknown key 'path'"),
        ('[sources.a]\ndelta = "d"\nwatermark = "t 1 second"\n' + SINK, "add stream = true"),
        ('[sources.a]\niceberg = "d"\nstream = true\n' + SINK, "write 'catalog.namespace.table'"),
        ('[sources.a]\ndelta = "d"\n' + SINK, "is for streams"),
    ],
)
def test_mistakes(tmp_path, text, message):
    head = HEAD if "is for streams" in message else HEAD + CHECKPOINT
    with pytest.raises(OptionError, match=message):
        read(tmp_path, head + text)


def test_a_checkpoint_is_needed(tmp_path):
    for sink in (SINK, '[sink]\ndelta = "d"\n'):
        with pytest.raises(OptionError, match="needs a checkpoint"):
            read(tmp_path, HEAD + SOURCE + sink)
    console = '[sink]\nformat = "console"\n'
    assert read(tmp_path, HEAD + SOURCE + console).checkpoint is None
    with pytest.raises(OptionError, match=r"poison. needs a checkpoint"):
        read(tmp_path, HEAD + SOURCE + 'poison = "bad"\n' + console)


def test_a_delta_table_in_a_job_without_streams(tmp_path, run):
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    deltalake.write_deltalake(str(tmp_path / "d"), pa.table({"x": [1, 2, 3]}))
    (tmp_path / "job.toml").write_text(HEAD + '[sources.a]\ndelta = "d"\n')
    code, out, err = run("run", tmp_path / "job.toml", "--json")
    assert (code, err) == (0, "")
    assert sorted(out.splitlines()) == ['{"x": 1}', '{"x": 1}', '{"x": 2}']


def test_a_secret_is_hidden_in_an_unexpected_error(tmp_path, run, monkeypatch):
    monkeypatch.setenv("PASS_WORD", "hunter22")
    monkeypatch.setenv("THETAJOIN_TRACEBACK", "1")

    def fail(*_: object) -> None:
        raise RuntimeError("cannot log in with hunter22")

    monkeypatch.setattr("thetajoin.cli.run.plan_stream", fail)
    monkeypatch.setattr("thetajoin.cli.run.check_streams", lambda _: None)  # nor is host h there
    options = '[sources.a.options]\nx = "${PASS_WORD}"\n'
    (tmp_path / "job.toml").write_text(HEAD + CHECKPOINT + SOURCE + options + SINK)
    code, _, err = run("run", tmp_path / "job.toml")
    assert code == 1
    assert "cannot log in with [hidden]" in err
    assert "hunter22" not in err


def test_an_avro_schema_is_of_a_record(tmp_path):
    (tmp_path / "s.avsc").write_text('"long"')
    source = SOURCE + 'format = "avro"\nschema = "s.avsc"\n'
    with pytest.raises(OptionError, match=r"s.avsc is not an Avro schema of a record"):
        read(tmp_path, HEAD + CHECKPOINT + source + SINK)
