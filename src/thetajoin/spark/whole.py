"""Whole tables: all rows of a small table are sent to every task, indexed there and probed.

What a task's closure holds is pickled with each plan, so only little goes that way, and more is a
broadcast of Spark's. Spark Connect has none, and its streaming queries do not see the files that a
session adds: there all goes with the plan, and less may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from thetajoin.engine.block import empty_batch
from thetajoin.engine.parts import OTHER, Side
from thetajoin.errors import DataError
from thetajoin.ipc import batches_from_ipc
from thetajoin.limits import limits
from thetajoin.spark.exchange import as_batch, chunks, to_blobs
from thetajoin.spark.tasks import Remembered, Task, find_context, map_batches, name_by_position
from thetajoin.spark.unit_spec import UnitSpec, get_compiled

# What a closure may hold; and through Connect, whose messages may have 128 MiB.
SMALL = 1 << 18
MOST_CONNECT = 32 << 20
# Rows that probe at once: the more there are, the fewer passes over the table's keys.
PROBE_ROWS = 1 << 20
Probe = Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]]
# What this process has indexed, by the label of its join.
_BUILT: Remembered[Any] = Remembered(4)


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
        batches = [batch for blob in blobs for batch in batches_from_ipc(blob)]
        return as_batch(pa.Table.from_batches(batches), schema)


def sendable_bytes(session: Any, most: int) -> int:
    """How much may be sent, if there is no other reason for less than `most`."""
    return min(most, MOST_CONNECT) if find_context(session) is None else most


def collect(frame: Any, most: int) -> pa.Table | None:
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


def send_whole(session: Any, rows: pa.RecordBatch) -> Sent:
    """Have the rows ready for every task."""
    blobs = [blob.to_pybytes() for blob in to_blobs(rows)]
    context = None if rows.nbytes <= SMALL else find_context(session)
    return Sent(rows.num_rows, blobs if context is None else context.broadcast(blobs))


def probe_table(
    spec: UnitSpec, streaming: Side, whole: Sent, shown: tuple[int, ...] | None
) -> Task:
    """A task that joins rows of the streaming side with a whole table, the other side.

    shown: positions of the output columns that are the user's, where others are among them.
    """

    def index() -> Probe:
        compiled = get_compiled(spec)
        rows = whole.batch(compiled.given[OTHER[streaming]])
        run = compiled.put_beside(streaming, rows).run
        if shown is None:
            return run
        return lambda rows: (found.select(list(shown)) for found in run(rows))

    schema = spec.schema("left" if streaming == "l" else "right")
    return probe_with(spec.label, index, schema)


def probe_with(label: str, index: Callable[[], Probe], schema: pa.Schema) -> Task:
    """A task whose batches probe what is indexed once in each worker, by the label of its join."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        probe = _index_once(label, index)
        for chunk in chunks(batches, schema, PROBE_ROWS):
            yield from probe(chunk)

    return run


def _index_once(label: str, index: Callable[[], Probe]) -> Probe:
    # A function of this module's, which a task finds by its name: its memory is the worker's own.
    found: Probe = _BUILT.get_or_make(label, index)
    return found


def join_stream(df: Any, table: Any, spec: UnitSpec, streaming: Side, output: Any) -> Any:
    """Join the stream `df` with the DataFrame `table`, which is read once, now."""
    schema = spec.schema("right" if streaming == "l" else "left")
    get_compiled(spec).put_beside(streaming, empty_batch(schema))  # refuses what cannot be done
    task = probe_table(spec, streaming, read_now(table, schema), None)
    return map_batches(name_by_position(df), task, output)


def read_now(table: Any, schema: pa.Schema) -> Sent:
    """A table's rows, or an error if they are too many for every worker to hold."""
    most = sendable_bytes(table.sparkSession, limits.static_bytes)
    rows = collect(table, most)
    if rows is None:
        raise DataError(
            f"the table beside the stream takes more than {most >> 20} MiB (or than "
            "spark.driver.maxResultSize), and every worker holds all of it: leave out rows or "
            "columns that the join does not need, or read it as a stream too"
        )
    return send_whole(table.sparkSession, as_batch(rows, schema))
