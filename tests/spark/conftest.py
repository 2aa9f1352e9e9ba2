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
    if any("kafka" in getattr(item, "fixturenames", ()) for item in request.session.items):
        java = settings["spark.driver.extraJavaOptions"]
        settings |= _kafka()
        settings["spark.driver.extraJavaOptions"] += f" {java}"
    builder = SparkSession.builder.master("local[2]").appName("thetajoin-tests")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def _kafka() -> dict[str, str]:
    """What the session needs to speak with a broker; nothing where it cannot be had."""
    from thetajoin.errors import ThetaJoinError
    from thetajoin.spark.connectors.jars import jar_settings
    from thetajoin.spark.versions import installed_spark

    try:
        return jar_settings(["kafka", "avro"], installed_spark())
    except ThetaJoinError:
        return {"spark.driver.extraJavaOptions": ""}  # `kafka` says why


@pytest.fixture(scope="session")
def kafka() -> None:
    """What a broker and Spark's connector to it need; skips where it cannot be had."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from thetajoin.errors import ThetaJoinError
    from thetajoin.spark.connectors.broker import broker_jars
    from thetajoin.spark.connectors.jars import jar_settings
    from thetajoin.spark.versions import installed_spark

    try:
        jar_settings(["kafka", "avro"], installed_spark())
        broker_jars()
    except ThetaJoinError as error:
        pytest.skip(f"no Kafka here: {error}")


@pytest.fixture(scope="session")
def broker(kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Kafka broker of this machine's own, as ``host:port``."""
    from thetajoin.spark.connectors.broker import Broker

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
