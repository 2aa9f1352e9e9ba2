"""pandas' own types of columns, which Arrow has no types for, kept in the fields' metadata.

They pass through a join with the fields, and the output's columns are made from them. pandas is
not imported: where a DataFrame came from, it is there.
"""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa

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


def marked(table: pa.Table, frame: Any) -> pa.Table:
    """The table with the types of the DataFrame's columns in its fields' metadata."""
    fields = [
        field.with_metadata(_mark(dtype))
        for field, dtype in zip(table.schema, frame.dtypes, strict=True)
    ]
    return table.cast(pa.schema(fields))


def mark_of(field: pa.Field) -> dict[bytes, bytes] | None:
    """What a field says of the pandas type its values came in; None if it says nothing."""
    found = field.metadata or {}
    return {key: found[key] for key in (_DTYPE, _CATEGORIES) if key in found} or None


def unmarked(table: pa.Table) -> pa.Table:
    """The table without what `marked` put into its fields' metadata."""
    if not any(mark_of(field) for field in table.schema):
        return table
    fields = []
    for field in table.schema:
        left = {k: v for k, v in (field.metadata or {}).items() if k not in (_DTYPE, _CATEGORIES)}
        fields.append(field.with_metadata(left) if left else field.remove_metadata())
    return table.cast(pa.schema(fields, table.schema.metadata))


def to_pandas(table: pa.Table) -> Any:
    """A DataFrame whose columns have the types their values came in.

    Integers of NumPy become nullable ones where an outer join put NULL among them: as doubles,
    which pandas itself would make of them, large ones would change.
    """
    try:
        if not any(_is_special(f, c) for f, c in zip(table.schema, table.columns, strict=True)):
            return table.to_pandas()
        columns = {
            field.name: _series(field, column)
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
        return {_DTYPE: _CATEGORY.encode(), _CATEGORIES: _written(dtype)}
    if isinstance(dtype, pandas.StringDtype) and dtype.na_value is pandas.NA:
        return {_DTYPE: f"string[{dtype.storage}]".encode()}
    return {_DTYPE: str(dtype).encode()}


def _written(dtype: Any) -> bytes:
    """A categorical's type as an Arrow stream of its categories."""
    array = pa.Array.from_pandas(dtype.categories)
    schema = pa.schema(
        [pa.field("categories", array.type, metadata={"ordered": str(dtype.ordered)})]
    )
    written: bytes = to_ipc(pa.RecordBatch.from_arrays([array], schema=schema)).to_pybytes()
    return written


def _read(data: bytes) -> Any:
    batch = batch_from_ipc(data)
    ordered = batch.schema.field(0).metadata[b"ordered"] == b"True"
    pandas = sys.modules["pandas"]
    categories = pandas.Index(batch.column(0).to_pandas()).rename(None)
    return pandas.CategoricalDtype(categories, ordered)


def _is_special(field: pa.Field, column: pa.ChunkedArray) -> bool:
    """Whether a column must not be converted as Arrow does it."""
    dtype = _dtype(field)
    if pa.types.is_integer(field.type) and column.null_count:
        return True
    return dtype in (_ARROW, _CATEGORY, _OBJECT) or _nullable(dtype) is not None


def _dtype(field: pa.Field) -> str:
    """The name of the pandas type that a field's values came in; empty if they did not."""
    return str((field.metadata or {}).get(_DTYPE, b""), "utf-8")


def _nullable(dtype: str) -> Any:
    """One of pandas' types that know what is missing, by its name; None for all others."""
    if dtype in _NULLABLE or dtype.startswith("string["):
        return sys.modules["pandas"].api.types.pandas_dtype(dtype)
    return None


def _series(field: pa.Field, column: pa.ChunkedArray) -> Any:
    pandas, dtype = sys.modules["pandas"], _dtype(field)
    if dtype == _CATEGORY:
        return column.to_pandas().astype(_read(field.metadata[_CATEGORIES]))
    if dtype == _ARROW:
        return column.to_pandas(types_mapper=pandas.ArrowDtype)
    if dtype == _OBJECT:
        return column.to_pandas(integer_object_nulls=True).astype(object)
    wanted = _nullable(dtype)
    if wanted is None and pa.types.is_integer(field.type) and column.null_count:
        signed = "UInt" if pa.types.is_unsigned_integer(field.type) else "Int"
        wanted = _nullable(f"{signed}{field.type.bit_width}")
    if wanted is None:
        return column.to_pandas()
    return column.to_pandas(types_mapper=lambda _: wanted)
