"""A table on Spark as its tasks see it: Arrow batches, columns by position."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from thetajoin.engine.block import empty_batch
from thetajoin.limits import limits
from thetajoin.routes.fingerprint import fingerprints
from thetajoin.spark.columns import by_position
from thetajoin.spark.sent import Sent, collected, send, sendable_bytes
from thetajoin.spark.statistics import estimated_bytes
from thetajoin.spark.stream import arrow_schema
from thetajoin.spark.tables.worker import gathered, row_bytes
from thetajoin.spark.tasks import Task, mapped

# What Spark adds to the widths of a row's columns.
ROW_BYTES = 8


@dataclass(frozen=True)
class Whole:
    """All rows of a small table, sent to every task."""

    rows: int
    source: Sent | None

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """The rows as one batch; the schema names and types the columns."""
        if self.source is None:
            return empty_batch(schema)
        return self.source.batch(schema)


class Table:
    """A DataFrame that does not stream."""

    def __init__(self, df: Any) -> None:
        """A user's, or one with columns that were added to that."""
        self.session = df.sparkSession
        self.given = df

    @cached_property
    def frame(self) -> Any:
        """Columns ``c0, c1, ...``, because a name with a dot would be taken for a path."""
        return by_position(self.given)

    @cached_property
    def bytes(self) -> float:
        """How large Spark thinks it is; infinite where it has no idea."""
        return estimated_bytes(self.frame)[0]

    @property
    def believed_rows(self) -> float:
        """How many rows that makes, columns of the widths that Spark takes them for."""
        width = row_bytes(arrow_schema(self.frame))[0] + ROW_BYTES
        return self.bytes / width

    @staticmethod
    def look_up_bytes(*tables: Table) -> None:
        """Ask Spark for the sizes of several tables at once, which costs about what one does."""
        sizes = estimated_bytes(*(table.frame for table in tables))
        for table, size in zip(tables, sizes, strict=True):
            table.__dict__["bytes"] = size

    def whole(self, schema: pa.Schema) -> Whole | None:
        """All rows, collected; None if they take too much."""
        table = collected(self.frame, sendable_bytes(self.session, limits.whole_bytes))
        if table is None:
            return None
        if not table.num_rows:
            return Whole(0, None)
        return Whole(table.num_rows, send(self.session, gathered(table.to_batches(), schema)))

    def mapped(
        self,
        task: Task,
        schema: Any,
        columns: Sequence[int] | None = None,
        with_hash: bool = False,
    ) -> Any:
        """Its batches through a task: the columns at some positions, and a hash of the row.

        The hash depends on the row alone, never on where a batch was cut.
        """
        frame = self.frame
        if columns is not None:
            frame = frame.select(*[f"c{at}" for at in columns])
        return mapped(frame, _hashing(task) if with_hash else task, schema)


def _hashing(task: Task) -> Task:
    """The task over batches with a hash of each row as a last column."""

    def hashed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            column = pa.array(fingerprints(batch).first.view(np.int64))
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, column], [*batch.schema.names, "hash"]
            )

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from task(hashed(batches))

    return run
