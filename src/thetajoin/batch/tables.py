"""Tables of other libraries, read as Arrow and given back as their own kind; imports none."""

from __future__ import annotations

import os
import sys
from typing import Any, Literal, Protocol, TypeVar
from weakref import WeakSet

import pyarrow as pa

from thetajoin.batch.dtypes import mark_dtypes, to_pandas, without_odd_categories
from thetajoin.batch.files import is_path, read_files
from thetajoin.errors import DataError, SchemaError, ThetaJoinError

# In an Arrow field's metadata: the type that the column had in Polars.
_POLARS = b"thetajoin.polars"
Kind = Literal["arrow", "pandas", "polars", "lazy"]
# Readers that have been read: they would silently give no rows.
_READ: WeakSet[pa.RecordBatchReader] = WeakSet()


def kind_of(table: Any) -> Kind | None:
    """Which kind of table a result is to be, given the left input; None if it is no table.

    "lazy" is a LazyFrame of Polars. What has no kind of its own (a path, a relation of DuckDB, a
    reader) gives Arrow.
    """
    if _is_a("pandas", "DataFrame", table):
        return "pandas"
    if _is_a("polars", "DataFrame", table):
        return "polars"
    if _is_a("polars", "LazyFrame", table):
        return "lazy"
    return "arrow" if is_path(table) or _reads_as_arrow(table) else None


def _reads_as_arrow(table: Any) -> bool:
    """Whether a table that is neither of pandas nor of Polars can be read as Arrow."""
    if isinstance(table, type) or _is_from("pyspark", table):
        return False
    return (
        hasattr(table, "__arrow_c_stream__")
        or hasattr(table, "__arrow_c_array__")
        or _is_narwhals(table)
        or _is_dataset(table)
    )


def _is_a(module: str, name: str, table: Any) -> bool:
    """Whether a table is of a module's class.

    Another thread may be importing the module: then it has no such class yet, nor is there a table.
    """
    found = getattr(sys.modules.get(module), name, None)
    return found is not None and isinstance(table, found)


def _is_from(library: str, table: Any) -> bool:
    """Whether a library that is not imported has made the table; classes may have no module."""
    return str(getattr(type(table), "__module__", "")).startswith(f"{library}.")


def _is_narwhals(table: Any) -> bool:
    return _is_from("narwhals", table) and hasattr(table, "to_native")


def _is_dataset(table: Any) -> bool:
    return any(_is_a("pyarrow.dataset", name, table) for name in ("Dataset", "Scanner"))


def no_table(value: Any, what: str) -> SchemaError:
    """The error for an input that is no table."""
    return SchemaError(
        f"the {what} input is a {type(value).__name__}: give a pyarrow Table, a pandas or polars "
        "DataFrame, a Spark DataFrame, the path of a file, or anything with __arrow_c_stream__"
    )


def to_batch(table: Any, what: str, *, as_kind: Kind | None = None) -> pa.RecordBatch:
    """A table of any kind as one contiguous record batch.

    In pandas NaN marks what is missing, so it becomes NULL; an index is left behind. With `as_kind`
    fields say what `from_table` must know to give such a table back with the types it came in.
    """
    if is_path(table):
        return contiguous(read_files(table, what), what)
    try:
        found = _to_arrow(table, what, as_kind)
    except (ThetaJoinError, MemoryError):
        raise
    except Exception as error:  # each library has errors of its own
        reason = ", ".join(str(part).split("\n")[0] for part in error.args if str(part))
        reason = reason or type(error).__name__
        raise SchemaError(f"the {what} input cannot be read as Arrow: {reason}") from error
    return found if isinstance(found, pa.RecordBatch) else contiguous(found, what)


