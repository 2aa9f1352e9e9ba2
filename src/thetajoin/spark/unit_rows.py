"""What a unit keeps of its rows in the state store: blobs, and entries that say what is in them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import pyarrow as pa

from thetajoin.engine.block import Block
from thetajoin.engine.parts import Side
from thetajoin.engine.store import count_fitting
from thetajoin.errors import SnapshotError
from thetajoin.index.probe import Arrivals
from thetajoin.ipc import batch_from_ipc, to_ipc
from thetajoin.limits import limits

ARRIVALS = b"thetajoin.arrivals"
# Changes when state written by an older version can no longer be read.
STATE_FORMAT = 1
DESCRIBED = ("identity", "token", "entries", "counts", "watermark", "counters", "timer")


class BlobInfo(NamedTuple):
    """What is seen of a blob of rows; `rows` is None if it cannot be read."""

    size: int
    check: int
    rows: int | None
    columns: bool

    @staticmethod
    def of(blob: bytes) -> BlobInfo:
        """Look at a blob; costs a pass over its bytes."""
        try:
            found = batch_from_ipc(blob)
        except (pa.ArrowInvalid, OSError, StopIteration):
            return BlobInfo(len(blob), zlib.crc32(blob), None, False)
        return BlobInfo(len(blob), zlib.crc32(blob), found.num_rows, bool(found.num_columns))


class Entry(NamedTuple):
    """Rows in the state store: one side's share of a micro-batch, or a part of it."""

    side: Side
    first: int
    rows: int
    newest: int | None
    size: int
    # The last row's arrival number, where others of the micro-batch are in other units.
    last: int | None = None
    # The blob's checksum; entries of older versions have none.
    check: int | None = None

    @property
    def end(self) -> int:
        """The last row's arrival number."""
        return self.first + self.rows - 1 if self.last is None else self.last

    @property
    def key(self) -> tuple[str]:
        """The key of their blob."""
        return (f"{self.side}{self.first}",)

    def fault(self, look: BlobInfo | None) -> str:
        """What is wrong with the blob that should hold these rows; nothing if it is sound."""
        name = self.key[0]
        if look is None:
            return f"the rows {name!r} are listed and are not there"
        if look.size != self.size:
            return f"the rows {name!r} take {look.size} bytes and should take {self.size}"
        if self.check is not None and look.check != self.check:
            return f"the checksum of the rows {name!r} is wrong"
        if look.rows is None:
            return f"the rows {name!r} cannot be read"
        if look.columns and look.rows != self.rows:
            return f"the rows {name!r} are {look.rows} and should be {self.rows}"
        return ""


@cache
def versions() -> dict[str, str]:
    """Which thetajoin and which Spark write a state."""
    import pyspark

    from thetajoin import __version__

    return {"thetajoin": __version__, "spark": pyspark.__version__}


def damage_error(unit: int, what: str) -> SnapshotError:
    """The error for state that no join can continue."""
    return SnapshotError(
        f"thetajoin: the checkpoint is damaged: in unit {unit}, {what}; go on with a copy of the "
        "checkpoint from before, or start with a new checkpointLocation"
    )


def read_description(text: str, unit: int) -> dict[str, Any]:
    """A unit's description; refuses one that is damaged or of a newer version."""
    try:
        described = json.loads(text)
        newer = described["identity"]["format"]
        complete = all(name in described for name in DESCRIBED)
    except (ValueError, LookupError, TypeError) as error:
        raise damage_error(
            unit, f"the description of what it holds cannot be read ({error})"
        ) from error
    if isinstance(newer, int) and newer > STATE_FORMAT:
        by = described.get("written_by", {}).get("thetajoin", "a newer version")
        raise SnapshotError(
            f"thetajoin: the checkpoint has format {newer}, written by thetajoin {by}, and this "
            f"thetajoin reads up to {STATE_FORMAT}: update it, or go on with the newer version"
        )
    if not complete:
        raise damage_error(unit, "the description of what it holds is not complete")
    return described  # type: ignore[no-any-return]


def entries_of(block: Block, side: Side) -> Iterator[tuple[Entry, bytes]]:
    """A block's rows as blobs of bounded size, each with its entry."""
    table, numbers = block.table, block.arrivals
    most = count_fitting(limits.blob_bytes, block.rows, int(table.nbytes))
    for start in range(0, block.rows, most):
        rows = min(most, block.rows - start)
        times = None if block.times is None else block.times[start : start + rows]
        newest = None if times is None else int(times.max())
        yield entry_of(side, table.slice(start, rows), numbers.slice(start, rows), newest)


def entry_of(
    side: Side, table: pa.RecordBatch, numbers: Arrivals, newest: int | None
) -> tuple[Entry, bytes]:
    """Rows as one blob, and its entry."""
    blob = pack_rows(table, numbers)
    ends = numbers.first, table.num_rows, newest, len(blob), numbers.last
    return Entry(side, *ends, zlib.crc32(blob)), blob


def pack_rows(table: pa.RecordBatch, numbers: Arrivals) -> bytes:
    """Rows and their arrival numbers as bytes."""
    if not numbers.is_dense:
        table = table.replace_schema_metadata({ARRIVALS: numbers.bits()})
    blob: bytes = to_ipc(table).to_pybytes()
    return blob


def rows_from(blob: bytes, first: int, schema: pa.Schema) -> tuple[pa.RecordBatch, Arrivals]:
    """What `pack_rows` was given, with the first row's arrival number and the side's schema."""
    table = batch_from_ipc(blob)
    bits = (table.schema.metadata or {}).get(ARRIVALS)
    dense = Arrivals.dense(first, table.num_rows)
    if table.num_columns:
        kept = pa.schema([schema.field(name) for name in table.schema.names])
        table = pa.RecordBatch.from_arrays(table.columns, schema=kept)
    return table, dense if bits is None else Arrivals.from_bits(first, bits)
