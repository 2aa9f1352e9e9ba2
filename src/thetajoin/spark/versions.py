"""The Sparks that thetajoin runs on, and all that differs between them."""

from __future__ import annotations

import inspect
from importlib import metadata
from typing import Any

import pyarrow as pa

from thetajoin.errors import OptionError
from thetajoin.spark.unit_keys import keys_of

SPARKS = ("4.0", "4.1", "4.2", "4.3")  # what all tests of thetajoin have passed with


def read_spark_version() -> str:
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


def repartition_by_unit(frame: Any, count: int) -> Any:
    """A frame whose rows are in the partition that its column `unit` names.

    Spark 4.0 has hashes only: there a number is replaced by a key whose hash is that number.
    """
    from pyspark.sql import functions as F

    if minor(read_spark_version()) >= (4, 1):
        return frame.repartitionById(count, F.col("unit"))
    keys = ",".join(map(str, keys_of(count)))
    return frame.repartition(count, F.expr(f"element_at(array({keys}), unit + 1)"))


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
    moved = "checkpointing." if minor(read_spark_version()) >= (4, 1) else ""
    manager = f"{package}{moved}FileSystemBasedCheckpointFileManager"
    return {"spark.sql.streaming.checkpointFileManagerClass": manager}