def _to_arrow(table: Any, what: str, as_kind: Kind | None) -> pa.Table | pa.RecordBatch:
    if isinstance(table, pa.Table | pa.RecordBatch):
        return table
    kind = kind_of(table)
    if kind is None:
        raise no_table(table, what)
    if kind == "pandas":
        frame = without_odd_categories(table)
        try:
            plain = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
        except OverflowError as error:
            name = next(name for name in frame.columns if _is_too_wide(frame[name]))
            raise DataError(
                f"column {name!r} of the {what} input has integers of more than 64 bits: cast it "
                "to a string or a double"
            ) from error
        return mark_dtypes(plain, table) if as_kind == "pandas" else plain
    if kind in ("polars", "lazy"):
        _refuse_objects(table, what)
        frame = table if kind == "polars" else table.collect()
        return _with_wide_integers(frame, what, mark=as_kind in ("polars", "lazy"))
    if _is_narwhals(table):  # whose own way to Arrow would make a column of a pandas index
        return _to_arrow(table.to_native(), what, as_kind)
    if isinstance(table, pa.RecordBatchReader):
        return _read(table, what)
    if _is_dataset(table):
        return table.to_table()
    if hasattr(table, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(table).read_all()
    return pa.record_batch(table)


def _is_too_wide(values: Any) -> bool:
    """Whether a column of pandas has integers that Arrow has no type for."""
    try:
        pa.Array.from_pandas(values)
    except OverflowError:
        return True
    return False


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
    objects = sys.modules["polars"].Object
    for name, dtype in frame.collect_schema().items():
        if dtype == objects:
            raise SchemaError(
                f"column {name!r} of the {what} input holds Python objects: "
                "cast it to a type of Polars, or leave it out"
            )


def _with_wide_integers(frame: Any, what: str, *, mark: bool) -> pa.Table:
    """A frame of Polars in Arrow, which has no integers of 128 bits: they become decimals.

    With `mark` their fields say so, and `from_table` turns them back.
    """
    polars = sys.modules["polars"]
    wide = {n: str(t) for n, t in frame.schema.items() if str(t) in ("Int128", "UInt128")}
    for name in wide:
        try:
            frame = frame.with_columns(polars.col(name).cast(polars.Decimal(38, 0)))
        except polars.exceptions.PolarsError as error:
            raise DataError(
                f"column {name!r} of the {what} input has integers of more than 38 digits: "
                "cast it to a string or a double"
            ) from error
    table = frame.to_arrow()
    if not wide or not mark:
        return table
    fields = [
        field.with_metadata({_POLARS: wide[field.name]}) if field.name in wide else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


def contiguous(table: pa.Table, what: str) -> pa.RecordBatch:
    """All rows of a table in one record batch."""
    columns = []
    for name, column in zip(table.schema.names, table.columns, strict=True):
        _check_order(column, name, what)
        try:
            whole = column.num_chunks == 1
            if column.num_chunks == 0:  # Arrow can combine no chunks of most types, but not of all
                columns.append(pa.nulls(0, column.type))
            else:
                columns.append(column.chunk(0) if whole else column.combine_chunks())
        except pa.ArrowNotImplementedError as error:
            raise SchemaError(
                f"column {name!r} of the {what} input is {column.type}, in several chunks that "
                "Arrow cannot combine: leave it out, or give it as one chunk"
            ) from error
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
    if kind in ("polars", "lazy"):
        polars = sys.modules["polars"]
        frame = polars.from_arrow(table)
        for field in table.schema:
            if kept := (field.metadata or {}).get(_POLARS):
                frame = frame.with_columns(
                    polars.col(field.name).cast(getattr(polars, kept.decode()))
                )
        return frame if kind == "polars" else frame.lazy()
    return table


class PandasFrame(Protocol):
    """A DataFrame of pandas."""

    @property
    def iloc(self) -> Any:
        """Rows by position."""


class PolarsFrame(Protocol):
    """A DataFrame or LazyFrame of Polars."""

    def sql(self, query: str, *, table_name: str = ...) -> Any:
        """A query over the table."""

    def with_columns(self, *exprs: Any, **named_exprs: Any) -> Any:
        """The table with further columns."""


class SparkFrame(Protocol):
    """A DataFrame of Spark, classic or Connect."""

    @property
    def sparkSession(self) -> Any:
        """The session it belongs to."""


class ArrowTable(Protocol):
    """A Table of pyarrow."""

    def combine_chunks(self, memory_pool: Any = ...) -> Any:
        """The table in one piece."""

    def to_batches(self, max_chunksize: Any = ...) -> Any:
        """The table in pieces."""


class ArrowStream(Protocol):
    """Anything that hands out an Arrow stream."""

    def __arrow_c_stream__(self, requested_schema: object | None = ..., /) -> object: ...


# A table of a library; the result is of the same kind.
Frame = TypeVar("Frame", bound=PandasFrame | PolarsFrame | SparkFrame | ArrowTable)
# Inputs that have no kind of their own: the result is an Arrow table.
ArrowInput = str | os.PathLike[str] | ArrowStream
Input = PandasFrame | PolarsFrame | SparkFrame | ArrowTable | ArrowInput
