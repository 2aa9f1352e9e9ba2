"""Each unit has a partition of its own, whatever the number of partitions."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from thetajoin.spark.unit_keys import MODULUS, UNIT_KEYS, spark_hash


@pytest.mark.parametrize("partitions", [*range(1, 17), 32, 48, 64, 100, 128, 200])
def test_unit_lands_in_the_partition_of_its_number(partitions: int) -> None:
    placed = [spark_hash(key) % partitions for key in UNIT_KEYS]
    assert placed == [unit % partitions for unit in range(len(UNIT_KEYS))]
    assert MODULUS % partitions == 0


def test_the_keys_are_those_of_kept_checkpoints() -> None:
    assert len(UNIT_KEYS) == 1024
    assert zlib.crc32(np.array(UNIT_KEYS, "<i8").tobytes()) == 2993479406


@pytest.mark.spark
def test_hash_is_that_of_spark(spark: Any) -> None:
    from pyspark.sql import functions as F

    keys = [*UNIT_KEYS, 0, 1, -1, 2**31 - 1, -(2**31)]
    df = spark.createDataFrame([(key,) for key in keys], "unit int")
    found = df.select("unit", F.hash("unit").alias("h")).collect()
    assert {row.unit: row.h for row in found} == {key: spark_hash(key) for key in keys}
    spread = df.limit(len(UNIT_KEYS)).repartition(5, "unit").withColumn("p", F.spark_partition_id())
    assert {r.unit: r.p for r in spread.collect()} == {k: u % 5 for u, k in enumerate(UNIT_KEYS)}
