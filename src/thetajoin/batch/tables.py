"""Tables of other libraries: in as Arrow, out as the kind that came in. Nothing is imported."""

from __future__ import annotations

import sys
from typing import Any, Literal
from weakref import WeakSet

import pyarrow as pa

from thetajoin.batch.dtypes import marked, to_pandas
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


def to_batch(table: Any, what: str, *, as_kind: Kind | None = None) -> pa.RecordBatch:
    """A table of any kind as one contiguous record batch.

    In pandas NaN marks what is missing, so it becomes NULL; an index is left behind. With `as_kind`
    fields say what `from_table` must know to give such a table back with the types it came in.
    """
    kind = kind_of(table)
    try:
        if kind == "pandas":
            frame = table
            table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
            table = marked(table, frame) if as_kind == "pandas" else table
        elif kind == "polars":
            _refuse_objects(table, what)
            table = table.to_arrow()
        elif isinstance(table, pa.RecordBatchReader):
            table = _read(table, what)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
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


def _read(reader: pa.RecordBatchReader, what: str) -> pa.Table:
    if reader in _READ:
        raise SchemaError(
            f"the {what} input is a reader that has been read before and has no rows left: make a "
            "table of it with read_all() and give that"
        )
    _READ.add(reader)
    return reader.read_all()


def _refuse_objects(frame: Any, what: str) -> None:
    """Refuse Python objects of Polars, which Arrow would be given as bare addresses."""
    for name, dtype in frame.schema.items():
        if "Object" in str(dtype):
            raise SchemaError(
                f"column {name!r} of the {what} input holds Python objects: "
                "cast it to a type of Polars, or leave it out"
            )


def contiguous(table: pa.Table, what: str) -> pa.RecordBatch:
    """All rows of a table in one record batch."""
    columns = []
    for name, column in zip(table.schema.names, table.columns, strict=True):
        _check_order(column, name, what)
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


def _check_order(column: pa.ChunkedArray, name: str, what: str) -> None:
    """Refuse ordered categories that differ between chunks: together they have no one order."""
    if not isinstance(column.type, pa.DictionaryType) or not column.type.ordered:
        return
    lists = [chunk.dictionary for chunk in column.chunks]
    if any(not other.equals(lists[0]) for other in lists[1:]):
        raise SchemaError(
            f"column {name!r} of the {what} input has ordered categories that differ from chunk to "
            "chunk: give all chunks the same ones"
        )


def from_table(table: pa.Table, kind: Kind) -> Any:
    """An Arrow table as the kind of table the user works with."""
    if kind == "pandas":
        return to_pandas(table)
    if kind == "polars":
        return sys.modules["polars"].from_arrow(table)
    return table
