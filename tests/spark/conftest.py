"""One Spark session for all tests; they skip with a reason where Spark cannot run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark.harness import Streams


@pytest.fixture(scope="session")
def spark(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from thetajoin.spark.session import (
        PROVIDER,
        ROCKSDB,
        SHARED_WORKERS,
        SparkError,
        use_java,
    )
    from thetajoin.spark.versions import local_checkpoints

    local = tmp_path_factory.mktemp("spark-local")
    try:
        use_java(local)
    except SparkError as error:
        pytest.skip(str(error))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    settings = {
        **local_checkpoints(),
        **SHARED_WORKERS,
        PROVIDER: ROCKSDB,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(local),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(local / "warehouse"),
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        # On a few rows, compiling and saving take longer than the work itself.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    java = settings["spark.driver.extraJavaOptions"]
    asked = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    settings |= _jars([name for name, fixtures in CONNECTORS.items() if fixtures & asked])
    more = settings["spark.driver.extraJavaOptions"]
    settings["spark.driver.extraJavaOptions"] = java if more == java else f"{more} {java}"
    builder = SparkSession.builder.master("local[2]").appName("thetajoin-tests")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


# Connectors, each with the fixtures of the tests that need it.
CONNECTORS = {
    "kafka": {"kafka"},
    "avro": {"kafka"},
    "delta": {"delta", "lake"},
    "iceberg": {"iceberg", "lake"},
}
# Procedures such as rewrite_data_files, which jobs do not call.
PROCEDURES = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


def _jars(names: list[str]) -> dict[str, str]:
    """What the session needs for these connectors, without those that cannot be had."""
    from thetajoin.errors import ThetaJoinError
    from thetajoin.jobs.jars import jar_settings
    from thetajoin.spark.versions import read_spark_version

    found: dict[str, str] = {}
    for name in names:
        try:
            more = jar_settings([name], read_spark_version())
        except ThetaJoinError:
            continue  # the fixture says why
        if name == "iceberg":
            more["spark.sql.extensions"] = PROCEDURES
        for key in ("spark.jars", "spark.sql.extensions"):
            more[key] = ",".join(each[key] for each in (found, more) if key in each)
        found |= {key: value for key, value in more.items() if value}
    return found


def _connector(*names: str) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from thetajoin.errors import ThetaJoinError
    from thetajoin.jobs.jars import jar_settings
    from thetajoin.spark.versions import read_spark_version

    try:
        jar_settings(names, read_spark_version())
    except ThetaJoinError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def kafka() -> None:
    """What a broker and Spark's connector to it need; skips where it cannot be had."""
    _connector("kafka", "avro")
    from thetajoin.errors import ThetaJoinError
    from thetajoin.jobs.broker import broker_jars

    try:
        broker_jars()
    except ThetaJoinError as error:
        pytest.skip(f"no Kafka here: {error}")


@pytest.fixture(scope="session")
def delta() -> None:
    """Delta's connector; skips where there is none for this Spark."""
    _connector("delta")


@pytest.fixture(scope="session")
def iceberg() -> None:
    """Iceberg's connector; skips where there is none for this Spark."""
    _connector("iceberg")


@pytest.fixture(scope="session")
def broker(kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Kafka broker of this machine's own, as ``host:port``."""
    from thetajoin.jobs.broker import Broker

    with Broker(tmp_path_factory.mktemp("kafka"), partitions=2) as running:
        yield running.servers


@pytest.fixture
def local_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own for the segment files of a test's units."""
    from thetajoin.spark import unit_spec

    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    unit_spec._COMPILED.clear()  # all have one label
    return tmp_path


@pytest.fixture
def streams(spark: Any, tmp_path: Path) -> Streams:
    """Makes streams from rows, runs queries over them and stops what is left running."""
    return Streams(spark, tmp_path)
