"""Rows that every task of a join needs, on their way to the Python workers.

What a task's closure holds is pickled with each plan, so only little goes that way. More is a
broadcast of Spark's, or, through Spark Connect, which has none, a file among the session's.
"""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkFiles

from thetajoin.spark.batch.worker import from_blob, gathered, to_blobs

# What a closure may hold.
SMALL = 1 << 18


@dataclass(frozen=True)
class Sent:
    """All rows of a table, wherever they are: small itself, and readable in every worker.

    source: the rows as blobs, a broadcast of them, or the name of a file.
    """

    rows: int
    source: Any

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """The rows as one batch; the schema names and types the columns."""
        return gathered(list(self._batches()), schema)

    def _batches(self) -> Any:
        if isinstance(self.source, str):
            # Mapped, so that the workers of a machine share it.
            return pa.ipc.open_stream(pa.memory_map(SparkFiles.get(self.source)))
        blobs = self.source if isinstance(self.source, list) else self.source.value
        return (batch for blob in blobs for batch in from_blob(blob))


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
    if rows.nbytes <= SMALL:
        return Sent(rows.num_rows, _blobs(rows))
    try:
        context = session.sparkContext
    except Exception:  # Spark Connect has no context, and says so in its own way
        return Sent(rows.num_rows, _as_file(session, rows))
    return Sent(rows.num_rows, context.broadcast(_blobs(rows)))


def _blobs(rows: pa.RecordBatch) -> list[bytes]:
    return [blob.to_pybytes() for blob in to_blobs(rows)]


def _as_file(session: Any, rows: pa.RecordBatch) -> str:
    """A file of the session's; its name tells what is in it, so the same rows are sent once."""
    with tempfile.TemporaryDirectory(prefix="thetajoin-") as folder:
        file = Path(folder) / "rows"
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_batch(rows)
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "blake2b").hexdigest()[:32]
        named = file.rename(file.with_name(f"thetajoin-{digest}.arrow"))
        session.addArtifacts(str(named), file=True)
    return named.name
