"""Connectors without a broker: versions, jars, secrets, reading messages, tables of Delta."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from thetajoin.batch.files import read_lake
from thetajoin.errors import OptionError, ThetaJoinError
from thetajoin.jobs import jars
from thetajoin.jobs.jars import CONNECTORS, releases_for
from thetajoin.jobs.kafka import BAD, VALUE, read_messages
from thetajoin.jobs.lakes import store_settings
from thetajoin.jobs.systems import TopicSource
from thetajoin.spark.versions import SPARKS


def test_what_fits_this_spark() -> None:
    for spark in SPARKS:
        names = [name for name, connector in CONNECTORS.items() if spark in connector.releases]
        assert {"kafka", "avro", "s3"} <= set(names)
        assert [release.name for release in releases_for(names, f"{spark}.1")] == names
    with pytest.raises(OptionError, match=r"Delta tables: no release .* fits Spark 4\.3\.0;"):
        releases_for(["kafka", "delta"], "4.3.0")
    # A Spark that has both, whichever the installed one lacks.
    for lacking, spark in ((["delta", "iceberg"], "4.3.0"), (["iceberg", "delta"], "4.2.1")):
        with pytest.raises(OptionError, match=r"pip install 'pyspark==4\.1\.\*'"):
            releases_for(lacking, spark)
    with pytest.raises(OptionError, match=r"Kafka topics: no release .* fits Spark 4\.4"):
        releases_for(["kafka"], "4.4.1")


def test_jars_from_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is fetched where a user has named a folder, or a package."""

    def none(*_: object) -> None:
        raise AssertionError("nothing should be fetched")

    monkeypatch.setattr(jars, "fetch", none)
    monkeypatch.delenv(jars.JARS, raising=False)
    with pytest.raises(OptionError, match="has no spark-sql-kafka-0-10 jar: put these into it"):
        jars.jar_settings(["kafka"], "4.3.0", folder=tmp_path)
    [kafka] = releases_for(["kafka"], "4.3.0")
    for name in kafka.files:
        (tmp_path / name).touch()
    found = jars.jar_settings(["kafka"], "4.3.0", folder=tmp_path)["spark.jars"].split(",")
    assert sorted(Path(file).name for file in found) == sorted(kafka.files)
    monkeypatch.setenv(jars.JARS, str(tmp_path))
    assert "spark.jars" in jars.jar_settings(["kafka"], "4.4.0")
    monkeypatch.setenv(jars.JARS, str(tmp_path / "none"))
    with pytest.raises(OptionError, match=r"THETAJOIN_JARS = .* is not a folder"):
        jars.jar_settings(["kafka"], "4.3.0")
    monkeypatch.delenv(jars.JARS)
    given = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0"
    assert (
        "limits.string.maxLength"
        in jars.jar_settings(
            ["avro"], "4.3.0", packages=["org.apache.spark:spark-avro_2.13:4.3.0"]
        )[jars.JAVA]
    )
    assert jars.jar_settings(["kafka"], "4.3.0", packages=[given]) == {"spark.jars.packages": given}


JSON = [
    (b'{"id": 1, "x": 2}', False),
    (b'{"id": 1}', False),
    (b'{"id": 1, "new": [1]}', False),
    (b'{"id": 1, "new": {"a": {}}, "s": "}"} \n', False),
    (b"{}", False),
    (b'{"id": 1, "id": 2}', False),
    (b'{"id": "one"}', True),
    (b'{"id": "1"}', True),
    (b'{"id": 1.5}', True),
    (b'{"x": 3000000000}', True),
    (b'{"id": 99999999999999999999}', True),
    (b'{"id": %s}' % (b"9" * 5000), True),
    (b"{", True),
    (b"[" * 5000, True),
    (b"", True),
    (b" ", True),
    (None, True),
    (b"7", True),
    (b"null", True),
    (b'[{"id": 1}]', True),
    # Spark would take the first object, and say nothing of what follows.
    (b'{"id": 1} {"id": 2}', True),
    (b'{"id": 1}\n{"id": 2}', True),
    (b'{"id": 1}, {"id": 2}', True),
    (b'{"new": {}} {"id": 2}', True),
    (b'{"id": 1} and more', True),
    (b'{"id": 1}}', True),
    (b'{"id": 1}]', True),
    (b'{"id": 1}]}', True),
    # And would change what is no text.
    (b'{"id": 1, "new": "\xff\xfe"}', True),
    (b'\xff\xfe{"id": 1}', True),
    (b'\x00\x00\x00\x00\x01{"id": 1}', True),
]
CSV = [
    (b"1,2", False),
    (b"1,", False),
    (b",", False),
    (b"one,2", True),
    (b"1,3000000000", True),
    (b"1,2,3", True),
    (b"1", True),
    (b"1,2\n3,4", True),
    (b"", True),
    (b" \n", True),
    (b"1,\xff", True),
    (None, True),
]


@pytest.mark.spark
@pytest.mark.parametrize(("form", "cases"), [("json", JSON), ("csv", CSV)])
def test_which_messages_cannot_be_read(spark: Any, form: str, cases: list[Any]) -> None:
    rows = [(at, value) for at, (value, _) in enumerate(cases)]
    raw = spark.createDataFrame(rows, "at INT, value BINARY")
    source = TopicSource("nowhere:1", "t", form)
    read = read_messages(raw, source, "id BIGINT, x INT").orderBy("at").collect()
    told = {value: row[BAD] for (value, _), row in zip(cases, read, strict=True)}
    assert told == dict(cases)
    assert read[0][VALUE].asDict() == {"id": 1, "x": 2, BAD: None}


def test_no_secret_is_in_a_description() -> None:
    source = TopicSource("h:1", "t", options=(("kafka.sasl.jaas.config", "hunter22"),))
    assert "hunter22" not in repr(source)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_in_this_process(kind: str, tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 1, 2], "s": ["x", "x", None]})
    if kind == "delta":
        deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
        place, options = str(tmp_path / "t"), {}
        deltalake.write_deltalake(place, rows)
    else:
        pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed")
        pytest.importorskip("pyiceberg", reason="pyiceberg is not installed")
        from pyiceberg.catalog import load_catalog

        place = "here.db.t"
        options = {
            "type": "sql",
            "uri": f"sqlite:///{tmp_path}/catalog.db",
            "warehouse": f"file://{tmp_path}/lake",
        }
        catalog = load_catalog("here", **options)
        catalog.create_namespace("db")
        catalog.create_table("db.t", schema=rows.schema).append(rows)
    assert read_lake(kind, place, options).to_pydict() == rows.to_pydict()
    with pytest.raises(ThetaJoinError, match=f"cannot read the {kind.title()} table .*none"):
        read_lake(kind, {"delta": f"{place}/none", "iceberg": "here.db.none"}[kind], options)


def test_an_s3_that_is_not_amazon_s() -> None:
    given = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_REGION": "eu-1", "HOME": "/"}
    assert store_settings({}) == {}
    assert store_settings(given) == {
        "spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:9",
        "spark.hadoop.fs.s3a.endpoint.region": "eu-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
