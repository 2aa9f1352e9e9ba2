"""pandas' own types of columns, which Arrow has no types for, kept in the fields' metadata.

They pass through a join with the fields, and the output's columns are made from them. pandas is not
imported here: if there is a DataFrame, it has been.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thetajoin.errors import DataError
from thetajoin.ipc import batch_from_ipc, to_ipc

_DTYPE = b"thetajoin.pandas.dtype"
_CATEGORIES = b"thetajoin.pandas.categories"
_ARROW = "arrow"
_CATEGORY = "category"
_OBJECT = "object"
_NULLABLE = {
    "boolean",
    *(f"{kind}{bits}" for kind in ("Int", "UInt") for bits in (8, 16, 32, 64)),
    "Float32",
    "Float64",
}


def without_odd_categories(frame: Any) -> Any:
    """The DataFrame with categories that are intervals or periods, as `cut` makes, as plain values.

    Arrow can do nothing with dictionaries of these. `to_pandas` makes them categories again.
    """
    pandas = sys.modules["pandas"]
    odd = pandas.IntervalDtype, pandas.PeriodDtype
    changed = frame
    for name, dtype in frame.dtypes.items() if frame.columns.is_unique else ():
        if isinstance(dtype, pandas.CategoricalDtype) and isinstance(dtype.categories.dtype, odd):
            changed = changed.copy(deep=False) if changed is frame else changed
            values = frame[name].array
            changed[name] = dtype.categories.array.take(values.codes, allow_fill=True)
    return changed


def mark_dtypes(table: pa.Table, frame: Any) -> pa.Table:
    """The table with the types of the DataFrame's columns in its fields' metadata."""
    fields = [
        field.with_metadata(_mark(dtype))
        for field, dtype in zip(table.schema, frame.dtypes, strict=True)
    ]
    return table.cast(pa.schema(fields))


def mark_of(field: pa.Field) -> dict[bytes, bytes] | None:
    """A field's note of the pandas type that its values had; None if it has none."""
    found = field.metadata or {}
    return {key: found[key] for key in (_DTYPE, _CATEGORIES) if key in found} or None


def drop_marks(table: pa.Table) -> pa.Table:
    """The table without the metadata that `mark_dtypes` put into its fields."""
    if not any(mark_of(field) for field in table.schema):
        return table
    fields = []
    for field in table.schema:
        kept = {k: v for k, v in (field.metadata or {}).items() if k not in (_DTYPE, _CATEGORIES)}
        fields.append(field.with_metadata(kept) if kept else field.remove_metadata())
    return table.cast(pa.schema(fields, table.schema.metadata))


def to_pandas(table: pa.Table) -> Any:
    """A DataFrame whose columns have the types that their values had.

    Integers of NumPy become nullable ones where an outer join put NULL among them: as doubles,
    which pandas itself would make of them, large ones would change.
    """
    try:
        if not any(_is_special(f, c) for f, c in zip(table.schema, table.columns, strict=True)):
            return table.to_pandas()
        columns = {
            field.name: _to_series(field, column)
            for field, column in zip(table.schema, table.columns, strict=True)
        }
    except (ValueError, OverflowError) as error:
        raise DataError(
            f"pandas cannot hold a value of the result ({error}): give the left input as Arrow"
        ) from error
    return sys.modules["pandas"].DataFrame(columns, copy=False)


def _mark(dtype: Any) -> dict[bytes, bytes]:
    pandas = sys.modules["pandas"]
    if isinstance(dtype, pandas.ArrowDtype):
        return {_DTYPE: _ARROW.encode()}
    if isinstance(dtype, pandas.CategoricalDtype):
        return {_DTYPE: _CATEGORY.encode(), _CATEGORIES: _write(dtype)}
    if isinstance(dtype, pandas.StringDtype):
        # pandas has two types of text, which differ in what they show for a missing value.
        name = "string" if dtype.na_value is pandas.NA else "str"
        return {_DTYPE: f"{name}[{dtype.storage}]".encode()}
    return {_DTYPE: str(dtype).encode()}


