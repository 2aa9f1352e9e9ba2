"""A few rows of a table: the first ones, or some of all, drawn without leaving the JVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from thetajoin.batch.keys import Int64
from thetajoin.engine.block import empty_batch
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.parts import Side
from thetajoin.spark.tables.table import Table
from thetajoin.spark.tables.worker import gathered

DRAWN = 4096
# First rows cost more each than drawn ones, which come in an Arrow table.
FIRST = 2048
# Of Spark's increasing numbers, the part that counts the rows of a partition.
_PLACE = (1 << 33) - 1


# Drawn alike each time, so that a join is the same each time. Spark adds a partition's number.
_SEEDS: dict[Side, int] = {"l": 0, "r": 1 << 40}


@dataclass(frozen=True)
class Drawn:
    """Rows of both sides, each as likely as any other of its side, and how many there are."""

    samples: dict[Side, pa.RecordBatch]
    rows: dict[Side, float]


def draw_both(tables: Mapping[Side, Table], compiled: CompiledJoin) -> Drawn:
    """Some rows of both tables, with the columns that decide which rows match."""
    drawn = Drawn({}, {})
    for side, table in tables.items():
        schema = compiled.schemas[side]
        names = compiled.needed(side)
        positions = [schema.names.index(name) for name in names]
        columns = pa.schema([schema.field(name) for name in names])
        found = draw(table, positions, columns, _SEEDS[side])
        drawn.samples[side], drawn.rows[side] = found
    return drawn


def draw(
    table: Table, positions: Sequence[int], schema: pa.Schema, seed: int, most: int = DRAWN
) -> tuple[pa.RecordBatch, float]:
    """Rows of the columns at some positions, each as likely as any other; and how many there are.

    Every row draws a number below 1, and the rows with the least are kept. The largest of these
    tells how many rows there are, within a few percent; if fewer came than may, they are all.
    A row far down in its partition needs a small number to be among the least, so that few rows
    are sorted: of a place `n` and a number `u`, the least have ``n * u`` below about `most`. Two
    tables need seeds that lie far apart, or rows at the same places would be drawn of both.
    """
    place = F.monotonically_increasing_id().bitwiseAND(F.lit(_PLACE))
    columns = [f"c{at}" for at in positions]
    drawn = table.frame.select(*columns, F.rand(seed).alias("u"), place.alias("place"))
    near = drawn.where(F.col("u") * F.col("place") < 2 * most).drop("place")
    found = near.orderBy("u").limit(most).toArrow()
    if not found.num_rows:
        return empty_batch(schema), 0.0
    numbers = found["u"].to_numpy()
    rows = float(len(numbers)) if len(numbers) < most else (most - 1) / float(numbers.max())
    return gathered(found.drop_columns(["u"]).to_batches(), schema), rows


def first_keys(table: Table, side: Side, keys: Sequence[str], most: int = FIRST) -> Int64:
    """Hashes of the keys of a table's first rows that have all of them; little is read for them."""
    known = " AND ".join(f"({key}) IS NOT NULL" for key in keys)
    with_keys = table.frame.alias(side).where(known)
    hashes = with_keys.selectExpr(f"xxhash64({', '.join(keys)})").limit(most)
    return np.array([row[0] for row in hashes.collect()], np.int64)
