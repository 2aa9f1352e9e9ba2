"""Rows that every task of a join needs, on their way to the Python workers.

What a task's closure holds is pickled with each plan, so only little goes that way, and more is a
broadcast of Spark's. Spark Connect has none, and its streaming queries do not see the files that a
session adds: there all goes with the plan, and less may.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from thetajoin.ipc import batches_from_ipc
from thetajoin.spark.tables.worker import gathered, to_blobs

# What a closure may hold; and through Connect, whose messages may have 128 MiB.
SMALL = 1 << 18
MOST_CONNECT = 32 << 20


@dataclass(frozen=True)
class Sent:
    """All rows of a table, wherever they are, readable in every worker.

    source: the rows as blobs, or a broadcast of them.
    """

    rows: int
    source: Any

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """The rows as one batch; the schema names and types the columns."""
        blobs = self.source if isinstance(self.source, list) else self.source.value
        return gathered([batch for blob in blobs for batch in batches_from_ipc(blob)], schema)


def _context(session: Any) -> Any | None:
    try:
        return session.sparkContext
    except Exception:  # Spark Connect has no context, and says so in its own way
        return None


def sendable_bytes(session: Any, most: int) -> int:
    """How much may be sent, if there is no other reason for less than `most`."""
    return min(most, MOST_CONNECT) if _context(session) is None else most


def collected(frame: Any, most: int) -> pa.Table | None:
    """A frame's rows in this process; None if they take more bytes than that, or than Spark lets.

    Spark itself stops what exceeds `spark.driver.maxResultSize`, so no driver is flooded.
    """
    try:
        table = frame.toArrow()
    except Exception as error:
        if "maxResultSize" in str(error):
            return None
        raise
    return table if table.nbytes <= most else None


def send(session: Any, rows: pa.RecordBatch) -> Sent:
    """Have the rows ready for every task."""
    blobs = [blob.to_pybytes() for blob in to_blobs(rows)]
    context = None if rows.nbytes <= SMALL else _context(session)
    return Sent(rows.num_rows, blobs if context is None else context.broadcast(blobs))
