"""The Sparks that thetajoin runs on, and all that differs between them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import pyarrow as pa

from thetajoin.errors import OptionError
from thetajoin.spark.unit_keys import keys_of

SPARK = "4.3"  # the Spark that everything below was tried with


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

    coordinates: all jars, as ``group:artifact:version``; the first is the connector itself.
    problem: why no release fits this Spark; empty if one does. java: options for the JVM.
    """

    name: str
    use: str
    coordinates: tuple[str, ...]
    problem: str = ""
    java: tuple[str, ...] = ()

    @property
    def main(self) -> str:
        """The coordinate of the connector itself."""
        return self.coordinates[0]

    @property
    def files(self) -> tuple[str, ...]:
        """The names of all its jars."""
        return tuple(file_name(coordinate) for coordinate in self.coordinates)

    @property
    def folder(self) -> str:
        """The name of the folder that its jars are kept in."""
        return f"{self.name}-{self.main.rsplit(':', 1)[1]}"


# Spark's own modules of version 4.3 could not be found in Maven Central; those of the versions
# below work with it. Of spark-token-provider-kafka, which is used for Hadoop's delegation tokens
# only, 4.0.0 is the newest that was found.
CONNECTORS = {
    "kafka": Connector(
        "kafka",
        "Kafka topics",
        (
            "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
            "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
            "org.apache.kafka:kafka-clients:3.9.2",
            "org.apache.commons:commons-pool2:2.13.1",
        ),
    ),
    "avro": Connector(
        "avro",
        "Avro messages",
        ("org.apache.spark:spark-avro_2.13:4.1.1",),
        # A few bytes that are no Avro can ask for a text of 2 GB. Without limits the JVM would end
        # for want of memory; with them the message is one that cannot be read.
        java=(
            "-Dorg.apache.avro.limits.string.maxLength=67108864",
            "-Dorg.apache.avro.limits.bytes.maxLength=67108864",
            "-Dorg.apache.avro.limits.collectionItems.maxLength=8388608",
        ),
    ),
    "delta-spark": Connector(
        "delta-spark",
        "Delta tables by Spark itself",
        ("io.delta:delta-spark_4.2_2.13:4.4.0",),
        "made for Spark 4.2, and cannot read a table with 4.3 (NoSuchMethodError); "
        "jobs do without it",
    ),
    "iceberg-spark": Connector(
        "iceberg-spark",
        "Iceberg tables by Spark itself",
        ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",),
        "made for Spark 4.1, and cannot open a catalog with 4.3 (IncompatibleClassChangeError); "
        "jobs do without it",
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
    """What a coordinate is called without its version and its Scala.

    >>> artifact_of("org.apache.spark:spark-avro_2.13:4.1.1")
    'spark-avro'
    """
    return coordinate.split(":")[1].partition("_")[0]


def fitting(name: str, spark: str) -> Connector:
    """The connector of that name, or one line on why there is none for this Spark."""
    connector = CONNECTORS[name]
    if connector.problem:
        raise OptionError(f"{connector.use}: {connector.main} is {connector.problem}")
    if not spark.startswith(f"{SPARK}."):
        raise OptionError(
            f"{connector.use}: {connector.main} was tried with Spark {SPARK}, and this is {spark}: "
            "name the one that fits under [spark] packages, or put its jars into a folder"
        )
    return connector
