"""The Sparks that thetajoin runs on, and all that differs between them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import pyarrow as pa

from thetajoin.errors import OptionError
from thetajoin.spark.unit_keys import keys_of

SPARKS = ("4.0", "4.1", "4.2", "4.3")  # what all tests of thetajoin have passed with


def installed_spark() -> str:
    """The version of the PySpark that is installed."""
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        raise OptionError("Spark is not installed: pip install 'thetajoin[spark]'") from None


def minor(version: str) -> tuple[int, int]:
    """The first two numbers of a version.

    >>> minor("4.0.5") < minor("4.1.0-preview1")
    True
    """
    first, second, *_ = version.split(".")
    return int(first), int(second)


def arrow_schema_of(schema: Any) -> pa.Schema:
    """A schema of Spark's as Arrow's, with times in UTC, which 4.2 and later have to be told."""
    from pyspark.sql.pandas.types import to_arrow_schema

    takes_zone = "timezone" in inspect.signature(to_arrow_schema).parameters
    found: pa.Schema = to_arrow_schema(schema, **({"timezone": "UTC"} if takes_zone else {}))
    return found


def repartition_by_number(frame: Any, count: int, column: str) -> Any:
    """A frame whose rows are in the partition that a column of whole numbers names.

    Spark 4.0 has hashes only: there a number is replaced by a key whose hash is that number.
    """
    from pyspark.sql import functions as F

    if minor(installed_spark()) >= (4, 1):
        return frame.repartitionById(count, F.col(column))
    keys = ",".join(map(str, keys_of(count)))
    return frame.repartition(count, F.expr(f"element_at(array({keys}), {column} + 1)"))


def state_mover(session: Any) -> Any:
    """What moves a stopped query's state to other partitions, which is experimental in Spark."""
    if minor(session.version) < (4, 2):
        raise OptionError(
            f"--partitions needs Spark 4.2 or newer, which can move state to other partitions, and "
            f"this is {session.version}"
        )
    mover = getattr(session, "_streamingCheckpointManager", None)
    if mover is None:
        raise OptionError("Spark moves state to other partitions in a classic session only")
    return mover


def local_checkpoints() -> dict[str, str]:
    """Settings for checkpoints on a local disk.

    Spark's default asks Hadoop about links, which starts a process for every file where Hadoop's
    own library is missing: about 0.3 s a micro-batch.
    """
    package = "org.apache.spark.sql.execution.streaming."
    moved = "checkpointing." if minor(installed_spark()) >= (4, 1) else ""
    manager = f"{package}{moved}FileSystemBasedCheckpointFileManager"
    return {"spark.sql.streaming.checkpointFileManagerClass": manager}


@dataclass(frozen=True)
class Connector:
    """What Spark needs in order to read and write one kind of system.

    releases: for each Spark all jars, as ``group:artifact:version``; the first is the connector
    itself. java: options for the JVM. settings: of the session.
    """

    name: str
    use: str
    releases: dict[str, tuple[str, ...]]
    java: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def artifact(self) -> str:
        """What the connector itself is called, whichever Spark it is for."""
        return artifact_of(next(iter(self.releases.values()))[0])


@dataclass(frozen=True)
class Release:
    """A connector's jars for one Spark."""

    name: str
    coordinates: tuple[str, ...]

    @property
    def main(self) -> str:
        """The coordinate of the connector itself."""
        return self.coordinates[0]

    @property
    def files(self) -> tuple[str, ...]:
        """The names of all jars."""
        return tuple(file_name(coordinate) for coordinate in self.coordinates)

    @property
    def folder(self) -> str:
        """The name of the folder that the jars are kept in."""
        _, artifact, version = self.main.split(":")
        return f"{artifact}-{version}"


def _kafka(version: str) -> tuple[str, ...]:
    # The token provider is used for Hadoop's delegation tokens only; 4.0.0 is its newest release.
    return (
        f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.13.1",
    )


def _delta(spark: str) -> tuple[str, ...]:
    return (f"io.delta:delta-spark_{spark}_2.13:4.4.0", "io.delta:delta-storage:4.4.0")


def _s3(hadoop: str, sdk: str) -> tuple[str, ...]:
    return (f"org.apache.hadoop:hadoop-aws:{hadoop}", f"software.amazon.awssdk:bundle:{sdk}")


