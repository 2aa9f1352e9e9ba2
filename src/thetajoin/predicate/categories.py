"""Ordered categories: values whose order is that of a list, not that of the values.

Such a column is an Arrow dictionary with ``ordered=True`` (an ordered Categorical of pandas, an
Enum of Polars). The list is part of the rows, not of their type, so it is written into the fields'
metadata when rows come in, and a condition finds it there.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from thetajoin.errors import SchemaError
from thetajoin.ipc import batch_from_ipc, to_ipc
from thetajoin.predicate.types import canonical_type

_KEY = b"thetajoin.categories"


class Categories:
    """The categories of a column from the least to the largest; None where they are not known.

    >>> Categories(pa.array(["low", "high"])).place("high")
    1
    """

    def __init__(self, values: pa.Array | None) -> None:
        self.values = values

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Categories) or self.values is None or other.values is None:
            return self is other
        return bool(self.values.equals(other.values))

    def __hash__(self) -> int:
        return 0 if self.values is None else len(self.values)

    def __repr__(self) -> str:
        if self.values is None:
            return "categories that are not known yet"
        shown = [str(value) for value in self.values[:6].to_pylist()]
        return " < ".join([*shown, *(["..."] if len(self.values) > 6 else [])])

    def place(self, value: Any) -> int | None:
        """Where a value stands; None if it is no category."""
        assert self.values is not None
        values = self.values.to_pylist()
        return values.index(value) if value in values else None

    def at(self, places: pa.Array) -> pa.Array:
        """The categories at some places, NULL at NULL."""
        assert self.values is not None
        return self.values.take(places)

    def places(self, array: pa.Array) -> pa.Array:
        """Where each value stands, NULL for NULL."""
        assert self.values is not None
        return pc.call_function(
            "index_in", [array], pc.SetLookupOptions(value_set=self.values, skip_nulls=True)
        )

    def holds(self, other: Categories) -> bool:
        """Whether another's categories are some of these, in the same order."""
        if self.values is None or other.values is None or self == other:
            return True
        if self.values.type != other.values.type:
            return False
        places = self.places(other.values).to_pylist()
        return None not in places and places == sorted(set(places))


def with_categories(batch: pa.RecordBatch, what: str) -> pa.RecordBatch:
    """The batch with the categories of its ordered columns in their fields; O(categories)."""
    if not any(_is_ordered(field.type) for field in batch.schema):
        return batch
    fields = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if _is_ordered(field.type):
            written = _write(column.dictionary, f"column {field.name!r} of the {what} input")
            field = field.with_metadata({**(field.metadata or {}), _KEY: written})
        fields.append(field)
    return pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields))


def without_categories(field: pa.Field) -> pa.Field:
    """The field as it was given, for the output."""
    if _KEY not in (field.metadata or {}):
        return field
    rest = {key: value for key, value in field.metadata.items() if key != _KEY}
    return field.with_metadata(rest) if rest else field.remove_metadata()


def categories_of(field: pa.Field) -> Categories | None:
    """The categories in a field's metadata; None if its values have an order of their own."""
    if not _is_ordered(field.type):
        return None
    written = (field.metadata or {}).get(_KEY)
    if written is None:
        return Categories(None)
    values = batch_from_ipc(written).column(0)
    values.validate(full=True)  # it may come from a snapshot
    return Categories(values)


def _is_ordered(type_: pa.DataType) -> bool:
    return isinstance(type_, pa.DictionaryType) and bool(type_.ordered)


def _write(dictionary: pa.Array, where: str) -> bytes:
    try:
        values = dictionary.cast(canonical_type(dictionary.type)).drop_null()
        distinct = len(values.unique())
    except pa.ArrowException as error:
        raise SchemaError(
            f"{where} has categories of type {dictionary.type}, whose order cannot be used: make "
            "them unordered"
        ) from error
    if distinct < len(values):
        raise SchemaError(f"{where} has a category twice, so its order is not known")
    batch = pa.RecordBatch.from_arrays([values], names=["categories"])
    written: bytes = to_ipc(batch).to_pybytes()
    return written