def _write(dtype: Any) -> bytes:
    """A categorical's type as an Arrow stream of its categories."""
    array = pa.Array.from_pandas(dtype.categories)
    metadata = {**_mark(dtype.categories.dtype), b"ordered": str(dtype.ordered).encode()}
    schema = pa.schema([pa.field("categories", array.type, metadata=metadata)])
    written: bytes = to_ipc(pa.RecordBatch.from_arrays([array], schema=schema)).to_pybytes()
    return written


def _read(data: bytes) -> Any:
    batch = batch_from_ipc(data)
    field, pandas = batch.schema.field(0), sys.modules["pandas"]
    categories = _to_series(field, pa.chunked_array([batch.column(0)]))
    return pandas.CategoricalDtype(pandas.Index(categories), field.metadata[b"ordered"] == b"True")


def _is_special(field: pa.Field, column: pa.ChunkedArray) -> bool:
    """Whether a column must not be converted as Arrow does it."""
    dtype = _dtype(field)
    if column.null_count and (pa.types.is_integer(field.type) or _is_interval(field.type)):
        return True
    return (
        dtype in (_ARROW, _CATEGORY, _OBJECT)
        or _nullable(dtype) is not None
        or dtype.startswith("datetime64[")
    )


def _is_interval(type_: pa.DataType) -> bool:
    """Whether values are pandas' intervals between whole numbers."""
    name = getattr(type_, "extension_name", "")
    return name == "pandas.interval" and pa.types.is_integer(type_.subtype)


def _dtype(field: pa.Field) -> str:
    """The name of the pandas type that a field's values had; empty if they had none."""
    return str((field.metadata or {}).get(_DTYPE, b""), "utf-8")


def _nullable(dtype: str) -> Any:
    """One of pandas' nullable types by its name; None for all others."""
    pandas = sys.modules["pandas"]
    if dtype.startswith("str["):
        return pandas.StringDtype(dtype[4:-1], na_value=np.nan)
    if dtype in _NULLABLE or dtype.startswith("string["):
        return pandas.api.types.pandas_dtype(dtype)
    return None


def _to_series(field: pa.Field, column: pa.ChunkedArray) -> Any:
    pandas, dtype = sys.modules["pandas"], _dtype(field)
    if dtype == _CATEGORY:
        return column.to_pandas().astype(_read(field.metadata[_CATEGORIES]))
    if dtype == _ARROW:
        return column.to_pandas(types_mapper=pandas.ArrowDtype)
    if dtype == _OBJECT:
        return column.to_pandas(integer_object_nulls=True).astype(object)
    if column.null_count and _is_interval(field.type):
        return _to_float_intervals(column)
    if dtype.startswith("datetime64["):  # a zone may have come as another kind of object
        return column.to_pandas().astype(dtype)
    wanted = _nullable(dtype)
    if wanted is None and pa.types.is_integer(field.type) and column.null_count:
        signed = "UInt" if pa.types.is_unsigned_integer(field.type) else "Int"
        wanted = _nullable(f"{signed}{field.type.bit_width}")
    if wanted is None:
        return column.to_pandas()
    return column.to_pandas(types_mapper=lambda _: wanted)


def _to_float_intervals(column: pa.ChunkedArray) -> Any:
    """Intervals with a missing one among them, which pandas can only hold as intervals of doubles.

    An end that a double cannot hold is an error.
    """
    whole = pa.concat_arrays([chunk.storage for chunk in column.chunks])
    ends = [pc.struct_field(whole, [at]).cast(pa.float64()).to_pandas() for at in (0, 1)]
    pandas = sys.modules["pandas"]
    made = pandas.arrays.IntervalArray.from_arrays(*ends, closed=column.type.closed)
    return pandas.Series(made)