def _iceberg(spark: str, version: str) -> tuple[str, ...]:
    return (f"org.apache.iceberg:iceberg-spark-runtime-{spark}_2.13:{version}",)


# The newest of each in November 2026, tried with that Spark. Of Spark's own modules there is none
# for 4.3, with which those for 4.2 and 4.1 work. Delta's and Iceberg's do not: Delta's for 4.2
# cannot read a table with 4.3 (NoSuchMethodError), nor can Iceberg's for 4.1 open a catalog with
# 4.2 or 4.3 (IncompatibleClassChangeError).
CONNECTORS = {
    "kafka": Connector(
        "kafka",
        "Kafka topics",
        {
            "4.0": _kafka("4.0.4"),
            "4.1": _kafka("4.1.3"),
            "4.2": _kafka("4.2.0"),
            "4.3": _kafka("4.2.0"),
        },
    ),
    "avro": Connector(
        "avro",
        "Avro messages",
        {
            "4.0": ("org.apache.spark:spark-avro_2.13:4.0.2",),
            **dict.fromkeys(("4.1", "4.2", "4.3"), ("org.apache.spark:spark-avro_2.13:4.1.1",)),
        },
        # A few bytes that are no Avro can ask for a text of 2 GB. Without limits the JVM would end
        # for want of memory; with them the message is one that cannot be read.
        java=(
            "-Dorg.apache.avro.limits.string.maxLength=67108864",
            "-Dorg.apache.avro.limits.bytes.maxLength=67108864",
            "-Dorg.apache.avro.limits.collectionItems.maxLength=8388608",
        ),
    ),
    "delta": Connector(
        "delta",
        "Delta tables",
        {spark: _delta(spark) for spark in ("4.0", "4.1", "4.2")},
        settings={
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        },
    ),
    # Of the Hadoop that each PySpark brings; Amazon's part alone has 600 MB.
    "s3": Connector(
        "s3",
        "tables and files at s3://",
        {
            "4.0": _s3("3.4.1", "2.24.6"),
            "4.1": _s3("3.4.2", "2.29.52"),
            "4.2": _s3("3.5.0", "2.35.4"),
            "4.3": _s3("3.5.0", "2.35.4"),
        },
        settings={"spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"},
    ),
    "iceberg": Connector(
        "iceberg",
        "Iceberg tables",
        {"4.0": _iceberg("4.0", "1.11.0"), "4.1": _iceberg("4.1", "1.12.0")},
    ),
}


def file_name(coordinate: str) -> str:
    """The file of a Maven coordinate.

    >>> file_name("org.apache.kafka:kafka-clients:3.9.2")
    'kafka-clients-3.9.2.jar'
    """
    _, artifact, version = coordinate.split(":")
    return f"{artifact}-{version}.jar"


def artifact_of(coordinate: str) -> str:
    """What a coordinate is called without its version, its Scala and its Spark.

    >>> artifact_of("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0")
    'iceberg-spark-runtime'
    """
    return re.sub(r"-\d+\.\d+$", "", coordinate.split(":")[1].partition("_")[0])


def sparks_with(names: Sequence[str]) -> list[str]:
    """The Sparks that have all of these connectors.

    >>> sparks_with(["delta", "iceberg"])
    ['4.0', '4.1']
    """
    return [spark for spark in SPARKS if all(spark in CONNECTORS[n].releases for n in names)]


def releases_for(names: Sequence[str], spark: str) -> list[Release]:
    """The connectors of these names for a Spark, or one line on which Spark has them."""
    mine = f"{minor(spark)[0]}.{minor(spark)[1]}"
    lacking = [name for name in names if mine not in CONNECTORS[name].releases]
    if lacking:
        what = " and ".join(CONNECTORS[name].use for name in lacking)
        fitting = sparks_with(names)
        raise OptionError(
            f"{what}: no release of the connector fits Spark {spark}; those for Spark "
            f"{', '.join(fitting)} were tried: pip install 'pyspark=={fitting[-1]}.*', or name a "
            "release that fits under [spark] packages"
        )
    return [Release(name, CONNECTORS[name].releases[mine]) for name in names]
