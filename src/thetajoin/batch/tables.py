"""Tables of other libraries: in as Arrow, out as the kind that came in. Nothing is imported."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Literal
from weakref import WeakSet

import pyarrow as pa

from thetajoin.errors import DataError, SchemaError

Kind = Literal["arrow", "pandas", "polars"]
# Readers that have been read: they would give no rows, and say nothing.
_READ: WeakSet[pa.RecordBatchReader] = WeakSet()


def kind_of(table: Any) -> Kind | None:
    """Which library a table comes from, or None if it is no table of these."""
    if isinstance(table, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return "arrow"
    for kind in ("pandas", "polars"):
        library = sys.modules.get(kind)
        if library is not None and isinstance(table, library.DataFrame):
            return kind
    return None


def to_batch(table: Any, what: str) -> pa.RecordBatch:
    """A table of any kind as one contiguous record batch.

    In pandas NaN marks what is missing, so it becomes NULL; an index is left behind.
    """
    kind = kind_of(table)
    try:
        if kind == "pandas":
            table = pa.Table.from_pandas(table, preserve_index=False).replace_schema_metadata(None)
        elif kind == "polars":
            table = table.to_arrow()
        elif isinstance(table, pa.RecordBatchReader):
            table = _read(table, what)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise SchemaError(f"the {what} input cannot be read as Arrow: {reason}") from error
    if isinstance(table, pa.RecordBatch):
        return table
    if not isinstance(table, pa.Table):
        raise SchemaError(
            f"the {what} input is a {type(table).__name__}: give a pyarrow Table, a pandas or "
            "polars DataFrame, or a Spark DataFrame"
        )
    return contiguous(table, what)


def to_batches(given: Mapping[str, Any]) -> dict[str, pa.RecordBatch]:
    """Tables by what they are, as record batches; one that is given twice is read once.

    >>> rows = pa.table({"x": [1]}).to_reader()
    >>> to_batches({"left": rows, "right": rows})["right"].num_rows
    1
    """
    made: dict[int, pa.RecordBatch] = {}
    for what, table in given.items():
        if id(table) not in made:
            made[id(table)] = to_batch(table, what)
    return {what: made[id(table)] for what, table in given.items()}


def _read(reader: pa.RecordBatchReader, what: str) -> pa.Table:
    if reader in _READ:
        raise SchemaError(
            f"the {what} input is a reader that has been read before and has no rows left: make a "
            "table of it with read_all() and give that"
        )
    _READ.add(reader)
    return reader.read_all()


def contiguous(table: pa.Table, what: str) -> pa.RecordBatch:
    """All rows of a table in one record batch."""
    columns = []
    for name, column in zip(table.schema.names, table.columns, strict=True):
        try:
            whole = column.num_chunks == 1
            columns.append(column.chunk(0) if whole else column.combine_chunks())
        except pa.ArrowInvalid as error:
            raise DataError(
                f"column {name!r} of the {what} input has too much text for one array: "
                "cast it to large_string"
            ) from error
    flat = [c.chunk(0) if isinstance(c, pa.ChunkedArray) else c for c in columns]
    return pa.RecordBatch.from_arrays(flat, schema=table.schema)


def from_table(table: pa.Table, kind: Kind) -> Any:
    """An Arrow table as the kind of table the user works with."""
    if kind == "pandas":
        return table.to_pandas()
    if kind == "polars":
        return sys.modules["polars"].from_arrow(table)
    return table
